// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/hostagent/omnimon/mapping"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/plugins/omnimon/linear"
)

// Sizes of Exp#5, and the mean of packets of a flow, which the paper does not state.
const (
	accountableFlows = 380_000
	accountableSlots = 512
	accountableMean  = 12
	dropRate         = 0.005
	localFlows       = 0.85
)

// place is a set of switches of the testbed that drop a share of their packets.
type place struct {
	name     string
	switches []int
	rate     float64
}

// lossyPlaces begin with the paper's drop rate. With the last rate about 0.5 % of the flows are
// lossy.
var lossyPlaces = []place{
	{"one switch", []int{1}, dropRate}, {"both edges", []int{0, 1}, dropRate}, {"all three", []int{0, 1, 2}, dropRate},
	{"all three, 0.12 %", []int{0, 1, 2}, 0.0012}, {"all three, 0.036 %", []int{0, 1, 2}, 0.00036},
}

// mappings are the schemes that Exp#5 compares, in its order.
var mappings = []struct {
	name  string
	remap func(sim *simulation.Simulation, seed uint64) error
}{
	{"OmniMon", productMapping}, {"Random", randomSlot}, {"Oracle", oracle},
}

// productMapping assigns slots as the host agents do.
func productMapping(sim *simulation.Simulation, seed uint64) error {
	pools := make([]*mapping.Pool, sim.Hosts)
	for h := range pools {
		share, err := mapping.NewShare(sim.Net.Slots, sim.Net.SlotsPerFlow, h, sim.Hosts, seed)
		if err != nil {
			return err
		}
		pools[h] = mapping.NewPool(share, len(sim.Flows))
	}
	for _, f := range sim.Flows {
		_, slots := pools[f.From].Take()
		f.Slots = slots
	}
	return nil
}

// randomSlot assigns each flow one slot.
func randomSlot(sim *simulation.Simulation, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 5))
	for _, f := range sim.Flows {
		slot := uint16(r.IntN(sim.Net.Slots))
		f.Slots = [4]uint16{slot, slot}
	}
	return nil
}

// oracle knows the lossy flows. It gives them different pairs, each slot to equally many of them,
// also of those with one path.
func oracle(sim *simulation.Simulation, _ uint64) error {
	var lossy []*simulation.Flow
	for _, f := range sim.Flows {
		if f.Lossy() {
			lossy = append(lossy, f)
		}
	}
	slices.SortStableFunc(lossy, func(a, b *simulation.Flow) int {
		return cmp.Or(-cmp.Compare(len(a.Path.Hops), len(b.Path.Hops)),
			cmp.Compare(a.Path.Hops[0].Switch, b.Path.Hops[0].Switch))
	})
	k := sim.Net.Slots
	for i, f := range lossy {
		first := i % k
		f.Slots = [4]uint16{uint16(first), uint16((first + 1 + i/k%(k-1)) % k)}
	}
	return nil
}

// accountability measures Exp#5 with flows times scale² and slots times scale.
func accountability(scale float64, seed uint64) (rows []suite.Row, err error) {
	slots := int(accountableSlots * scale)
	for _, p := range lossyPlaces {
		sim := simulation.Run(simulation.Testbed(), simulation.Settings{
			Flows: int(accountableFlows * scale * scale), Slots: slots, Local: localFlows, Mean: accountableMean,
			Counters: true, Seed: seed,
			Drop: func(element int, _ *simulation.Flow, _ float64, r *rand.Rand) bool {
				return slices.Contains(p.switches, element) && r.Float64() < p.rate
			}})
		for _, m := range mappings {
			if err := m.remap(sim, seed); err != nil {
				return nil, err
			}
			sim.Count()
			row := func(metric string, value float64) {
				rows = append(rows, suite.Row{Structure: m.name, Task: p.name, Metric: metric, Value: value})
			}
			result, err := checked(sim)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", m.name, p.name, err)
			}
			n, determined := switchVariables(result)
			if m.name == mappings[0].name {
				row("lossy flows", float64(len(result.Lossy)))
				row("variables", float64(n))
			}
			row("determined", float64(determined)/float64(n))
			every := sim.Switches * len(result.Lossy)
			row("determined of all switches", 1-float64(n-determined)/float64(every))
			unknowns, found := withoutSteps(sim, result, false)
			row("without step 3", float64(found)/float64(unknowns))
			counted := sim.Epoch
			sim.Epoch.Arrived, sim.Epoch.Departed = nil, nil
			if result, err = checked(sim); err != nil {
				return nil, fmt.Errorf("%s, %s, without counters: %w", m.name, p.name, err)
			}
			sim.Epoch = counted
			n, determined = switchVariables(result)
			row("without port counters", float64(determined)/float64(n))
		}
	}
	return rows, nil
}

