// SPDX-License-Identifier: Apache-2.0

package analysis_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/sketch/flow"
)

// analyze analyzes a simulated epoch. It fails if a list of the result is not in its order.
func analyze(t testing.TB, sim *simulation.Simulation) *analysis.Result {
	t.Helper()
	r, err := sim.Analyze()
	if err != nil {
		t.Fatal(err)
	}
	order := func(f, g *analysis.Flow) int {
		return cmp.Or(cmp.Compare(f.Source, g.Source), cmp.Compare(f.Index, g.Index))
	}
	for i, flows := range [][]analysis.Flow{r.Unplaced, r.Odd} {
		if !slices.IsSortedFunc(flows, func(f, g analysis.Flow) int { return order(&f, &g) }) {
			t.Error([]string{"unplaced", "odd"}[i], "flows are not in their order")
		}
	}
	for i, flows := range [][]analysis.LossyFlow{r.Lossy, r.Open} {
		if !slices.IsSortedFunc(flows, func(f, g analysis.LossyFlow) int { return order(&f.Flow, &g.Flow) }) {
			t.Error([]string{"lossy", "open"}[i], "flows are not in their order")
		}
	}
	return r
}

// compare fails if the result differs from what happened.
func compare(t testing.TB, sim *simulation.Simulation, r *analysis.Result) {
	t.Helper()
	if err := sim.Compare(r); err != nil {
		t.Fatal(err)
	}
}

func TestNoLoss(t *testing.T) {
	for _, perPort := range []bool{false, true} {
		sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 5000, Slots: 256, Mean: 8,
			PerPort: perPort, Seed: 1})
		r := analyze(t, sim)
		if len(simulation.Reasons(r)) > 0 || len(r.Lossy) > 0 {
			t.Errorf("%d lossy flows, warnings %v", len(r.Lossy), simulation.Reasons(r))
		}
		compare(t, sim, r)
	}
}

// TestPlainSwitches: switches that do not measure hide nothing but what they and their links lost.
func TestPlainSwitches(t *testing.T) {
	for n := range 20 {
		seed := rand.Uint64()
		loss := []float64{0, 0.001, 0.02}[n%3]
		rng := rand.New(rand.NewPCG(seed, 3))
		plain := make([]bool, 20)
		for i := range plain {
			plain[i] = rng.IntN(3) == 0
		}
		sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 3000, Slots: 256, Mean: 8, Counters: true,
			PerPort: n%2 == 0, Seed: seed, Plain: func(number int32) bool { return plain[number] },
			Drop: func(_ int, _ *simulation.Flow, _ float64, r *rand.Rand) bool { return r.Float64() < loss }})
		r := analyze(t, sim)
		if reasons := simulation.Reasons(r); len(reasons) > 0 || r.Unknown || len(r.Lossy) == 0 != (loss == 0) {
			t.Fatalf("seed %d, loss %v: %d lossy flows, unknown %v, warnings %v", seed, loss, len(r.Lossy), r.Unknown, reasons)
		}
		compare(t, sim, r)
	}
}

// TestNoPath: flows without a path are not exact, and their hosts and all other flows are.
func TestNoPath(t *testing.T) {
	sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 2000, Slots: 256, Mean: 8, Counters: true,
		Seed: rand.Uint64()})
	route, odd := sim.Net.Route, 0
	for _, f := range sim.Flows {
		if f.Index%10 == 0 {
			odd++
		}
	}
	sim.Net.Route = func(source int, k *flow.Key) (int, *analysis.Path) {
		to, path := route(source, k)
		if sim.Route(k).Index%10 == 0 {
			return to, nil
		}
		return to, path
	}
	r := analyze(t, sim)
	for host, reason := range r.Hosts {
		if reason != "" || !r.Complete(host) {
			t.Errorf("host %d: %s", host, reason)
		}
	}
	if len(r.Odd) != odd || len(r.Lossy) != 0 {
		t.Errorf("%d flows without a path of %d, %d lossy", len(r.Odd), odd, len(r.Lossy))
	}
	for i := range r.Odd {
		if reason := r.Reason(&r.Odd[i]); reason != "the collector knows no path of it" || r.Odd[i].Path == nil {
			t.Fatal(reason, r.Odd[i].Path)
		}
	}
}

var kinds = []string{"congestion", "gray failure", "switch crash", "link failure"}

// TestLossDiagnosis is Exp#9 with fewer seeds: every failed switch and link is named with its exact
// loss and no other is, and practically all unknowns are determined.
func TestLossDiagnosis(t *testing.T) {
	variables, determined := 0, 0
	for _, kind := range kinds {
		v, d := diagnose(t, kind, 20_000, 1)
		variables, determined = variables+v, determined+d
	}
	if determined*1000 < variables*999 {
		t.Errorf("%d of %d unknowns determined", determined, variables)
	}
}

