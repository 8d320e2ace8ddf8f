// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

// Sizes of Exp#9. The flows are the flows of an epoch of `make omnimon-failures`; the paper does
// not state their number.
const (
	diagnosisSlots   = 8192
	diagnosisFlows   = 3_200
	diagnosisPackets = 20_000
	diagnosisSeeds   = 20
)

// failures are the paper's kinds of failures, in its order.
var failures = []string{"congestion", "gray failure", "switch crash", "link failure"}

// diagnosis counts the variables of Exp#9 that are determined with and without the paper's steps,
// over a number of seeds.
func diagnosis(seeds int) (rows []suite.Row, err error) {
	tp := simulation.FatTree(8)
	for _, kind := range failures {
		var variables, with, onPath, everywhere, determined, determinedOnPath, uncounted, determinedUncounted int
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
			sim.Epoch.Arrived, sim.Epoch.Departed = nil, nil
			if result, err = checked(sim); err != nil {
				return nil, fmt.Errorf("%s, seed %d, without counters: %w", kind, seed, err)
			}
			n, d = switchVariables(result)
			uncounted, determinedUncounted = uncounted+n, determinedUncounted+d
		}
		row := func(metric string, value float64) {
			rows = append(rows, suite.Row{Structure: "OmniMon", Task: kind, Metric: metric, Value: value})
		}
		row("unknowns", float64(variables))
		row("determined", float64(with)/float64(variables))
		row("without port counters", float64(determinedUncounted)/float64(uncounted))
		row("without sparsity", float64(determinedOnPath)/float64(onPath))
		row("without step 3", float64(determined)/float64(everywhere))
	}
	return rows, nil
}

func diagnosisFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: "omnimon-15",
		Measure: func(context.Context, *trace.Trace, suite.Options) ([]suite.Row, error) {
			return diagnosis(diagnosisSeeds)
		},
	})
}
