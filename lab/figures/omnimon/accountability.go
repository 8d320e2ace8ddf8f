// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/netsketch/netsketch/hostagent/omnimon/mapping"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/plugins/omnimon/linear"
)

// Sizes of Exp#5, and the mean number of packets of a flow, which the paper does not state.
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

// oracle knows the lossy flows. It gives each a different pair of slots, and each slot to equally
// many of them, also among the flows with the same path.
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

// withoutSteps solves the equations of steps 1 and 2, and returns the numbers of all and of
// determined unknowns. Every lossy flow has an unknown for every switch, or for each switch on its
// path. Losses of a link belong to the switch before it.
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

func mappingNames() (names []string) {
	for _, m := range mappings {
		names = append(names, m.name)
	}
	return names
}

func accountabilityFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: "omnimon-12",
		Measure: func(_ context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			return accountability(1, o.Seed)
		},
	})
}