// BenchmarkLossDiagnosis is Exp#9: the 8-ary fat tree, four kinds of failures, 20 seeds.
func BenchmarkLossDiagnosis(b *testing.B) {
	for _, kind := range kinds {
		b.Run(strings.ReplaceAll(kind, " ", "-"), func(b *testing.B) {
			variables, determined := 0, 0
			for b.Loop() {
				for seed := range uint64(20) {
					v, d := diagnose(b, kind, 20_000, seed)
					variables, determined = variables+v, determined+d
				}
			}
			b.ReportMetric(float64(variables), "unknowns")
			b.ReportMetric(float64(variables-determined), "undetermined")
		})
	}
}

// diagnose fails if the loss of a switch or link is not exact.
func diagnose(t testing.TB, kind string, flows int, seed uint64) (variables, determined int) {
	t.Helper()
	tp := simulation.FatTree(8)
	sim := simulation.Run(tp, simulation.Settings{Flows: flows, Slots: 8192, Local: 0.55, Mean: 10, Counters: true,
		Seed: seed, Drop: simulation.Failures(tp, kind, rand.New(rand.NewPCG(seed, 9)))})
	r := analyze(t, sim)
	if len(simulation.Reasons(r)) > 0 || len(r.Lossy) == 0 {
		t.Fatalf("%s, seed %d: %d lossy flows, warnings %v", kind, seed, len(r.Lossy), simulation.Reasons(r))
	}
	compare(t, sim, r)
	switches, links := sim.Losses()
	for i, want := range switches {
		if r.Switches[i] != (analysis.Bounds{Low: want, High: want}) {
			t.Errorf("%s, seed %d: switch %d lost %d, result %+v", kind, seed, i, want, r.Switches[i])
		}
	}
	for i, want := range links {
		if r.Links[i] != (analysis.Bounds{Low: want, High: want}) {
			t.Errorf("%s, seed %d: link %d lost %d, result %+v", kind, seed, i, want, r.Links[i])
		}
	}
	return r.Variables, r.Determined
}

// accountability is Exp#5 with a quarter of the slots and a sixteenth of the flows: a drop rate of
// 0.5 %, on the testbed. Without counters of ports only slots and hosts give equations. everywhere
// drops packets at all switches; otherwise one switch drops them.
func accountability(t testing.TB, counters, everywhere bool) (share float64) {
	t.Helper()
	const slots = 128
	sim := simulation.Run(simulation.Testbed(), simulation.Settings{Flows: 23_750, Slots: slots,
		Local: 0.85, Mean: 12, Counters: counters, Seed: 5, Mapping: func(n int, _ *simulation.Flow) [4]uint16 {
			return simulation.Pair(n % (slots * (slots - 1) / 2))
		},
		Drop: func(element int, _ *simulation.Flow, _ float64, r *rand.Rand) bool {
			return (element == 1 || everywhere && element < 3) && r.Float64() < 0.005
		}})
	r := analyze(t, sim)
	if len(simulation.Reasons(r)) > 0 {
		t.Fatalf("warnings %v", simulation.Reasons(r))
	}
	compare(t, sim, r)
	return float64(r.Determined) / float64(r.Variables)
}

// TestAccountability: without counters of ports nothing separates a switch from the link behind it.
// lab/figures/omnimon measures Exp#5 at its size.
func TestAccountability(t *testing.T) {
	for _, tc := range []struct {
		counters, everywhere bool
		want                 float64
	}{{true, false, 1}, {false, false, 0.42}, {true, true, 0.97}, {false, true, 0.33}} {
		if got := accountability(t, tc.counters, tc.everywhere); got < tc.want {
			t.Errorf("counters %v, all switches %v: %.4f of the unknowns determined, want %v", tc.counters, tc.everywhere,
				got, tc.want)
		}
	}
}

// TestManyLosses: all switches and links drop packets, and few slots have many lossy flows. Bounds
// contain what happened, and nothing that is exact differs from it. They are no wider, and no fewer
// values are known, than when this test was written.
func TestManyLosses(t *testing.T) {
	var determined, values, width int64
	for seed := range uint64(12) {
		rate := 0.02 * float64(1+seed%5)
		sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 300, Slots: 8 << (seed % 4), Mean: 4,
			Counters: seed%3 > 0, PerPort: seed%2 == 0, Seed: seed,
			Drop: func(_ int, _ *simulation.Flow, _ float64, r *rand.Rand) bool { return r.Float64() < rate }})
		r := analyze(t, sim)
		if len(simulation.Reasons(r)) > 0 || len(r.Lossy) < 50 {
			t.Errorf("seed %d: %d lossy flows, %v", seed, len(r.Lossy), simulation.Reasons(r))
		}
		compare(t, sim, r)
		determined += int64(r.Determined)
		for i := range r.Lossy {
			for _, l := range r.Lossy[i].Losses {
				if width += l.Packets.High - l.Packets.Low; l.Exact {
					values++
				}
			}
		}
	}
	t.Logf("%d losses have a number of packets, %d all values; bounds are %d packets wide", determined, values, width)
	if determined < 12152 || values < 12120 || width > 16961 {
		t.Error("less is known than before")
	}
}