// checked analyzes an epoch and compares the result with what happened.
func checked(sim *simulation.Simulation) (*analysis.Result, error) {
	result, err := sim.Analyze()
	if err != nil {
		return nil, err
	}
	if reasons := simulation.Reasons(result); len(reasons) > 0 {
		return nil, fmt.Errorf("%v", reasons)
	}
	return result, sim.Compare(result)
}

// switchVariables counts the paper's variables: packets that a lossy flow lost at one switch of its
// path.
func switchVariables(r *analysis.Result) (all, determined int) {
	for i := range r.Lossy {
		for n, l := range r.Lossy[i].Losses {
			if n%2 == 1 {
				all++
				if l.Packets.Exact() {
					determined++
				}
			}
		}
	}
	return all, determined
}

// withoutSteps solves the equations of steps 1 and 2, and returns the count of unknowns and how
// many are determined. Every lossy flow has an unknown for every switch, or for those on its path.
// What a link loses belongs to the switch before it.
func withoutSteps(sim *simulation.Simulation, r *analysis.Result, onPath bool) (unknowns, determined int) {
	sys := &linear.System{}
	type slot struct {
		array int32
		slot  uint16
	}
	terms, deficits := map[slot][]int32{}, map[slot]int64{}
	var order []slot
	for i := range r.Lossy {
		f := sim.Route(&r.Lossy[i].Key)
		lost := r.Lossy[i].Lost[wire.Packets]
		unknownOf := map[int32]int32{}
		var all []int32
		add := func(s int32) {
			unknownOf[s] = int32(len(sys.Low))
			all = append(all, unknownOf[s])
			sys.Low, sys.High = append(sys.Low, 0), append(sys.High, lost)
		}
		if onPath {
			for _, h := range f.Path.Hops {
				add(h.Switch)
			}
		} else {
			for s := range sim.Switches {
				add(int32(s))
			}
		}
		sys.Add(all, lost)
		var before []int32
		sum := int64(0)
		for hop, h := range f.Path.Hops {
			at := slot{h.Array, f.Slots[hop%2]}
			if _, ok := deficits[at]; !ok {
				order = append(order, at)
			}
			terms[at] = append(terms[at], before...)
			deficits[at] += sum
			before = append(before, unknownOf[h.Switch])
			sum += f.Lost[2*hop+1][wire.Packets] + f.Lost[2*hop+2][wire.Packets]
		}
	}
	for _, at := range order {
		sys.Add(terms[at], deficits[at])
	}
	sys.Solve()
	for u := range sys.Low {
		if sys.Low[u] == sys.High[u] {
			determined++
		}
	}
	return len(sys.Low), determined
}

// placeNames and mappingNames are the tasks and structures of the rows.
func placeNames() (names []string) {
	for _, p := range lossyPlaces {
		names = append(names, p.name)
	}
	return names
}

func mappingNames() (names []string) {
	for _, m := range mappings {
		names = append(names, m.name)
	}
	return names
}

