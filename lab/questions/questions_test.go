// SPDX-License-Identifier: Apache-2.0

// Package questions tries the queries of docs/yang.md: it plays scenarios of plugins, runs each
// query over gNMI, in InfluxDB and with the engine of Prometheus, and compares the answers with the
// ground truth, flow by flow.
package questions

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/test/influxdbtest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/questions/volume"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/outputs/influxdb"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang"
)

// plugins is a directory with the plugins that come with the collector.
var plugins string

func TestMain(m *testing.M) {
	testkit.MainWithPlugins(m, &plugins, "univmon", "chamelemon", "omnimon", "sketchint", "lightguardian")
}

// query is one question to one plugin, in three languages.
type query struct{ question, plugin, gnmi, influxql, promql string }

// queries reads the blocks of three queries from docs/yang.md. The question is the heading above
// the block.
func queries(t *testing.T) (out []query) {
	t.Helper()
	text, err := os.ReadFile("../../docs/yang.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := ""
	parts := regexp.MustCompile(`(?m)^### (.*)$|^gNMI: +(.*)\n(?:InfluxQL: +(.*)\n)?(?:PromQL: +(.*)\n)?`)
	for _, m := range parts.FindAllStringSubmatch(string(text), -1) {
		if m[1] != "" {
			heading = m[1]
			continue
		}
		plugin, _, _ := strings.Cut(strings.TrimPrefix(m[2], "/"), "/")
		out = append(out, query{heading, plugin, m[2], m[3], m[4]})
	}
	return out
}

// row is a row of an answer: its keys and numbers, or texts, by name. A dash stands for an
// underscore of Prometheus.
type row map[string]string

// qualities are the values of leaves of quality.
var qualities = []string{"EXACT", "LOWER_BOUND", "UPPER_BOUND", "BOUNDED", "ESTIMATE"}

// number returns a leaf as a number. A quality has a number of its own.
func (r row) number(t *testing.T, name string) float64 {
	t.Helper()
	if i := slices.Index(qualities, r[name]); i >= 0 {
		return float64(i + 1)
	}
	if b, err := strconv.ParseBool(r[name]); err == nil && len(r[name]) > 1 {
		return map[bool]float64{true: 1}[b]
	}
	n, err := strconv.ParseFloat(r[name], 64)
	if err != nil {
		t.Fatalf("%s of %v is no number", name, r)
	}
	return n
}

// played is a scenario at the end of an epoch.
type played struct {
	n     int // epochs so far
	t     *testing.T
	run   *scenario.Run
	gnmi  gnmi.GNMIClient
	db    *influxdbtest.Server
	prom  scrape
	cost  *volume.Counter // since the last epoch but one
	now   time.Time
	truth map[uint64][]row                     // by epoch
	flows map[string]map[string]map[string]row // its rows by plugin, node and flow
	left  map[string]map[string]float64        // packets of LightGuardian, by node and flow
	epoch time.Duration
}

// stamp is the name under which a row has its timestamp.
const stamp = "(timestamp)"

// get counts the leaves of a plugin that gNMI returns for a type of data.
func (p *played) get(plugin string, of gnmi.GetRequest_DataType) (n int) {
	p.t.Helper()
	path, err := yang.ParsePath("/" + plugin)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.gnmi.Get(p.t.Context(), &gnmi.GetRequest{Path: []*gnmi.Path{path}, Type: of,
		Encoding: gnmi.Encoding_JSON_IETF})
	if status.Code(err) == codes.NotFound {
		return 0
	}
	if err != nil {
		p.t.Fatal(err)
	}
	for _, notification := range resp.GetNotification() {
		n += len(notification.GetUpdate())
	}
	return n
}

// once calls a function for each leaf below a gNMI path, with its path and time.
func (p *played) once(text string, as gnmi.Encoding,
	leaf func(elems []*gnmi.PathElem, v *gnmi.TypedValue, at int64)) {
	p.t.Helper()
	path, err := yang.ParsePath(text)
	if err != nil {
		p.t.Fatal(err)
	}
	stream, err := p.gnmi.Subscribe(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	list := &gnmi.SubscriptionList{Mode: gnmi.SubscriptionList_ONCE, Encoding: as,
		Subscription: []*gnmi.Subscription{{Path: path}}}
	request := &gnmi.SubscribeRequest{Request: &gnmi.SubscribeRequest_Subscribe{Subscribe: list}}
	if err := stream.Send(request); err != nil {
		p.t.Fatal(err)
	}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			p.t.Fatalf("%s: %v", text, err)
		}
		for _, u := range resp.GetUpdate().GetUpdate() {
			leaf(slices.Concat(resp.GetUpdate().GetPrefix().GetElem(), u.GetPath().GetElem()), u.GetVal(),
				resp.GetUpdate().GetTimestamp())
		}
	}
}

