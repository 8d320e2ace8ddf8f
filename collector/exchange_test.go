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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus/bustest"
	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/internal/testkit"
)

// sharedNames are those of the switches. The first and the last have an owner that is not the home
// of the plugin.
var sharedNames = []string{"s1", "s2", "s7"}

// sharedConfig is the configuration of a collector, a member of a cluster if it has a name.
func sharedConfig(t *testing.T, member, nats, univmon string, switches []*realSwitch) *config.Config {
	t.Helper()
	var yaml strings.Builder
	yaml.WriteString("epoch: {guard: 1ms}\n")
	if member != "" {
		fmt.Fprintf(&yaml, "cluster: {name: fabric, member: %s, nats: {addresses: [\"%s\"], tls: {plaintext: true}}}\n",
			member, nats)
	}
	yaml.WriteString("devices:\n")
	for i, sw := range switches {
		fmt.Fprintf(&yaml, "  - {name: %s, address: \"%s\", device-id: 1, pipeline: univmon-300k, tls: {plaintext: true}}\n",
			sharedNames[i], sw.address)
	}
	fmt.Fprintf(&yaml, "plugins: {directory: %s, instances: [{plugin: univmon, deadline: 10s, config: %s}]}\n",
		plugins(t), univmon)
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

// results are the rows of UnivMon with all their leaves, the time and the epoch.
func (r *real) results() []string { return rowsOf(r.c.Store().View()) }

func rowsOf(view *store.View) (rows []string) {
	view.Rows(store.ParseQuery("", "/univmon"))(func(row *store.Row, meta store.Meta) bool {
		text := fmt.Sprint(meta.Epoch, " ", meta.Time.UTC(), " ", row.List.Path, row.Entry.Keys)
		for i, l := range row.List.Leaves {
			if v := row.Values[i]; !v.Absent() {
				text += fmt.Sprint(" ", strings.Join(l.Path, "/"), "=", v)
			}
		}
		rows = append(rows, text)
		return true
	})
	slices.Sort(rows)
	return rows
}

// The results of two collectors that share switches are those of one collector with the same
// traffic, row by row, and both serve them; also after one has left and the other has its switches.
func TestResultsOfACluster(t *testing.T) {
	var alone, shared []*realSwitch
	for range 3 {
		alone = append(alone, startSwitch(t, "127.0.0.1:0"))
		shared = append(shared, startSwitch(t, "127.0.0.1:0"))
	}
	nats := bustest.Server(t)
	config := func(member, univmon string) *config.Config {
		if member == "" {
			return sharedConfig(t, member, nats, univmon, alone)
		}
		return sharedConfig(t, member, nats, univmon, shared)
	}
	one := startShared(t, config("", "{}"))
	a, b := startShared(t, config("c1", "{}")), startShared(t, config("c2", "{}"))
	each := func(all []*real, f func(r *real)) {
		var wait sync.WaitGroup
		for _, r := range all {
			wait.Go(func() { f(r) })
		}
		wait.Wait()
	}
	all := []*real{one, a, b}
	each(all, func(r *real) {
		r.ready()
		if err := r.c.Open(context.Background(), r.end, r.wait); err != nil {
			t.Error(err)
		}
	})
	number := byte(0)
	measure := func(all []*real, compare bool) {
		t.Helper()
		number++
		for i := range alone {
			for _, sw := range []*realSwitch{alone[i], shared[i]} {
				for flow := byte(1); flow < 20; flow++ {
					sw.send(flow+number, int(flow)*(i+1))
				}
			}
		}
		each(all, func(r *real) {
			if rep := r.step(); rep.Status != epoch.Complete && compare && len(rep.Devices) > 0 {
				t.Errorf("epoch %d is %v: %+v", rep.Number, rep.Status, rep.Devices)
			}
		})
		if !compare {
			return
		}
		want := one.results()
		if len(want) < 20 {
			t.Fatalf("one collector has the results %q", want)
		}
		for _, r := range all[1:] {
			same := func() bool { return slices.Equal(want, r.results()) }
			for begin := time.Now(); !same() && time.Since(begin) < 20*time.Second; { // they come over NATS
				time.Sleep(time.Millisecond)
			}
			if diff := cmp.Diff(want, r.results()); diff != "" {
				t.Fatalf("epoch %d differs from that of one collector (-want +got):\n%s", number, diff)
			}
		}
	}
	for moved := 0; moved < 5; moved++ { // c1 hands switches over, and a plugin moves two epochs after
		measure(all, false)
		a.until("both collectors know where plugins move", func() bool { return moves(a) > 0 && moves(b) > 0 })
		b.until("c2 has its switches", func() bool {
			states := append(sessions(a), sessions(b)...)
			return slices.Contains(sessions(b), "ready") && !slices.Contains(states, "backup") || moved == 0
		})
	}
	measure(all, true)
	measure(all, true)
	parts := func(r *real, leaf string) int {
		r.c.StateChanged()
		n, _ := strconv.Atoi(r.leaf("/collector/cluster/state", leaf))
		return n
	}
	arrived := func() bool { return parts(a, "parts-sent") == parts(b, "parts-received") }
	testkit.Until(t, "all parts arrived", arrived)
	unsent := int(number) - parts(a, "parts-sent") // epochs before c2 was the home
	measure(all, true)
	testkit.Until(t, "one part of the epoch arrived", func() bool {
		return arrived() && parts(a, "parts-sent") == int(number)-unsent
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
		for _, r := range subscribers { // a flow that one of the members has a subscriber for
			sub, err := r.c.Store().Subscribe(store.SubscribeOptions{Queries: []store.Query{store.ParseQuery("",
				fmt.Sprintf("/univmon/flows/flow[device=s1][dimension=src][flow=10.0.1.%d]", 15+i))}})
			if err != nil {
				t.Fatal(err)
			}
			subscriptions = append(subscriptions, sub)
		}
	}
	for flows := 0; flows < 2 && number < 100; { // what is watched comes over NATS
		measure(all, false)
		flows = a.c.Store().Size("", "/netsketch-univmon:univmon/flows/flow")
	}
	measure(all, true)
	keys := map[string]string{"device": "s2", "dimension": "src", "flow": "10.0.1.16"}
	var answers []string
	for _, r := range all {
		view, err := r.c.Query(t.Context(), "", "/netsketch-univmon:univmon/flows/flow", keys)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, strings.Join(rowsOf(view), "\n"))
	}
	if answers[0] == "" || answers[1] != answers[0] || answers[2] != answers[0] {
		t.Errorf("the query has the answers %q", answers)
	}
	keys["device"] = "s9"
	for _, r := range all[1:] {
		_, err := r.c.Query(t.Context(), "", "/netsketch-univmon:univmon/flows/flow", keys)
		if _, want := one.c.Query(t.Context(), "", "/netsketch-univmon:univmon/flows/flow", keys); err == nil ||
			status.Code(err) != status.Code(want) {
			t.Errorf("a query without an answer: %v, want %v", err, want)
		}
	}
	for _, sub := range subscriptions {
		sub.Close()
	}
	// Without results of single switches, the plugin merges those of a for its home.
	sent := func() (bytes int) {
		t.Helper()
		a.c.StateChanged()
		testkit.Until(t, "one part of each epoch is sent", func() bool {
			return a.leaf("/collector/cluster/state", "parts-sent") == fmt.Sprint(int(number)-unsent)
		})
		bytes, err := strconv.Atoi(a.leaf("/collector/cluster/state", "part-octets-sent"))
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	begin := sent()
	measure(all, true)
	unmerged := sent() - begin
	for member, r := range map[string]*real{"": one, "c1": a, "c2": b} {
		if _, err := r.c.Reload(t.Context(),
			config(member, "{switches: false, network: {weights: {s1: 1, s2: -1, s7: 1}}}")); err != nil {
			t.Fatal(err)
		}
	}
	measure(all, false)
	begin = sent()
	measure(all, true)
	if merged := sent() - begin; merged == 0 || merged > unmerged*3/4 {
		t.Errorf("%d bytes of a part, %d of a merged one", unmerged, merged)
	}
	drain(t, nats, a, b, func() { measure(all, true) })
	for _, r := range all[1:] {
		if moved, forced := parts(r, "devices-handed-over"), parts(r, "devices-forced"); moved == 0 || forced != 0 {
			t.Errorf("%d devices were handed over, %d moved otherwise", moved, forced)
		}
	}
	if err := b.c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	all = all[:2]
	measure(all, true)
	measure(all, true)
}

// sessions returns the states of the sessions with the three switches.
func sessions(r *real) (states []string) {
	r.c.StateChanged()
	for _, name := range sharedNames {
		states = append(states, r.leaf(fmt.Sprintf("/collector/devices/device[name=%s]", name), "state/connection"))
	}
	return states
}

// moves returns how often a collector has learned of an epoch with which plugins move.
func moves(r *real) int { return strings.Count(r.log.String(), "plugins and hosts move") }

// drain moves the switches of the collector b to a, and back and again, while measure measures
// epochs: none is lost, and none is measured twice.
func drain(t *testing.T, nats string, a, b *real, measure func()) {
	t.Helper()
	admin := bustest.Connect(t, "fabric", "admin", nats)
	owned := sessions(b)
	for _, command := range []string{cluster.Drain, cluster.Resume, cluster.Drain} {
		known := moves(a) + 1
		if err := cluster.Command(t.Context(), admin, "c2", command); err != nil {
			t.Fatal(err)
		}
		to := a
		if command == cluster.Resume {
			to = b
		}
		moved := func(want string) func() bool {
			return func() bool {
				states := sessions(to)
				for i, state := range owned {
					if state == "ready" && states[i] != want {
						return false
					}
				}
				return moves(a) == known && moves(b) == known
			}
		}
		to.until("sessions of the next owner are there", moved("backup"))
		measure() // at its end, switches are handed over
		to.until("sessions of the next owner are ready", moved("ready"))
		measure()
		measure()
		testkit.Until(t, "c2 owns nothing exactly if it is drained", func() bool {
			h, err := cluster.Held(t.Context(), admin, "c2")
			return err == nil && h.Empty() == (command == cluster.Drain)
		})
	}
}
