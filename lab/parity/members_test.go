// SPDX-License-Identifier: Apache-2.0

package parity_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/codec"
	"github.com/netsketch/netsketch/collector/cluster/exchange"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/storetest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	chamelemon "github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	lightguardian "github.com/netsketch/netsketch/plugins/lightguardian/plugin"
	omnimon "github.com/netsketch/netsketch/plugins/omnimon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	sketchint "github.com/netsketch/netsketch/plugins/sketchint/plugin"
	"github.com/netsketch/netsketch/yang/table"
)

// The network-wide results of each plugin in a cluster are those of one collector with the same
// traffic, row by row, and all members serve them. One collector plays a scenario and records what
// the plugin receives. Three members divide the switches and hosts of each epoch and send what they
// measured to the home of the plugin, which analyzes what arrives there. UnivMon's results,
// and those of plugins while switches and plans move, are compared in package collector.
func TestResultsOfMembers(t *testing.T) {
	then := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server := bustest.Server(t)
	for _, c := range []struct {
		name, yaml string
		start      func() sdk.Plugin
		rows       map[string]int // at least, by list
	}{
		{name: "chamelemon", start: func() sdk.Plugin { return chamelemon.NewAt(func() time.Time { return then }) },
			rows: map[string]int{"victim": 60, "node-summary": 8, "encoder": 16}, yaml: `
programs: {edge: chamelemon, transit: forwarding}
traffic: [{name: flows, exact: true, flows: 300, max-packets: 20, udp: 1, victims: {share: 0.1, loss: 0.1}}]
algorithms: [{plugin: chamelemon, record: %s, config: {heavy-hitters: {packets: 10}}}]`},
		{name: "omnimon", start: func() sdk.Plugin { return omnimon.New() },
			rows: map[string]int{"flow": 60, "hop": 200, "loss": 1}, yaml: `
program: omnimon
agents: [omnimon]
traffic: [{name: flows, rate: 8000, flows: 60, udp: 0.3}]
faults: [{switch: spine1, loss: 0.1, from: 100ms, until: 400ms}]
algorithms: [{plugin: omnimon, record: %s, config: {limits: {flows: 100}}}]`},
		{name: "sketchint", start: func() sdk.Plugin { return sketchint.New() },
			rows: map[string]int{"flow": 60, "hop": 200, "heavy-hitter": 20}, yaml: `
program: sketchint
agents: [sketchint]
traffic: [{name: flows, rate: 8000, flows: 60, udp: 0.3}]
algorithms: [{plugin: sketchint, record: %s, config: {interval: 100ms, sinks: hosts, heavy: 20, change: 10,
              flow-tower: 8000, latency-tower: 24000}}]`},
		{name: "lightguardian", start: func() sdk.Plugin { return lightguardian.New() },
			rows: map[string]int{"flow": 60, "hop": 100}, yaml: `
program: lightguardian
agents: [lightguardian]
traffic: [{name: flows, rate: 20000, flows: 30, udp: 0.3}]
algorithms: [{plugin: lightguardian, record: %s, config: {probability: 0.4}}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			recording := filepath.Join(t.TempDir(), "one")
			s, err := scenario.Parse(c.name+".yaml", fmt.Appendf([]byte("name: "+c.name+`
seed: 17
epochs: 3
epoch: 100ms
topology: {kind: leaf-spine, leaves: 2, spines: 2, hosts-per-leaf: 2, latency: 10us}`), c.yaml, recording))
			if err != nil {
				t.Fatal(err)
			}
			play(t, s)
			m := startMembers(t, server, c.name)
			shared := m.share(recording)
			one := sdktest.Start(t, c.start(), sdktest.Options{}).Replay(recording)
			several := sdktest.Start(t, c.start(), sdktest.Options{}).Replay(shared)
			lists := map[string]int{}
			for i := range one {
				if diff := gocmp.Diff(resultText(one[i]), resultText(several[i])); diff != "" {
					t.Fatalf("epoch %d of the recording (-one collector, +three):\n%.4000s", i+1, diff)
				}
				batch := store.Batch{Time: then.Add(time.Duration(i) * time.Second), Epoch: uint64(i + 1)}
				for _, r := range several[i].Tables {
					batch.Tables = append(batch.Tables, store.Publication{Table: r.Table, Replace: r.Replace})
					lists[r.Table.List[strings.LastIndexByte(r.Table.List, '/')+1:]] += r.Table.Rows()
				}
				if err := m.home.store.Publish(batch); err != nil {
					t.Fatal(err)
				}
			}
			want := storetest.Rows(m.home.store.View(), store.Query{})
			for name, member := range m.all {
				testkit.Until(t, "results at "+name, func() bool {
					return slices.Equal(want, storetest.Rows(member.store.View(), store.Query{}))
				})
			}
			for list, n := range c.rows {
				if lists[list] < n {
					t.Errorf("%d rows of %s in all epochs, want at least %d", lists[list], list, n)
				}
			}
			hosts := len(s.Agents) > 0
			if got := m.home.Stats().PartsReceived; got < uint64(len(one)) || m.sent[false]+m.sent[true] == 0 ||
				hosts && m.sent[true] == 0 {
				t.Errorf("%d parts arrived of %d epochs, with %v outcomes of switches and hosts (true)", got, len(one), m.sent)
			}
		})
	}
}

// play plays a scenario on a virtual clock.
func play(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	run, err := scenario.Open(t.Context(), s, scenario.Options{Virtual: true, PluginDir: plugins, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Play(t.Context())
	if err = errors.Join(err, run.Close()); err != nil {
		t.Fatal(err)
	}
}

// machineTimes are leaves about the machine, not about the network.
var machineTimes = regexp.MustCompile(` state/analysis-time=\d+`)

// resultText returns the rows and plans of an epoch.
func resultText(r *sdk.Results) string {
	return machineTimes.ReplaceAllString(sdktest.Text(&sdk.Results{Tables: r.Tables, Plans: r.Plans}), "")
}

// members are the exchanges of three collectors.
type members struct {
	t       *testing.T
	view    cluster.View
	all     map[string]*exchanging
	home    *exchanging                // home of the plugin
	objects map[string]map[string]bool // objects that the plugin reads, by device
	sent    map[bool]int               // outcomes of switches and hosts (true) that are sent
}

type exchanging struct {
	*exchange.Component
	store *store.Store

	mu   sync.Mutex
	late []sdk.LateReport // that arrived from others
}

func startMembers(t *testing.T, server, plugin string) *members {
	t.Helper()
	m := &members{t: t, all: map[string]*exchanging{}, sent: map[bool]int{}, view: cluster.View{Leased: true, Fence: 1}}
	for _, name := range []string{"c1", "c2", "c3"} {
		m.view.Members = append(m.view.Members, cluster.Member{Name: name, State: cluster.Active, Weight: 1})
	}
	for _, member := range m.view.Members {
		x := &exchanging{store: store.New(store.Options{})}
		t.Cleanup(x.store.Close)
		b := bustest.Connect(t, plugin, member.Name, server)
		x.Component = exchange.New(exchange.Config{Member: member.Name}, exchange.Dependencies{
			Bus: b, Store: x.store, OnWatched: func() {}, Validate: (*table.Table).Check,
			View: func() cluster.View { return m.view },
			Wanted: func() map[string]map[string]map[string]bool {
				return map[string]map[string]map[string]bool{plugin: m.objects}
			},
			Merge: func(context.Context, string, *epoch.Epoch) (*sdk.Epoch, error) { return nil, nil },
			Late: func(r sdk.LateReport) bool {
				x.mu.Lock()
				defer x.mu.Unlock()
				x.late = append(x.late, r)
				return true
			},
			Answer: func(context.Context, string, sdk.RowKey) ([]sdk.TableResult, uint64, string, error) {
				return nil, 0, "", errors.New("no query is expected")
			},
		})
		if err := x.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Stop)
		if err := b.Conn().Flush(); err != nil { // the server has the subscriptions
			t.Fatal(err)
		}
		m.all[member.Name] = x
		testkit.Until(t, "the stream of results", func() bool { // results before are not sent
			_, err := b.JetStream().Stream(t.Context(), b.Bucket("results"))
			return err == nil
		})
	}
	m.home = m.all[m.view.Plugin(plugin)]
	return m
}

// share returns a recording of what the plugin receives at its home in the cluster, if the members
// measure what one collector has recorded.
func (m *members) share(recording string) string {
	m.t.Helper()
	in, err := os.Open(recording)
	if err != nil {
		m.t.Fatal(err)
	}
	defer in.Close()
	from, err := record.NewReader(in)
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := os.Create(recording + ".shared")
	if err != nil {
		m.t.Fatal(err)
	}
	defer out.Close()
	to, err := record.NewWriter(out)
	for err == nil {
		var e *sdk.Epoch
		var setup *record.Setup
		if e, setup, err = from.Next(); errors.Is(err, io.EOF) {
			return out.Name()
		}
		if err == nil && setup != nil {
			err = to.Configure(*setup)
		}
		if err == nil {
			err = to.Write(m.measure(e))
		}
	}
	m.t.Fatal(err)
	return ""
}

// measure divides an epoch among the members, which hand it over, and returns what the home of the
// plugin collects.
func (m *members) measure(e *sdk.Epoch) *sdk.Epoch {
	m.t.Helper()
	shared := *e
	shared.Devices, shared.Hosts, shared.Missing, shared.Late, shared.AccuracyWarnings = nil, nil, nil, nil, nil
	m.objects = map[string]map[string]bool{}
	for _, d := range e.Devices {
		m.objects[d.Name] = map[string]bool{}
		for _, cells := range d.Objects {
			m.objects[d.Name][cells.Object] = true
		}
	}
	parts := map[*exchanging]*epoch.Epoch{}
	for _, x := range m.all {
		parts[x] = &epoch.Epoch{Number: e.Number, Start: e.Start, End: e.End}
	}
	var collected []func()
	for host, names := range map[bool][]string{false: e.Expected, true: e.ExpectedHosts} {
		for _, name := range names {
			owner := m.view.Device(name)
			if host {
				owner = m.view.Host(name)
			}
			r, err := m.recorded(e, name, host)
			if m.all[owner] == m.home {
				collected = append(collected, func() { put(&shared, name, host, r, err) })
				continue
			}
			m.sent[host]++
			part := parts[m.all[owner]]
			part.Sources = append(part.Sources, epoch.Outcome{Name: name, Err: err, Reading: r.Reading,
				Sealing: map[bool]epoch.Sealing{false: epoch.SealedByCollector, true: epoch.SealedBySource}[host]})
			for _, reason := range r.Warnings {
				part.Warnings = append(part.Warnings, epoch.AccuracyWarning{Source: name, Reason: reason})
			}
			awaited, _ := m.home.Source(name, host).Begin(epoch.Boundary{Number: e.Number})
			collected = append(collected, func() {
				ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
				defer cancel()
				r, err := awaited.Collect(ctx, nil)
				put(&shared, name, host, r, err)
			})
		}
	}
	for _, l := range e.Late {
		if owner := m.all[m.view.Host(l.Host)]; owner == m.home {
			shared.Late = append(shared.Late, l)
		} else {
			parts[owner].Late = append(parts[owner].Late, l)
		}
	}
	for x, part := range parts {
		if len(part.Sources) > 0 {
			x.HandOver(part)
		}
	}
	for _, collect := range collected {
		collect()
	}
	m.home.mu.Lock()
	shared.Late = append(shared.Late, m.home.late...)
	m.home.late = nil
	m.home.mu.Unlock()
	slices.SortFunc(shared.Late, func(a, b sdk.LateReport) int { return strings.Compare(a.Host, b.Host) })
	return &shared
}

// recorded returns what a source returned in an epoch.
func (m *members) recorded(e *sdk.Epoch, name string, host bool) (r epoch.Result, err error) {
	r.Reading = &epoch.Reading{}
	if d := e.Device(name); d != nil {
		r.Reading.Objects = d.Objects
	}
	for _, h := range e.Hosts {
		if h.Host == name {
			r.Reading.Hosts = append(r.Reading.Hosts, h)
		}
	}
	for _, w := range e.AccuracyWarnings {
		if w.Device == name {
			r.Warnings = append(r.Warnings, w.Reason)
		}
	}
	for _, missing := range e.Missing {
		if missing.Name == name && missing.Host == host {
			if len(r.Reading.Objects)+len(r.Reading.Hosts) > 0 {
				m.t.Errorf("epoch %d of the recording has %s in part", e.Number, name)
			}
			r.Reading, err = nil, &codec.Missing{Reason: missing.Reason, Joined: missing.Joined}
		}
	}
	return r, err
}

// put adds the result of a source to an epoch as the plugin receives it.
func put(e *sdk.Epoch, name string, host bool, r epoch.Result, err error) {
	if err != nil {
		e.Missing = append(e.Missing, sdk.Missing{Name: name, Host: host, Reason: err.Error(),
			Joined: errors.Is(err, epoch.ErrJoining)})
		r.Reading = &epoch.Reading{}
	}
	for _, cells := range r.Reading.Objects {
		e.Put(name, cells)
	}
	e.Hosts = append(e.Hosts, r.Reading.Hosts...)
	for _, reason := range r.Warnings {
		e.AccuracyWarnings = append(e.AccuracyWarnings, sdk.AccuracyWarning{Device: name, Reason: reason})
	}
}
