// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/mapping"
	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
)

// Runs of each measurement; the least time counts.
const overheadRuns = 20

// spent returns the least elapsed and processor time of f.
func spent(runs int, f func()) (elapsed, processor time.Duration) {
	elapsed, processor = math.MaxInt64, math.MaxInt64
	for range runs {
		runtime.GC()
		began, before := time.Now(), chamelemon.ProcessorTime()
		f()
		elapsed, processor = min(elapsed, time.Since(began)), min(processor, chamelemon.ProcessorTime().Sub(before))
	}
	return elapsed, processor
}

// overhead measures the collective analysis of epochs, and the mapping of flows at their sources.
func overhead(counts []int, runs int) (rows []suite.Row, err error) {
	for _, flows := range counts {
		row := func(structure, metric string, d time.Duration) {
			rows = append(rows, suite.Row{Structure: structure, Variant: fmt.Sprintf("flows %d", flows), Task: "controller",
				Metric: metric, Value: float64(d.Microseconds()) / 1000, Unit: "ms"})
		}
		for _, losses := range []bool{false, true} {
			sim := simulation.Controller(flows, losses)
			a, err := analysis.New(sim.Net)
			if err != nil {
				return nil, err
			}
			if _, err := checked(sim); err != nil {
				return nil, fmt.Errorf("%d flows: %w", flows, err)
			}
			elapsed, processor := spent(runs, func() { a.Analyze(&sim.Epoch) })
			name := "analysis"
			if losses {
				name = "analysis, 0.6 % lossy"
			}
			row(name, "elapsed", elapsed)
			row(name, "processor", processor)
		}
		elapsed, processor := spent(runs, func() {
			share, shareErr := mapping.NewShare(3072, 2, 0, 8, 1)
			if err = shareErr; err != nil {
				return
			}
			pool := mapping.NewPool(share, flows)
			for range flows {
				pool.Take()
			}
		})
		if err != nil {
			return nil, err
		}
		row("mapping", "elapsed", elapsed)
		row("mapping", "processor", processor)
	}
	return rows, nil
}

func overheadFigure() suite.Suite {
	const x, most = "flows", 1_000_000
	return suite.New(suite.Suite{
		Name: "omnimon-10",
		Measure: func(context.Context, *trace.Trace, suite.Options) ([]suite.Row, error) {
			return overhead([]int{1_000, 10_000, 100_000, most}, overheadRuns)
		},
	})
}
