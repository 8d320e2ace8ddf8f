// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/codec"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) {
	// The NATS client leaves this goroutine behind if a publisher ends right after its first message.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(
		"github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
		// On a busy machine, a NATS server was seen to leave this goroutine behind.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// member is the exchange of a collector.
type member struct {
	*Component
	store *store.Store
	log   *testkit.Log
	// merge and wanted are of the plugins at b.
	merge  func() (*sdk.Epoch, error)
	wanted map[string]map[string]map[string]bool

	lateMu sync.Mutex
	late   []sdk.LateReport
}

// takeLate returns the late reports that have arrived from other collectors.
func (m *member) takeLate() (late []sdk.LateReport) {
	m.lateMu.Lock()
	defer m.lateMu.Unlock()
	late, m.late = m.late, nil
	return late
}

// view has the members a, b and c.
var view = cluster.View{Leased: true, Fence: 7, Members: []cluster.Member{
	{Name: "a", State: cluster.Active, Weight: 1}, {Name: "b", State: cluster.Active, Weight: 1},
	{Name: "c", State: cluster.Active, Weight: 1}}}

// owned returns a name whose owner is a member.
func owned(by func(name string) string, member string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("x%d", i); by(name) == member {
			return name
		}
	}
}

// atB is a plugin whose home is b, which reads r1 of the device of a.
var (
	atB     = owned(view.Plugin, "b")
	deviceA = owned(view.Device, "a")
	hostA   = owned(view.Host, "a")
)

func start(t *testing.T, server, name string, change ...func(*Config)) *member {
	t.Helper()
	cfg := Config{Member: name, AckTimeout: time.Minute} // enough for a busy machine
	for _, f := range change {
		f(&cfg)
	}
	m := &member{store: store.New(store.Options{}), log: &testkit.Log{},
		merge:  func() (*sdk.Epoch, error) { return nil, nil },
		wanted: map[string]map[string]map[string]bool{atB: {deviceA: {"r1": true}}}}
	t.Cleanup(m.store.Close)
	m.Component = New(cfg, Dependencies{
		OnWatched: func() {},
		Late: func(r sdk.LateReport) bool {
			m.lateMu.Lock()
			defer m.lateMu.Unlock()
			m.late = append(m.late, r)
			return true
		},
		Answer: func(_ context.Context, plugin string, row sdk.RowKey) ([]sdk.TableResult, uint64, string, error) {
			if row.List == "" {
				return nil, 0, "code", errors.New("no list")
			}
			return nil, 3, "", nil
		},
		Bus: bustest.Connect(t, "fabric", name, server), Logger: m.log.Logger(), Store: m.store,
		Validate: (*table.Table).Check, View: func() cluster.View { return view },
		Wanted: func() map[string]map[string]map[string]bool { return m.wanted },
		Merge: func(_ context.Context, plugin string, _ *epoch.Epoch) (*sdk.Epoch, error) {
			if plugin != atB {
				return nil, nil
			}
			return m.merge()
		},
	})
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	if err := m.deps.Bus.Conn().Flush(); err != nil { // the server has the subscriptions
		t.Fatal(err)
	}
	return m
}

// measured returns an epoch with measurements of member a.
func measured(number uint64) *epoch.Epoch {
	objects := []sdk.Cells{sdk.CellsOf("r1", []uint32{uint32(number)}), sdk.CellsOf("r2", []uint32{9})}
	end := t0.Add(time.Duration(number) * time.Second)
	return &epoch.Epoch{Number: number, Start: end.Add(-time.Second), End: end, Sources: []epoch.Outcome{
		{Name: deviceA, Sealing: epoch.SealedByCollector, Reading: &epoch.Reading{Objects: objects}},
		{Name: hostA, Sealing: epoch.SealedBySource, Reading: &epoch.Reading{
			Hosts: []sdk.HostReport{{Host: hostA, Role: "role", Data: []byte{byte(number)}}}}},
	}, Warnings: []epoch.AccuracyWarning{{Reason: "skew"}}}
}