// TestUndeterminedHasBounds is the paper's figure 5: two flows with the same mapping that pass the
// same two switches, each of which drops one packet. If the packets have equal values, none is
// determined, and none is guessed; if not, all are.
func TestUndeterminedHasBounds(t *testing.T) {
	for _, alike := range []bool{true, false} {
		sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: 2, Slots: 4, Counters: true,
			Mapping: func(int, *simulation.Flow) [4]uint16 { return [4]uint16{0, 1} }})
		for n := range 2 {
			f := sim.Add(0, 4, flow.Key{Proto: 6, SrcPort: uint16(n)})
			packet := wire.Values{1, 100}
			if !alike {
				packet[wire.Bytes] += int64(n)
			}
			f.Sent.Add(&packet)
			f.Received.Add(&packet)
			f.Sent.Add(&packet)
			f.Lost[3+2*n].Add(&packet)
		}
		sim.Count()
		r := analyze(t, sim)
		compare(t, sim, r)
		if len(r.Lossy) != 2 || (r.Determined == r.Variables) == alike || len(simulation.Reasons(r)) > 0 {
			t.Fatalf("alike %v: %d lossy flows, %d of %d unknowns determined, %v", alike, len(r.Lossy), r.Determined,
				r.Variables, simulation.Reasons(r))
		}
		want := analysis.Loss{Packets: analysis.Bounds{Low: 0, High: 1}}
		if !alike {
			want = analysis.Loss{Packets: analysis.Bounds{Low: 1, High: 1}, Values: wire.Values{1, 100}, Exact: true}
		}
		if l := r.Lossy[0].Losses[3]; l != want {
			t.Errorf("alike %v: loss %+v, want %+v", alike, l, want)
		}
		if one := (analysis.Bounds{Low: 1, High: 1}); r.Switches[1] != one || r.Switches[2] != one {
			t.Errorf("alike %v: switches lost %+v", alike, r.Switches)
		}
	}
}

// TestElementsDetermine: a flow loses packets at a switch and at the link behind it. Its slots lack
// the sum; the counters of the ports on both sides of each element show the parts.
func TestElementsDetermine(t *testing.T) {
	sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: 1, Slots: 4, Counters: true,
		Mapping: func(int, *simulation.Flow) [4]uint16 { return [4]uint16{0, 1} }})
	f := sim.Add(0, 4, flow.Key{Proto: 6, SrcPort: 1})
	for n := range 9 {
		packet := wire.Values{1, 100 + int64(n)}
		f.Sent.Add(&packet)
		switch {
		case n < 2:
			f.Lost[1].Add(&packet)
		case n < 5:
			f.Lost[2].Add(&packet)
		default:
			f.Received.Add(&packet)
		}
	}
	sim.Count()
	r := analyze(t, sim)
	compare(t, sim, r)
	if r.Determined != r.Variables || len(simulation.Reasons(r)) > 0 {
		t.Fatalf("%d of %d unknowns determined, %v", r.Determined, r.Variables, simulation.Reasons(r))
	}
	for n, want := range []int64{0, 2, 3, 0, 0} {
		if l := r.Lossy[0].Losses[n].Packets; l != (analysis.Bounds{Low: want, High: want}) {
			t.Errorf("loss %d is %+v, want %d", n, l, want)
		}
	}
}

