// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Dimensions of a chart in pixels.
const (
	chartWidth, chartHeight = 480, 300 // size of the area between the axes
	chartLeft, chartTop     = 70, 30
	chartLegend             = 260 // of the legend, unless a name is longer
	chartLetter             = 8   // at most, on average
)

// chartColors are the colors of lines, used in turn.
var chartColors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// Charts draws each measure into a file of its own in dir, MEASURE.svg, and returns the names.
func Charts(dir string, axes []Axis, summaries []Summary) (names []string, err error) {
	if len(axes) == 0 {
		return nil, errors.New("a chart needs an axis: set --sweep when the sweep is played")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, s := range summaries {
		name := filepath.Join(dir, s.Measure+".svg")
		if slices.Contains(names, name) {
			continue
		}
		var svg bytes.Buffer
		if err := Chart(&svg, axes, s.Measure, summaries); err != nil {
			return names, err
		}
		if err := os.WriteFile(name, svg.Bytes(), 0o644); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// Chart draws a measure of a sweep as SVG: the values of the first axis from left to right at equal
// distances, a line for each algorithm, dimension and point of the other axes, and a bar for each
// 95 % confidence interval.
func Chart(w io.Writer, axes []Axis, measure string, summaries []Summary) error {
	var lines []string
	top, legend := 0.0, chartLegend
	points := map[string][]Summary{}
	for _, s := range summaries {
		if s.Measure != measure || len(s.Values) == 0 || math.IsNaN(s.Mean) {
			continue
		}
		name := strings.Join(slices.DeleteFunc(append([]string{s.Algorithm, s.Dimension}, s.Values[1:]...),
			func(part string) bool { return part == "" }), " ")
		if points[name] == nil {
			lines = append(lines, name)
			legend = max(legend, 50+chartLetter*utf8.RuneCountInString(name))
		}
		points[name] = append(points[name], s)
		top = max(top, s.Mean+s.bar())
	}
	if top == 0 {
		top = 1
	}
	var b strings.Builder
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, html.EscapeString(s))
	}
	line := func(x1, y1, x2, y2 float64, color string) {
		fmt.Fprintf(&b, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" fill=\"none\"/>\n", x1, y1, x2, y2, color)
	}
	y := func(v float64) float64 { return chartTop + chartHeight*(1-v/top) }
	x := func(i int) float64 {
		return chartLeft + chartWidth*(float64(i)+0.5)/float64(len(axes[0].Values))
	}
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "+
		"font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", chartLeft+chartWidth+legend,
		chartTop+chartHeight+60)
	text(chartLeft, chartTop-12, "start", measure)
	text(chartLeft+chartWidth/2, chartTop+chartHeight+45, "middle", axes[0].Key)
	for i := range 6 {
		v := top * float64(i) / 5
		line(chartLeft, y(v), chartLeft+chartWidth, y(v), "#ddd")
		text(chartLeft-8, y(v)+4, "end", fmt.Sprintf("%.3g", v))
	}
	for i, v := range axes[0].Values {
		text(x(i), chartTop+chartHeight+20, "middle", v)
	}
	for n, name := range lines {
		color := chartColors[n%len(chartColors)]
		shift := 4 * (float64(n) - float64(len(lines)-1)/2) // so that bars do not hide each other
		fromX, fromY := 0.0, 0.0
		for i, s := range points[name] {
			atX, atY := x(slices.Index(axes[0].Values, s.Values[0]))+shift, y(s.Mean)
			if i > 0 {
				line(fromX, fromY, atX, atY, color)
			}
			line(atX, y(s.Mean+s.bar()), atX, y(max(0, s.Mean-s.bar())), color)
			fmt.Fprintf(&b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", atX, atY, color)
			fromX, fromY = atX, atY
		}
		at := float64(chartTop + 10 + 18*n)
		line(chartLeft+chartWidth+15, at-4, chartLeft+chartWidth+35, at-4, color)
		text(chartLeft+chartWidth+40, at, "start", name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// bar is half the confidence interval, 0 if it is not known.
func (s *Summary) bar() float64 {
	if math.IsNaN(s.Half) {
		return 0
	}
	return s.Half
}
