// SPDX-License-Identifier: Apache-2.0

package collector_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/storetest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// shares is a case of TestResultsOfACluster: the switches and traffic of collectors that share
// switches.
type shares struct {
	plugin string
	// devices are the switches. The first and the last belong to an owner that does not run the
	// plugin.
	devices []string
	// options are further keys of each device, and more holds further sections of the file.
	options, more string
	// send makes packets arrive at switches in an epoch.
	send func(switches []*realSwitch, epoch byte)
	// rows is the least number of rows that an epoch has.
	rows int
}

// config is the configuration of a collector, a member of a cluster if it has a name.
func (s *shares) config(t *testing.T, member, nats, plugin string, switches []*realSwitch) *config.Config {
	t.Helper()
	var yaml strings.Builder
	yaml.WriteString("epoch: {guard: 1ms}\n" + s.more)
	if member != "" {
		fmt.Fprintf(&yaml, "cluster: {name: fabric, member: %s, nats: {addresses: [\"%s\"], tls: {plaintext: true}}}\n",
			member, nats)
	}
	yaml.WriteString("devices:\n")
	for i, sw := range switches {
		fmt.Fprintf(&yaml, "  - {name: %s, address: \"%s\", device-id: 1, %s, tls: {plaintext: true}}\n", s.devices[i],
			sw.address, s.options)
	}
	fmt.Fprintf(&yaml, "plugins: {directory: %s, instances: [{plugin: %s, deadline: 10s, config: %s}]}\n",
		plugins(t), s.plugin, plugin)
	cfg, err := config.Parse("netsketch.yaml", []byte(yaml.String()))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// startShared starts a collector on virtual time.
func startShared(t *testing.T, cfg *config.Config) *real {
	t.Helper()
	var err error
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &real{tb: t, clock: epoch.NewVirtual(start, 20*time.Second), end: start, log: &testkit.Log{}}
	r.c, err = collector.New(cfg, collector.Dependencies{Clock: r.clock, Programs: programs, Version: "test",
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(r.log, testWriter{t}), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	if err := r.c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return r
}

// results returns the rows of a plugin in a view. Rows that depend on the machine are left out. So
// are alerts that ended, because switches were missing while members joined.
func results(view *store.View, plugin string) []string {
	rows := storetest.Rows(view, store.ParseQuery("", "/"+plugin), "state/analysis-time", "state/response-time")
	return slices.DeleteFunc(rows, func(row string) bool { return strings.Contains(row, " state/active=false ") })
}

// sharing is one collector, and two collectors that share switches with the same traffic.
type sharing struct {
	*shares
	t             *testing.T
	nats          string
	alone, shared []*realSwitch
	one, a, b     *real
	all           []*real // all collectors that measure
	next          *real   // the collector that takes over switches next
	epochs        byte    // count of epochs measured
}

// share starts the collectors, and waits until both members have switches.
func (s *shares) share(t *testing.T) *sharing {
	t.Helper()
	x := &sharing{shares: s, t: t, nats: bustest.Server(t)}
	for range s.devices {
		x.alone = append(x.alone, startSwitch(t, "127.0.0.1:0"))
		x.shared = append(x.shared, startSwitch(t, "127.0.0.1:0"))
	}
	x.one = startShared(t, x.configOf("", "{}"))
	x.a = startShared(t, x.configOf("c1", "{}"))
	x.a.ready() // otherwise c2 could take a switch that has no session yet
	x.b = startShared(t, x.configOf("c2", "{}"))
	x.all, x.next = []*real{x.one, x.a, x.b}, x.b
	each(x.all, func(r *real) {
		r.ready()
		if err := r.c.Open(context.Background(), r.end, r.wait); err != nil {
			t.Error(err)
		}
	})
	// c1 hands switches over, and a plugin moves two epochs later. Epochs may lack switches that
	// change hands. Plans depend on the previous epochs, so several complete epochs are needed
	// until both members have the plans of a single collector.
	for moved, complete := 0, 0; moved < 5 || complete < 4; moved++ {
		if complete++; !x.measure(false) {
			complete = 0
		}
		x.a.until("both collectors know where plugins move", func() bool { return moves(x.a) > 0 && moves(x.b) > 0 })
		x.b.until("c2 has its switches", func() bool {
			states := append(x.sessions(x.a), x.sessions(x.b)...)
			return slices.Contains(x.sessions(x.b), "READY") && !slices.Contains(states, "BACKUP") || moved == 0
		})
	}
	return x
}

func (x *sharing) configOf(member, plugin string) *config.Config {
	if member == "" {
		return x.config(x.t, member, x.nats, plugin, x.alone)
	}
	return x.config(x.t, member, x.nats, plugin, x.shared)
}

// each calls f for all collectors at the same time.
func each(all []*real, f func(r *real)) {
	var wait sync.WaitGroup
	for _, r := range all {
		wait.Go(func() { f(r) })
	}
	wait.Wait()
}

// measure measures an epoch, and compares the results of all collectors. It returns whether the
// epoch was complete at all of them.
func (x *sharing) measure(compare bool) bool {
	t := x.t
	t.Helper()
	x.epochs++
	x.send(x.alone, x.epochs)
	x.send(x.shared, x.epochs)
	var incomplete atomic.Bool
	step := func(r *real) {
		rep := r.step()
		if rep.Status == epoch.Complete || len(rep.Devices) == 0 {
			return
		}
		incomplete.Store(true)
		if compare {
			t.Errorf("epoch %d is %v: %+v", rep.Number, rep.Status, rep.Devices)
		}
	}
	var next sync.WaitGroup
	before, _ := x.next.c.Epoch()
	next.Go(func() { step(x.next) })
	testkit.Until(t, "the next owner has begun the next epoch", func() bool {
		number, _ := x.next.c.Epoch()
		return number != before
	})
	each(slices.DeleteFunc(slices.Clone(x.all), func(r *real) bool { return r == x.next }), step)
	next.Wait()
	if !compare {
		return !incomplete.Load()
	}
	want := results(x.one.c.Store().View(), x.plugin)
	if len(want) < x.rows {
		t.Fatalf("one collector has the results %q", want)
	}
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("results of epoch %d (-want +got):\n%s", x.epochs, cmp.Diff(want, got))
		}
	}()
	for _, r := range x.all[1:] {
		// the readings of the other member arrive over NATS, which takes time
		testkit.Until(t, "the results are those of one collector", func() bool {
			got = results(r.c.Store().View(), x.plugin)
			return slices.Equal(want, got)
		})
	}
	return !incomplete.Load()
}

// Two collectors share switches. They publish the same rows as a single collector with the same
// traffic, and both serve the rows, even after one of them has left and the other one has its
// switches.
func TestResultsOfACluster(t *testing.T) {
	x := (&shares{plugin: "univmon", devices: []string{"s1", "s2", "s7"}, options: "pipeline: univmon-300k", rows: 20,
		send: func(switches []*realSwitch, epoch byte) {
			for i, sw := range switches {
				for flow := byte(1); flow < 20; flow++ {
					sw.send(flow+epoch, int(flow)*(i+1))
				}
			}
		}}).share(t)
	one, a, b := x.one, x.a, x.b
	var taps []*store.Tap
	for _, r := range []*real{a, b} {
		tap := r.c.Store().Tap(1000)
		defer tap.Close()
		taps = append(taps, tap)
	}
	x.measure(true)
	x.measure(true)
	for i, tap := range taps {
		for len(tap.C()) > 0 {
			if got := <-tap.C(); got.Member != "" && strings.HasPrefix(got.Tables[0].Table.List, selfstate.Root) {
				t.Errorf("c%d serves the state of %s as its own", i+1, got.Member)
			}
		}
	}
	parts := func(r *real, leaf string) int {
		r.c.StateChanged()
		n, _ := strconv.Atoi(r.leaf("/collector/cluster/state", leaf))
		return n
	}
	arrived := func() bool { return parts(a, "parts-sent") == parts(b, "parts-received") }
	testkit.Until(t, "all parts arrived", arrived)
	unsent := int(x.epochs) - parts(a, "parts-sent") // epochs in which c2 did not run the plugin yet
	x.measure(true)
	testkit.Until(t, "one part of the epoch arrived", func() bool {
		return arrived() && parts(a, "parts-sent") == int(x.epochs)-unsent
	})
	for leaf, want := range map[string]string{"lease": "true", "members": "2",
		"plugins": "univmon", "parts-failed": "0", "sources-dropped": "0", "results-refused": "0"} {
		a.c.StateChanged() // another goroutine publishes the state
		b.c.StateChanged()
		testkit.Until(t, fmt.Sprintf("%s is %s at one of them", leaf, want), func() bool {
			return a.leaf("/collector/cluster/state", leaf) == want || b.leaf("/collector/cluster/state", leaf) == want
		})
	}
	var subscriptions []*store.Subscription
	for i, subscribers := range [][]*real{{one, a}, {one, b}} {
		for _, r := range subscribers { // a subscriber of one member watches a flow
			sub, err := r.c.Store().Subscribe(store.SubscribeOptions{Queries: []store.Query{store.ParseQuery("",
				fmt.Sprintf("/univmon/flows/flow[node=s1][dimension=src][flow=10.0.1.%d]", 15+i))}})
			if err != nil {
				t.Fatal(err)
			}
			subscriptions = append(subscriptions, sub)
		}
	}
	for flows := 0; flows < 2 && x.epochs < 100; { // watched rows come over NATS
		x.measure(false)
		flows = a.c.Store().Size("", "/netsketch-univmon:univmon/flows/flow")
	}
	x.measure(true)
	keys := map[string]string{"node": "s2", "dimension": "src", "flow": "10.0.1.16"}
	var answers []string
	for _, r := range x.all {
		view, err := r.c.Query(t.Context(), "", "/netsketch-univmon:univmon/flows/flow", keys)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, strings.Join(results(view, x.plugin), "\n"))
	}
	if answers[0] == "" || answers[1] != answers[0] || answers[2] != answers[0] {
		t.Errorf("the query has the answers %q", answers)
	}
	keys["node"] = "s9"
	for _, r := range x.all[1:] {
		_, err := r.c.Query(t.Context(), "", "/netsketch-univmon:univmon/flows/flow", keys)
		if _, want := one.c.Query(t.Context(), "", "/netsketch-univmon:univmon/flows/flow", keys); err == nil ||
			status.Code(err) != status.Code(want) {
			t.Errorf("a query without an answer: %v, want %v", err, want)
		}
	}
	for _, sub := range subscriptions {
		sub.Close()
	}
	// If the plugin publishes no results of single switches, it merges a's switches before they are
	// sent to the collector that runs it.
	sent := func() (bytes int) {
		t.Helper()
		a.c.StateChanged()
		testkit.Until(t, "one part of each epoch is sent", func() bool {
			return a.leaf("/collector/cluster/state", "parts-sent") == fmt.Sprint(int(x.epochs)-unsent)
		})
		bytes, err := strconv.Atoi(a.leaf("/collector/cluster/state", "part-octets-sent"))
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	begin := sent()
	x.measure(true)
	unmerged := sent() - begin
	for member, r := range map[string]*real{"": one, "c1": a, "c2": b} {
		if _, err := r.c.Reload(t.Context(),
			x.configOf(member, "{switches: false, network: {weights: {s1: 1, s2: -1, s7: 1}}}")); err != nil {
			t.Fatal(err)
		}
	}
	x.measure(false)
	begin = sent()
	x.measure(true)
	if merged := sent() - begin; merged == 0 || merged > unmerged*3/4 {
		t.Errorf("%d bytes of a part, %d of a merged one", unmerged, merged)
	}
	x.drain(func() {})
	for _, r := range x.all[1:] {
		if moved, forced := parts(r, "devices-handed-over"), parts(r, "devices-forced"); moved == 0 || forced != 0 {
			t.Errorf("%d devices were handed over, %d moved otherwise", moved, forced)
		}
	}
	if err := b.c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	x.all = x.all[:2]
	x.measure(true)
	x.measure(true)
}

// ChameleMon reconfigures all edge switches when the losses change much. With the same traffic, two
// collectors have the plans and results of a single collector. This holds even after switches have
// moved: the plans then reach the next owner.
func TestPlansOfAClusterThatMoves(t *testing.T) {
	flows, replans := 300, 0
	x := (&shares{plugin: "chamelemon", devices: []string{"s1", "s4"}, rows: 20,
		options: "pipeline: chamelemon, role: edge, forwarding: managed", more: `
links: [{from: s1/2, to: s4/2}]
hosts: [{name: h1, port: s1/1, addresses: 10.0.1.0/24}, {name: h2, port: s4/1, addresses: 10.0.2.0/24}]
`, send: func(switches []*realSwitch, _ byte) {
			sent := 0
			switches[0].tx = func(port uint32, frame []byte) { // every second packet is lost on the link
				if sent++; port == 2 && sent%2 > 0 {
					switches[1].sw.Inject(2, frame, 0)
				}
			}
			for flow := range flows {
				switches[0].sw.Inject(1, udp([4]byte{10, 0, 1, byte(flow)}, [4]byte{10, 0, 2, 1}, uint16(flow), 53), 0)
			}
		}}).share(t)
	x.drain(func() {
		before := x.one.c.PlanCounts(x.plugin).Applied
		flows = 3600 - flows // 300 or 3,300
		for range 3 {
			x.measure(true)
		}
		if x.one.c.PlanCounts(x.plugin).Applied > before {
			replans++
		}
	})
	if replans < 2 {
		t.Errorf("switches were configured anew after %d of 3 moves, want at least 2", replans)
	}
	for _, r := range x.all {
		if got := r.c.PlanCounts(x.plugin); got.Failed+got.Late > 0 {
			t.Errorf("outcomes of plans: %+v", got)
		}
	}
}

// sessions returns the states of a collector's sessions with the switches.
func (x *sharing) sessions(r *real) (states []string) {
	r.c.StateChanged()
	for _, name := range x.devices {
		states = append(states, r.leaf(fmt.Sprintf("/collector/devices/device[node=%s]", name), "state/connection"))
	}
	return states
}

// moves returns how often the collector logged an epoch with which plugins and hosts move.
func moves(r *real) int { return strings.Count(r.log.String(), "plugins and hosts move") }

// drain moves the switches of collector b to a and back, twice: no epoch is lost, and no epoch is
// measured twice. It calls moved after each move.
func (x *sharing) drain(moved func()) {
	t, a, b := x.t, x.a, x.b
	t.Helper()
	admin := bustest.Connect(t, "fabric", "admin", x.nats)
	owned := x.sessions(b)
	for _, command := range []string{cluster.Drain, cluster.Resume, cluster.Drain} {
		known := moves(a) + 1
		if err := cluster.Command(t.Context(), admin, "c2", command); err != nil {
			t.Fatal(err)
		}
		to := a
		if command == cluster.Resume {
			to = b
		}
		x.next = to
		have := func(want string) func() bool {
			return func() bool {
				states := x.sessions(to)
				for i, state := range owned {
					if state == "READY" && states[i] != want {
						return false
					}
				}
				return moves(a) == known && moves(b) == known
			}
		}
		to.until("sessions of the next owner are there", have("BACKUP"))
		x.measure(true) // switches are handed over at the end of this epoch
		to.until("sessions of the next owner are ready", have("READY"))
		x.measure(true)
		x.measure(true)
		testkit.Until(t, "c2 owns nothing exactly if it is drained", func() bool {
			h, err := cluster.Held(t.Context(), admin, "c2")
			return err == nil && h.Empty() == (command == cluster.Drain)
		})
		moved()
	}
}
