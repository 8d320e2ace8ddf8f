// SPDX-License-Identifier: Apache-2.0

package analysis_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/sketch/flow"
)

// unrouted lets the analysis search for paths: a switch may send any packet by any of its links.
func unrouted(sim *simulation.Simulation) {
	out, hosts, arrays := make([][]int32, sim.Switches), make([]int32, len(sim.Links)), make([]int32, len(sim.Links))
	for i, l := range sim.Links {
		if hosts[i] = -1; l.From != analysis.Host {
			out[l.From] = append(out[l.From], int32(i))
		}
		arrays[i] = l.To
	}
	ends := map[[2]int][2]int32{}
	for _, f := range sim.Flows {
		ends[[2]int{f.From, f.To}] = [2]int32{f.Path.Hops[0].Link, f.Path.Last}
		hosts[f.Path.Last] = int32(f.To)
	}
	sim.Net.Search = &analysis.Search{Arrays: arrays, Hosts: hosts, SinglePath: true,
		Ends: func(source int, k *flow.Key) (int, int32, int32) {
			f := sim.Route(k)
			if f == nil || f.From != source {
				return -1, -1, -1
			}
			e := ends[[2]int{f.From, f.To}]
			return f.To, e[0], e[1]
		},
		Next: func(at int32, _ *flow.Key, links []int32) []int32 { return append(links, out[at]...) },
	}
	sim.Net.Route = nil
}

// checkPaths fails if a path, a value, a loss or a bound differs from what happened. It returns the
// share of flows with a path.
func checkPaths(t *testing.T, sim *simulation.Simulation, r *analysis.Result) (share float64) {
	t.Helper()
	if len(simulation.Reasons(r)) > 0 || r.Flows != len(sim.Flows) {
		t.Fatalf("%d flows of %d, warnings %v", r.Flows, len(sim.Flows), simulation.Reasons(r))
	}
	complete := simulation.Complete(r)
	for _, f := range slices.Concat(complete, r.Unplaced) {
		want := sim.Route(&f.Key)
		lost := want.Sent
		lost.Sub(&want.Received)
		if f.Sent != want.Sent || f.Lost != lost || f.Destination != want.To || f.Path.Last != want.Path.Last ||
			len(f.Path.Hops) > 0 && !reflect.DeepEqual(f.Path, want.Path) {
			t.Fatalf("flow %v: %+v by %+v, want %+v by %+v", f.Key, f, f.Path, want, want.Path)
		}
	}
	for i := range r.Lossy {
		f := &r.Lossy[i]
		want := sim.Route(&f.Key)
		if !reflect.DeepEqual(f.Path, want.Path) {
			t.Fatalf("lossy flow %v by %+v, want %+v", f.Key, f.Path, want.Path)
		}
		for n, l := range f.Losses {
			if l.Exact && l.Values != want.Lost[n] {
				t.Fatalf("flow %v lost %v at %d, result %+v", f.Key, want.Lost[n], n, l)
			}
		}
	}
	contains(t, sim, r)
	switches, links := sim.Losses()
	for i, b := range append(slices.Clone(r.Switches), r.Links...) {
		if want := append(slices.Clone(switches), links...)[i]; b.Low != want || b.High != want {
			t.Errorf("element %d lost %d, result %+v", i, want, b)
		}
	}
	if n := len(complete) + len(r.Lossy) + len(r.Unplaced); n != len(sim.Flows) {
		t.Fatalf("%d flows of %d", n, len(sim.Flows))
	}
	return 1 - float64(len(r.Unplaced))/float64(len(sim.Flows))
}

// Where another controller owns the routes, every path that is found is the right one, without loss
// and with each kind of failure.
func TestSearch(t *testing.T) {
	tp := simulation.FatTree(4)
	for _, tt := range []struct { // seeds are fixed: the shares are those that were measured
		kind         string
		flows, slots int
		share        float64
	}{
		{"", 2000, 1024, 1}, {"", 5000, 256, 0.38}, {"congestion", 2000, 1024, 0.99}, {"gray failure", 2000, 1024, 0.98},
		{"switch crash", 2000, 1024, 0.57}, {"link failure", 2000, 1024, 0.87},
	} {
		s := simulation.Settings{Flows: tt.flows, Slots: tt.slots, Mean: 10, Counters: true, Seed: 7}
		if tt.kind != "" {
			s.Drop = simulation.Failures(tp, tt.kind, rand.New(rand.NewPCG(7, 9)))
		}
		sim := simulation.Run(tp, s)
		unrouted(sim)
		r := analyze(t, sim)
		share := checkPaths(t, sim, r)
		t.Logf("%s, %d flows, %d slots: %.4f have a path, %d of %d unknowns", tt.kind, tt.flows, tt.slots, share,
			r.Determined, r.Variables)
		if share < tt.share {
			t.Errorf("%s, %d flows, %d slots: %.4f of the flows have a path; want %v", tt.kind, tt.flows, tt.slots, share,
				tt.share)
		}
	}
}

