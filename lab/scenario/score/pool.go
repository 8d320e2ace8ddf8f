// SPDX-License-Identifier: Apache-2.0

package score

import (
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Confusion counts what was reported and what is true.
type Confusion struct {
	TruePositive  int `json:"true_positive"`
	FalsePositive int `json:"false_positive"`
	FalseNegative int `json:"false_negative"`
}

// share is a of b; of nothing it is 1.
func share(a, b int) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

// F1 is the harmonic mean of precision and recall; 1 where nothing was to be found and nothing was.
func (c Confusion) F1() float64 {
	return share(2*c.TruePositive, 2*c.TruePositive+c.FalsePositive+c.FalseNegative)
}

// Precision is the share of what was reported that is true.
func (c Confusion) Precision() float64 { return share(c.TruePositive, c.TruePositive+c.FalsePositive) }

// Recall is the share of what is true that was reported.
func (c Confusion) Recall() float64 { return share(c.TruePositive, c.TruePositive+c.FalseNegative) }

func (c *Confusion) add(o Confusion) {
	c.TruePositive += o.TruePositive
	c.FalsePositive += o.FalsePositive
	c.FalseNegative += o.FalseNegative
}

// Compare counts reported flows against true ones.
func Compare[V any](reported map[flow.Key]V, actual []truth.Flow) Confusion {
	var c Confusion
	for _, f := range actual {
		if _, ok := reported[f.Key]; ok {
			c.TruePositive++
		} else {
			c.FalseNegative++
		}
	}
	c.FalsePositive = len(reported) - c.TruePositive
	return c
}

// Figure is a measured value beside the true one.
type Figure struct {
	Measured float64 `json:"measured"`
	True     float64 `json:"true"`
}

// Of is a measured value beside the true one.
func Of(measured, actual float64) Figure { return Figure{measured, actual} }

// Error is the relative error; of a true value of 0 it is 0 or 1.
func (f Figure) Error() float64 {
	if f.True == 0 {
		if f.Measured == 0 {
			return 0
		}
		return 1
	}
	return math.Abs(f.Measured-f.True) / math.Abs(f.True)
}

// FlowFigure is a flow with its packets, measured and true.
type FlowFigure struct {
	Flow string `json:"flow"`
	Figure
}

// Sample is what one result adds to a measure. Make one with Mean, F1, Precision or Recall.
type Sample struct {
	measure, dimension string
	value              float64
	counts             Confusion
	of                 func(Confusion) float64 // nil: values are averaged, and the worst is the largest
}

// Mean is a value of which the mean is taken, such as an error.
func Mean(measure, dimension string, value float64) Sample {
	return Sample{measure: measure, dimension: dimension, value: value}
}

// F1 is of the sum of all counts.
func F1(measure, dimension string, c Confusion) Sample {
	return Sample{measure: measure, dimension: dimension, counts: c, of: Confusion.F1}
}

// Precision is of the sum of all counts.
func Precision(measure, dimension string, c Confusion) Sample {
	return Sample{measure: measure, dimension: dimension, counts: c, of: Confusion.Precision}
}

// Recall is of the sum of all counts; it serves for any share, the true positives of the positives.
func Recall(measure, dimension string, c Confusion) Sample {
	return Sample{measure: measure, dimension: dimension, counts: c, of: Confusion.Recall}
}

// Share is a Recall of n out of so many.
func Share(measure, dimension string, n, of int) Sample {
	return Recall(measure, dimension, Confusion{TruePositive: n, FalseNegative: of - n})
}

// Total is what a measure came to over a whole run.
type Total struct {
	Algorithm string  `json:"algorithm"`
	Measure   string  `json:"measure"`
	Dimension string  `json:"dimension"`
	Value     float64 `json:"value"`
	Worst     float64 `json:"worst"` // of one result of one epoch
	Views     int     `json:"views"` // results it rests on
}

// Totals pools the samples of all results by measure and dimension.
func Totals(algorithm string, results []Result) []Total {
	type pool struct {
		counts     Confusion
		of         func(Confusion) float64
		sum, worst float64
		n          int
	}
	pools := map[[2]string]*pool{}
	for _, r := range results {
		for _, s := range r.Samples() {
			k := [2]string{s.measure, s.dimension}
			p := pools[k]
			if p == nil {
				p = &pool{of: s.of}
				if s.of != nil {
					p.worst = math.Inf(1)
				}
				pools[k] = p
			}
			p.n++
			if s.of == nil {
				p.sum += s.value
				p.worst = math.Max(p.worst, s.value)
				continue
			}
			p.counts.add(s.counts)
			p.worst = math.Min(p.worst, s.of(s.counts))
		}
	}
	var out []Total
	for k, p := range pools {
		t := Total{Algorithm: algorithm, Measure: k[0], Dimension: k[1], Worst: p.worst, Views: p.n}
		if p.of != nil {
			t.Value = p.of(p.counts)
		} else {
			t.Value = p.sum / float64(p.n)
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Total) int {
		return strings.Compare(a.Dimension+"\x00"+a.Measure, b.Dimension+"\x00"+b.Measure)
	})
	return out
}