func TestMissingData(t *testing.T) {
	make4 := func() *simulation.Simulation {
		tp := simulation.FatTree(4)
		return simulation.Run(tp, simulation.Settings{Flows: 3000, Slots: 512, Mean: 10, Counters: true, Seed: 4,
			Drop: simulation.Failures(tp, "congestion", rand.New(rand.NewPCG(4, 4)))})
	}
	t.Run("a host", func(t *testing.T) {
		sim := make4()
		sim.Epoch.Reports[3] = nil
		r := analyze(t, sim)
		if r.Missing != 1 || len(simulation.Reasons(r)) != 1 || r.Hosts[3] != "no report" {
			t.Errorf("%d missing, reasons %v", r.Missing, simulation.Reasons(r))
		}
		contains(t, sim, r)
		complete := 0
		for _, f := range simulation.Complete(r) {
			if want := sim.Route(&f.Key); f.Sent != want.Sent || want.Sent != want.Received || want.From == 3 || want.To == 3 {
				t.Fatalf("flow %v: %v, want %v", f.Key, f.Sent, want.Sent)
			}
			complete++
		}
		if complete < 2000 {
			t.Errorf("%d complete flows", complete)
		}
	})
	t.Run("a switch", func(t *testing.T) {
		sim := make4()
		sim.Epoch.Recorded[6] = nil
		for i, l := range sim.Links {
			if l.From == 6 {
				sim.Epoch.Departed[i] = -1
			}
			if l.To == 6 {
				sim.Epoch.Arrived[i] = -1
			}
		}
		r := analyze(t, sim)
		if len(simulation.Reasons(r)) > 0 {
			t.Errorf("warnings %v", simulation.Reasons(r))
		}
		compare(t, sim, r)
	})
	t.Run("a counter of a port", func(t *testing.T) {
		sim := make4()
		for i, l := range sim.Links {
			if l.To == 6 {
				sim.Epoch.Arrived[i] = -1
			}
		}
		r := analyze(t, sim)
		if len(simulation.Reasons(r)) > 0 {
			t.Errorf("warnings %v", simulation.Reasons(r))
		}
		compare(t, sim, r)
	})
	t.Run("the last hosts", func(t *testing.T) {
		sim := make4()
		sim.Epoch.Reports = sim.Epoch.Reports[:14]
		if r := analyze(t, sim); r.Missing != 2 {
			t.Errorf("warnings %v", simulation.Reasons(r))
		}
	})
	t.Run("the last switches", func(t *testing.T) {
		sim := make4()
		sim.Epoch.Recorded = sim.Epoch.Recorded[:14]
		compare(t, sim, analyze(t, sim))
	})
	t.Run("a cut report", func(t *testing.T) {
		sim := make4()
		sim.Epoch.Reports[2] = sim.Epoch.Reports[2][:100]
		if r := analyze(t, sim); !warned(r, "invalid OmniMon report") || r.Missing != 1 {
			t.Errorf("warnings %v", simulation.Reasons(r))
		}
	})
	t.Run("the report of another host", func(t *testing.T) {
		sim := make4()
		sim.Epoch.Reports[2] = sim.Epoch.Reports[1]
		if r := analyze(t, sim); !warned(r, "report of host 1") {
			t.Errorf("warnings %v", simulation.Reasons(r))
		}
	})
	t.Run("packets that no host sent", func(t *testing.T) {
		sim := make4()
		sim.Epoch.Recorded[0][0] += 1000
		r := analyze(t, sim)
		if !warned(r, "1 slots counted packets that no host sent") || !r.Unknown {
			t.Errorf("unknown %v, warnings %v", r.Unknown, simulation.Reasons(r))
		}
		if contains(t, sim, r); !r.Switches[0].Exact() {
			t.Errorf("the switch, whose ports are counted, lost %+v", r.Switches[0])
		}
	})
}

// TestUncountedPackets: a switch does not count packets that arrive, as after its read-out. The
// results are not exact, although no flow lost anything.
func TestUncountedPackets(t *testing.T) {
	sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 300, Slots: 512, Mean: 3, Counters: true,
		Seed: 4})
	f := sim.Flows[slices.IndexFunc(sim.Flows, func(f *simulation.Flow) bool { return len(f.Path.Hops) > 1 })]
	hop := f.Path.Hops[1]
	sim.Epoch.Recorded[hop.Array][int(f.Slots[1])*sim.Net.Values] -= 2
	if r := analyze(t, sim); len(simulation.Reasons(r)) != 1 || !warned(r, "1 slots did not count packets that arrived") {
		t.Errorf("a slot: warnings %v", simulation.Reasons(r))
	}
	f.Lost[2], f.Received = f.Sent, wire.Values{} // on the link
	sim.Count()
	sim.Epoch.Arrived[hop.Link] -= 2
	r := analyze(t, sim)
	contains(t, sim, r)
	if r.Elements[sim.Switches+int(hop.Link)] != "it did not count 2 packets that arrived" ||
		r.Elements[hop.Switch] != "it sent 2 packets that it did not receive" || len(simulation.Reasons(r)) != 2 {
		t.Errorf("a port: reasons %v", simulation.Reasons(r))
	}
}

// TestAnotherPort: a switch counts packets as sent by another port. Neither link is known then, and
// the switch is.
func TestAnotherPort(t *testing.T) {
	sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 300, Slots: 512, Mean: 3, Counters: true,
		Seed: 4})
	f := sim.Flows[slices.IndexFunc(sim.Flows, func(f *simulation.Flow) bool { return len(f.Path.Hops) == 5 })]
	to := int(f.Path.Hops[1].Link)
	other := slices.IndexFunc(sim.Links, func(l analysis.Link) bool {
		return l.From == sim.Links[to].From && l.To != analysis.Host && l.To != sim.Links[to].To
	})
	sim.Epoch.Departed[to] += 2
	sim.Epoch.Departed[other] -= 2
	r := analyze(t, sim)
	contains(t, sim, r)
	for link, want := range map[int]string{to: "it did not count 2 packets that arrived",
		other: "it sent 2 packets that it did not receive"} {
		if got := r.Elements[sim.Switches+link]; got != want {
			t.Errorf("link %d: %q, want %q", link, got, want)
		}
	}
	if s := sim.Links[to].From; r.Elements[s] != "" || r.Switches[s] != (analysis.Bounds{}) {
		t.Errorf("switch %d: %q, %+v", s, r.Elements[s], r.Switches[s])
	}
}

