// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

var sixTasks = [][2]string{
	{"flow size", "ARE"}, {"flow size", "AAE"}, {"heavy hitters", "F1"}, {"heavy hitters", "ARE"},
	{"heavy changes", "F1"},
	{"entropy", "RE"}, {"cardinality", "RE"}, {"flow size distribution", "WMRE"},
}

func sketchintFigure5() suite.Suite {
	memories := kilobytes(300, 450, 600, 750, 900)
	return suite.New(suite.Suite{
		Name: "sketchint-5",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			kinds := []kind{countMin(false, "CM"), countMin(true, "CU"), towerKind(false, "TowerCM"),
				towerKind(true, "TowerCU"), elasticKind()}
			return accuracy(ctx, t, o, kinds, memories, sixTasks)
		},
	})
}

func kilobytes(kb ...int) []int {
	for i := range kb {
		kb[i] *= 1000
	}
	return kb
}
