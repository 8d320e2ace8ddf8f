// SPDX-License-Identifier: Apache-2.0

// Package manifests measures UnivMon on whole networks, where each switch counts a part of the
// traffic: Figure 14 and Table 2. It has no state. The same trace and seed give the same rows,
// except times.
package manifests

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/plugins/univmon/manifest"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// Suites returns the suites of the figures, in order.
func Suites() []suite.Suite { return []suite.Suite{figure14(), table2()} }

func row(structure, variant string, memory int, task, metric string, value float64, unit, trace string) suite.Row {
	return suite.Row{Structure: structure, Variant: variant, Memory: memory, Task: task, Metric: metric, Value: value,
		Unit: unit, Trace: trace}
}

func table2() suite.Suite {
	type line struct {
		topology
		dimensions, sketches int // the paper's number of sketches
		seconds              float64
	}
	lines := []line{
		{geant2012, 4, 68, 0.09}, {bellSouth, 4, 60, 0.10}, {dialTelecom, 4, 252, 2.8},
		{geant2012, 8, 136, 0.22}, {bellSouth, 8, 120, 0.28}, {dialTelecom, 8, 504, 12.6},
	}
	const task = "manifest"
	variant := func(l line) string { return fmt.Sprint(l.dimensions, " dimensions") }
	return suite.New(suite.Suite{
		Name: "univmon-table-2",
		Measure: func(ctx context.Context, t *trace.Trace, _ suite.Options) (rows []suite.Row, err error) {
			for _, l := range lines {
				p, err := l.problem(l.dimensions, 1)
				if err != nil {
					return nil, err
				}
				if t.Len() < len(p.Pairs) {
					continue // fewer packets than pairs: the trace of a short run
				}
				m, took, err := timed(ctx, p)
				if err != nil {
					return nil, err
				}
				for _, x := range []struct {
					metric, unit string
					value        float64
				}{{"pairs", "pairs", float64(len(p.Pairs))}, {"time", "ms", took.Seconds() * 1e3},
					{"sketches", "sketches", float64(m.Sketches())}, {"the most on a switch", "sketches", float64(m.Max)},
					{"objective", "sketches", float64(m.Cost())},
					{"paper's objective", "sketches", float64(len(p.Switches)*l.dimensions + l.sketches)},
					{"gap", "%", 100 * m.Gap()}} {
					rows = append(rows, row(l.name, variant(l), 0, task, x.metric, x.value, x.unit, ""))
				}
			}
			return rows, nil
		},
	})
}

// timed solves a problem three times and returns the least processor time.
func timed(ctx context.Context, p *manifest.Problem) (m *manifest.Manifest, took time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for run := range 3 {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		before, start := suite.ThreadTime(), time.Now()
		if m, err = manifest.Solve(p, manifest.Optimized); err != nil {
			return nil, 0, err
		}
		used := suite.ThreadTime() - before
		if used <= 0 {
			used = time.Since(start)
		}
		if run == 0 || used < took {
			took = used
		}
	}
	return m, took, nil
}

// iceberg lists the dimensions of Figure 14.
var iceberg = []struct {
	name   string
	fields flow.Fields
}{{"source", flow.Src}, {"destination", flow.Dst}}

// icebergShare is the part of the packets from which a flow is an iceberg.
const icebergShare = 0.0005

// networks are the networks of Figure 14.
var networks = []topology{attNorthAmerica, geant2012, bellSouth}