// TestDistrustedSwitch: the ports of a switch whose slots lack packets prove nothing about its
// links.
func TestDistrustedSwitch(t *testing.T) {
	sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: 1, Slots: 4, Counters: true,
		Mapping: func(int, *simulation.Flow) [4]uint16 { return [4]uint16{0, 1} }})
	f := sim.Add(0, 4, flow.Key{Proto: 6, SrcPort: 1})
	for n := range 9 {
		packet := wire.Values{1, 100}
		f.Sent.Add(&packet)
		if n < 3 {
			f.Lost[1].Add(&packet) // at the first switch
		} else {
			f.Received.Add(&packet)
		}
	}
	sim.Count()
	first, second := f.Path.Hops[0], f.Path.Hops[1]
	clear(sim.Epoch.Recorded[first.Array])
	sim.Epoch.Departed[second.Link] += 2 // as if the link behind the switch lost two of them
	r := analyze(t, sim)
	if !warned(r, "slots did not count packets that arrived") || len(r.Contradictions) > 0 {
		t.Errorf("reasons %v", simulation.Reasons(r))
	}
	contains(t, sim, r)

	// The counter of arrivals at the switch behind the link is two too low.
	sim.Count()
	clear(sim.Epoch.Recorded[second.Array])
	sim.Epoch.Arrived[second.Link] -= 2
	contains(t, sim, analyze(t, sim))
}

// TestEachHostMissing: without the report of any one host, nothing contradicts, and bounds hold.
func TestEachHostMissing(t *testing.T) {
	tp := simulation.FatTree(4)
	for host := range 16 {
		sim := simulation.Run(tp, simulation.Settings{Flows: 300, Slots: 512, Mean: 3, Counters: true, Seed: 9,
			Drop: simulation.Failures(tp, "congestion", rand.New(rand.NewPCG(9, 9)))})
		sim.Epoch.Reports[host] = nil
		for i, l := range sim.Links { // no switch counts at the hosts' side of a link
			if l.From == analysis.Host {
				sim.Epoch.Departed[i] = -1
			}
			if l.To == analysis.Host {
				sim.Epoch.Arrived[i] = -1
			}
		}
		r := analyze(t, sim)
		if reasons := simulation.Reasons(r); len(reasons) != 1 || r.Hosts[host] != "no report" || !r.Unknown {
			t.Errorf("host %d: %v, unknown %v", host, reasons, r.Unknown)
		}
		contains(t, sim, r)
	}
}

// TestFirstLink: links of a missing host are unknown, also if one is the network's first. From a
// host of which no packet arrived, the link may have lost any number, and nothing else is unknown.
func TestFirstLink(t *testing.T) {
	const host = 3
	for n := range 4 {
		up, silent := n%2 == 0, n > 1
		sim := simulation.Run(simulation.FatTree(4), simulation.Settings{Flows: 300, Slots: 512, Mean: 3, Counters: true,
			Seed: 9})
		if silent {
			sim.Flows = slices.DeleteFunc(sim.Flows, func(f *simulation.Flow) bool { return f.From == host || f.To == host })
			sim.Count()
		}
		net := &sim.Net
		first := net.Downlinks[host]
		if up {
			first = net.Uplinks[host]
		}
		number := func(link *int32) { // exchanges the first link and the host's
			switch *link {
			case 0:
				*link = first
			case first:
				*link = 0
			}
		}
		for i := range net.Uplinks {
			number(&net.Uplinks[i])
			number(&net.Downlinks[i])
		}
		net.Links = slices.Clone(net.Links)
		net.Links[0], net.Links[first] = net.Links[first], net.Links[0]
		for _, counts := range [][]int64{sim.Epoch.Departed, sim.Epoch.Arrived} {
			counts[0], counts[first] = counts[first], counts[0]
		}
		route := net.Route
		net.Route = func(source int, k *flow.Key) (int, *analysis.Path) {
			to, path := route(source, k)
			p := *path
			p.Hops = slices.Clone(p.Hops)
			for i := range p.Hops {
				number(&p.Hops[i].Link)
			}
			number(&p.Last)
			return to, &p
		}
		if r := analyze(t, sim); len(simulation.Reasons(r)) > 0 || len(r.Lossy) > 0 {
			t.Fatalf("%d lossy flows, %v", len(r.Lossy), simulation.Reasons(r))
		}
		sim.Epoch.Reports[host] = nil
		r := analyze(t, sim)
		if len(simulation.Reasons(r)) != 1 || r.Hosts[host] != "no report" || r.Links[0].Low > 0 {
			t.Errorf("up %v: %v; the link, which lost nothing, lost %+v", up, simulation.Reasons(r), r.Links[0])
		}
		if silent && r.Unknown {
			t.Errorf("up %v: any element may have lost packets", up)
		}
		for i, b := range append(slices.Clone(r.Links), r.Switches...) {
			if from := i == int(net.Uplinks[host]); silent && (b.Low != 0 || (b.High == analysis.Unlimited) != from ||
				!from && b.High != 0) {
				t.Errorf("up %v: link or switch %d lost %+v", up, i, b)
			}
		}
	}
}