// collect waits for the outcome of a source at a boundary.
func (m *member) collect(ctx context.Context, name string, host bool, number uint64) (epoch.Result, error) {
	part, _ := m.Source(name, host).Begin(epoch.Boundary{Number: number})
	return part.Collect(ctx, nil)
}

// request sends a part as a member would and returns the reply.
func (m *member) request(t *testing.T, from string, transfer, fence uint64, ep *epoch.Epoch) (reply string) {
	t.Helper()
	out := codec.NewChunker(from, transfer, func(chunk []byte, _ bool) error {
		r, err := m.deps.Bus.Conn().Request(m.deps.Bus.Subject("part", m.cfg.Member), chunk, 10*time.Second)
		if err == nil {
			reply = string(r.Data)
		}
		return err
	})
	err := codec.WritePart(out, ep, fence, 1<<30, func(string, string) bool { return true })
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestParts: collector b receives each measurement of collector a once: the reports of hosts, and
// those registers that a plugin of b reads.
func TestParts(t *testing.T) {
	server := bustest.Server(t)
	a, b := start(t, server, "a"), start(t, server, "b")
	ctx := t.Context()
	b.inbox.begin(1)
	a.HandOver(measured(1))
	got, err := b.collect(ctx, deviceA, false, 1)
	if err != nil || len(got.Reading.Objects) != 1 || got.Reading.Objects[0].At(0) != 1 || got.Warnings[0] != "skew" {
		t.Errorf("device: %+v, error %v", got, err)
	}
	if kept := b.inbox.at(1).slot(deviceA).result; kept.Reading != nil {
		t.Errorf("the inbox keeps %+v after it was collected", kept)
	}
	if got, err = b.collect(ctx, hostA, true, 1); err != nil || !bytes.Equal(got.Reading.Hosts[0].Data, []byte{1}) {
		t.Errorf("host: %+v, error %v", got, err)
	}
	testkit.Until(t, "acknowledgement", func() bool { return a.Stats().PartsSent == 1 })

	over, cancel := context.WithCancel(ctx)
	cancel()
	for _, host := range []bool{false, true} { // the epoch is delivered without them
		name := map[bool]string{false: deviceA, true: hostA}[host]
		if _, err := b.collect(over, name, host, 2); !errors.Is(err, epoch.ErrLate) {
			t.Errorf("without a part: %v", err)
		}
	}
	failed := measured(3)
	for i := range failed.Sources {
		failed.Sources[i].Reading, failed.Sources[i].Err = nil, errors.New("no session")
	}
	for _, step := range []struct {
		from            string
		transfer, fence uint64
		ep              *epoch.Epoch
		want            string
	}{
		{"a", 1 << 60, 7, measured(1), refusals[repeated]},
		{"a", 1 << 60, 7, measured(1), "transfer"},
		{"a", 1<<60 + 1, 7, measured(2), refusals[tooLate]},
		{"a", 1<<60 + 2, 6, measured(3), refusals[deposed]},
		{"a", 1<<60 + 3, 7, measured(9), refusals[ahead]},
		{"z", 1, 7, measured(3), refusals[unknown]},
		{"c", 1, 7, failed, accept}, // the reasons of a collector that does not own the sources do not count
		{"a", 1<<60 + 4, 8, measured(3), accept},
	} {
		if got := b.request(t, step.from, step.transfer, step.fence, step.ep); !strings.HasPrefix(got, step.want) {
			t.Errorf("part of epoch %d of %s: reply %q, want %q", step.ep.Number, step.from, got, step.want)
		}
	}
	if got, err = b.collect(ctx, hostA, true, 3); err != nil || len(got.Reading.Hosts) != 1 {
		t.Errorf("host: %+v, error %v", got, err)
	}
	if late := b.takeLate(); len(late) != 1 || late[0].Epoch != 2 || late[0].Host != hostA {
		t.Errorf("late reports %+v; want that of epoch 2", late)
	}
	large := func() *epoch.Epoch { // sent in two windows
		ep := measured(4)
		ep.Sources[0].Reading.Objects[0] = sdk.CellsOf("r1", slices.Repeat([]uint32{1}, 9<<18))
		return ep
	}
	if got := b.request(t, "a", 1<<60+5, 8, large()); got != accept {
		t.Errorf("a large part: reply %q", got)
	}
	a.HandOver(large())
	testkit.Until(t, "refusal", func() bool { return strings.Contains(a.log.String(), "repeated") })
	m, err := b.deps.Bus.Conn().Request(b.deps.Bus.Subject("part", "b"), []byte("\x05part"), 10*time.Second)
	if err != nil || string(m.Data) == accept {
		t.Errorf("a chunk that cannot be read: %v, error %v", m, err)
	}
	want := Stats{PartsReceived: 4, PartsRepeated: 3, PartsLate: 1, PartsDeposed: 1, PartsRefused: 3, SourcesDropped: 2}
	have := b.Stats()
	have.PartBytesReceived = 0
	if have != want {
		t.Errorf("counted %+v, want %+v", have, want)
	}
}

// batch is the result of an epoch.
// What a plugin merges is sent instead of the registers that it reads, unless it fails or another
// plugin reads them, too.
func TestMergedParts(t *testing.T) {
	server := bustest.Server(t)
	a, b := start(t, server, "a"), start(t, server, "b")
	merged := &sdk.Epoch{Expected: []string{deviceA}}
	merged.Put(deviceA, sdk.CellsOf("r1", []uint8{42}))
	whole := func() (*sdk.Epoch, error) { return merged, nil }
	failing := func() (*sdk.Epoch, error) { return nil, errors.New("no time") }
	of := func(names ...string) map[string]map[string]map[string]bool {
		wanted := map[string]map[string]map[string]bool{}
		for _, name := range names {
			wanted[name] = map[string]map[string]bool{deviceA: {"r1": true}}
		}
		return wanted
	}
	other := owned(func(name string) string {
		if name == atB {
			return ""
		}
		return view.Plugin(name)
	}, "b")
	for i, step := range []struct {
		merge  func() (*sdk.Epoch, error)
		wanted map[string]map[string]map[string]bool
		want   uint64
	}{{whole, of(atB), 42}, {failing, of(atB), 2}, {whole, of(atB, other), 3}} {
		number := uint64(i + 1)
		a.merge, a.wanted = step.merge, step.wanted
		b.inbox.begin(number)
		a.HandOver(measured(number))
		got, err := b.collect(t.Context(), deviceA, false, number)
		if err != nil || len(got.Reading.Objects) != 1 || got.Reading.Objects[0].At(0) != step.want {
			t.Fatalf("step %d: %+v, error %v; want %d", i, got.Reading, err, step.want)
		}
		if set := got.Reading.Merged; (len(set) == 1 && set[0].Plugin == atB) != (step.want == 42) {
			t.Errorf("step %d: merged %v", i, set)
		}
		testkit.Until(t, "acknowledgement", func() bool { return a.Stats().PartsSent == number })
	}
}

func batch(t *testing.T, number uint64, rows int) store.Batch {
	t.Helper()
	b := table.NewBuilder("/netsketch-univmon:univmon/flows/flow")
	flow, packets := b.TextKey("flow"), b.Uint("state/packets")
	for i := range rows {
		flow.Append(fmt.Sprint("flow ", i))
		packets.Append(number)
	}
	tab, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	return store.Batch{Time: t0.Add(time.Duration(number) * time.Second), Epoch: number,
		Tables: []store.Publication{{Table: tab, Replace: true}}}
}

// publish publishes results of an epoch, and returns when they are sent.
func (m *member) publish(t *testing.T, number uint64, rows int) {
	t.Helper()
	testkit.Until(t, "the stream of results is there", func() bool { // the stream is made in the background
		_, err := m.deps.Bus.JetStream().Stream(t.Context(), m.deps.Bus.Bucket("results"))
		return err == nil
	})
	sent := m.Stats().BatchesSent
	if err := m.store.Publish(batch(t, number, rows)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "results are sent", func() bool { return m.Stats().BatchesSent == sent+1 })
}

func (m *member) epochOf() (newest uint64, rows int) {
	for _, meta := range m.store.View().Rows(store.Query{}) {
		newest, rows = meta.Epoch, rows+1
	}
	return newest, rows
}

// All collectors serve the results of each collector, also a collector that joins later. Older
// results from a plugin's former home do not replace newer ones.
func TestResults(t *testing.T) {
	server := bustest.Server(t)
	a, b := start(t, server, "a"), start(t, server, "b")
	has := func(m *member, number uint64, rows int) {
		t.Helper()
		testkit.Until(t, fmt.Sprintf("epoch %d at %s", number, m.cfg.Member), func() bool {
			gotEpoch, gotRows := m.epochOf()
			return gotEpoch == number && gotRows == rows
		})
	}
	tap := b.store.Tap(1)
	defer tap.Close()
	a.publish(t, 3, 60_000) // in several chunks
	has(b, 3, 60_000)
	if got := <-tap.C(); got.Member != "a" {
		t.Errorf("results are of member %q", got.Member)
	}
	own := batch(t, 9, 1)
	own.Own = true
	if err := a.store.Publish(own); err != nil {
		t.Fatal(err)
	}
	a.publish(t, 4, 2)
	has(b, 4, 2)
	b.publish(t, 5, 3) // the plugin has moved to b
	has(a, 5, 3)
	a.publish(t, 4, 1)
	testkit.Until(t, "older results are dropped", func() bool { return b.Stats().BatchesOld > 0 })
	has(b, 5, 3)
	b.publish(t, 6, 4)
	has(a, 6, 4)
	c := start(t, server, "c")
	has(c, 6, 4)

	if err := b.deps.Bus.Conn().PublishMsg(&nats.Msg{Subject: b.deps.Bus.Subject("results", "0"),
		Data: []byte("\x05nothing")}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "bytes that are no results are refused", func() bool { return c.Stats().BatchesRefused == 1 })
}

// The state of a plugin is there for its next home, also after the servers have lost the store.
func TestStates(t *testing.T) {
	server := bustest.Server(t)
	a, b := start(t, server, "a"), start(t, server, "b")
	if s := b.State(t.Context(), "p", "plugin"); s != nil {
		t.Errorf("state %+v before there is one", s)
	}
	data := bytes.Repeat([]byte("state"), 100_000)
	a.Keep("p", "plugin", &sdk.State{Epoch: 1, Data: data})
	a.Keep("p", "plugin", &sdk.State{Epoch: 2, Version: 3, Data: data})
	testkit.Until(t, "state", func() bool {
		s := b.State(t.Context(), "p", "plugin")
		return s != nil && s.Epoch == 2 && s.Version == 3 && bytes.Equal(s.Data, data)
	})
	if s := b.State(t.Context(), "p", "other"); s != nil {
		t.Errorf("state %+v of another plugin", s)
	}
	if err := a.deps.Bus.JetStream().DeleteObjectStore(t.Context(), a.deps.Bus.Bucket("states")); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "state in another store", func() bool {
		a.Keep("p", "plugin", &sdk.State{Epoch: 3, Data: data})
		s := b.State(t.Context(), "p", "plugin")
		return s != nil && s.Epoch == 3
	})
}

