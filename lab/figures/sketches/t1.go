// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/sumax"
)

// univmonLimit is UnivMon's threshold, 0.05 % of the packets.
var univmonLimit = limits{heavy: univmonShare, change: papers.change}

// t1Case is a structure at several memories, and the results of its authors' program on T1.
type t1Case struct {
	k       kind
	kib     []int // memory in units of 1,024 bytes, as in the programs
	l       limits
	sources bool                 // whether the program's key is the source address alone
	theirs  map[string][]float64 // results of the authors' program, by task and metric, one for each memory
}

func t1Cases() []t1Case {
	tf := map[string][]float64{
		"flow size ARE": {0.421}, "flow size AAE": {0.659}, "heavy hitters F1": {0.997}, "heavy changes F1": {0.967},
		"cardinality RE":              {0.0037},
		"flow size distribution WMRE": {0.036}, "entropy RE": {0.0077},
	}
	bins := map[string][]float64{"flow size ARE": {33.6, 6.28, 0.407}, "large flows ARE": {0.0007, 0, 0}}
	full := towerFermat[fermat.Prime32]()
	full.variant = "13-byte keys, 20-byte buckets"
	short := full
	short.variant = "source addresses, 8-byte buckets"
	return []t1Case{
		{short, []int{500}, papers, true, tf},
		{full, []int{500}, papers, false, tf},
		{countMin(false, "CM"), []int{500}, papers, false,
			map[string][]float64{"flow size ARE": {2.14}, "flow size AAE": {3.49}}},
		{countMin(true, "CU"), []int{500}, papers, false,
			map[string][]float64{"flow size ARE": {1.26}, "flow size AAE": {1.69}}},
		{elasticSwitch(), []int{500}, papers, true,
			map[string][]float64{"flow size ARE": {0.568}, "heavy hitters F1": {0.999},
				"flow size distribution WMRE": {0.033}, "entropy RE": {0.0019}}},
		{towerKind(false, "TowerCM"), []int{600}, papers, false,
			map[string][]float64{"flow size ARE": {0.069}, "flow size AAE": {0.273}}},
		{towerKind(true, "TowerCU"), []int{600}, papers, false,
			map[string][]float64{"flow size ARE": {0.0159}, "flow size AAE": {0.0212}}},
		{countMin(false, "CM"), []int{600}, papers, false, map[string][]float64{"flow size ARE": {1.58}}},
		{countMin(true, "CU"), []int{600}, papers, false, map[string][]float64{"flow size ARE": {0.90}}},
		{univmonKind(), []int{512, 1024, 2048, 4096}, univmonLimit, false, map[string][]float64{
			"heavy hitters F1": {0.70, 0.98, 0.999, 1}, "entropy RE": {0.0137, 0.0096, 0.0008, 0.0007},
			"cardinality RE": {0.017, 0.041, 0.021, 0.011},
		}},
		{sumaxBins(true), []int{512, 1536, 6144}, papers, false, bins},
		{sumaxBins(false), []int{512, 1536, 6144}, papers, false, bins},
	}
}

// sumaxBins is SuMax with 8 delay ranges. Delays are drawn evenly, as the authors' program does.
func sumaxBins(noSizes bool) kind {
	variant := "3 rows, sizes and 8 ranges"
	if noSizes {
		variant = "3 rows, 8 ranges"
	}
	return kind{"SuMax", variant, func(_ *trace.Trace, memory int, _ float64, seed uint64) (*structure, error) {
		s, err := sumax.New[host](sumax.Config{Memory: memory, Ranges: []uint32{1, 2, 3, 4, 5, 6, 7}, NoSizes: noSizes,
			Seed: seed})
		if err != nil {
			return nil, err
		}
		r := rand.New(rand.NewPCG(seed, 0x64656c6179))
		return &structure{
			insert: func(k []byte) { s.Record(k, sumax.Packet{Delay: uint32(r.IntN(8))}) },
			size:   func(k []byte) float64 { v, _ := s.Query(k); return float64(v) },
		}, nil
	}}
}

func accuracyT1() suite.Suite {
	return suite.New(suite.Suite{
		Name: "accuracy-t1",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			cases := t1Cases()
			var rows []suite.Row
			for seed := range uint64(o.Runs) {
				full, err := t.Another(o.Seed + seed)
				if err != nil {
					return nil, err
				}
				sources := full.Sources()
				full.Exact()
				sources.Exact()
				var parts [][]suite.Row
				var jobs []func() error
				for _, c := range cases {
					for _, kib := range c.kib {
						i := len(parts)
						parts = append(parts, nil)
						jobs = append(jobs, func() (err error) {
							on := full
							if c.sources {
								on = sources
							}
							parts[i], err = c.measure(on, kib*1024, o.Seed+seed)
							return err
						})
					}
				}
				if err := suite.Each(ctx, len(jobs), func(i int) error { return jobs[i]() }); err != nil {
					return nil, err
				}
				rows = append(rows, slices.Concat(parts...)...)
			}
			return rows, nil
		},
		Table: t1Table,
	})
}