func figure14() suite.Suite {
	const task, bytes = "network", 600_000
	x := func(place int) string { return fmt.Sprint("topology ", place+1) }
	return suite.New(suite.Suite{
		Name: "univmon-14",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
			for place, y := range networks {
				p, err := y.problem(len(iceberg), bytes)
				if err != nil {
					return nil, err
				}
				for _, scheme := range manifest.Schemes {
					if err := ctx.Err(); err != nil {
						return nil, err
					}
					m, err := manifest.Solve(p, scheme)
					if err != nil {
						return nil, err
					}
					requests := m.Requests
					for _, kept := range m.Kept {
						if scheme != manifest.Query && kept != 0 {
							requests++
						}
					}
					var errors []float64
					for run := range o.Runs {
						x, err := icebergs(t, p, m, bytes, o.Seed+uint64(run))
						if err != nil {
							return nil, err
						}
						errors = append(errors, x)
					}
					for _, v := range []struct {
						metric, unit string
						value        float64
					}{{"error", "%", 100 * middle(errors)},
						{"average memory", "KB", float64(m.Sum) / 1000 / float64(len(p.Switches))},
						{"most memory", "KB", float64(m.Max) / 1000}, {"requests", "requests", float64(requests)}} {
						rows = append(rows, row(string(scheme), x(place), bytes, task, v.metric, v.value, v.unit, t.Name))
					}
				}
			}
			return rows, nil
		},
	})
}

// icebergs plays a trace through a network and returns the mean error of its icebergs.
func icebergs(t *trace.Trace, p *manifest.Problem, m *manifest.Manifest, bytes int, seed uint64) (float64, error) {
	o, err := t.Like(t.Len()*11/100, t.Len(), seed) // 220 thousand packets of the standard trace
	if err != nil {
		return 0, err
	}
	n := uint64(len(p.Switches))
	counts := make([][]int, len(p.Pairs)) // the switch that counts each dimension, plus 1
	for i := range counts {
		counts[i] = make([]int, len(iceberg))
	}
	for j, duties := range m.Duties {
		for _, d := range duties {
			for k := range iceberg {
				if d.Set.Has(k) {
					counts[d.Pair][k] = j + 1
				}
			}
		}
	}
	sum := 0.0
	for k, dimension := range iceberg {
		sketches := make([]*universal.Sketch, n)
		truth := make(map[flow.Key]float64)
		total := 0.0
		for i := range o.Len() {
			key := o.Parse(o.Key(i))
			from, to := home(key.Src, n, seed), home(key.Dst, n, seed)
			if from == to {
				continue // the packet does not cross the network
			}
			pair := from*(n-1) + to // pairs are in this order, without pairs of a switch with itself
			if to > from {
				pair--
			}
			key = key.Project(dimension.fields)
			truth[key]++
			total++
			j := counts[pair][k] - 1
			if j < 0 {
				return 0, fmt.Errorf("no switch counts %s of pair %d", dimension.name, pair)
			}
			if sketches[j] == nil {
				layout, err := universal.Fit(dimension.fields, bytes)
				if err != nil {
					return 0, err
				}
				if sketches[j], err = universal.New(layout); err != nil {
					return 0, err
				}
			}
			sketches[j].Update(&key)
		}
		var whole *universal.Sketch
		for _, s := range sketches {
			switch {
			case s == nil:
			case whole == nil:
				whole = s
			default:
				if err := whole.Merge(s); err != nil {
					return 0, err
				}
			}
		}
		if whole == nil {
			return 0, fmt.Errorf("no packet crosses the network")
		}
		limit, found := icebergShare*total, make(map[flow.Key]float64)
		for _, f := range whole.Reading().Estimate().Above(limit) {
			found[f.Key] = f.Packets
		}
		var errors []float64
		for key, packets := range truth {
			if x, ok := found[key]; ok && packets >= limit {
				errors = append(errors, math.Abs(x-packets)/packets)
			}
		}
		if len(errors) == 0 {
			return 0, fmt.Errorf("no iceberg by %s was found", dimension.name)
		}
		slices.Sort(errors) // the sum is the same in any order of the map
		mean := 0.0
		for _, x := range errors {
			mean += x / float64(len(errors))
		}
		sum += mean / float64(len(iceberg))
	}
	return sum, nil
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

// home returns the number of the switch to which an address is attached.
func home(address [16]byte, n, seed uint64) uint64 {
	x := seed
	for _, b := range address[:4] {
		x = (x ^ uint64(b)) * 0x9e3779b97f4a7c15
	}
	return x >> 32 % n
}