// TestNoPacketsBehind: where all packets of a flow are lost at the first switch or before it, the
// counters behind it show that nothing was lost there, even if no packet came so far.
func TestNoPacketsBehind(t *testing.T) {
	sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: 1, Slots: 4, Counters: true,
		Mapping: func(int, *simulation.Flow) [4]uint16 { return [4]uint16{0, 1} }})
	f := sim.Add(0, 4, flow.Key{Proto: 6, SrcPort: 1})
	packet := wire.Values{1, 100}
	f.Sent.Add(&packet)
	f.Lost[1].Add(&packet)
	sim.Count()
	sim.Epoch.Arrived[f.Path.Hops[0].Link] = -1
	for i := range sim.Epoch.Recorded {
		sim.Epoch.Recorded[i] = nil
	}
	r := analyze(t, sim)
	contains(t, sim, r)
	var none analysis.Bounds
	for _, h := range f.Path.Hops[1:] {
		if r.Links[h.Link] != none || r.Switches[h.Switch] != none {
			t.Errorf("link %d lost %+v, switch %d %+v", h.Link, r.Links[h.Link], h.Switch, r.Switches[h.Switch])
		}
	}
	if r.Links[f.Path.Last] != none {
		t.Errorf("the last link lost %+v", r.Links[f.Path.Last])
	}

	// The packets that leave the first switch are not counted.
	sim.Count()
	sim.Epoch.Departed[f.Path.Hops[1].Link] = -1
	r = analyze(t, sim)
	contains(t, sim, r)
	if reasons := simulation.Reasons(r); len(reasons) > 0 {
		t.Error(reasons)
	}
}

// TestSlotsAlone: without counters of ports, slots show what a link to the first switch lost. If
// slots contradict each other, nothing is narrowed by them.
func TestSlotsAlone(t *testing.T) {
	sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: 1, Slots: 4,
		Mapping: func(int, *simulation.Flow) [4]uint16 { return [4]uint16{0, 1} }})
	f := sim.Add(0, 4, flow.Key{Proto: 6, SrcPort: 1})
	packet := wire.Values{1, 100}
	for range 2 {
		f.Sent.Add(&packet)
		f.Lost[0].Add(&packet)
	}
	sim.Count()
	r := analyze(t, sim)
	compare(t, sim, r)
	if lost := r.Links[f.Path.Hops[0].Link]; lost != (analysis.Bounds{Low: 2, High: 2}) || len(simulation.Reasons(r)) > 0 {
		t.Errorf("the first link lost %+v, %v", lost, simulation.Reasons(r))
	}

	second := sim.Epoch.Recorded[f.Path.Hops[1].Array][int(f.Slots[1])*sim.Net.Values:]
	second[wire.Packets], second[wire.Bytes] = 2, 200 // as if the packets arrived behind the first switch
	r = analyze(t, sim)
	if len(r.Contradictions) != 2 { // of packets and of bytes
		t.Errorf("contradictions %v", r.Contradictions)
	}
	for n, l := range r.Lossy[0].Losses {
		if l.Packets != (analysis.Bounds{Low: 0, High: 2}) || l.Exact {
			t.Errorf("loss %d: %+v", n, l)
		}
	}
}

func warned(r *analysis.Result, text string) bool {
	return slices.ContainsFunc(simulation.Reasons(r), func(w string) bool { return strings.Contains(w, text) })
}

// contains fails if a bound does not contain what happened.
func contains(t *testing.T, sim *simulation.Simulation, r *analysis.Result) {
	t.Helper()
	if err := sim.Contains(r); err != nil {
		t.Fatal(err)
	}
}

// TestMissingHosts: missing hosts are unknowns. The losses of all switches, and of all links
// between them, stay exact; flows between other hosts stay known, and so do losses where counters
// show them.
func TestMissingHosts(t *testing.T) {
	for seed := range uint64(12) {
		missing, kind := []int{1, 2, 8}[seed%3], kinds[seed%4]
		for _, silent := range []bool{false, true} {
			tp := simulation.FatTree(4)
			sim := simulation.Run(tp, simulation.Settings{Flows: 2000, Slots: 1024, Mean: 6, Counters: true, Seed: seed,
				PerPort: seed%2 == 0, Drop: simulation.Failures(tp, kind, rand.New(rand.NewPCG(seed, 4)))})
			gone := func(host int) bool { return host < missing }
			if silent { // the agents of silent hosts do not run, and packets to them have no header
				sim.Flows = slices.DeleteFunc(sim.Flows, func(f *simulation.Flow) bool { return gone(f.From) || gone(f.To) })
				sim.Count()
			}
			for host := range missing {
				sim.Epoch.Reports[host] = nil
			}
			r := analyze(t, sim)
			contains(t, sim, r)
			if len(r.Contradictions) > 0 || r.Missing != missing ||
				slices.ContainsFunc(r.Elements, func(s string) bool { return s != "" }) {
				t.Errorf("seed %d: %d missing, %v", seed, r.Missing, simulation.Reasons(r))
			}
			for i, l := range sim.Links {
				if b := r.Links[i]; l.From != analysis.Host && l.To != analysis.Host && !b.Exact() {
					t.Errorf("seed %d: link %d: %+v", seed, i, b)
				}
			}
			for i, b := range r.Switches {
				if !b.Exact() {
					t.Errorf("seed %d: switch %d: %+v", seed, i, b)
				}
			}
			lossy, complete := 0, 0
			for _, f := range sim.Flows {
				switch {
				case gone(f.From) || gone(f.To):
				case f.Lossy():
					lossy++
				default:
					complete++
				}
			}
			if n := len(simulation.Complete(r)); n != complete || len(r.Lossy) != lossy || lossy == 0 {
				t.Errorf("seed %d: %d complete and %d lossy flows, want %d and %d", seed, n, len(r.Lossy), complete, lossy)
			}
			for i := range r.Open {
				if f := &r.Open[i]; !gone(f.Destination) || r.Exact(&f.Flow) || !strings.Contains(r.Reason(&f.Flow), "is missing") {
					t.Fatalf("open flow %+v: %q", f.Flow, r.Reason(&f.Flow))
				}
			}
			switch share := float64(r.Determined) / float64(r.Variables); {
			case silent && share < 0.998:
				t.Errorf("%s, %d silent hosts, seed %d: %d of %d unknowns determined", kind, missing, seed, r.Determined,
					r.Variables)
			default:
				t.Logf("%s, %d missing hosts, silent %v: %d of %d unknowns determined", kind, missing, silent, r.Determined,
					r.Variables)
			}
		}
	}
}

