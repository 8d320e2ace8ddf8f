// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/estimate"
)

// limits of the tasks as shares of the packets.
type limits struct{ heavy, change float64 }

// papers are the thresholds of the papers as shares: 500 and 250 of 2 million packets.
var papers = limits{heavy: 1. / 4000, change: 1. / 8000}

// row is a measured value, in the order of the columns of CSV files.
func row(structure, variant string, memory int, task, metric string, value float64, unit, trace string) suite.Row {
	return suite.Row{Structure: structure, Variant: variant, Memory: memory, Task: task, Metric: metric, Value: value,
		Unit: unit, Trace: trace}
}

// accuracy measures tasks, each with its metric, of structures by memory. Values are means over
// runs with different hash seeds.
func accuracy(ctx context.Context, t *trace.Trace, o suite.Options, kinds []kind, memories []int,
	tasks [][2]string,
) ([]suite.Row, error) {
	t.Exact()
	parts := make([][]suite.Row, len(kinds)*len(memories)*o.Runs)
	err := suite.Each(ctx, len(parts), func(i int) (err error) {
		k, run := i/o.Runs, i%o.Runs
		parts[i], err = kinds[k/len(memories)].accuracy(t, memories[k%len(memories)], o.Seed+uint64(run), papers)
		return err
	})
	if err != nil {
		return nil, err
	}
	var rows []suite.Row
	for part := range slices.Chunk(parts, o.Runs) {
		rows = append(rows, means(part)...)
	}
	return slices.DeleteFunc(rows, func(r suite.Row) bool {
			return !slices.Contains(tasks, [2]string{r.Task, r.Metric})
		}),
		nil
}

// means averages the rows of several runs. A value is left out if it is missing in any run, because
// a structure was too full to answer.
func means(runs [][]suite.Row) (rows []suite.Row) {
	for _, r := range runs[0] {
		sum, n := 0.0, 0
		for _, run := range runs {
			if i := slices.IndexFunc(run, func(o suite.Row) bool {
				return o.Task == r.Task &&
					o.Metric == r.Metric
			}); i >= 0 {
				sum, n = sum+run[i].Value, n+1
			}
		}
		if n == len(runs) {
			r.Value = sum / float64(n)
			rows = append(rows, r)
		}
	}
	return rows
}

func (k kind) accuracy(t *trace.Trace, memory int, seed uint64, l limits) (rows []suite.Row, err error) {
	truth := t.Exact()
	put := func(task, metric string, v float64, unit string) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			rows = append(rows, row(k.name, k.variant, memory, task, metric, v, unit, t.Name))
		}
	}
	n := float64(t.Len())
	s, err := k.fill(t, memory, l.heavy*n, seed)
	if err != nil {
		return nil, err
	}
	if s.size != nil {
		are, aae := 0.0, 0.0
		for _, f := range t.Flows() {
			d := math.Abs(s.size([]byte(f.Key)) - float64(f.Packets))
			are += d / float64(f.Packets)
			aae += d
		}
		put("flow size", "ARE", are/float64(len(t.Flows())), "ratio")
		put("flow size", "AAE", aae/float64(len(t.Flows())), "packets")
	}
	if s.heavy != nil {
		want := make(map[string]float64)
		for _, f := range t.Flows() {
			if float64(f.Packets) >= l.heavy*n {
				want[f.Key] = float64(f.Packets)
			}
		}
		found := s.heavy(l.heavy * n)
		put("heavy hitters", "F1", suite.F1(found, want), "ratio")
		are := 0.0
		for _, f := range t.Flows()[:len(want)] { // the largest come first
			are += suite.Relative(found[f.Key], float64(f.Packets)) / float64(len(want))
		}
		put("heavy hitters", "ARE", are, "ratio")
		score, are, err := k.change(t, memory, seed, l)
		if err != nil {
			return nil, err
		}
		put("heavy changes", "F1", score, "ratio")
		put("heavy changes", "ARE", are, "ratio")
	}
	entropy := s.entropy
	if s.distribution != nil {
		if d, err := s.distribution(); err == nil { // too little memory: no answer, and no point in the figure
			put("flow size distribution", "WMRE", estimate.WMRE(truth.Distribution, d), "ratio")
			entropy = d.Entropy
		}
	}
	if entropy != nil {
		put("entropy", "RE", suite.Relative(entropy(), truth.Entropy), "ratio")
	}
	if s.cardinality != nil {
		put("cardinality", "RE", suite.Relative(s.cardinality(), float64(len(t.Flows()))), "ratio")
	}
	if s.moment2 != nil {
		put("second moment", "RE", suite.Relative(s.moment2(), truth.Moment2), "ratio")
	}
	return rows, nil
}

// change compares the halves of a trace.
func (k kind) change(t *trace.Trace, memory int, seed uint64, l limits) (score, are float64, err error) {
	truth, limit := t.Exact(), l.change*float64(t.Len())
	changes := truth.Changed(limit)
	a, err := k.fill(truth.Before, memory, limit, seed)
	if err != nil {
		return 0, 0, err
	}
	b, err := k.fill(truth.After, memory, limit, seed)
	if err != nil {
		return 0, 0, err
	}
	before, after := a.heavy(limit), b.heavy(limit)
	size := func(s *structure, heavy map[string]float64, key string) float64 {
		switch x, ok := heavy[key]; {
		case ok:
			return x
		case s.size != nil:
			return s.size([]byte(key))
		default:
			return s.kept([]byte(key))
		}
	}
	found := make(map[string]float64)
	for _, heavy := range []map[string]float64{before, after} {
		for key := range heavy {
			if d := math.Abs(size(b, after, key) - size(a, before, key)); d >= limit {
				found[key] = d
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		are += suite.Relative(found[key], changes[key]) / float64(len(changes))
	}
	return suite.F1(found, changes), are, nil
}
