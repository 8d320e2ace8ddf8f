// SPDX-License-Identifier: Apache-2.0

// Package chart draws the charts of docs/figures as SVG: lines with markers, steps and stacked
// areas, with a legend to the right. The same charts give the same bytes, so a figure that is drawn
// again differs only where its numbers do. The package has no state.
package chart

import (
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"
)

// Point is one value. Points with a NaN or infinite coordinate are left out.
type Point = plotter.XY

// Series is one line of a chart.
type Series struct {
	Name      string
	Points    []Point // points, joined in this order
	Reference bool    // a published line: dashed, with hollow markers
}

// Chart is one diagram.
type Chart struct {
	Title  string
	X      string // label of the x axis; "" for none
	Y      string // label of the y axis; "" for none
	LogX   bool   // the x axis is logarithmic; points at or below 0 are drawn at the axis' minimum
	LogY   bool
	Zero   bool // the y axis starts at 0
	Steps  bool // lines are steps: a value holds until the next point
	Stack  bool // stacked areas, for series with the same x; Reference series stay lines
	Series []Series
}

// layout returns the series without points that are not finite, and with areas stacked.
func (c *Chart) layout() []Series {
	height := make(map[float64]float64) // height of the stack, by x
	var out []Series
	for _, s := range c.Series {
		points := slices.DeleteFunc(slices.Clone(s.Points), func(p Point) bool {
			return math.IsNaN(p.X+p.Y) || math.IsInf(p.X, 0) || math.IsInf(p.Y, 0)
		})
		if c.Stack && !s.Reference {
			for i := range points {
				height[points[i].X] += points[i].Y
				points[i].Y = height[points[i].X]
			}
		}
		s.Points = points
		out = append(out, s)
	}
	return out
}

// axisRange returns the limits of an axis over values: whole powers of ten for a logarithmic one.
func axisRange(values []float64, log bool) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !log || v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	switch {
	case math.IsInf(low, 1): // a logarithmic axis without a positive value
		return 0.1, 1
	case log:
		low, high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
		if low == high {
			high *= 10
		}
	case low == high:
		low, high = low-1, high+1
	}
	return low, high
}