// rows reads a gNMI path: one row for each container state.
func (p *played) rows(text string) (out []row) {
	p.t.Helper()
	found := map[string]row{}
	p.once(text, gnmi.Encoding_JSON_IETF, func(elems []*gnmi.PathElem, value *gnmi.TypedValue, at int64) {
		name, key := "", ""
		r := row{}
		for _, e := range elems {
			name = e.GetName()
			for k, v := range e.GetKey() {
				r[k] = v
			}
		}
		for _, k := range slices.Sorted(maps.Keys(r)) {
			key += k + "=" + r[k] + " "
		}
		if found[key] == nil {
			found[key] = r
			out = append(out, r)
		}
		var v any
		if err := json.Unmarshal(value.GetJsonIetfVal(), &v); err != nil {
			p.t.Fatal(err)
		}
		found[key][name] = fmt.Sprint(v)
		found[key][stamp] = strconv.FormatInt(at, 10)
	})
	return out
}

// influx runs InfluxQL.
func (p *played) influx(text string) (out []row) {
	p.t.Helper()
	for _, s := range p.db.Query(text) {
		for _, values := range s.Values {
			r := row{}
			for k, v := range s.Tags {
				r[k] = v
			}
			for i, c := range s.Columns {
				if values[i] != nil {
					r[c] = fmt.Sprint(values[i])
				}
			}
			out = append(out, r)
		}
	}
	return out
}

// prometheus evaluates PromQL. Each row has the labels of a time series and its value as "value".
// The time series of an enumeration has the enumeration's value in the label state instead.
func (p *played) prometheus(text string) (out []row) {
	p.t.Helper()
	for _, s := range p.prom.query(p.t, text, p.now) {
		r := row{"value": strconv.FormatFloat(s.F, 'g', -1, 64)}
		for name, v := range s.Metric.Map() {
			r[strings.ReplaceAll(name, "_", "-")] = v
		}
		if r["state"] != "" {
			r["value"] = r["state"]
		}
		out = append(out, r)
	}
	return out
}

// of returns the ground truth of the epochs that the results of a plugin are about. If hosts mark
// packets with the epoch, a flow has two rows for a node in an epoch: the first is about all
// packets at that time, the second about the packets that carry the epoch, which OmniMon counts.
func (p *played) of(plugin string) (out []row) {
	p.t.Helper()
	s := p.rows("/" + plugin + "/summary/state")[0]
	last := uint64(s.number(p.t, "last-epoch"))
	for n := uint64(s.number(p.t, "first-epoch")); n <= last; n++ {
		if len(p.truth[n]) == 0 && (plugin != "lightguardian" || n == last) { // epochs of an interval share a bank
			p.t.Fatalf("the ground truth has nothing about epoch %d", n)
		}
		at := map[[2]string]int{}
		for _, r := range p.truth[n] {
			key := [2]string{r["node"], r["flow"]}
			if i, twice := at[key]; !twice {
				at[key], out = len(out), append(out, r)
			} else if plugin == "omnimon" {
				out[i] = r
			}
		}
	}
	return out
}

