// SPDX-License-Identifier: Apache-2.0

// Package attention plays ChameleMon's evaluation on a model of the paper's testbed: the attention
// by flows and by victims, the published losses, and the response time.
package attention

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
)

const prefix = "chamelemon-"

// Paper returns Figures 7, 8 and 14 to 20, the published losses, and the comparison of the paper's
// rules with the product's.
func Paper() suite.Paper {
	var all []suite.Suite
	for _, s := range Sweeps() {
		all = append(all, measured(fmt.Sprint(s.Figure), func(ctx context.Context) ([]suite.Row, error) {
			samples, err := s.Run(ctx, Options{Plugin: newPlugin, Seeds: []uint64{1, 2, 3}})
			return s.rows(Summarize(samples)), err
		}))
	}
	return suite.Paper{Subcommand: "attention", Prefix: prefix,
		Suites: append(all, measured("20", responses), measured("losses", losses), measured("literal", literal))}
}

// measured returns the suite whose rows f measures. f generates its own traffic.
func measured(figure string, f func(context.Context) ([]suite.Row, error)) suite.Suite {
	return suite.New(suite.Suite{Name: prefix + figure,
		Measure: func(ctx context.Context, _ *trace.Trace, _ suite.Options) ([]suite.Row, error) { return f(ctx) }})
}

func newPlugin() sdk.Plugin { return plugin.NewAt(chamelemon.ProcessorTime) }

// variant returns the name of a place on the x axis, for a row.
func (s Sweep) variant(x float64) string {
	if s.Victims {
		return fmt.Sprintf("victims (%%) %g", x)
	}
	return fmt.Sprintf("flows %g", x)
}

// rows returns the rows of the sweep's points.
func (s Sweep) rows(points []Point) (rows []suite.Row) {
	for i := range points {
		p := &points[i]
		add := func(structure, task, metric, unit string, value float64) {
			rows = append(rows, suite.Row{Structure: structure, Variant: s.variant(p.X), Task: task, Metric: metric,
				Value: value, Unit: unit})
		}
		m := &p.Mean
		add("HH", "memory division", "buckets", "buckets", m.BucketsHH)
		add("HL", "memory division", "buckets", "buckets", m.BucketsHL)
		add("LL", "memory division", "buckets", "buckets", m.BucketsLL)
		add("HH (a switch)", "decoded flows", "flows", "flows", m.HH)
		add("HL", "decoded flows", "flows", "flows", m.HL)
		add("LL", "decoded flows", "flows", "flows", m.LL)
		add("sum", "decoded flows", "flows", "flows", m.Sum())
		add("Th", "thresholds", "packets", "packets", m.Th)
		add("Tl", "thresholds", "packets", "packets", m.Tl)
		add("sample rate", "sample rate", "share", "ratio", m.Sample)
		add("HH", "load factor", "load", "ratio", m.LoadHH)
		add("HL", "load factor", "load", "ratio", m.LoadHL)
		add("LL", "load factor", "load", "ratio", m.LoadLL)
		add("network", "load factor", "load", "ratio", m.Load())
		add("network", "epochs", "all", "epochs", float64(p.Epochs))
		add("network", "epochs", "ill", "%", 100*p.Ill)
		add("network", "epochs", "decoded", "%", 100*p.Decoded)
		add("network", "epochs", "exact", "%", 100*p.Exact)
		add("network", "victims", "F1 of candidates", "ratio", p.RecordedF1)
		add("network", "victims", "F1", "ratio", p.HeavyF1)
		add("network", "victims", "that lost at least Tl packets", "flows", float64(p.Heavy))
		add("network", "victims", "worst estimate", "ratio", p.Estimate)
	}
	return rows
}

// responses plays all sweeps, one point at a time on one core, and returns the response times. A
// response begins when all sketches are read, and ends when the next configuration is decided.
func responses(ctx context.Context) (rows []suite.Row, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, s := range Sweeps() {
		samples, err := s.Run(ctx, Options{Plugin: newPlugin, Seeds: []uint64{1}})
		if err != nil {
			return nil, err
		}
		for _, p := range Summarize(samples) {
			row := suite.Row{Structure: s.Workload, Variant: s.variant(p.X), Task: "response", Unit: "ms"}
			row.Metric, row.Value = "median", float64(p.Response.Microseconds())/1000
			rows = append(rows, row)
			row.Metric, row.Value = "longest", float64(p.Longest.Microseconds())/1000
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// losses plays Figures 7, 14, 16 and 18 with one seed and compares the published victims of each
// epoch with the ground truth.
func losses(ctx context.Context) (rows []suite.Row, err error) {
	var all []Sample
	for _, s := range Sweeps() {
		if s.Victims {
			continue
		}
		samples, err := s.Run(ctx, Options{Plugin: newPlugin, Seeds: []uint64{1}})
		if err != nil {
			return nil, err
		}
		all = append(all, samples...)
	}
	return lossRows(all), nil
}

// lossRows counts the epochs of all workloads, of which those with at most 70,000 flows must be
// exact, and the accuracy of each workload's epochs while the network is ill.
func lossRows(samples []Sample) (rows []suite.Row) {
	add := func(structure, variant, metric, unit string, value float64) {
		rows = append(rows, suite.Row{Structure: structure, Variant: variant, Task: "victims", Metric: metric,
			Value: value, Unit: unit})
	}
	count := func(variant, metric string, counts func(*Sample) bool) {
		n := 0
		for i := range samples {
			if counts(&samples[i]) {
				n++
			}
		}
		add("all", variant, metric, "epochs", float64(n))
	}
	healthy := func(x *Sample) bool { return x.Flows <= 70_000 }
	count("all", "epochs", func(*Sample) bool { return true })
	count("all", "wrong", func(x *Sample) bool { return x.False > 0 })
	count("healthy", "epochs", healthy)
	count("healthy", "exact", func(x *Sample) bool { return healthy(x) && x.Exact })
	count("healthy", "not decoded", func(x *Sample) bool { return healthy(x) && !x.Exact && !x.Decoded })
	for _, workload := range []string{"CACHE", "DCTCP", "HADOOP", "VL2"} {
		ill := slices.DeleteFunc(slices.Clone(samples),
			func(x Sample) bool { return x.State != "ill" || x.Workload != workload })
		decoded := slices.DeleteFunc(slices.Clone(ill), func(x Sample) bool { return !x.Decoded && !x.Others })
		var heavy, recorded Score
		worst, low, high, squares := 1.0, 1.0, 1.0, 0.0
		for i := range decoded {
			x := &decoded[i]
			heavy.Add(x.HeavyVictims)
			recorded.Add(x.Recorded)
			worst = min(worst, x.HeavyVictims.F1())
			low, high = min(low, x.Estimate), max(high, x.Estimate)
			squares += (x.Estimate - 1) * (x.Estimate - 1)
		}
		add(workload, "ill", "epochs", "epochs", float64(len(ill)))
		add(workload, "ill", "decoded", "epochs", float64(len(decoded)))
		add(workload, "ill", "that lost at least Tl packets", "flows", float64(heavy.Hits+heavy.Missed))
		add(workload, "ill", "F1", "ratio", heavy.F1())
		add(workload, "ill", "worst F1", "ratio", worst)
		add(workload, "ill", "F1 of candidates", "ratio", recorded.F1())
		add(workload, "ill", "least estimate", "ratio", low)
		add(workload, "ill", "largest estimate", "ratio", high)
		add(workload, "ill", "standard error", "ratio", math.Sqrt(squares/float64(max(len(decoded), 1))))
	}
	return rows
}
