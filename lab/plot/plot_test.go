// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// TestSVG draws each kind of chart: well-formed, with everything in the picture.
func TestSVG(t *testing.T) {
	two := []Series{
		{Name: "ours <a>", Points: []Point{{1, 2}, {2, 4}, {3, math.NaN()}, {4, 1}}},
		{Name: "theirs", Points: []Point{{1, 3}, {4, 2}}, Reference: true},
	}
	areas := []Series{{Name: "HH", Points: []Point{{1, 3}, {2, 2}, {3, 1}}}, {Name: "HL", Points: []Point{{1, 1}, {2, 2}, {3, 3}}}}
	for _, tc := range []struct {
		name  string
		chart Chart
		want  []string
	}{
		{"lines", Chart{Title: "t&t", X: "flows", Y: "load", Series: two}, []string{"t&amp;t", "ours &lt;a&gt;", ">flows<", ">load<", "stroke-dasharray", `fill="none"`}},
		{"logarithmic", Chart{LogX: true, LogY: true, Series: two}, []string{">10<"}},
		{"steps", Chart{Steps: true, Series: two}, []string{"H", "V"}},
		{"areas", Chart{Stack: true, Zero: true, Series: areas}, []string{"fill-opacity", ">0<", ">4<"}},
		{"stepped areas", Chart{Stack: true, Steps: true, Series: areas}, []string{"fill-opacity"}},
		{"one point", Chart{Series: []Series{{Points: []Point{{5, 5}}}}}, []string{"circle"}},
	} {
		svg, ok := tc.chart.SVG()
		if !ok {
			t.Errorf("%s: not drawn", tc.name)
			continue
		}
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v\n%s", tc.name, err, svg)
			}
		}
		for _, w := range tc.want {
			if !strings.Contains(svg, w) {
				t.Errorf("%s: no %q in\n%s", tc.name, w, svg)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: %s", tc.name, svg)
		}
		if again, _ := tc.chart.SVG(); again != svg {
			t.Errorf("%s: drawn again it differs", tc.name)
		}
	}
	if svg, ok := (&Chart{Series: []Series{{Points: []Point{{1, math.Inf(1)}}}}}).SVG(); ok || svg != "" {
		t.Error("a chart without a point is drawn")
	}
}

// TestStack holds areas to their sum.
func TestStack(t *testing.T) {
	c := Chart{Stack: true, Series: []Series{{Points: []Point{{1, 3}, {2, 2}}}, {Points: []Point{{1, 1}, {2, 5}}}, {Reference: true, Points: []Point{{1, 9}}}}}
	drawn, base := c.lay()
	if drawn[1].Points[0] != (Point{1, 4}) || drawn[1].Points[1] != (Point{2, 7}) || base[1][0] != 3 || base[1][1] != 2 || drawn[2].Points[0].Y != 9 || base[2] != nil {
		t.Errorf("%v over %v", drawn, base)
	}
}

// TestAxis: ticks lie on the axis, few of them, and ends map to ends.
func TestAxis(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		log    bool
	}{{[]float64{10_000, 100_000}, false}, {[]float64{0, 1}, false}, {[]float64{2.5, 25}, false}, {[]float64{1e-4, 3e5}, true}, {[]float64{-3, 0}, true}, {[]float64{7}, false}, {[]float64{10}, true}} {
		a := newAxis(tc.values, tc.log, 100, 500)
		ticks := a.ticks()
		if len(ticks) < 2 || len(ticks) > 12 || math.Abs(a.at(a.lo)-100) > 1e-9 || math.Abs(a.at(a.hi)-500) > 1e-9 {
			t.Errorf("%v: %+v, ticks %v", tc.values, a, ticks)
		}
		for _, v := range ticks {
			if p := a.at(v); p < 99.9 || p > 500.1 {
				t.Errorf("%v: tick %v at %v", tc.values, v, p)
			}
		}
	}
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 70000: "70000", 2e6: "2e+06", 0.0001: "1e-04"} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) is %s, expected %s", v, got, want)
		}
	}
}