// load reads a scenario of the repository.
func load(t *testing.T, file string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// play plays a scenario and calls ask at the end of some epochs.
func play(t *testing.T, s *scenario.Scenario, at []int, ask func(*played)) {
	t.Helper()
	epochs := slices.Max(at)
	s.Epochs, s.Expect, s.ScoreEvery = epochs, nil, 0 // the ground truth has each epoch
	p := &played{t: t, db: influxdbtest.Start(t, influxdbtest.Options{}), truth: map[uint64][]row{},
		epoch: s.Epoch, cost: &volume.Counter{}}
	db, err := url.Parse(p.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	p.cost.Database = httputil.NewSingleHostReverseProxy(db)
	database := httptest.NewServer(p.cost)
	defer database.Close()
	file := filepath.Join(t.TempDir(), "truth.csv")
	truth, err := groundtruth.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	c := settings.Default[influxdb.Config]()
	c.URL, c.Bucket, c.Spool.Dir, c.FlushInterval = database.URL, "netsketch", filepath.Join(t.TempDir(), "spool"),
		50*time.Millisecond
	out, err := influxdb.New("influxdb", c, certs.New(certs.Options{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var written chan error
	asked := 0
	// The queries ask for the last minute. Playing may take longer, so the epochs are in the future.
	start := time.Now().Add(time.Hour).Truncate(s.Epoch)
	run, err := scenario.Open(t.Context(), s, scenario.Options{PluginDir: plugins, Listen: "127.0.0.1:0",
		HTTP: "127.0.0.1:0", Virtual: true, Start: start, GroundTruth: truth,
		OnEpoch: func(run *scenario.Run) error {
			if p.n++; p.n == 1 {
				p.cost.Plugins = run.Report().Plugins
				if err := out.Start(run.Collector().Store()); err != nil {
					return err
				}
				written = make(chan error, 1)
				go func() { written <- out.Run(ctx) }()
			}
			asks := slices.Contains(at, p.n)
			if !asks && p.n != epochs-1 {
				return nil
			}
			testkit.Until(t, "the database has all points", func() bool {
				st := out.State()
				return st.Sent > 0 && st.Queued == 0 && st.Spooled == 0
			})
			if p.run = run; p.n == epochs-1 {
				p.cost.Begin()
				if err := p.cost.Follow(ctx, run.Address()); err != nil || !asks {
					return err
				}
			}
			conn, err := grpc.NewClient(run.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
			if err != nil {
				return err
			}
			defer conn.Close()
			p.gnmi = gnmi.NewGNMIClient(conn)
			p.readTruth(file)
			p.now = time.Now()
			p.prom = newScrape(t, "http://"+run.Collector().HTTPAddress()+"/metrics/results", p.now)
			asked++
			ask(p)
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Play(t.Context())
	stop()
	if written != nil {
		err = errors.Join(err, <-written)
	}
	if err = errors.Join(err, run.Close(), truth.Close()); err != nil || asked != len(at) {
		t.Fatal(err, asked)
	}
}

// volume returns what the last epoch of a plugin cost its readers.
func (p *played) volume(plugin string) volume.Volume {
	p.t.Helper()
	err := p.cost.Settle(2 * time.Second)
	v, err2 := p.cost.Of(p.t.Context(), plugin, p.run.Address(),
		"http://"+p.run.Collector().HTTPAddress()+"/metrics/results")
	if err = errors.Join(err, err2); err != nil {
		p.t.Fatal(err)
	}
	return v
}

// readTruth reads the ground truth so far.
func (p *played) readTruth(file string) {
	p.t.Helper()
	f, err := os.Open(file)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		p.t.Fatal(err)
	}
	clear(p.truth)
	p.flows, p.left = map[string]map[string]map[string]row{}, map[string]map[string]float64{}
	for _, record := range records[1:] {
		r := row{}
		for i, name := range records[0] {
			r[name] = record[i]
		}
		protocol := map[string]string{"6": "tcp", "17": "udp", "1": "icmp"}[r["protocol"]]
		r["flow"] = strings.Join([]string{r["src"], r["dst"], protocol, r["src-port"], r["dst-port"]}, ",")
		n := uint64(r.number(p.t, "epoch"))
		p.truth[n] = append(p.truth[n], r)
	}
}

// ask runs the three queries. Each row of InfluxDB and of Prometheus is a row of gNMI with the same
// value, and the largest values are the same. It returns the rows of gNMI, which can be none.
func (p *played) ask(q query, keys []string, leaf string) []row {
	p.t.Helper()
	name := func(r row) (out string) {
		for _, k := range keys {
			out += r[k] + " "
		}
		return out
	}
	rows := p.rows(q.gnmi)
	values := map[string]float64{}
	end := p.rows("/" + q.plugin + "/summary/state")[0]["end-time"]
	for _, r := range rows {
		if r[stamp] != end {
			p.t.Errorf("the timestamp of %v is not the end of the range, %s", r, end)
		}
		if fields := strings.Split(r["flow"], ","); r["flow"] != "" && !slices.Equal(fields[:3],
			[]string{r["source-address"], r["destination-address"], r["protocol"]}) {
			p.t.Errorf("%v does not have the fields of its flow", r)
		}
		if r[leaf] != "" {
			values[name(r)] = r.number(p.t, leaf)
		}
	}
	var largest []float64
	for _, v := range values {
		largest = append(largest, v)
	}
	slices.Sort(largest)
	slices.Reverse(largest)
	compare := func(text, leaf string, scale float64, answer []row) {
		p.t.Helper()
		var found []float64
		for _, r := range answer {
			if r[leaf] == "" { // a row without the leaf
				continue
			}
			v, ok := values[name(r)]
			got := r.number(p.t, leaf) * scale
			if !ok || math.Abs(got-v) > 1e-6*math.Abs(v) {
				p.t.Errorf("%s\nhas %v; gNMI has %v, %v", text, r, v, ok)
			}
			found = append(found, v)
		}
		slices.Sort(found)
		slices.Reverse(found)
		want := largest
		if strings.Contains(text, "10") && len(want) > 10 && len(found) < len(want) {
			want = want[:10]
		}
		if !slices.Equal(found, want) {
			p.t.Errorf("%s\nhas %d rows with %v; want %d with %v", text, len(found), found, len(want), want)
		}
	}
	scale := 1.0
	if strings.Contains(q.promql, "_seconds") {
		scale = 1e9
	}
	compare(q.influxql, leaf, 1, p.influx(q.influxql))
	compare(q.promql, "value", scale, p.prometheus(q.promql))
	return rows
}
