// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"context"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// literalConfiguration is the plugin's configuration with the paper's rules of attention.
const literalConfiguration = `{"victims": {"limit": 1000000}, "literal": true}`

// literalSweeps are the places at which the rules are compared: every second place of Figures 7 and
// 8, from the first place at which not all flows can be recorded.
var literalSweeps = []struct {
	sweep  Sweep
	places []Place
}{
	{Sweep{7, "DCTCP", false}, []Place{{30_000, 0.1}, {50_000, 0.1}, {70_000, 0.1}, {80_000, 0.1},
		{100_000, 0.1}}},
	{Sweep{8, "DCTCP", true}, []Place{{50_000, 0.025}, {50_000, 0.075}, {50_000, 0.125}, {50_000, 0.15},
		{50_000, 0.2}, {50_000, 0.25}}},
}

// literal compares the paper's rules of attention with the product's.
func literal(ctx context.Context) (rows []suite.Row, err error) {
	o := Options{Plugin: newPlugin, Settle: 8, Measure: 8, Seeds: []uint64{1, 2}}
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
				variant, task := c.sweep.variant(p.X), fmt.Sprint("Figure ", c.sweep.Figure)
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
}