// A switch that did not count packets shows no paths, and missing hosts hide none: a path that is
// found is the right one.
func TestSearchFailures(t *testing.T) {
	tp := simulation.FatTree(4)
	found, flows := 0, 0
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 5))
		sim := simulation.Run(tp, simulation.Settings{Flows: 800, Slots: 512, Mean: 8, Counters: true, Seed: seed})
		unrouted(sim)
		slots := sim.Epoch.Recorded[random.IntN(sim.Switches)]
		for n := range 40 {
			if seed%2 == 0 {
				clear(slots[random.IntN(sim.Net.Slots)*sim.Net.Values:][:sim.Net.Values])
			} else if n < 3 {
				sim.Epoch.Reports[random.IntN(sim.Hosts)] = nil
			}
		}
		r := analyze(t, sim)
		check := func(f *analysis.Flow) {
			flows++
			if want := sim.Route(&f.Key).Path; len(f.Path.Hops) > 0 && !reflect.DeepEqual(f.Path, want) {
				t.Fatalf("seed %d: flow %v by %+v, want %+v; %v", seed, f.Key, f.Path, want, simulation.Reasons(r))
			} else if len(f.Path.Hops) > 0 {
				found++
			}
		}
		for _, list := range [][]analysis.Flow{simulation.Complete(r), r.Unplaced, r.Odd} {
			for i := range list {
				check(&list[i])
			}
		}
		for _, list := range [][]analysis.LossyFlow{r.Lossy, r.Open} {
			for i := range list {
				check(&list[i].Flow)
			}
		}
		contains(t, sim, r)
	}
	t.Logf("%d of %d flows have a path", found, flows)
	if found*4 < flows {
		t.Errorf("%d of %d flows have a path", found, flows)
	}
}

// A flow that changes its path within the epoch, or that two paths explain, has no path and is
// exact at its hosts; the other flows are exact everywhere.
func TestSearchUnplaced(t *testing.T) {
	tp := simulation.FatTree(4)
	sim := simulation.Run(tp, simulation.Settings{Flows: 500, Slots: 1024, Mean: 10, Counters: true, Seed: 8})
	unrouted(sim)
	i := slices.IndexFunc(sim.Flows, func(f *simulation.Flow) bool {
		return len(f.Path.Hops) == 5 && f.Sent[wire.Packets] > 5
	})
	f := sim.Flows[i]
	other := slices.IndexFunc(sim.Flows, func(g *simulation.Flow) bool {
		return len(g.Path.Hops) == 5 && g.From/4 == f.From/4 && g.To/4 == f.To/4 && g.Path.Hops[2] != f.Path.Hops[2] &&
			g.Path.Hops[1].Switch != f.Path.Hops[1].Switch
	})
	if other < 0 {
		t.Fatal("no flow takes another path between the same pods")
	}
	cell := func(hop int, array int32) []int64 {
		return sim.Epoch.Recorded[array][int(f.Slots[hop%2])*sim.Net.Values:]
	}
	for hop := 1; hop < 4; hop++ { // one packet takes the other path
		from, to := f.Path.Hops[hop], sim.Flows[other].Path.Hops[hop]
		cell(hop, from.Array)[wire.Packets]--
		cell(hop, to.Array)[wire.Packets]++
	}
	sim.Epoch.Arrived, sim.Epoch.Departed = nil, nil
	r := analyze(t, sim)
	if len(r.Unplaced) != 1 || r.Unplaced[0].Key != f.Key || r.Unplaced[0].Sent != f.Sent ||
		r.Unplaced[0].Lost != (wire.Values{}) || len(simulation.Reasons(r)) > 0 || len(r.Lossy) > 0 {
		t.Errorf("%d unplaced, %d lossy flows, warnings %v", len(r.Unplaced), len(r.Lossy), simulation.Reasons(r))
	}
	for _, g := range simulation.Complete(r) {
		if want := sim.Route(&g.Key); !reflect.DeepEqual(g.Path, want.Path) {
			t.Fatalf("flow %v by %+v, want %+v", g.Key, g.Path, want.Path)
		}
	}
}

