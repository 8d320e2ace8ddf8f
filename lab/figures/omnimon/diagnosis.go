// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

// Sizes of Exp#9. The flows are those of an epoch of `make omnimon-failures`; the paper does not
// state how many it has.
const (
	diagnosisSlots   = 8192
	diagnosisFlows   = 3_200
	diagnosisPackets = 20_000
	diagnosisSeeds   = 20
)

// failures are the paper's, in its order.
var failures = []string{"congestion", "gray failure", "switch crash", "link failure"}

// diagnosis counts the variables of Exp#9 that are determined with the steps of the paper and
// without, in a number of seeds.
func diagnosis(seeds int) (rows []suite.Row, err error) {
	tp := simulation.FatTree(8)
	for _, kind := range failures {
		var variables, with, onPath, everywhere, determined, determinedOnPath int
		for seed := range uint64(seeds) {
			sim := simulation.Run(tp, simulation.Settings{Flows: diagnosisFlows, Slots: diagnosisSlots,
				Mean: float64(diagnosisPackets) / diagnosisFlows, Counters: true, Seed: seed,
				Drop: simulation.Failures(tp, kind, rand.New(rand.NewPCG(seed, 9)))})
			result, err := checked(sim)
			if err != nil {
				return nil, fmt.Errorf("%s, seed %d: %w", kind, seed, err)
			}
			variables, with = variables+result.Variables, with+result.Determined
			n, d := withoutSteps(sim, result, true)
			onPath, determinedOnPath = onPath+n, determinedOnPath+d
			n, d = withoutSteps(sim, result, false)
			everywhere, determined = everywhere+n, determined+d
		}
		row := func(metric string, value float64) {
			rows = append(rows, suite.Row{Structure: "OmniMon", Task: kind, Metric: metric, Value: value})
		}
		row("unknowns", float64(variables))
		row("determined", float64(with)/float64(variables))
		row("without sparsity", float64(determinedOnPath)/float64(onPath))
		row("without step 3", float64(determined)/float64(everywhere))
	}
	return rows, nil
}

func diagnosisFigure() suite.Suite {
	each := func(metric string) func(v suite.Values) string {
		return func(v suite.Values) string {
			var parts []string
			for _, kind := range failures {
				parts = append(parts, fmt.Sprintf("%s %.4g %%", kind, 100*v.Get("OmniMon", 0, kind, metric)))
			}
			return strings.Join(parts, ", ")
		}
	}
	all := func(v suite.Values) bool {
		for _, kind := range failures {
			if v.Get("OmniMon", 0, kind, "determined") < 1 {
				return false
			}
		}
		return true
	}
	plot := func(metric, file, title string) suite.Plot {
		return suite.Plot{File: "omnimon-15-" + file, Title: title, Tasks: failures, Metric: metric}
	}
	return suite.Suite{
		Name:  "omnimon-15",
		Title: "Determined loss variables without data-center steps (OmniMon's technical report, Figure 15(b))",
		Setup: fmt.Sprintf("The 8-ary fat tree of [omnimon-9](omnimon-9.md) without switches and agents: simulated counts "+
			"of %d flows with %d packets on average in all, %d slots, eight failed elements, %d seeds. The analysis is the "+
			"plugin's.\n\n"+
			"With the data-center steps: unknowns on the path of each lossy flow, at switches and links, and counters of "+
			"ports. Without sparsity: an unknown for each switch on the path of a lossy flow, with equations of flows and "+
			"slots only. Without step 3: an unknown for each of the 80 switches, on the path or not. A link's losses belong "+
			"to the switch before it in both, as the paper has no variables of links. What a flow loses at its last switch is "+
			"in no slot, so without locality it may have been lost at any switch off the path, too: those variables stay "+
			"open. The paper does not state how it counts them.",
			diagnosisFlows, diagnosisPackets, diagnosisSlots, diagnosisSeeds),
		Plots: []suite.Plot{
			plot("determined", "with", "With the data-center steps: share determined"),
			plot("without sparsity", "path", "Without sparsity: share determined"),
			plot("without step 3", "without", "Without step 3: share determined"),
		},
		Claims: []suite.Claim{
			{
				Figure: "15(b)", Paper: "with the data-center steps all variables are determined",
				Ours: each("determined"), Holds: all,
			},
			{
				Figure: "15(b)", Paper: "without them all but for switch crashes, of which 72 % are",
				Ours: func(v suite.Values) string {
					return "without sparsity " + each("without sparsity")(v) + "; without step 3 " + each("without step 3")(v)
				},
				Holds: func(v suite.Values) bool {
					return v.Get("OmniMon", 0, failures[0], "without step 3") == 1
				},
				Why: "switch crashes are above the paper's share, the other kinds below: without locality the losses at the " +
					"last switch of a flow stay open. Without sparsity alone nearly all are determined",
			},
		},
		Measure: func(context.Context, *trace.Trace, suite.Options) ([]suite.Row, error) {
			return diagnosis(diagnosisSeeds)
		},
	}
}