// TestAnyFailures: hosts and switches are missing, hosts cannot attribute packets, and others send
// packets with a header, in any combination. Bounds contain what happened, and nothing that is
// exact differs from it. What counts exclude is excluded: bounds are no wider, and no fewer values
// are known, than when this test was written.
func TestAnyFailures(t *testing.T) {
	exact, bounded := 0, 0
	var determined, values, width, unlimited int64
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 77))
		tp := simulation.FatTree(4)
		settings := simulation.Settings{Flows: 200 + r.IntN(800), Slots: 16 << r.IntN(7), Mean: 4, Counters: r.IntN(4) > 0,
			Seed: seed, PerPort: r.IntN(2) == 0, Extremes: int(seed % 5), MinimumFirst: seed%4 > 1}
		if rate := r.Float64() * 0.03; r.IntN(3) > 0 {
			settings.Drop = func(_ int, _ *simulation.Flow, _ float64, r *rand.Rand) bool { return r.Float64() < rate }
		} else {
			settings.Drop = simulation.Failures(tp, kinds[r.IntN(4)], r)
		}
		sim := simulation.Run(tp, settings)
		for _, f := range sim.Flows {
			if seed%3 == 1 && r.IntN(100) == 0 {
				f.Hidden = true
			}
			if seed%2 == 1 && r.IntN(20) == 0 && f.Received[wire.Packets] > 1 {
				kind := wire.SYN
				for f.Received[kind] == 0 {
					kind++
				}
				f.Uncounted[wire.Packets], f.Uncounted[wire.Bytes], f.Uncounted[kind] = 1, 40, 1
			}
		}
		sim.Count()
		for range r.IntN(4) {
			sim.Epoch.Reports[r.IntN(sim.Hosts)] = nil
		}
		if r.IntN(3) == 0 {
			sim.Epoch.Recorded[r.IntN(len(sim.Epoch.Recorded))] = nil
		}
		if link := r.IntN(len(sim.Links)); r.IntN(3) == 0 && settings.Counters {
			sim.Epoch.Arrived[link] = -1
		}
		result := analyze(t, sim)
		if err := sim.Contains(result); err != nil {
			t.Fatalf("seed %d: %v; %v", seed, err, simulation.Reasons(result))
		}
		widen := func(b analysis.Bounds) {
			if b.High >= analysis.Unlimited {
				unlimited++
			} else {
				width += b.High - b.Low
			}
		}
		for _, b := range slices.Concat(result.Switches, result.Links) {
			widen(b)
		}
		determined += int64(result.Determined)
		check := func(f *analysis.Flow) {
			want := sim.Route(&f.Key)
			lost := want.Sent
			lost.Sub(&want.Received)
			if !result.Exact(f) {
				bounded++
			} else if exact++; f.Sent != want.Sent || f.Lost != lost && f.Lost != (wire.Values{}) || want.Hidden {
				t.Fatalf("seed %d: flow %+v, want %+v", seed, f, want)
			}
		}
		for _, f := range simulation.Complete(result) {
			if check(&f); sim.Route(&f.Key).Lossy() {
				t.Fatalf("seed %d: flow %+v is lossy", seed, f)
			}
		}
		for _, flows := range [][]analysis.LossyFlow{result.Lossy, result.Open} {
			for i := range flows {
				check(&flows[i].Flow)
				for _, l := range flows[i].Losses {
					if widen(l.Packets); l.Exact {
						values++
					}
				}
			}
		}
	}
	t.Logf("%d flows are exact, %d are not; %d losses have a number of packets, %d all values; %d bounds have no limit, "+
		"the others are %d packets wide", exact, bounded, determined, values, unlimited, width)
	if determined < 23100 || values < 32528 || unlimited > 1080 || width > 62898 {
		t.Error("less is known than before")
	}
}