// TestSearchFlowlets: flowlets of some flows take two paths in an epoch. These flows have no path,
// and a path of another flow is the right one. All values at hosts are exact.
func TestSearchFlowlets(t *testing.T) {
	split, placed := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 11))
		sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 100 + r.IntN(1500), Slots: 64 << r.IntN(5),
			Mean: 10, Counters: seed%2 == 0, Seed: seed})
		unrouted(sim)
		sim.Net.Search.SinglePath = false
		flowlets := map[flow.Key]bool{}
		for _, f := range sim.Flows {
			if len(flowlets) < 1+int(seed)%12 && flowlet(sim, f) {
				flowlets[f.Key] = true
			}
		}
		split += len(flowlets)
		result := analyze(t, sim)
		if len(result.Lossy) > 0 {
			t.Fatalf("seed %d: %d lossy flows", seed, len(result.Lossy))
		}
		for _, f := range simulation.Complete(result) {
			want := sim.Route(&f.Key)
			if f.Sent != want.Sent || f.Lost != (wire.Values{}) {
				t.Fatalf("seed %d: flow %v is %+v at its hosts, want %+v", seed, f.Key, f.Sent, want.Sent)
			}
			if len(f.Path.Hops) == 0 {
				continue
			}
			if placed++; flowlets[f.Key] || !reflect.DeepEqual(f.Path, want.Path) {
				t.Errorf("seed %d: flow %v, on two paths: %v, has one that is not its own", seed, f.Key, flowlets[f.Key])
			}
		}
	}
	if t.Logf("%d flows on two paths, %d with a path", split, placed); split < 300 || placed < 22_000 {
		t.Error("too few")
	}
}

// flowlet sends half of the packets of a flow over another path of the same length.
func flowlet(sim *simulation.Simulation, f *simulation.Flow) bool {
	for port := range uint16(50) {
		other := sim.Path(f.From, f.To, flow.Key{Proto: 6, SrcPort: port})
		if f.Sent[wire.Packets] < 4 || len(other.Hops) != len(f.Path.Hops) || reflect.DeepEqual(other, f.Path) {
			continue
		}
		for hop := range f.Path.Hops {
			from, to := f.Path.Hops[hop], other.Hops[hop]
			slot := int(f.Slots[hop%2]) * sim.Net.Values
			for j := range sim.Net.Values {
				sim.Epoch.Recorded[from.Array][slot+j] -= f.Sent[j] / 2
				sim.Epoch.Recorded[to.Array][slot+j] += f.Sent[j] / 2
			}
			if sim.Epoch.Arrived != nil {
				n := f.Sent[wire.Packets] / 2
				sim.Epoch.Arrived[from.Link] -= n
				sim.Epoch.Arrived[to.Link] += n
				if hop > 0 {
					sim.Epoch.Departed[from.Link] -= n
					sim.Epoch.Departed[to.Link] += n
				}
			}
		}
		return true
	}
	return false
}

// TestSearchPlain: where some switches do not measure, and the slots of another one were not
// delivered, every path that is found is the right one.
func TestSearchPlain(t *testing.T) {
	for _, tt := range []struct { // the seed is fixed: the shares are those that were measured
		single bool
		share  float64
	}{{true, 0.996}, {false, 0.913}} {
		plain := func(number int32) bool { return number%5 == 1 }
		// 1,023 flows are one fewer than the flows that a worker takes at a time.
		sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 1023, Slots: 1024, Mean: 10, Seed: 12,
			Counters: true, Plain: plain})
		unrouted(sim)
		sim.Net.Search.SinglePath = tt.single
		for i, l := range sim.Links {
			if l.To != analysis.Host && plain(l.To) {
				sim.Net.Search.Arrays[i] = analysis.None
			}
		}
		sim.Epoch.Recorded[2] = nil
		r := analyze(t, sim)
		placed := 0
		for _, f := range slices.Concat(simulation.Complete(r), r.Unplaced) {
			want := sim.Route(&f.Key)
			if f.Sent != want.Sent || len(f.Path.Hops) > 0 && !reflect.DeepEqual(f.Path, want.Path) {
				t.Fatalf("single path %v: flow %v: %v by %+v, want %v by %+v", tt.single, f.Key, f.Sent, f.Path, want.Sent,
					want.Path)
			}
			if len(f.Path.Hops) > 0 {
				placed++
			}
		}
		share := float64(placed) / float64(len(sim.Flows))
		t.Logf("single path %v: %.4f of the flows have a path; warnings %v", tt.single, share, simulation.Reasons(r))
		if share < tt.share {
			t.Errorf("single path %v: %.4f of the flows have a path, want %v", tt.single, share, tt.share)
		}
	}
}

