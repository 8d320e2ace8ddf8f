// SPDX-License-Identifier: Apache-2.0

package selfstate

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/ygot/ygot"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/bindings"
	"github.com/netsketch/netsketch/yang/table"
)

// serve starts a server on a free port, with a store.
func serve(t *testing.T) (*Server, *store.Store, *Health) {
	t.Helper()
	r, err := schema.New(yang.CollectorModules())
	if err != nil {
		t.Fatal(err)
	}
	st, health := store.New(store.Options{Schema: r}), &Health{}
	s := NewServer(ServerConfig{Address: "127.0.0.1:0", Version: "v1"}, ServerDependencies{
		Store: st, Schema: r, Health: health, Logger: slog.New(slog.DiscardHandler),
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop(context.Background())
		st.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s, st, health
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + s.Address() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// samples returns the lines of netsketch's metrics, including their comments, sorted.
func samples(body string) []string {
	lines := slices.DeleteFunc(strings.Split(body, "\n"),
		func(l string) bool { return !strings.Contains(l, "netsketch_") })
	slices.Sort(lines)
	return lines
}

func publish(t *testing.T, st *store.Store, state, config *bindings.Collector) {
	t.Helper()
	var f flattener
	tables, err := f.publications(Root, state, config)
	if err == nil {
		err = st.Publish(store.Batch{Time: time.Unix(1, 0), Tables: tables})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestMetricsOfEveryKindOfLeaf(t *testing.T) {
	s, st, _ := serve(t)
	state := &bindings.Collector{
		Name: ygot.String("c"), Rows: ygot.Uint64(12), Heap: ygot.Uint64(4096), EpochsLost: ygot.Uint64(2),
		Started: ygot.Uint64(1_500_000_000_250_000_000),
		Device: map[string]*bindings.Collector_Device{
			"s1": {Node: ygot.String("s1"), ReadoutTime: ygot.Uint64(2_500_000),
				Mastership: bindings.Device_Mastership_BACKUP,
				LastError:  ygot.String("a text\nis no label"),
				Gnmi:       &bindings.Collector_Device_Gnmi{Updates: ygot.Uint64(7)}},
			"s2": {Node: ygot.String("s2")},
		},
		Epoch: &bindings.Collector_Epoch{Number: ygot.Uint64(9)},
	}
	config := &bindings.Collector{Name: ygot.String("c"), Guard: ygot.Uint64(5),
		Device: map[string]*bindings.Collector_Device{
			"s1": {Node: ygot.String("s1"), DeviceId: ygot.Uint64(3)},
		}}
	publish(t, st, state, config)
	code, body := get(t, s, "/metrics")
	got := slices.DeleteFunc(samples(body), func(l string) bool { return strings.HasPrefix(l, "# HELP") })
	want := []string{
		"# TYPE netsketch_build_info gauge",
		"# TYPE netsketch_collector_epochs_lost_total counter",
		"# TYPE netsketch_collector_heap_bytes gauge",
		"# TYPE netsketch_collector_rows gauge",
		"# TYPE netsketch_collector_started_timestamp_seconds gauge",
		"# TYPE netsketch_device_gnmi_updates_total counter",
		"# TYPE netsketch_device_mastership gauge",
		"# TYPE netsketch_device_readout_time_seconds gauge",
		"# TYPE netsketch_epoch_number gauge",
		`netsketch_build_info{version="v1"} 1`,
		"netsketch_collector_epochs_lost_total 2",
		"netsketch_collector_heap_bytes 4096",
		"netsketch_collector_rows 12",
		"netsketch_collector_started_timestamp_seconds 1.50000000025e+09",
		`netsketch_device_gnmi_updates_total{node="s1"} 7`,
		`netsketch_device_mastership{node="s1",state="BACKUP"} 1`,
		`netsketch_device_mastership{node="s1",state="NONE"} 0`,
		`netsketch_device_mastership{node="s1",state="PRIMARY"} 0`,
		`netsketch_device_readout_time_seconds{node="s1"} 0.0025`,
		"netsketch_epoch_number 9",
	}
	if diff := cmp.Diff(want, got); code != http.StatusOK || diff != "" {
		t.Errorf("status %d, metrics (-want +got):\n%s", code, diff)
	}
	if want := "# HELP netsketch_device_readout_time_seconds Duration of the newest read-out."; !strings.Contains(body,
		want) || !strings.Contains(body, "go_goroutines ") {
		t.Errorf("no line %q, or no metrics of the process:\n%s", want, body)
	}
	// A removed device has no metrics.
	publish(t, st, &bindings.Collector{Device: map[string]*bindings.Collector_Device{}}, &bindings.Collector{})
	if _, body := get(t, s, "/metrics"); strings.Contains(body, `node="s1"`) {
		t.Errorf("metrics of a device that was removed:\n%s", body)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	s, _, health := serve(t)
	check := func(step, path string, code int, body string) {
		t.Helper()
		if c, b := get(t, s, path); c != code || b != body {
			t.Errorf("%s: %s responds %d %q; expected %d %q", step, path, c, b, code, body)
		}
	}
	const no, yes = http.StatusServiceUnavailable, http.StatusOK
	check("start", "/healthz", no, "components: not ready\n")
	check("start", "/readyz", no, "components: not ready\nschema: not ready\nepochs: not ready\noutputs: not ready\n")
	health.Components.Store(true)
	health.Schema.Store(true)
	check("plugins run", "/healthz", yes, "components: ok\n")
	check("plugins run", "/readyz", no, "components: ok\nschema: ok\nepochs: not ready\noutputs: not ready\n")
	health.Outputs.Store(true)
	health.Epochs.Store(true)
	check("epochs run", "/readyz", yes, "components: ok\nschema: ok\nepochs: ok\noutputs: ok\n")
	health.Epochs.Store(false)
	check("epochs end", "/readyz", no, "components: ok\nschema: ok\nepochs: not ready\noutputs: ok\n")
	check("epochs end", "/healthz", yes, "components: ok\n")
	resp, err := http.Post("http://"+s.Address()+"/metrics", "text/plain", bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if code, _ := get(t, s, "/"); code != http.StatusNotFound || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET / responds %d, POST /metrics %d", code, resp.StatusCode)
	}
}

func TestAddressInUse(t *testing.T) {
	s, _, _ := serve(t)
	other := NewServer(ServerConfig{Address: s.Address()},
		ServerDependencies{Health: &Health{}, Logger: slog.New(slog.DiscardHandler), Schema: &schema.Registry{}})
	if err := other.Start(); err == nil || !strings.Contains(err.Error(), s.Address()) ||
		!strings.Contains(err.Error(), "http.address") {
		t.Errorf("error %v; expected one with the address and the key", err)
	}
}

// A client that sends half a request blocks neither other clients nor Stop.
func TestStopWithAStalledClient(t *testing.T) {
	s, _, _ := serve(t)
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n")); err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, s, "/metrics"); code != http.StatusOK {
		t.Errorf("status %d", code)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	s.Stop(over)
	if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("reading from a closed connection: %v", err)
	}
}

// Metrics of results have the names of their leaves and keys, and a bounded number of rows.
func TestMetricsOfResults(t *testing.T) {
	modules, err := yang.Bundled("netsketch-types")
	if err != nil {
		t.Fatal(err)
	}
	r, err := schema.New(append(modules, yang.Module{Name: "acme-top", Text: `module acme-top {
		namespace "urn:acme"; prefix a; revision 2026-11-22;
		container porttop { config false; list port { key "node state q_x q-x";
			leaf q_x { type uint8; } leaf q-x { type uint8; }
			leaf node { type leafref { path "../values/node"; } } leaf state { type uint8; }
			container values { leaf node { type string; } leaf packets { type uint64; } leaf text { type string; }
				leaf mood { type enumeration { enum GOOD; enum BAD; } } } } } }`}))
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(store.Options{Schema: r})
	s := NewServer(ServerConfig{Address: "127.0.0.1:0", Results: []string{"/porttop/port", "/absent"}, ResultRows: 2},
		ServerDependencies{Store: st, Schema: r, Health: &Health{}, Logger: slog.New(slog.DiscardHandler)})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop(context.Background())
		st.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	b := table.NewBuilder("/acme-top:porttop/port")
	device, state, under, dash := b.TextKey("node"), b.UintKey("state"), b.UintKey("q_x"), b.UintKey("q-x")
	packets, text, mood := b.Uint("values/packets"), b.Text("values/text"), b.Text("values/mood")
	for i, name := range []string{"s1", "s\xff2", "s3"} {
		device.Append(name)
		state.Append(uint64(i))
		under.Append(7)
		dash.Append(8)
		packets.Append(uint64(10 - i))
		text.Append("x")
		mood.Append([]string{"GOOD", "BAD", "BAD"}[i])
	}
	rows, err := b.Table()
	if err == nil {
		err = st.Publish(store.Batch{Time: time.Unix(1, 0), Tables: []store.Publication{{Table: rows, Replace: true}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	code, body := get(t, s, "/metrics/results")
	got := slices.DeleteFunc(samples(body), func(l string) bool { return strings.HasPrefix(l, "#") })
	want := []string{
		`netsketch_porttop_port_values_mood{node="s1",port_q_x="8",port_state="0",q_x="7",state="GOOD"} 1`,
		`netsketch_porttop_port_values_mood{node="s?2",port_q_x="8",port_state="1",q_x="7",state="BAD"} 1`,
		`netsketch_porttop_port_values_packets{node="s1",port_q_x="8",port_state="0",q_x="7"} 10`,
		`netsketch_porttop_port_values_packets{node="s?2",port_q_x="8",port_state="1",q_x="7"} 9`,
		`netsketch_results_rows_omitted{list="/absent"} 0`,
		`netsketch_results_rows_omitted{list="/porttop/port"} 1`,
		`netsketch_results_rows{list="/absent"} 0`,
		`netsketch_results_rows{list="/porttop/port"} 2`,
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); code != http.StatusOK || diff != "" {
		t.Errorf("status %d, metrics (-want +got):\n%s", code, diff)
	}
	// A row that ended has no metrics.
	if err := st.Publish(store.Batch{Time: time.Unix(2, 0),
		Tables: []store.Publication{{Table: rows.Slice(1, 2), Replace: true}}}); err != nil {
		t.Fatal(err)
	}
	if _, body := get(t, s, "/metrics/results"); strings.Contains(body, `node="s1"`) ||
		!strings.Contains(body, `node="s?2"`) {
		t.Errorf("the row of s1 ended, and that of s?2 did not:\n%s", body)
	}
}

// TestMetricNames: the metrics of every leaf in all modules of the project, and of a module with
// names that Prometheus reserves, have names and units as Prometheus recommends, by the rules that
// promtool uses.
func TestMetricNames(t *testing.T) {
	r, err := schema.New(append(yangtest.Modules(), yang.Module{Name: "acme", Text: `module acme {
		yang-version 1.1; namespace "urn:acme"; prefix a; import ietf-yang-types { prefix yang; }
		container acme { list port { key "__name__ le quantile state rxPort"; config false; description "d";
			leaf __name__ { type string; } leaf le { type string; } leaf quantile { type string; }
			leaf state { type string; } leaf rxPort { type string; }
			leaf rxBytes { type yang:counter64; description "d"; } leaf hits.count { type uint64; description "d"; }
			leaf rtt-summary { type uint64; description "d"; } leaf size-histogram { type uint64; description "d"; }
			leaf oper { type enumeration { enum UP; } description "d"; }
			leaf rtt-milliseconds { type uint64; units "milliseconds"; } leaf wait-ms { type uint64; units "ms"; }
			leaf ms { type yang:counter64; units "ms"; } leaf online-minutes { type uint64; } leaf m { type uint64; }
			leaf link-megabits { type uint64; } leaf sent-bits { type yang:counter64; } leaf d-total { type uint64; }
			leaf size-kb { type uint64; units "kB"; } leaf kilobytes { type uint64; } leaf fahrenheit { type uint64; }
			leaf uptime-seconds { type uint64; units "seconds"; } leaf rx-sec { type uint64; units "packets"; }
			leaf age { type uint64; units "days"; } leaf s { type uint64; } leaf h.s { type uint64; }
			leaf nanoseconds { type uint64; units "nanoseconds"; }
		} list __ { key __k; config false; leaf __k { type string; } leaf n { type uint64; description "d"; }
		} } }`}))
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(store.Options{Schema: r})
	var lists []string
	for _, l := range r.Current().Lists() {
		own := strings.HasPrefix(l.Path, "/netsketch-collector:") // these leaves are in /metrics, with the same metrics
		if l.Nested || !own && (len(l.Keys) == 0 || l.Node.Config) {
			continue
		}
		b := table.NewBuilder(l.Path)
		for _, k := range l.Keys {
			switch k.Kind() {
			case table.Uint64:
				b.UintKey(k.Name).Append(1)
			case table.Int64:
				b.IntKey(k.Name).Append(1)
			default:
				b.TextKey(k.Name).Append("x")
			}
		}
		for _, leaf := range l.Leaves {
			switch leaf.Kind() {
			case table.Uint64:
				b.Uint(leaf.Name).Append(1)
			case table.Int64:
				b.Int(leaf.Name).Append(1)
			case table.Float64:
				b.Float(leaf.Name).Append(1)
			case table.Bool:
				b.Bool(leaf.Name).Append(true)
			default:
				b.Text(leaf.Name).Append("x")
			}
		}
		rows, err := b.Table()
		if err == nil {
			err = st.Publish(store.Batch{Time: time.Unix(1, 0), Tables: []store.Publication{{Table: rows, Replace: true}}})
		}
		if err != nil {
			t.Fatalf("%s: %v", l.Path, err)
		}
		if !own {
			lists = append(lists, plain(l.Path))
		}
	}
	s := NewServer(ServerConfig{Address: "127.0.0.1:0", Results: lists, ResultRows: 2},
		ServerDependencies{Store: st, Schema: r, Health: &Health{}, Logger: slog.New(slog.DiscardHandler)})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop(context.Background())
		st.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	values := map[string]string{}
	for path, least := range map[string]int{"/metrics": 80, "/metrics/results": 100} {
		code, body := get(t, s, path)
		if n := strings.Count(body, "# TYPE netsketch_"); code != http.StatusOK || n < least {
			t.Fatalf("%s: status %d, %d metrics", path, code, n)
		}
		problems, err := promlint.New(strings.NewReader(body)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s: %s", path, p.Metric, p.Text)
		}
		// Earlier versions of promtool reject any name that contains a type.
		for _, line := range samples(body) {
			name := strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]
			values[name] = line[strings.LastIndexByte(line, ' ')+1:]
			for _, word := range strings.Split(name, "_") {
				if slices.Contains([]string{"counter", "gauge", "histogram", "summary", "untyped"}, word) {
					t.Errorf("%s: has the name of a type", name)
				}
			}
		}
	}
	for name, want := range map[string]string{"rtt_seconds": "0.001", "wait_seconds": "0.001", "age_seconds": "86400",
		"size_bytes": "1000", "online_minute": "1", "uptime_seconds": "1", "link_megabit": "1"} {
		if got := values["netsketch_acme_port_"+name]; got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
}

// plain returns a path without the names of modules.
func plain(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if _, local, ok := strings.Cut(p, ":"); ok {
			parts[i] = local
		}
	}
	return strings.Join(parts, "/")
}
