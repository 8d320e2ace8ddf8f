// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"maps"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/sketch/estimate"
)

// limits of the tasks as shares of the packets.
type limits struct{ heavy, change float64 }

// papers are 500 and 250 of 2 million.
var papers = limits{heavy: 1. / 4000, change: 1. / 8000}

// exact are the true answers about a trace.
type exact struct {
	distribution estimate.Distribution
	entropy      float64
	moment2      float64
	before       map[string]uint32 // the packets of the halves
	after        map[string]uint32
}

// exact works the answers out once.
func (t *Trace) exact() *exact {
	t.once.Do(func() {
		e := &t.truth
		sizes := make([]uint32, len(t.flows))
		for i, f := range t.flows {
			sizes[i] = f.Packets
			e.moment2 += float64(f.Packets) * float64(f.Packets)
		}
		e.distribution = estimate.Sizes(sizes)
		e.entropy = e.distribution.Entropy()
		half := t.Len() / 2
		e.before, e.after = countKeys(t, 0, half, false), countKeys(t, half, t.Len(), t.rename)
	})
	return &t.truth
}

// changed are the flows that differ by at least limit between the halves.
func (e *exact) changed(limit float64) map[string]float64 {
	changes := make(map[string]float64)
	for k, n := range e.before {
		if d := math.Abs(float64(e.after[k]) - float64(n)); d >= limit {
			changes[k] = d
		}
	}
	for k, n := range e.after {
		if _, both := e.before[k]; !both && float64(n) >= limit {
			changes[k] = float64(n)
		}
	}
	return changes
}

// change is the sum of what all flows changed by.
func (e *exact) change() (total float64) {
	for k, n := range e.before {
		total += math.Abs(float64(e.after[k]) - float64(n))
	}
	for k, n := range e.after {
		if _, both := e.before[k]; !both {
			total += float64(n)
		}
	}
	return total
}

func relative(got, want float64) float64 {
	if want == 0 {
		return math.Abs(got)
	}
	return math.Abs(got-want) / math.Abs(want)
}

// f1 is the F1 score of found against the ground truth.
func f1[V any](found map[string]float64, truth map[string]V) float64 {
	hits := 0
	for k := range found {
		if _, ok := truth[k]; ok {
			hits++
		}
	}
	if len(found)+len(truth) == 0 {
		return 1
	}
	return 2 * float64(hits) / float64(len(found)+len(truth))
}

// each calls f for 0 to n-1, as many at a time as there are processors. What f writes for
// one number must be its own, so that the results do not depend on the order.
func each(ctx context.Context, n int, f func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return f(i)
		})
	}
	return g.Wait()
}

// accuracy measures tasks, each with its metric, of structures by memory: the means over as
// many hash seeds as there are runs.
func accuracy(ctx context.Context, t *Trace, o Options, kinds []kind, memories []int,
	tasks [][2]string,
) ([]Row, error) {
	t.exact()
	parts := make([][]Row, len(kinds)*len(memories)*o.Runs)
	err := each(ctx, len(parts), func(i int) (err error) {
		k, run := i/o.Runs, i%o.Runs
		parts[i], err = kinds[k/len(memories)].accuracy(t, memories[k%len(memories)], o.Seed+uint64(run), papers)
		return err
	})
	if err != nil {
		return nil, err
	}
	var rows []Row
	for part := range slices.Chunk(parts, o.Runs) {
		rows = append(rows, means(part)...)
	}
	return slices.DeleteFunc(rows, func(r Row) bool { return !slices.Contains(tasks, [2]string{r.Task, r.Metric}) }),
		nil
}

// means puts the rows of several runs together. A value that a run has not, because its
// structure was too full to answer, is left out altogether.
func means(runs [][]Row) (rows []Row) {
	for _, r := range runs[0] {
		sum, n := 0.0, 0
		for _, run := range runs {
			if i := slices.IndexFunc(run, func(o Row) bool {
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

func (k kind) accuracy(t *Trace, memory int, seed uint64, l limits) (rows []Row, err error) {
	truth := t.exact()
	put := func(task, metric string, v float64, unit string) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			rows = append(rows, Row{k.name, k.variant, memory, task, metric, v, unit, t.Name})
		}
	}
	n := float64(t.Len())
	s, err := k.fill(t, memory, 0, t.Len(), l.heavy*n, seed, false)
	if err != nil {
		return nil, err
	}
	if s.size != nil {
		are, aae := 0.0, 0.0
		for _, f := range t.flows {
			d := math.Abs(s.size([]byte(f.Key)) - float64(f.Packets))
			are += d / float64(f.Packets)
			aae += d
		}
		put("flow size", "ARE", are/float64(len(t.flows)), "ratio")
		put("flow size", "AAE", aae/float64(len(t.flows)), "packets")
	}
	if s.heavy != nil {
		want := make(map[string]float64)
		for _, f := range t.flows {
			if float64(f.Packets) >= l.heavy*n {
				want[f.Key] = float64(f.Packets)
			}
		}
		found := s.heavy(l.heavy * n)
		put("heavy hitters", "F1", f1(found, want), "ratio")
		are := 0.0
		for _, f := range t.flows[:len(want)] { // the largest come first
			are += relative(found[f.Key], float64(f.Packets)) / float64(len(want))
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
			put("flow size distribution", "WMRE", estimate.WMRE(truth.distribution, d), "ratio")
			entropy = d.Entropy
		}
	}
	if entropy != nil {
		put("entropy", "RE", relative(entropy(), truth.entropy), "ratio")
	}
	if s.cardinality != nil {
		put("cardinality", "RE", relative(s.cardinality(), float64(len(t.flows))), "ratio")
	}
	if s.moment2 != nil {
		put("second moment", "RE", relative(s.moment2(), truth.moment2), "ratio")
	}
	return rows, nil
}

// change compares the halves of a trace. Of generated traffic, whose flows do not change,
// every tenth flow has another key in the second half.
func (k kind) change(t *Trace, memory int, seed uint64, l limits) (score, are float64, err error) {
	half, limit := t.Len()/2, l.change*float64(t.Len())
	changes := t.exact().changed(limit)
	a, err := k.fill(t, memory, 0, half, limit, seed, false)
	if err != nil {
		return 0, 0, err
	}
	b, err := k.fill(t, memory, half, t.Len(), limit, seed, t.rename)
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
		are += relative(found[key], changes[key]) / float64(len(changes))
	}
	return f1(found, changes), are, nil
}