// TestSearchDetour: a flow takes two switches more than necessary, the most that are tried.
func TestSearchDetour(t *testing.T) {
	sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 40, Slots: 1024, Mean: 10, Seed: 3,
		PerPort: true}) // else the shorter path has the same slots
	unrouted(sim)
	for i, l := range sim.Links {
		if l.To != analysis.Host {
			sim.Net.Search.Arrays[i] = int32(i)
		}
	}
	link := func(from, to int32) int32 {
		return int32(slices.IndexFunc(sim.Links, func(l analysis.Link) bool { return l.From == from && l.To == to }))
	}
	detours := map[flow.Key][]analysis.Hop{}
	for _, f := range sim.Flows {
		hops := f.Path.Hops
		if len(hops) != 5 {
			continue
		}
		// Down to the pod's other edge switch, and up to its other aggregation.
		edge, aggregation := hops[0].Switch, hops[1].Switch
		way := []int32{edge, 8 + edge/2*2 + (aggregation+1)%2, edge ^ 1}
		var taken []analysis.Hop
		for n, at := range append(way, aggregation, hops[2].Switch, hops[3].Switch, hops[4].Switch) {
			hop := hops[0]
			if n > 0 {
				l := link(taken[n-1].Switch, at)
				hop = analysis.Hop{Link: l, Switch: at, Array: l}
			}
			taken = append(taken, hop)
		}
		for _, path := range []struct {
			hops []analysis.Hop
			sign int64
		}{{hops, -1}, {taken, 1}} {
			for n, h := range path.hops {
				cell := sim.Epoch.Recorded[h.Array][int(f.Slots[n%2])*sim.Net.Values:]
				for j := range sim.Net.Values {
					cell[j] += path.sign * f.Sent[j]
				}
			}
		}
		detours[f.Key] = taken
	}
	r := analyze(t, sim)
	found := 0
	for _, f := range simulation.Complete(r) {
		if want, ok := detours[f.Key]; ok && reflect.DeepEqual(f.Path.Hops, want) {
			found++
		} else if ok {
			t.Errorf("flow %v by %+v, want %+v", f.Key, f.Path.Hops, want)
		}
	}
	if found == 0 || found != len(detours) {
		t.Errorf("%d of %d detours found; %v", found, len(detours), simulation.Reasons(r))
	}
}

// TestSearchLongDetour: a flow, or half of it, passes four switches more than necessary, which the
// search does not try. It has no path, and no switch is blamed.
func TestSearchLongDetour(t *testing.T) {
	for _, parts := range []int64{1, 2} {
		sim := simulation.New(simulation.FatTree(4), simulation.Settings{Flows: 1, Slots: 8, PerPort: true})
		f := sim.Add(0, 15, flow.Key{Proto: 6})
		f.Sent = wire.Values{8, 800}
		f.Received = f.Sent
		sim.Count()
		unrouted(sim)
		sim.Net.Search.SinglePath = false
		for i, l := range sim.Links {
			if l.To != analysis.Host {
				sim.Net.Search.Arrays[i] = int32(i)
			}
		}
		hops := f.Path.Hops
		links := []int32{hops[0].Link}
		up, down := hops[1].Switch, hops[3].Switch
		way := []int32{hops[0].Switch, up, hops[0].Switch ^ 1, up ^ 1, 16 + (up^1)%2*2, down ^ 1, hops[4].Switch ^ 1, down,
			hops[4].Switch} // by both edge and both aggregation switches of each pod
		for n := range way[1:] {
			l := analysis.Link{From: way[n], To: way[n+1]}
			links = append(links, int32(slices.Index(sim.Links, l)))
		}
		move := func(n int, link int32, share int64) {
			cell := sim.Epoch.Recorded[link][int(f.Slots[n%2])*sim.Net.Values:]
			cell[wire.Packets] += f.Sent[wire.Packets] * share / parts
			cell[wire.Bytes] += f.Sent[wire.Bytes] * share / parts
		}
		for n, h := range hops {
			move(n, h.Link, -1)
		}
		for n, link := range links {
			move(n, link, 1)
		}
		r := analyze(t, sim)
		if len(r.Unplaced) != 1 || len(r.Unplaced[0].Path.Hops) > 0 || len(simulation.Reasons(r)) > 0 {
			t.Errorf("%d parts: %d flows without a path, reasons %v", parts, len(r.Unplaced), simulation.Reasons(r))
		}
	}
}

