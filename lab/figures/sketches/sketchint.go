// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"fmt"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

var sixTasks = [][2]string{
	{"flow size", "ARE"}, {"flow size", "AAE"}, {"heavy hitters", "F1"}, {"heavy hitters", "ARE"},
	{"heavy changes", "F1"},
	{"entropy", "RE"}, {"cardinality", "RE"}, {"flow size distribution", "WMRE"},
}

func sketchintFigure5() suite.Suite {
	const kb = 1000
	memories := kilobytes(300, 450, 600, 750, 900)
	others := []string{"CM", "CU", "Elastic"}
	mean := func(v suite.Values, task, metric string, structures ...string) (sum float64) {
		for _, s := range structures {
			for _, m := range memories {
				sum += v.Get(s, m, task, metric) / float64(len(memories)*len(structures))
			}
		}
		return sum
	}
	average := func(figure, paper, task, metric string, tower, others []string, atLeast float64,
		why string) suite.Claim {
		ratio := func(v suite.Values) float64 {
			return mean(v, task, metric, others...) / mean(v, task, metric, tower...)
		}
		return suite.Claim{
			Figure: figure, Paper: paper, Why: why,
			Ours: func(v suite.Values) string {
				return suite.Short(ratio(v)) + " times, of the means over all memories"
			},
			Holds: func(v suite.Values) bool { return ratio(v) >= atLeast },
		}
	}
	return suite.Suite{
		Name: "sketchint-5", Title: "SketchINT, Figure 5: local tasks",
		Setup: "The paper: CAIDA 2018, 2.3 million packets of 170 thousand flows in 5 s, means of 100 runs. Here: " +
			"means over the hash seeds of `--runs`. Heavy hitters are flows of 0.025 % of the packets, " +
			"heavy changes differ by 0.0125 % between the halves of the trace; this corresponds to the paper's 500 " +
			"and 250 packets. Cardinality is linear counting over all rows. The distribution and the entropy " +
			"come from MRAC, those of CU and TowerCU from the largest-flow rule of `estimate.Maxima`, because " +
			"their counters are not sums. A missed heavy hitter counts as an error of 1.",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			kinds := []kind{countMin(false, "CM"), countMin(true, "CU"), towerKind(false, "TowerCM"),
				towerKind(true, "TowerCU"), elasticKind()}
			return accuracy(ctx, t, o, kinds, memories, sixTasks)
		},
		Plots: memoryPlots("sketchint-5", sixTasks...),
		Claims: []suite.Claim{
			average("5(a)", "ARE of Tower is on average 13.9 times below CM, CU and Elastic", "flow size", "ARE",
				[]string{"TowerCM", "TowerCU"}, others, 13.9, ""),
			suite.Times("5(a)", "900 KB: TowerCM's ARE at least 6.8 times below the others'", 900*kb, "flow size",
				"ARE", "TowerCM", others, 6.8, ""),
			suite.Times("5(a)", "900 KB: TowerCU's ARE at least 29 times below the others'", 900*kb, "flow size", "ARE",
				"TowerCU", others, 29, ""),
			suite.Times("5(b)", "900 KB: TowerCM's AAE at least 1.9 times below the others'", 900*kb, "flow size",
				"AAE", "TowerCM", others, 1.9, ""),
			suite.Times("5(b)", "900 KB: TowerCU's AAE at least 28 times below the others'", 900*kb, "flow size", "AAE",
				"TowerCU", others, 28, ""),
			suite.Within("5(c)", "300 KB: TowerCU's F1 is 0.9997", 300*kb, "heavy hitters", "F1",
				[]string{"TowerCU", "CM", "CU", "Elastic"}, []float64{0.9997}, true, ""),
			suite.Best("5(c)", "TowerCU's F1 is always better than CM's, CU's and Elastic's", "heavy hitters", "F1",
				memories, true, "TowerCU", others, ""),
			suite.Within("5(d)", "300 KB: TowerCU's ARE is 3e-4, at least 5 times below the others'", 300*kb,
				"heavy hitters", "ARE", []string{"TowerCU", "CM", "CU", "Elastic"}, []float64{3e-4}, false, ""),
			suite.Within("5(e)", "300 KB: F1 is TowerCU 0.998, CM 0.96, CU 0.98, Elastic 0.99", 300*kb, "heavy changes",
				"F1", []string{"TowerCU", "CM", "CU", "Elastic"}, []float64{0.998}, true, ""),
			suite.Best("5(e)", "TowerCU's F1 is better than CM's, CU's and Elastic's", "heavy changes", "F1", memories,
				true, "TowerCU", others, ""),
			average("5(f)", "RE of TowerCU is on average 5.7 times below CM, CU and Elastic", "entropy", "RE",
				[]string{"TowerCU"}, others, 5.7, ""),
			suite.Within("5(f)", "900 KB: TowerCU's RE is 2.42e-4", 900*kb, "entropy", "RE",
				[]string{"TowerCU", "TowerCM", "CM", "CU", "Elastic"}, []float64{2.42e-4}, false, ""),
			suite.Times("5(f)", "900 KB: that is at least 12.9 times below the others'", 900*kb, "entropy", "RE",
				"TowerCU", others, 12.9, "TowerCU's error is smaller than in the paper, but MRAC on CM's and "+
					"Elastic's counters gains more: it takes all splits of a counter into account"),
			suite.Within("5(g)", "900 KB: RE is TowerCU 6.02e-4, CM 1.7e-3, CU 2e-3, Elastic 6.62e-4", 900*kb,
				"cardinality", "RE", []string{"TowerCU", "CM", "CU", "Elastic"}, []float64{6.02e-4}, false, ""),
			suite.Best("5(g)", "Tower is better than CM and CU", "cardinality", "RE", memories, false, "TowerCU",
				[]string{"CM", "CU"}, ""),
			suite.Within("5(h)", "900 KB: WMRE is Tower 0.09, CM 0.38, CU 0.35", 900*kb, "flow size distribution",
				"WMRE", []string{"TowerCM", "TowerCU", "CM", "CU"}, []float64{0.09, 0.09}, false, ""),
			average("5(h)", "WMRE of Tower is on average 4.0 times below CM and CU", "flow size distribution", "WMRE",
				[]string{"TowerCM"}, []string{"CM", "CU"}, 4, ""),
		},
	}
}

func kilobytes(kb ...int) []int {
	for i := range kb {
		kb[i] *= 1000
	}
	return kb
}

func memoryPlots(prefix string, tasks ...[2]string) (plots []suite.Plot) {
	for _, task := range tasks {
		plots = append(plots, suite.Plot{
			File:  prefix + "-" + suite.FileName(task[0]) + "-" + suite.FileName(task[1]),
			Title: fmt.Sprintf("%s (%s)", task[0], task[1]), Task: task[0], Metric: task[1],
			X: "memory", Log: task[1] != "F1",
		})
	}
	return plots
}