// TestExtremes: the lost differences of maxima and minima are found as other values are (paper,
// appendix E). A maximum or minimum at a switch is the one of the packets that arrived there.
func TestExtremes(t *testing.T) {
	for seed := range uint64(6) {
		tp := simulation.FatTree(4)
		settings := simulation.Settings{Flows: 3000, Slots: 1024, Mean: 8, Counters: true, Seed: seed, Extremes: 4}
		if seed%2 > 0 {
			settings.Values = 2 // so not all statistics of a loss are known
		}
		lossy := rand.New(rand.NewPCG(seed, 6)).Perm(tp.Switches)[:3]
		settings.Drop = func(element int, _ *simulation.Flow, _ float64, r *rand.Rand) bool {
			return slices.Contains(lossy, element) && r.Float64() < 0.1
		}
		sim := simulation.Run(tp, settings)
		result := analyze(t, sim)
		if err := sim.Contains(result); err != nil || len(simulation.Reasons(result)) > 0 {
			t.Fatalf("seed %d: %v; %v", seed, err, simulation.Reasons(result))
		}
		var parts, known, places, found, raised int
		for i := range result.Lossy {
			f := &result.Lossy[i]
			want := sim.Route(&f.Key)
			for n, l := range f.Losses {
				if lost := want.Lost[n]; lost[wire.Packets] > 0 && lost != f.Lost {
					parts++
					if l.Exact {
						known++
					}
				}
			}
			for hop, arrived := range want.Arrived {
				for e := range settings.Extremes {
					v, ok := f.Extreme(e, e%2 > 0, hop)
					switch {
					case ok && (arrived == nil || arrived[e] != v):
						t.Fatalf("seed %d: extreme %d of %v at hop %d is %d, want %v", seed, e, f.Key, hop, v, arrived)
					case ok:
						found++
					case arrived != nil && arrived[e] != f.Sent[wire.FirstExtreme+wire.Statistic(e)]:
						raised++ // the packet with the extreme was lost
					}
					places++
				}
			}
		}
		t.Logf("seed %d: %d of %d losses of a part, %d of %d extremes are known, %d lost", seed, known, parts, found, places,
			raised)
		if parts < 20 || settings.Values == 0 && known*100 < parts*90 || found*100 < places*45 || raised == 0 {
			t.Errorf("seed %d: too few are known", seed)
		}
	}
}

func TestNewRefusesBadNetworks(t *testing.T) {
	for want, net := range map[string]analysis.Network{"0 statistics": {Bits: 32},
		"5 maxima": {Values: 8, Extremes: 5, Bits: 32}, "9 statistics": {Values: 9, Bits: 32},
		"counters of 4 bits": {Values: 8, Bits: 4}, "70000 hosts": {Values: 8, Bits: 32, Hosts: 70_000}} {
		if _, err := analysis.New(net); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	one, many := []int32{-1}, make([]int32, 1<<16)
	for _, net := range []analysis.Network{{Values: 1, Bits: 8, Uplinks: one}, {Values: 1, Bits: 8, Downlinks: one},
		{Values: 1, Bits: 8, SwitchOf: one}} {
		if _, err := analysis.New(net); err == nil || !strings.HasPrefix(err.Error(), "links of") {
			t.Errorf("%+v: %v", net, err)
		}
	}
	for _, net := range []analysis.Network{{Values: 1, Bits: 8}, {Values: 8, Extremes: 4, Bits: 64},
		{Values: 1, Bits: 8, Hosts: len(many), Uplinks: many, Downlinks: many}} {
		if _, err := analysis.New(net); err != nil {
			t.Errorf("%d statistics, %d bits, %d hosts: %v", net.Values, net.Bits, net.Hosts, err)
		}
	}
}

// BenchmarkAnalyze measures an epoch of 1,000,000 flows on the paper's testbed (Exp#3), without
// loss and with loss of about 0.5 % of the flows.
func BenchmarkAnalyze(b *testing.B) {
	for _, losses := range []bool{false, true} {
		b.Run(fmt.Sprintf("losses=%v", losses), func(b *testing.B) {
			sim := simulation.Controller(1_000_000, losses)
			a, err := analysis.New(sim.Net)
			if err != nil {
				b.Fatal(err)
			}
			a.Analyze(&sim.Epoch)
			var r *analysis.Result
			start := cpuTime(b)
			for b.Loop() {
				r = a.Analyze(&sim.Epoch)
			}
			b.ReportMetric(float64((cpuTime(b)-start).Milliseconds())/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(len(r.Lossy)), "lossy-flows")
			if len(simulation.Reasons(r)) > 0 || r.Flows != 1_000_000 || losses != (len(r.Lossy) > 0) {
				b.Fatalf("%d flows, %d lossy, %v", r.Flows, len(r.Lossy), simulation.Reasons(r))
			}
		})
	}
}

// cpuTime is the processor time of this process, on all processors.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
