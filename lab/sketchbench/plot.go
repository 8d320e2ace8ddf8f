// SPDX-License-Identifier: Apache-2.0

package sketchbench

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fileName turns a title into a part of a file's name.
func fileName(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }

type point struct{ x, y float64 }

type series struct {
	name   string
	points []point
}

// series collects the rows that belong to a plot, by structure.
func (p *Plot) series(rows []Row) (all []series) {
	for _, r := range rows {
		if r.Task != p.Task || r.Metric != p.Metric {
			continue
		}
		x := float64(r.Memory) / 1000
		if p.X != "memory" {
			number, found := strings.CutPrefix(r.Variant, p.X+" ")
			v, err := strconv.ParseFloat(number, 64)
			if !found || err != nil {
				continue
			}
			x = v
		}
		i := slices.IndexFunc(all, func(s series) bool { return s.name == r.Structure })
		if i < 0 {
			i = len(all)
			all = append(all, series{name: r.Structure})
		}
		all[i].points = append(all[i].points, point{x, r.Value})
	}
	return all
}

var colours = []string{"#1b6ca8", "#d1495b", "#2e933c", "#8d5a97", "#c97b1f", "#3a3a3a", "#0f9d9d"}

const (
	plotWidth, plotHeight            = 560, 340
	left, right, top, bottom float64 = 70, 150, 36, 46
)

// axis maps values to pixels, and has the ticks.
type axis struct {
	lo, hi   float64
	log      bool
	from, to float64
}

func newAxis(values []float64, log bool, from, to float64) axis {
	a := axis{lo: math.Inf(1), hi: math.Inf(-1), log: log, from: from, to: to}
	for _, v := range values {
		if !log || v > 0 {
			a.lo, a.hi = min(a.lo, v), max(a.hi, v)
		}
	}
	switch {
	case math.IsInf(a.lo, 1):
		a.lo, a.hi = 0.1, 1
	case log:
		a.lo, a.hi = math.Pow(10, math.Floor(math.Log10(a.lo))), math.Pow(10, math.Ceil(math.Log10(a.hi)))
		if a.lo == a.hi {
			a.hi *= 10
		}
	case a.lo == a.hi:
		a.lo, a.hi = a.lo-1, a.hi+1
	}
	return a
}

func (a axis) at(v float64) float64 {
	if a.log {
		v = max(v, a.lo)
		return a.from + (math.Log(v)-math.Log(a.lo))/(math.Log(a.hi)-math.Log(a.lo))*(a.to-a.from)
	}
	return a.from + (v-a.lo)/(a.hi-a.lo)*(a.to-a.from)
}

func (a axis) ticks() (t []float64) {
	if a.log {
		step := math.Pow(10, math.Max(1, math.Ceil(math.Log10(a.hi/a.lo)/6)))
		for v := a.lo; v <= a.hi*1.0001; v *= step {
			t = append(t, v)
		}
		return t
	}
	step := math.Pow(10, math.Floor(math.Log10((a.hi-a.lo)/3)))
	for (a.hi-a.lo)/step > 7 {
		step *= 2
	}
	for v := math.Ceil(a.lo/step) * step; v <= a.hi+step/1e6; v += step {
		t = append(t, v)
	}
	return t
}

// SVG draws the plot; ok is false when no row belongs to it.
func (p *Plot) SVG(rows []Row) (svg string, ok bool) {
	all := p.series(rows)
	if len(all) == 0 {
		return "", false
	}
	var xs, ys []float64
	for _, s := range all {
		for _, q := range s.points {
			xs, ys = append(xs, q.x), append(ys, q.y)
		}
	}
	x := newAxis(xs, slices.Min(xs) > 0 && slices.Max(xs) > 20*slices.Min(xs), left, plotWidth-right)
	y := newAxis(ys, p.Log, plotHeight-bottom, top)
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`, plotWidth, plotHeight)
	put(`<rect width="100%%" height="100%%" fill="white"/>`)
	put(`<text x="%.0f" y="20" font-size="13">%s</text>`, left, html.EscapeString(p.Title))
	for _, v := range y.ticks() {
		put(`<path d="M%.1f %.1fH%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left, y.at(v), plotWidth-right, left-6, y.at(v)+4, number(v))
	}
	for _, v := range x.ticks() {
		put(`<path d="M%.1f %.1fV%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x.at(v), top, plotHeight-bottom, x.at(v), plotHeight-bottom+16, number(v))
	}
	label := p.X
	if label == "memory" {
		label = "memory (KB)"
	}
	put(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, (left+plotWidth-right)/2, plotHeight-8, html.EscapeString(label))
	for i, s := range all {
		colour := colours[i%len(colours)]
		var path strings.Builder
		for j, q := range s.points {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[j == 0], x.at(q.x), y.at(q.y))
			put(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x.at(q.x), y.at(q.y), colour)
		}
		put(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, path.String(), colour)
		ly := top + 10 + 18*float64(i)
		put(`<path d="M%.1f %.1fh18" stroke="%s" stroke-width="2"/><text x="%.1f" y="%.1f">%s</text>`, plotWidth-right+12, ly, colour, plotWidth-right+36, ly+4, html.EscapeString(s.name))
	}
	put(`</svg>`)
	return b.String(), true
}

func number(v float64) string {
	if v != 0 && (math.Abs(v) < 0.001 || math.Abs(v) >= 1e6) {
		return strconv.FormatFloat(v, 'e', 0, 64)
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'g', -1, 64)
}

// Page is a suite's figures beside what the paper shows, in Markdown, with the numbers.
func (s *Suite) Page(rows []Row, command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nMade by `%s`.", s.Title, command)
	if len(rows) > 0 {
		fmt.Fprintf(&b, " Traffic: %s.", rows[0].Trace)
	}
	b.WriteString("\n")
	paper := ""
	for _, p := range s.Plots {
		if _, ok := p.SVG(rows); !ok {
			continue
		}
		if p.Paper != paper {
			paper = p.Paper
			fmt.Fprintf(&b, "\nThe paper: %s\n", paper)
		}
		fmt.Fprintf(&b, "\n![%s](%s.svg)\n", p.Title, p.File)
	}
	b.WriteString("\n| structure | variant | bytes | task | metric | value | unit |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %.4g | %s |\n", r.Structure, r.Variant, r.Memory, r.Task, r.Metric, r.Value, r.Unit)
	}
	return b.String()
}
