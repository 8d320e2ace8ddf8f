// SPDX-License-Identifier: Apache-2.0

package sketchbench

import (
	"context"
	"math"

	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/fermat"
)

// Limits of the tasks as shares of the packets: 500 and 250 of 2 million, as in the papers.
const (
	heavyShare  = 1. / 4000
	changeShare = 1. / 8000
)

// exact are the true answers about a trace.
type exact struct {
	distribution estimate.Distribution
	entropy      float64
	moment2      float64
	changes      map[string]float64
}

func (t *Trace) exact() exact {
	sizes := make([]uint32, len(t.flows))
	var e exact
	for i, f := range t.flows {
		sizes[i] = f.Packets
		e.moment2 += float64(f.Packets) * float64(f.Packets)
	}
	e.distribution = estimate.Sizes(sizes)
	e.entropy = e.distribution.Entropy()
	half := t.Len() / 2
	before, after := countKeys(t, 0, half, false), countKeys(t, half, t.Len(), t.rename)
	e.changes = make(map[string]float64)
	limit := changeShare * float64(t.Len())
	for k, n := range before {
		if d := math.Abs(float64(after[k]) - float64(n)); d >= limit {
			e.changes[k] = d
		}
	}
	for k, n := range after {
		if _, both := before[k]; !both && float64(n) >= limit {
			e.changes[k] = float64(n)
		}
	}
	return e
}

func relative(got, want float64) float64 {
	if want == 0 {
		return math.Abs(got)
	}
	return math.Abs(got-want) / math.Abs(want)
}

// f1 is the F1 score of found against truth.
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

// accuracy measures the six tasks, and the second moment, of structures by memory.
func accuracy(ctx context.Context, t *Trace, o Options, kinds []kind, memories []int) ([]Row, error) {
	truth := t.exact()
	var rows []Row
	for _, k := range kinds {
		for _, memory := range memories {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			r, err := k.accuracy(t, truth, memory, o.Seed)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r...)
		}
	}
	return rows, nil
}

func (k kind) accuracy(t *Trace, truth exact, memory int, seed uint64) (rows []Row, err error) {
	put := func(task, metric string, v float64, unit string) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			rows = append(rows, Row{k.name, k.variant, memory, task, metric, v, unit, t.Name})
		}
	}
	n := float64(t.Len())
	s, err := k.fill(t, memory, 0, t.Len(), heavyShare*n, seed, false)
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
			if float64(f.Packets) >= heavyShare*n {
				want[f.Key] = float64(f.Packets)
			}
		}
		found := s.heavy(heavyShare * n)
		put("heavy hitters", "F1", f1(found, want), "ratio")
		are := 0.0
		for key, x := range want {
			are += relative(found[key], x) / float64(len(want))
		}
		put("heavy hitters", "ARE", are, "ratio")
		score, are, err := k.change(t, truth, memory, seed)
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
func (k kind) change(t *Trace, truth exact, memory int, seed uint64) (score, are float64, err error) {
	half, limit := t.Len()/2, changeShare*float64(t.Len())
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
	for key, d := range truth.changes {
		are += relative(found[key], d) / float64(len(truth.changes))
	}
	return f1(found, truth.changes), are, nil
}

func kilobytes(kb ...int) []int {
	for i := range kb {
		kb[i] *= 1000
	}
	return kb
}

func memoryPlots(prefix, paper string, tasks ...[2]string) (plots []Plot) {
	for _, task := range tasks {
		plots = append(plots, Plot{
			File: prefix + "-" + fileName(task[0]) + "-" + fileName(task[1]), Title: task[0] + " (" + task[1] + ")", Task: task[0], Metric: task[1],
			X: "memory", Log: task[1] != "F1", Paper: paper,
		})
	}
	return plots
}

var sixTasks = [][2]string{
	{"flow size", "ARE"}, {"flow size", "AAE"}, {"heavy hitters", "F1"}, {"heavy hitters", "ARE"}, {"heavy changes", "F1"},
	{"entropy", "RE"}, {"cardinality", "RE"}, {"flow size distribution", "WMRE"},
}

func sketchintFigure5() Suite {
	return Suite{
		Name: "sketchint-5", Title: "SketchINT, Figure 5: local tasks",
		Run: func(ctx context.Context, t *Trace, o Options) ([]Row, error) {
			kinds := []kind{countMin(false, "CM"), countMin(true, "CU"), towerKind(false, "TowerCM"), towerKind(true, "TowerCU"), elasticKind()}
			return accuracy(ctx, t, o, kinds, kilobytes(300, 450, 600, 750, 900))
		},
		Plots: memoryPlots("sketchint-5", "On CAIDA, 170 thousand flows a window: TowerCU's ARE of flow size is at least 29 times below CM's, CU's and Elastic's at 900 KB; its heavy-hitter F1 is 0.9997 at 300 KB; entropy RE 2.4e-4, cardinality RE 6e-4 and WMRE 0.09 at 900 KB.", sixTasks...),
	}
}

func chamelemonFigure11() Suite {
	return Suite{
		Name: "chamelemon-11", Title: "ChameleMon, Figure 11: accumulation tasks",
		Run: func(ctx context.Context, t *Trace, o Options) ([]Row, error) {
			kinds := []kind{towerFermat[fermat.Prime32](), countMin(false, "CM"), countMin(true, "CU"), countHeap(), univmonKind(), elasticKind(), hashPipe()}
			return accuracy(ctx, t, o, kinds, kilobytes(200, 300, 400, 500, 600))
		},
		Plots: memoryPlots("chamelemon-11", "On CAIDA: Tower+Fermat's heavy-hitter F1 is 0.998 at 200 KB, its ARE of flow size 4.5 times below CM's and 3.2 times below CU's there; at 600 KB WMRE 0.039, entropy error 0.003, cardinality RE 0.0016.", sixTasks...),
	}
}

func univmonFigures() Suite {
	return Suite{
		Name: "univmon", Title: "UnivMon, Figures 8, 10, 11 and 13",
		Run: func(ctx context.Context, t *Trace, o Options) ([]Row, error) {
			kinds := []kind{univmonKind(), countSketch(), countMin(false, "CM"), countHeap(), hashPipe()}
			return accuracy(ctx, t, o, kinds, kilobytes(250, 500, 1000, 2000, 4000))
		},
		Plots: memoryPlots("univmon", "On CAIDA, 5 s: errors of heavy hitters below 1 % from 300 KB and of changes from 2 MB (8a, 8c, 10); distinct counts (8b), entropy and F2 (11) within a few percent from 500 KB; of the structures for heavy hitters the Count sketch errs least (13).",
			[2]string{"heavy hitters", "ARE"}, [2]string{"heavy changes", "ARE"}, [2]string{"heavy hitters", "F1"}, [2]string{"cardinality", "RE"}, [2]string{"entropy", "RE"}, [2]string{"second moment", "RE"}),
	}
}
