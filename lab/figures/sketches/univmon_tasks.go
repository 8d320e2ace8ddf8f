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
	gap := func(v suite.Values, metric string) (least, most float64) {
		for i := range univmonTraces {
			for _, task := range univmonTasks {
				variant := fmt.Sprint("trace ", i+1)
				d := v.Variant("UnivMon", variant, task, metric) - v.Variant("OpenSketch", variant, task, metric)
				if i == 0 && task == univmonTasks[0] {
					least, most = d, d
				}
				least, most = min(least, d), max(most, d)
			}
		}
		return least, most
	}
	worst := func(v suite.Values, structure string) (most float64) {
		for i := range univmonTraces {
			for _, task := range univmonTasks {
				most = max(most, v.Variant(structure, fmt.Sprint("trace ", i+1), task, "error"))
			}
		}
		return most
	}
	s := suite.Suite{
		Name: "univmon-7", Title: "UnivMon, Figure 7: three tasks at 600 KB on five traces",
		Setup: univmonSetup + " The five traces have other seeds, and 155 to 286 thousand packets in 5 s. UnivMon's " +
			"600 KB serve all three tasks, each task of OpenSketch has 600 KB.",
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
		Claims: []suite.Claim{
			{
				Figure: "7(a)", Paper: "the error is very small for all three tasks (the axis ends at 5 %)",
				Ours: func(v suite.Values) string {
					return fmt.Sprintf("UnivMon at most %s %%, OpenSketch at most %s %%",
						suite.Short(100*worst(v, "UnivMon")), suite.Short(100*worst(v, "OpenSketch")))
				},
				Holds: func(v suite.Values) bool {
					return worst(v, "UnivMon") <= 0.05 && worst(v, "OpenSketch") <= 0.05
				},
			},
			{
				Figure: "7(b)", Paper: "OpenSketch is slightly better; the gap is at most 3.6 %",
				Ours: func(v suite.Values) string {
					least, most := gap(v, "error")
					return fmt.Sprintf("the gap is %s to %s %%", suite.Short(100*least), suite.Short(100*most))
				},
				Holds: func(v suite.Values) bool { _, most := gap(v, "error"); return most <= 0.036 },
			},
		},
	}
	for _, task := range univmonTasks {
		s.Plots = append(s.Plots, suite.Plot{File: "univmon-7-" + suite.FileName(task), Title: task + " (error)",
			Task: task, Metric: "error", X: "trace", Log: true})
	}
	return s
}

func univmonFigure12() suite.Suite {
	const x, task = "applications", "error gap"
	gap := func(v suite.Values, application string, n int) float64 {
		return v.Variant(application, fmt.Sprint(x, " ", n), task, "gap")
	}
	cost := func(v suite.Values, structure string, applications ...string) (sum float64) {
		for _, a := range applications {
			sum += v.Variant(structure, a, "cost", "processor time")
		}
		return sum
	}
	ratio := func(v suite.Values, application string) float64 {
		return cost(v, "UnivMon", "all") / cost(v, "OpenSketch", application)
	}
	return suite.Suite{
		Name: "univmon-12", Title: "UnivMon, Figure 12 and section 7.2: a growing number of applications, 600 KB",
		Setup: univmonSetup + " One application is heavy hitters, the second DDoS (distinct sources), the third " +
			"changes. OpenSketch divides 600 KB equally among them, UnivMon has 600 KB for all. A gap is UnivMon's " +
			"error less OpenSketch's. The cost is one thread's processor time for the 5 s, the least of nine runs: for " +
			"UnivMon its update, for OpenSketch what each application does with a packet: Count-Min with 3 rows, its " +
			"query and the table of large flows for heavy hitters and changes, one bit for DDoS.",
		Measure: univmonPortfolio,
		Plots: []suite.Plot{
			{File: "univmon-12", Title: "Error of UnivMon less OpenSketch's (%)", Task: task, Metric: "gap", X: x},
		},
		Claims: []suite.Claim{
			{
				Figure: "12", Paper: "the gap decreases as OpenSketch's tasks get less memory",
				Why: "that of heavy hitters does; the bitmap's error is far below UnivMon's at 200 KB, too, so the gap of " +
					"DDoS is UnivMon's error",
				Ours: func(v suite.Values) string {
					return fmt.Sprintf("heavy hitters %s, %s, %s %%; DDoS %s, %s %%",
						suite.Short(gap(v, "heavy hitters", 1)), suite.Short(gap(v, "heavy hitters", 2)),
						suite.Short(gap(v, "heavy hitters", 3)), suite.Short(gap(v, "distinct sources", 2)),
						suite.Short(gap(v, "distinct sources", 3)))
				},
				Holds: func(v suite.Values) bool {
					return gap(v, "heavy hitters", 2) < gap(v, "heavy hitters", 1) &&
						gap(v, "heavy hitters", 3) < gap(v, "heavy hitters", 2) &&
						gap(v, "distinct sources", 3) < gap(v, "distinct sources", 2)
				},
			},
			{
				Figure: "12, section 7.2", Paper: "for any given task UnivMon takes 15 % more cycles than OpenSketch",
				Why: "one hash and a few nanoseconds serve Count-Min, and the bitmap less; UnivMon's update has three rows of " +
					"signed counters and the table of heavy keys",
				Ours: func(v suite.Values) string {
					return fmt.Sprintf("times heavy hitters' %s, DDoS's %s, changes' %s",
						suite.Short(ratio(v, "heavy hitters")), suite.Short(ratio(v, "distinct sources")),
						suite.Short(ratio(v, "heavy changes")))
				},
				Holds: func(v suite.Values) bool {
					return ratio(v, "heavy hitters") <= 1.15 && ratio(v, "distinct sources") <= 1.15 &&
						ratio(v, "heavy changes") <= 1.15
				},
			},
			{
				Figure: "12, section 7.2", Paper: "for all three together it takes half of OpenSketch's",
				Why: "it takes less than the three, but they are faster here than OpenSketch's library, as above",
				Ours: func(v suite.Values) string {
					return fmt.Sprintf("%s of it", suite.Short(cost(v, "UnivMon", "all")/cost(v, "OpenSketch", univmonTasks...)))
				},
				Holds: func(v suite.Values) bool {
					return cost(v, "UnivMon", "all") <= 0.5*cost(v, "OpenSketch", univmonTasks...)
				},
			},
		},
	}
}

func univmonPortfolio(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
	w, err := univmonInterval(t, 5, o.Seed)
	if err != nil {
		return nil, err
	}
	ours := make([]answers, o.Runs)
	var theirs [3][]answers // by the number of applications
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

// univmonCosts measures what a packet costs: the structures in turn, the least of the runs of each.
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
