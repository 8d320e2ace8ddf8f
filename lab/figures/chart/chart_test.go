// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestSVG draws every kind of chart: well-formed, with its texts and styles, and the same again.
func TestSVG(t *testing.T) {
	two := []Series{
		{Name: "ours <a>", Points: []Point{{X: 1, Y: 2}, {X: 2, Y: 4}, {X: 3, Y: math.NaN()}, {X: 4, Y: 1}}},
		{Name: "theirs", Points: []Point{{X: 1, Y: 3}, {X: 4, Y: 2}}, Reference: true},
	}
	areas := []Series{
		{Name: "HH", Points: []Point{{X: 1, Y: 3}, {X: 2, Y: 2}, {X: 3, Y: 1}}},
		{Name: "HL", Points: []Point{{X: 1, Y: 1}, {X: 2, Y: 2}, {X: 3, Y: 3}}},
	}
	for _, tc := range []struct {
		name  string
		chart Chart
		want  []string
	}{
		{"lines", Chart{Title: "t&t", X: "flows", Y: "load", Series: two},
			[]string{"t&amp;t", ">flows<", ">load<", "stroke-dasharray", "ours &lt;a&gt;", "sans-serif"}},
		{"logarithmic", Chart{LogX: true, LogY: true, Series: two}, []string{">10<"}},
		{"zero on a logarithmic axis", Chart{LogY: true,
			Series: []Series{{Points: []Point{{X: 1, Y: 0}, {X: 2, Y: 5}}}}}, []string{">1<", ">10<"}},
		{"nothing positive on a logarithmic axis", Chart{LogY: true, Series: []Series{{Points: []Point{{X: 1, Y: 0}}}}},
			[]string{">0.1<", ">1<"}},
		{"steps", Chart{Steps: true, Series: two}, nil},
		{"areas", Chart{Stack: true, Zero: true, Series: areas}, []string{"fill:#AFCCE1", ">0<", ">4<"}},
		{"stepped areas", Chart{Stack: true, Steps: true, Series: areas}, []string{"fill:#AFCCE1"}},
		{"one point", Chart{Series: []Series{{Points: []Point{{X: 5, Y: 5}}}}}, []string{">4<", ">6<"}},
	} {
		svg := SVG(tc.chart)
		if svg == nil {
			t.Errorf("%s: not drawn", tc.name)
			continue
		}
		wellFormed(t, svg)
		for _, w := range tc.want {
			if !bytes.Contains(svg, []byte(w)) {
				t.Errorf("%s: no %q in\n%s", tc.name, w, svg)
			}
		}
		if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
			t.Errorf("%s: %s", tc.name, svg)
		}
		if again := SVG(tc.chart); !bytes.Equal(again, svg) {
			t.Errorf("%s: drawn again it differs", tc.name)
		}
	}
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
}

// TestColumn: charts with points are drawn below one another, the first at the top.
func TestColumn(t *testing.T) {
	one := Chart{Title: "first", Series: []Series{{Name: "a", Points: []Point{{X: 1, Y: 2}, {X: 3, Y: 4}}}}}
	two := one
	two.Title = "second"
	nothing := Chart{Title: "nothing", Series: []Series{{Points: []Point{{X: 1, Y: math.Inf(1)}}}}}
	svg := string(SVG(one, nothing, two))
	wellFormed(t, []byte(svg))
	if !strings.Contains(svg, `viewBox="0 0 560 680"`) || strings.Contains(svg, "nothing") ||
		strings.Count(svg, "first") != 1 || strings.Count(svg, "second") != 1 {
		t.Errorf("not two charts below one another: %s", svg)
	}
	if SVG(nothing) != nil || SVG() != nil {
		t.Error("a chart without a point is drawn")
	}
}

// TestStack: areas add up, and reference lines stay where they are.
func TestStack(t *testing.T) {
	c := Chart{Stack: true, Series: []Series{
		{Points: []Point{{X: 1, Y: 3}, {X: 2, Y: 2}}}, {Points: []Point{{X: 1, Y: 1}, {X: 2, Y: 5}}},
		{Reference: true, Points: []Point{{X: 1, Y: 9}}},
	}}
	drawn := c.layout()
	if drawn[1].Points[0] != (Point{X: 1, Y: 4}) || drawn[1].Points[1] != (Point{X: 2, Y: 7}) ||
		drawn[2].Points[0].Y != 9 {
		t.Errorf("%v", drawn)
	}
	if c.Series[1].Points[0].Y != 1 {
		t.Error("drawing changed the chart")
	}
}

// TestTicks: a few ticks, all of them on the axis.
func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		log    bool
	}{{[]float64{10_000, 100_000}, false}, {[]float64{0, 1}, false}, {[]float64{2.5, 25}, false},
		{[]float64{1e-4, 3e5}, true}, {[]float64{-3, 0}, true}, {[]float64{7}, false}, {[]float64{10}, true}} {
		low, high := axisRange(tc.values, tc.log)
		ticks := linearTicks(low, high)
		if tc.log {
			ticks = logTicks(low, high)
		}
		if len(ticks) < 2 || len(ticks) > 12 {
			t.Errorf("%v: ticks %v", tc.values, ticks)
		}
		for _, tick := range ticks {
			if slack := (high - low) / 1e6; tick.Value < low-slack || tick.Value > high*1.0001+slack {
				t.Errorf("%v: tick %v outside %v to %v", tc.values, tick, low, high)
			}
		}
	}
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 70000: "70000", 2e6: "2e+06", 0.0001: "1e-04"} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) is %s, want %s", v, got, want)
		}
	}
}

// TestWrap: paragraphs are at most 100 columns wide and keep their words; other lines stay.
func TestWrap(t *testing.T) {
	const table = "| a | b |\n|---|---|\n"
	long := strings.Repeat("§4.2 words ", 40)
	page := "# " + long + "\n\n" + long + "\n" + table + "| " + long + "|\n![" + long + "](x.svg)\n"
	got := Wrap(page)
	if !slices.Equal(strings.Fields(got), strings.Fields(page)) || !strings.Contains(got, table) {
		t.Errorf("Wrap changed more than spaces: %q", got)
	}
	wide := 0
	for line := range strings.SplitSeq(got, "\n") {
		if utf8.RuneCountInString(line) > 100 {
			wide++
		}
	}
	if wide != 3 { // the heading, the row and the image
		t.Errorf("%d lines are wider than 100 columns, want 3: %q", wide, got)
	}
}