// TestSearchWrapped: counters that may have wrapped exclude no path.
func TestSearchWrapped(t *testing.T) {
	two := simulation.New(simulation.FatTree(4), simulation.Settings{Flows: 2, Slots: 64,
		Mapping: func(int, *simulation.Flow) [4]uint16 { return [4]uint16{1, 2} }})
	for _, packets := range []int64{256, 1} { // of two flows by different paths
		port := uint16(0)
		for len(two.Flows) > 0 && reflect.DeepEqual(two.Path(0, 15, flow.Key{SrcPort: port}), two.Flows[0].Path) {
			port++
		}
		f := two.Add(0, 15, flow.Key{SrcPort: port})
		f.Sent = wire.Values{packets, packets}
		f.Received = f.Sent
	}
	two.Count()
	for n, sim := range []*simulation.Simulation{two, two, simulation.Run(simulation.FatTree(4),
		simulation.Settings{Flows: 300, Slots: 64, Mean: 10, Seed: 4})} {
		unrouted(sim)
		sim.Net.Search.SinglePath = n != 1
		sim.Net.Bits = 8
		for _, array := range sim.Epoch.Recorded {
			for i := range array {
				array[i] &= 255
			}
		}
		r := analyze(t, sim)
		for _, f := range slices.Concat(simulation.Complete(r), r.Unplaced, r.Odd) {
			want := sim.Route(&f.Key)
			only := len(want.Path.Hops) == 1 // both hosts are at one switch
			if (only || len(f.Path.Hops) > 0) && !reflect.DeepEqual(f.Path, want.Path) {
				t.Fatalf("%d: flow %v by %+v, want %+v", n, f.Key, f.Path, want.Path)
			}
		}
		if reasons := simulation.Reasons(r); len(reasons) > 0 {
			t.Error(n, reasons)
		}
	}
}

// TestSearchBadRows: neither a slot that switches do not have nor a flow without a destination
// stops the search for the paths of others.
func TestSearchBadRows(t *testing.T) {
	for _, slot := range []uint16{1023, 1024} {
		sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 200, Slots: 1024, Mean: 10, Seed: 6})
		unrouted(sim)
		var b wire.Builder
		b.Begin(&wire.Summary{Host: 0, Epoch: sim.Epoch.Number}, 2, 2)
		b.Egress(&wire.EgressRow{Key: flow.Key{Mask: flow.FiveTuple, Proto: 99}}, &wire.Values{1, 100})
		routed := sim.Flows[slices.IndexFunc(sim.Flows, func(f *simulation.Flow) bool { return f.From == 0 })]
		b.Egress(&wire.EgressRow{Index: 1, Key: routed.Key, Slots: [4]uint16{0, slot}}, &wire.Values{1, 100})
		b.BeginIngress(0)
		sim.Epoch.Reports[0] = b.Data
		r := analyze(t, sim)
		odd := slices.ContainsFunc(r.Odd, func(f analysis.Flow) bool { return f.Key.Proto == 99 })
		if usable := slot < 1024; r.Delivered(0) != usable || odd != usable {
			t.Errorf("slot %d: delivered %v, odd %v", slot, r.Delivered(0), odd)
		}
	}
}

// TestSearchNamesSwitch: the switch whose slots contradict the hosts is named, although the paths
// are sought again without slots.
func TestSearchNamesSwitch(t *testing.T) {
	sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 200, Slots: 1024, Mean: 10, Seed: 9})
	unrouted(sim)
	sim.Epoch.Recorded[3][wire.Packets] += 5
	r := analyze(t, sim)
	for number, reason := range r.Elements {
		want := ""
		if number == 3 {
			want = "1 slots counted packets that no host sent"
		}
		if reason != want {
			t.Errorf("element %d: %q, want %q", number, reason, want)
		}
	}
	for _, f := range slices.Concat(simulation.Complete(r), r.Unplaced) {
		if want := sim.Route(&f.Key); len(f.Path.Hops) > 0 && !reflect.DeepEqual(f.Path, want.Path) {
			t.Errorf("flow %v by %+v, want %+v", f.Key, f.Path, want.Path)
		}
	}
}
