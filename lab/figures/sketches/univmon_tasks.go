// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/universal"
)

// univmonTasks are the tasks of OpenSketch's library.
var univmonTasks = []string{"heavy hitters", "distinct sources", "heavy changes"}

// univmonMemory is the memory of Figures 7 and 12.
const univmonMemory = 600_000

// univmonTraces is the number of the paper's traces.
const univmonTraces = 5

func univmonFigure7() suite.Suite {
	return suite.New(suite.Suite{
		Name: "univmon-7",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
			for i := range univmonTraces {
				n := t.Len() * (155 + (286-155)*i/(univmonTraces-1)) / 2000 // 155 to 286 thousand
				w, err := newInterval(t, n, int(univmonRanks*float64(t.Len())), o.Seed+uint64(i))
				if err != nil {
					return nil, err
				}
				ours, theirs := make([]answers, o.Runs), make([]answers, o.Runs)
				err = suite.Each(ctx, o.Runs, func(run int) (err error) {
					seed := o.Seed + uint64(run)
					if ours[run], err = univmon(w, univmonMemory, seed); err != nil {
						return err
					}
					theirs[run], _, err = openSketch(w, univmonMemory, seed)
					return err
				})
				if err != nil {
					return nil, err
				}
				for _, task := range univmonTasks {
					variant := fmt.Sprint("trace ", i+1)
					rows = medianRow(rows, "UnivMon", variant, univmonMemory, task, "error", t.Name, ours)
					rows = medianRow(rows, "OpenSketch", variant, univmonMemory, task, "error", t.Name, theirs)
				}
			}
			return rows, nil
		},
	})
}

func univmonFigure12() suite.Suite {
	return suite.New(suite.Suite{
		Name:    "univmon-12",
		Measure: univmonPortfolio,
	})
}

func univmonPortfolio(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
	w, err := univmonInterval(t, 5, o.Seed)
	if err != nil {
		return nil, err
	}
	ours := make([]answers, o.Runs)
	var theirs [3][]answers // answers by the number of applications
	for i := range theirs {
		theirs[i] = make([]answers, o.Runs)
	}
	err = suite.Each(ctx, 4*o.Runs, func(i int) (err error) {
		run, n := i/4, i%4
		if n == 0 {
			ours[run], err = univmon(w, univmonMemory, o.Seed+uint64(run))
			return err
		}
		theirs[n-1][run], _, err = openSketch(w, univmonMemory/n, o.Seed+uint64(run))
		return err
	})
	if err != nil {
		return nil, err
	}
	middle := func(runs []answers, task string) float64 {
		var v []float64
		for _, a := range runs {
			v = append(v, a[[2]string{task, "error"}])
		}
		return median(v)
	}
	var rows []suite.Row
	for n := range theirs {
		for _, task := range univmonTasks[:n+1] {
			rows = append(rows, row(task, fmt.Sprint("applications ", n+1), univmonMemory, "error gap", "gap",
				100*(middle(ours, task)-middle(theirs[n], task)), "%", w.two.Name))
		}
	}
	costs, err := univmonCosts(ctx, w, o.Seed)
	if err != nil {
		return nil, err
	}
	for _, c := range costs {
		rows = append(rows, row(c.structure, c.task, univmonMemory, "cost", "processor time", c.took.Seconds()*1e3, "ms",
			w.two.Name))
	}
	return rows, nil
}

// cost is the processor time of one thread for all packets.
type cost struct {
	structure, task string
	took            time.Duration
	run             func() error
}

// univmonCosts measures the time of a packet: the structures take turns, and the least time of each
// structure's runs counts.
func univmonCosts(ctx context.Context, w *interval, seed uint64) ([]cost, error) {
	t := w.one
	limit := univmonShare * float64(t.Len())
	counters := func() error {
		s, err := countMin(false, "CM").build(t, univmonMemory, limit, seed)
		if err != nil {
			return err
		}
		for i := range t.Len() {
			s.insert(t.Key(i))
		}
		return nil
	}
	costs := []cost{
		{structure: "UnivMon", task: "all", run: func() error {
			u, err := universal.New(univmonLayout(univmonMemory, t.Fields()))
			for i := range t.Len() {
				if err == nil {
					err = u.Insert(t.Key(i))
				}
			}
			return err
		}},
		{structure: "OpenSketch", task: "heavy hitters", run: counters},
		{structure: "OpenSketch", task: "distinct sources", run: func() error {
			bits := make([]uint64, univmonMemory/8)
			cols := family.NewRange(uint32(univmonMemory * 8))
			for i := range t.Len() {
				c := family.Column[host](family.Digest[host](seed, t.Key(i)), 0, &cols)
				bits[c/64] |= 1 << (c % 64)
			}
			return nil
		}},
		{structure: "OpenSketch", task: "heavy changes", run: counters},
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 9 {
		for i := range costs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			before, start := suite.ThreadTime(), time.Now()
			if err := costs[i].run(); err != nil {
				return nil, err
			}
			took := suite.ThreadTime() - before
			if took <= 0 {
				took = time.Since(start)
			}
			if costs[i].took == 0 || took < costs[i].took {
				costs[i].took = took
			}
		}
	}
	return costs, nil
}
