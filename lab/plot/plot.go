// SPDX-License-Identifier: Apache-2.0

// Package plot draws the charts of docs/figures as SVG: lines with markers, steps, and
// areas on top of each other, with a legend. The same chart gives the same bytes, so that a
// figure that is made again only differs where its numbers do. Nothing is kept between
// calls; a Chart may be drawn by several goroutines as long as none changes it.
package plot

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Point is a value at a place of the x axis. One that is not a number is left out.
type Point struct{ X, Y float64 }

// Series is one line of a chart.
type Series struct {
	Name   string
	Points []Point // in the order in which they are joined
	// Reference says that the line is what others published: dashed, with hollow markers.
	Reference bool
}

// Chart is one diagram.
type Chart struct {
	Title  string
	X      string // label of the x axis; "": none
	Y      string // label of the y axis; "": none
	LogX   bool   // logarithmic; points at or below 0 are drawn at the axis' least
	LogY   bool
	Zero   bool // the y axis begins at 0
	Steps  bool // a value holds until the next point
	Stack  bool // areas on top of each other, for series with the same x; Reference series stay lines
	Series []Series
}

var colours = []string{"#1b6ca8", "#d1495b", "#2e933c", "#8d5a97", "#c97b1f", "#3a3a3a", "#0f9d9d", "#b0a020", "#e377c2", "#7f7f7f"}

const (
	width, height                    = 560, 340
	left, right, top, bottom float64 = 70, 150, 36, 46
)

// SVG draws the chart; ok is false when it has no point.
func (c *Chart) SVG() (svg string, ok bool) {
	drawn, base := c.lay()
	var xs, ys []float64
	for i, s := range drawn {
		for j, q := range s.Points {
			xs, ys = append(xs, q.X), append(ys, q.Y)
			if base[i] != nil {
				ys = append(ys, base[i][j])
			}
		}
	}
	if len(xs) == 0 {
		return "", false
	}
	if c.Zero && !c.LogY {
		ys = append(ys, 0)
	}
	x, y := newAxis(xs, c.LogX, left, width-right), newAxis(ys, c.LogY, height-bottom, top)
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`, width, height)
	put(`<rect width="100%%" height="100%%" fill="white"/>`)
	put(`<text x="%.0f" y="20" font-size="13">%s</text>`, left, html.EscapeString(c.Title))
	for _, v := range y.ticks() {
		put(`<path d="M%.1f %.1fH%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left, y.at(v), width-right, left-6, y.at(v)+4, Number(v))
	}
	for _, v := range x.ticks() {
		put(`<path d="M%.1f %.1fV%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x.at(v), top, height-bottom, x.at(v), height-bottom+16, Number(v))
	}
	if c.X != "" {
		put(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, (left+width-right)/2, height-8, html.EscapeString(c.X))
	}
	if c.Y != "" {
		put(`<text transform="translate(14 %.1f) rotate(-90)" text-anchor="middle">%s</text>`, (top+height-bottom)/2, html.EscapeString(c.Y))
	}
	for i := range drawn {
		c.line(put, i, &drawn[i], base[i], &x, &y)
	}
	put(`</svg>`)
	return b.String(), true
}

// lay leaves out what is no number, and puts areas on top of each other: base holds the lower edges.
func (c *Chart) lay() (drawn []Series, base [][]float64) {
	height := make(map[float64]float64)
	for _, s := range c.Series {
		d := Series{Name: s.Name, Reference: s.Reference}
		var low []float64
		for _, q := range s.Points {
			if math.IsNaN(q.X+q.Y) || math.IsInf(q.X, 0) || math.IsInf(q.Y, 0) {
				continue
			}
			if c.Stack && !s.Reference {
				low = append(low, height[q.X])
				q.Y += height[q.X]
				height[q.X] = q.Y
			}
			d.Points = append(d.Points, q)
		}
		drawn, base = append(drawn, d), append(base, low)
	}
	return drawn, base
}

// line draws a series and its place in the legend.
func (c *Chart) line(put func(string, ...any), i int, s *Series, base []float64, x, y *axis) {
	colour := colours[i%len(colours)]
	var path strings.Builder
	for j, q := range s.Points {
		switch {
		case j == 0:
			fmt.Fprintf(&path, "M%.1f %.1f", x.at(q.X), y.at(q.Y))
		case c.Steps:
			fmt.Fprintf(&path, "H%.1fV%.1f", x.at(q.X), y.at(q.Y))
		default:
			fmt.Fprintf(&path, "L%.1f %.1f", x.at(q.X), y.at(q.Y))
		}
		switch {
		case s.Reference:
			put(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="none" stroke="%s"/>`, x.at(q.X), y.at(q.Y), colour)
		case base == nil && !c.Steps:
			put(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x.at(q.X), y.at(q.Y), colour)
		}
	}
	if base != nil {
		area := path.String()
		for j, q := range slices.Backward(s.Points) {
			if c.Steps && j < len(s.Points)-1 {
				area += fmt.Sprintf("V%.1f", y.at(base[j]))
			}
			if j == len(s.Points)-1 || !c.Steps {
				area += fmt.Sprintf("L%.1f %.1f", x.at(q.X), y.at(base[j]))
			} else {
				area += fmt.Sprintf("H%.1f", x.at(q.X))
			}
		}
		put(`<path d="%sZ" fill="%s" fill-opacity="0.35"/>`, area, colour)
	}
	dash := ""
	if s.Reference {
		dash = ` stroke-dasharray="4 3"`
	}
	put(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"%s/>`, path.String(), colour, dash)
	ly := top + 10 + 18*float64(i)
	put(`<path d="M%.1f %.1fh18" stroke="%s" stroke-width="2"%s/><text x="%.1f" y="%.1f">%s</text>`, width-right+12, ly, colour, dash, width-right+36, ly+4, html.EscapeString(s.Name))
}