// measure returns the rows that the authors' figures are about.
func (c *t1Case) measure(t *trace.Trace, memory int, seed uint64) ([]suite.Row, error) {
	if _, ok := c.theirs["large flows ARE"]; ok {
		return largeFlows(c, t, memory, seed)
	}
	rows, err := c.k.accuracy(t, memory, seed, c.l)
	return slices.DeleteFunc(rows, func(r suite.Row) bool { _, ok := c.theirs[r.Task+" "+r.Metric]; return !ok }), err
}

// largeFlows measures the errors of all flows, and of flows with more than 500 packets.
func largeFlows(c *t1Case, t *trace.Trace, memory int, seed uint64) ([]suite.Row, error) {
	s, err := c.k.fill(t, memory, 0, seed)
	if err != nil {
		return nil, err
	}
	all, large, n := 0.0, 0.0, 0.0
	for _, f := range t.Flows() {
		e := suite.Relative(s.size([]byte(f.Key)), float64(f.Packets))
		all += e / float64(len(t.Flows()))
		if f.Packets > 500 {
			large, n = large+e, n+1
		}
	}
	return []suite.Row{
		row(c.k.name, c.k.variant, memory, "flow size", "ARE", all, "ratio", t.Name),
		row(c.k.name, c.k.variant, memory, "large flows", "ARE", large/max(n, 1), "ratio", t.Name),
	}, nil
}

// t1Tasks lists the tasks in the order of the table's columns.
var t1Tasks = []string{
	"flow size ARE", "flow size AAE", "large flows ARE", "heavy hitters F1", "heavy changes F1", "cardinality RE",
	"flow size distribution WMRE", "entropy RE",
}

// compared is a line of the table.
type compared struct {
	structure, variant string
	memory             int
	task               string
	theirs             float64
	mean, deviation    float64
	traces             int
	verdict            string
}

// compareT1 compares the authors' figures with the rows.
func compareT1(rows []suite.Row) (lines []compared) {
	for _, c := range t1Cases() {
		for i, kib := range c.kib {
			for _, task := range t1Tasks {
				theirs, ok := c.theirs[task]
				if !ok {
					continue
				}
				var v []float64
				for _, r := range rows {
					if r.Structure == c.k.name && r.Variant == c.k.variant && r.Memory == kib*1024 &&
						r.Task+" "+r.Metric == task {
						v = append(v, r.Value)
					}
				}
				if len(v) == 0 {
					continue
				}
				l := compared{structure: c.k.name, variant: c.k.variant, memory: kib * 1024, task: task,
					theirs: theirs[i], traces: len(v)}
				for _, x := range v {
					l.mean += x / float64(len(v))
				}
				for _, x := range v {
					l.deviation += (x - l.mean) * (x - l.mean) / float64(max(len(v)-1, 1))
				}
				l.deviation = math.Sqrt(l.deviation)
				gap := l.mean - l.theirs // above 0 if the result here is worse
				if strings.HasSuffix(task, "F1") {
					gap = -gap
				}
				switch {
				case gap <= 0:
					l.verdict = "yes"
				case gap <= 2*l.deviation:
					l.verdict = "within the spread"
				default:
					l.verdict = "no"
				}
				lines = append(lines, l)
			}
		}
	}
	return lines
}

func t1Table(rows []suite.Row) string {
	var b strings.Builder
	lines := compareT1(rows)
	worse := slices.DeleteFunc(slices.Clone(lines), func(l compared) bool { return l.verdict == "yes" })
	fmt.Fprintf(&b, "Of %d means, %d are no worse than the authors' figure. The others:\n\n", len(lines),
		len(lines)-len(worse))
	b.WriteString("| structure | variant | KB | figure | authors' | here: mean ± deviation | no worse " +
		"|\n|---|---|---|---|---|---|---|\n")
	for _, l := range worse {
		verdict := l.verdict
		if why := t1Why[[2]string{l.variant, l.task}]; verdict == "no" && why != "" {
			verdict += ": " + why
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %g | %.3g ± %.2g | %s |\n", l.structure, l.variant, l.memory/1024,
			l.task, l.theirs, l.mean, l.deviation, verdict)
	}
	return b.String()
}

// t1Why has the reasons for results that are worse on the standard traces.
var t1Why = map[[2]string]string{
	{"13-byte keys, 20-byte buckets", "flow size AAE"}: "Fermat's buckets of 20 bytes, instead of the authors' 8, " +
		"leave 30 KB less to the Tower",
	{"3 rows, sizes and 8 ranges", "flow size ARE"}: "the authors' program has no cell of sizes beside the ranges",
}