// A stream that is new, or counts anew, is lost, and one that goes on is not.
func TestLostStreams(t *testing.T) {
	seen := &position{sequence: 10, at: t0.Add(time.Minute)}
	state := func(messages, first, last uint64, at time.Time) jetstream.StreamState {
		return jetstream.StreamState{Msgs: messages, FirstSeq: first, LastSeq: last, FirstTime: at}
	}
	later := seen.at.Add(time.Second)
	for i, c := range []struct {
		seen    *position
		created time.Time
		state   jetstream.StreamState
		want    bool
	}{
		{nil, t0, state(0, 0, 0, time.Time{}), false},
		{seen, t0, state(10, 1, 10, t0), false},
		{seen, t0, state(1, 10, 10, seen.at), false},
		{seen, t0, state(1, 15, 15, later), false},
		{seen, t0, state(0, 16, 15, time.Time{}), false},
		{seen, t0, state(0, 0, 0, time.Time{}), true},
		{seen, t0, state(9, 1, 9, later), true},
		{seen, t0, state(12, 1, 12, later), true},
		{seen, later, state(1, 15, 15, later), true},
	} {
		if got := c.seen.lostIn(&jetstream.StreamInfo{Created: c.created, State: c.state}); got != c.want {
			t.Errorf("case %d: lost %v, want %v", i, got, c.want)
		}
	}
}

