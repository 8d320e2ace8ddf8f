// SPDX-License-Identifier: Apache-2.0

package score

import (
	"math"
	"slices"
	"strings"
)

// Confusion counts published rows against true ones.
type Confusion struct {
	TruePositive  int `json:"true_positive"`
	FalsePositive int `json:"false_positive"`
	FalseNegative int `json:"false_negative"`
}

// share returns a divided by b, or 1 if b is 0.
func share(a, b int) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

// F1 is the harmonic mean of precision and recall; 1 if both tables are empty.
func (c Confusion) F1() float64 {
	return share(2*c.TruePositive, 2*c.TruePositive+c.FalsePositive+c.FalseNegative)
}

// Precision is the share of the published rows that are true.
func (c Confusion) Precision() float64 { return share(c.TruePositive, c.TruePositive+c.FalsePositive) }

// Recall is the share of the true rows that are published.
func (c Confusion) Recall() float64 { return share(c.TruePositive, c.TruePositive+c.FalseNegative) }

// Add adds counts.
func (c *Confusion) Add(o Confusion) {
	c.TruePositive += o.TruePositive
	c.FalsePositive += o.FalsePositive
	c.FalseNegative += o.FalseNegative
}

// Figure is a measured value and the true one.
type Figure struct {
	Measured float64 `json:"measured"`
	True     float64 `json:"true"`
}

// Of returns a Figure.
func Of(measured, actual float64) Figure { return Figure{measured, actual} }

// Error is the relative error. If the true value is 0, it is 0 for a measured 0, and otherwise 1.
func (f Figure) Error() float64 {
	if f.True == 0 {
		if f.Measured == 0 {
			return 0
		}
		return 1
	}
	return math.Abs(f.Measured-f.True) / math.Abs(f.True)
}

// FlowFigure is a row, usually a flow, with one of its leaves.
type FlowFigure struct {
	Flow string `json:"flow"`
	Figure
}

// Total is a measure over a whole run.
type Total struct {
	Algorithm string  `json:"algorithm"`
	Measure   string  `json:"measure"`
	Dimension string  `json:"dimension"`
	Value     float64 `json:"value"`
	Worst     float64 `json:"worst"` // worst value of one view of one epoch
	Views     int     `json:"views"` // number of views that it is pooled from
}

// totals pools the scores of all results by measure and dimension.
func totals(algorithm string, results []*Result) []Total {
	type pool struct {
		counts     Confusion
		of         func(Confusion) float64
		sum, worst float64
		n          int
	}
	pools := map[[2]string]*pool{}
	for _, r := range results {
		for i := range r.Scores {
			s := &r.Scores[i]
			k := [2]string{s.Measure, s.Dimension}
			p := pools[k]
			if p == nil {
				p = &pool{of: s.pool, worst: s.Value}
				pools[k] = p
			}
			p.n++
			if s.pool == nil && !s.least {
				p.worst = max(p.worst, s.Value)
			} else {
				p.worst = min(p.worst, s.Value)
			}
			if s.pool == nil {
				p.sum += s.Value
			} else {
				p.counts.Add(*s.Counts)
			}
		}
	}
	var out []Total
	for k, p := range pools {
		t := Total{Algorithm: algorithm, Measure: k[0], Dimension: k[1], Worst: p.worst, Views: p.n,
			Value: p.sum / float64(p.n)}
		if p.of != nil {
			t.Value = p.of(p.counts)
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Total) int {
		return strings.Compare(a.Dimension+"\x00"+a.Measure, b.Dimension+"\x00"+b.Measure)
	})
	return out
}