func accountabilityFigure() suite.Suite {
	share := func(metric string) func(v suite.Values) string {
		return func(v suite.Values) string {
			var parts []string
			for _, m := range mappingNames() {
				parts = append(parts, fmt.Sprintf("%s %.4g %%", m, 100*v.Get(m, 0, lossyPlaces[0].name, metric)))
			}
			return strings.Join(parts, ", ")
		}
	}
	// places states the share with the data-center steps.
	places := func(mapping string) func(v suite.Values) string {
		return func(v suite.Values) string {
			var parts []string
			for _, p := range lossyPlaces {
				parts = append(parts, fmt.Sprintf("%s %.4g %%", p.name, 100*v.Get(mapping, 0, p.name, "determined")))
			}
			return strings.Join(parts, ", ")
		}
	}
	everywhere := func(mapping string, least float64, metric string) func(v suite.Values) bool {
		return func(v suite.Values) bool {
			return !slices.ContainsFunc(lossyPlaces, func(p place) bool { return v.Get(mapping, 0, p.name, metric) < least })
		}
	}
	atLeast := func(mapping, metric string, least float64) func(v suite.Values) bool {
		return func(v suite.Values) bool { return v.Get(mapping, 0, lossyPlaces[0].name, metric) >= least }
	}
	plot := func(metric, file, title string) suite.Plot {
		return suite.Plot{File: "omnimon-12-" + file, Title: title, Tasks: placeNames(), Metric: metric}
	}
	return suite.Suite{
		Name:  "omnimon-12",
		Title: "Accountability (OmniMon, Figure 12, Exp#5)",
		Setup: fmt.Sprintf("The paper: its testbed, %d slots, two minutes of CAIDA with 380K flows, 85 %% of them within "+
			"an edge switch, 0.5 %% of the packets dropped at random. It does not state which switches drop them and how many "+
			"flows are lossy. Here: %d generated flows of %d packets on average. One edge switch drops 0.5 %% of its packets, "+
			"or both do, or all three switches, or all three drop 0.12 or 0.036 %%. Mappings are compared on the same losses. "+
			"Random maps a flow to one slot.\n\n"+
			"The paper's own numbers fit 2,048 to 6,144 lossy flows, 0.5 to 1.6 %% of its flows. By its theorem 1 the rank of "+
			"n lossy flows at three switches is at most 2r + n, r at most 512 if the flows use the same slots at all switches "+
			"and 1,536 if not; 50 %% of the 3n variables without step 3 are %d or 6,144 flows. The last two cases have about "+
			"as many lossy flows. With losses of 0.5 %% at all three switches over 20,000 flows are lossy here, and the bound "+
			"is below 40 %%.\n\n"+
			"A variable is the count of packets that a lossy flow lost at one switch of its path. It is "+
			"determined if it has one possible value, and each is compared with what happened. The paper has a variable for "+
			"each lossy flow and each switch, also off its path; the share of those is stated, too. With the data-center "+
			"steps: the plugin's analysis, with its port counters. They show which switches lose packets; the paper assumes "+
			"it (sparsity). It uses all statistics of a slot together; the paper uses packets. Without step 3: "+
			"the equations of steps 1 and 2, with an unknown for each lossy flow at all three switches. Without port "+
			"counters: the plugin's analysis of slots and reports alone, in which links may lose packets, too.\n\n"+
			"With losses at one switch the port counters alone determine all variables, whatever the mapping. With losses of "+
			"0.5 %% at all three switches each slot of the core has ten lossy flows between the edges. One flow in five lost "+
			"several packets; their bytes may be any part before the slot, so other flows there have several solutions, "+
			"which a longer search would not exclude. Random is ahead of the other mappings there because each of its "+
			"flows has the slots of both hops in common with the same flows: it has either few others at both or many "+
			"at both. All variables of a flow are determined only if both slots are, and with a share p of slots that is "+
			"p for one slot, and p² for two independent ones. With fewer losses two slots "+
			"are at least as good.",
			accountableSlots, accountableFlows, accountableMean, 4*accountableSlots),
		Plots: []suite.Plot{
			plot("determined", "with", "With the data-center steps: share determined"),
			plot("determined of all switches", "paper", "With the data-center steps: share of the paper's variables"),
			plot("without step 3", "without", "Without step 3: share determined"),
			plot("without port counters", "counters", "Without port counters: share determined"),
			plot("lossy flows", "lossy", "Lossy flows"), plot("variables", "variables", "Variables"),
		},
		Claims: []suite.Claim{
			{
				Figure: "12(b)", Paper: "with the data-center steps OmniMon infers 99.7 % of the variables",
				Ours: places("OmniMon"), Holds: everywhere("OmniMon", 0.997, "determined"),
				Why: "it holds with losses of 0.5 % at one or both edge switches, and at all three for as many lossy flows as " +
					"the paper's numbers imply at least; not with more of them between the edges than 512 slots resolve",
			},
			{
				Figure: "12(b)", Paper: "with them Oracle infers all",
				Ours: places("Oracle"), Holds: everywhere("Oracle", 1, "determined"),
				Why: "it holds with losses at one edge switch, and at all three with 0.036 %. Oracle's mapping shares slots, " +
					"too",
			},
			{
				Figure: "12(b)", Paper: "without step 3 all schemes infer around 50 %",
				Ours: share("without step 3"), Holds: atLeast("OmniMon", "without step 3", 0.45),
				Why: "a flow within an edge has one equation for its unknowns at all three switches, so none of them has one " +
					"value; the flows between the edges are determined. The paper does not state when a variable counts as inferred",
			},
		},
		Measure: func(_ context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			return accountability(1, o.Seed)
		},
	}
}