// TestServersRestart: NATS servers that all restart have lost what is in their memory. A single
// server has lost the streams, several servers have lost the messages in them. Results and watched
// rows are exchanged again.
func TestServersRestart(t *testing.T) {
	for servers := 1; servers <= 2; servers++ {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			var directories []string
			for range servers {
				directories = append(directories, t.TempDir())
			}
			nats := bustest.StartCluster(t, directories...)
			fast := func(c *Config) { c.AckTimeout = time.Second } // servers without a leader do not answer
			a, b := start(t, nats.Addresses[0], "a", fast), start(t, nats.Addresses[servers-1], "b", fast)
			number := uint64(0)
			for range 20 {
				number++
				a.publish(t, number, 1)
			}
			watches := func(list string) {
				t.Helper()
				rows := []store.Watch{{Target: "netsketch", List: list, Keys: []string{"k"}}}
				b.Watch(rows)
				testkit.Until(t, "rows of b that are watched", func() bool { return cmp.Equal(rows, a.Watched()) })
			}
			watches("/before")
			for i := range servers {
				nats.Stop(i)
			}
			for i := range servers {
				nats.Start(i)
			}
			testkit.Until(t, "results of a at b", func() bool {
				number++
				if err := a.store.Publish(batch(t, number, 1)); err != nil {
					t.Fatal(err)
				}
				newest, _ := b.epochOf()
				return newest > 20
			})
			watches("/after")
		})
	}
}

// Rows that subscribers of one collector watch are known to all, and queries reach the home of a
// plugin.
func TestWatchesAndQueries(t *testing.T) {
	server := bustest.Server(t)
	a := start(t, server, "a")
	rows := []store.Watch{{Target: "netsketch", List: "/list", Keys: []string{"k"}}}
	a.Watch(rows)
	b := start(t, server, "b")
	testkit.Until(t, "watched rows of a", func() bool { return cmp.Equal(rows, b.Watched()) })
	a.Watch(nil)
	testkit.Until(t, "no watched rows of a", func() bool { return len(b.Watched()) == 0 })

	var there *QueryError
	if _, number, err := a.Query(t.Context(), atB, sdk.RowKey{List: "/list"}); err != nil || number != 3 {
		t.Errorf("query: epoch %d, error %v", number, err)
	}
	if _, _, err := a.Query(t.Context(), atB, sdk.RowKey{}); !errors.As(err, &there) || there.Code != "code" {
		t.Errorf("query that is refused: %v", err)
	}
	if _, _, err := a.Query(t.Context(), owned(view.Plugin, "c"), sdk.RowKey{}); !errors.Is(err, ErrNoHome) {
		t.Errorf("query to a collector that is away: %v", err)
	}
}
