// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"context"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

// literalConfiguration is configuration with the paper's rules of attention.
const literalConfiguration = `{"victims": {"limit": 1000000}, "literal": true}`

// The places at which the rules are compared: every second one of Figures 7 and 8, from the first
// at which not all flows can be recorded.
var literalSweeps = []struct {
	sweep  Sweep
	x      string
	places []Place
}{
	{Sweep{7, "DCTCP", false}, "flows", []Place{{30_000, 0.1}, {50_000, 0.1}, {70_000, 0.1}, {80_000, 0.1},
		{100_000, 0.1}}},
	{Sweep{8, "DCTCP", true}, "victims (%)", []Place{{50_000, 0.025}, {50_000, 0.075}, {50_000, 0.125}, {50_000, 0.15},
		{50_000, 0.2}, {50_000, 0.25}}},
}

// Literal compares the paper's rules of attention with the product's. The options have the plugin.
func Literal(o Options) suite.Suite {
	s := suite.Suite{
		Name: "chamelemon-literal", Title: "ChameleMon's rules of attention, the paper's and this project's",
		Setup: "Places of Figures 7 and 8 (DCTCP), each with the product's rules and with the plugin's " +
			"`\"literal\": true`, which takes the paper's (§4.3): on the change to ill Tl becomes the lowest Th, parts " +
			"are changed if they were not decoded or are below 0.60, always to 0.70, and nothing is added for the " +
			"sample's error. Two seeds, of each 8 epochs to settle and 8 measured ones, with new flows in every epoch. " +
			"The rows have the epochs by their state, and how many of them had a part that was not decoded: HH at " +
			"a switch or more, otherwise HL or LL. Two of n flows share all three of their buckets of M with " +
			"probability n²/2·(3/M)³, 0.4 % for the 1,060 flows of an LL part of 1,536 buckets; nothing separates these.",
		Measure: func(ctx context.Context, _ *trace.Trace, _ suite.Options) (rows []suite.Row, err error) {
			o.Settle, o.Measure, o.Seeds = 8, 8, []uint64{1, 2}
			for _, mode := range []string{"product", "literal"} {
				if mode == "literal" {
					o.configuration = literalConfiguration
				}
				add := func(variant, task, metric, unit string, value float64) {
					rows = append(rows, suite.Row{Structure: mode, Variant: variant, Task: task, Metric: metric, Value: value,
						Unit: unit})
				}
				var all []Sample
				for _, c := range literalSweeps {
					samples, err := c.sweep.Run(ctx, o, c.places...)
					if err != nil {
						return nil, err
					}
					all = append(all, samples...)
					for _, p := range Summarize(samples) {
						variant, task := fmt.Sprintf("%s %g", c.x, p.X), fmt.Sprint("Figure ", c.sweep.Figure)
						add(variant, task, "decoded", "%", 100*p.Decoded)
						add(variant, task, "load", "ratio", p.Mean.Load())
						add(variant, task, "ill", "%", 100*p.Ill)
					}
				}
				for _, state := range []string{"healthy", "ill"} {
					of := slices.DeleteFunc(slices.Clone(all), func(x Sample) bool { return x.State != state })
					count := func(metric string, counts func(x *Sample) bool) {
						n := 0
						for i := range of {
							if counts(&of[i]) {
								n++
							}
						}
						add(state, "epochs", metric, "epochs", float64(n))
					}
					count("all", func(*Sample) bool { return true })
					count("HH not decoded", func(x *Sample) bool { return x.FailedHH })
					count("HL not decoded", func(x *Sample) bool { return x.FailedHL && !x.FailedHH })
					count("LL not decoded", func(x *Sample) bool { return x.FailedLL && !x.FailedHH })
				}
			}
			return rows, nil
		},
	}
	for _, c := range literalSweeps {
		for _, m := range []struct{ metric, title string }{{"decoded", "epochs in which everything was decoded (%)"},
			{"load", "load factor"}, {"ill", "epochs that were ill (%)"}} {
			s.Plots = append(s.Plots, suite.Plot{
				File:  fmt.Sprintf("chamelemon-literal-%d-%s", c.sweep.Figure, m.metric),
				Title: fmt.Sprintf("Figure %d, %s: %s", c.sweep.Figure, c.sweep.Workload, m.title),
				Task:  fmt.Sprint("Figure ", c.sweep.Figure), Metric: m.metric, X: c.x,
			})
		}
	}
	return s
}

// LiteralCommand measures the comparison.
func LiteralCommand(string) string {
	return suite.Make("attention --literal --out docs/figures")
}
