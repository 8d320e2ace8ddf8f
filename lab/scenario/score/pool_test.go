// SPDX-License-Identifier: Apache-2.0

package score_test

import (
	"math"
	"testing"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

type result []score.Sample

func (r result) Samples() []score.Sample { return r }
func (r result) Missing() (n, of int)    { return 0, 1 }

func TestTotalsPool(t *testing.T) {
	results := []score.Result{
		result{score.F1("f1", "a", score.Confusion{TruePositive: 1}), score.Mean("error", "", 0.1), score.Share("share", "", 3, 4)},
		result{score.F1("f1", "a", score.Confusion{TruePositive: 1, FalsePositive: 1, FalseNegative: 1}), score.Mean("error", "", 0.3), score.Share("share", "", 0, 4)},
		result{score.F1("f1", "b", score.Confusion{}), score.Precision("precision", "a", score.Confusion{TruePositive: 1, FalsePositive: 3, FalseNegative: 9})},
	}
	want := []score.Total{
		{Algorithm: "x", Measure: "error", Value: 0.2, Worst: 0.3, Views: 2},
		{Algorithm: "x", Measure: "share", Value: 0.375, Worst: 0, Views: 2},
		{Algorithm: "x", Measure: "f1", Dimension: "a", Value: 4.0 / 6, Worst: 0.5, Views: 2},
		{Algorithm: "x", Measure: "precision", Dimension: "a", Value: 0.25, Worst: 0.25, Views: 1},
		{Algorithm: "x", Measure: "f1", Dimension: "b", Value: 1, Worst: 1, Views: 1},
	}
	got := score.Totals("x", results)
	if len(got) != len(want) {
		t.Fatalf("%d totals, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		if math.Abs(g.Value-w.Value) > 1e-12 || math.Abs(g.Worst-w.Worst) > 1e-12 {
			t.Errorf("%+v, want %+v", g, w)
		}
		if g.Value, g.Worst = w.Value, w.Worst; g != w {
			t.Errorf("%+v, want %+v", g, w)
		}
	}
}

func TestFigureError(t *testing.T) {
	for _, tt := range []struct{ measured, actual, want float64 }{{0, 0, 0}, {3, 0, 1}, {9, 10, 0.1}, {-5, -10, 0.5}} {
		if got := score.Of(tt.measured, tt.actual).Error(); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%v for %v: error %v, want %v", tt.measured, tt.actual, got, tt.want)
		}
	}
}
