// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/figures/chart"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

// Chart is a diagram of a figure. File follows the figure's name in the name of its file.
type Chart struct {
	File string
	chart.Chart
}

// label returns the label of the x axis.
func (s Sweep) label() string {
	if s.Victims {
		return "victims (%), 50,000 flows"
	}
	return "flows, 10 % victims"
}

// line makes a series of the points' means.
func line(name string, points []Point, of func(*chamelemon.Measured) float64) chart.Series {
	s := chart.Series{Name: name}
	for i := range points {
		s.Points = append(s.Points, chart.Point{X: points[i].X, Y: of(&points[i].Mean)})
	}
	return s
}

// reference makes a series of a value from the paper, at the places where it holds.
func reference(name string, points []Point, value float64, holds func(x float64) bool) chart.Series {
	s := chart.Series{Name: "paper: " + name, Reference: true}
	for i := range points {
		if x := points[i].X; holds(x) && value > 0 {
			s.Points = append(s.Points, chart.Point{X: x, Y: value})
		}
	}
	return s
}

// Charts are the four diagrams that each of the paper's figures has.
func (s Sweep) Charts(points []Point) []Chart {
	t := paper[s.Figure]
	ill := func(x float64) bool { return x >= t.turn-1e-9 }
	healthy := func(x float64) bool { return !ill(x) }
	beyond := func(x float64) bool { return x > t.ones }
	sum := t.sum
	if sum == 0 {
		sum = t.load * chamelemon.Arrays * chamelemon.UpstreamBuckets
	}
	diagram := func(file, title, y string, c chart.Chart, series ...chart.Series) Chart {
		c.Title, c.X, c.Y = s.Workload+", "+title, s.label(), y
		for _, x := range series {
			if len(x.Points) > 0 {
				c.Series = append(c.Series, x)
			}
		}
		return Chart{file, c}
	}
	return []Chart{
		diagram("division", "memory division", "buckets of the upstream encoder", chart.Chart{Stack: true, Zero: true},
			line("HH", points, func(m *chamelemon.Measured) float64 { return m.BucketsHH }),
			line("HL", points, func(m *chamelemon.Measured) float64 { return m.BucketsHL }),
			line("LL", points, func(m *chamelemon.Measured) float64 { return m.BucketsLL }),
			reference("HH", points, chamelemon.Arrays*1024, ill),
			reference("HH + HL", points, chamelemon.Arrays*(1024+2560), ill)),
		diagram("decoded", "decoded flows", "flows", chart.Chart{Zero: true},
			line("HH (a switch)", points, func(m *chamelemon.Measured) float64 { return m.HH }),
			line("HL", points, func(m *chamelemon.Measured) float64 { return m.HL }),
			line("LL", points, func(m *chamelemon.Measured) float64 { return m.LL }),
			line("sum", points, (*chamelemon.Measured).Sum), reference("sum above", points, sum, beyond)),
		diagram("thresholds", "thresholds", "packets", chart.Chart{LogY: true},
			line("Th", points, func(m *chamelemon.Measured) float64 { return m.Th }),
			line("Tl", points, func(m *chamelemon.Measured) float64 { return m.Tl }),
			reference("Th = Tl", points, 1, func(x float64) bool { return x <= t.ones }),
			reference("Th", points, t.illTh, ill), reference("Tl", points, t.illTl, ill)),
		diagram("sample-rate", "sample rate of LL candidates", "", chart.Chart{Zero: true},
			line("sample rate", points, func(m *chamelemon.Measured) float64 { return m.Sample }),
			reference("1 (healthy)", points, 1, healthy)),
	}
}

// csvColumns are the columns of the points in CSV, in order.
var csvColumns = []struct {
	name string
	of   func(*Point) float64
}{
	{"flows", func(p *Point) float64 { return float64(p.Flows) }},
	{"victims", func(p *Point) float64 { return p.Victim }},
	{"epochs", func(p *Point) float64 { return float64(p.Epochs) }}, {"ill", func(p *Point) float64 { return p.Ill }},
	{"decoded", func(p *Point) float64 { return p.Decoded }}, {"exact", func(p *Point) float64 { return p.Exact }},
	{"th", func(p *Point) float64 { return p.Mean.Th }}, {"tl", func(p *Point) float64 { return p.Mean.Tl }},
	{"sample_rate", func(p *Point) float64 { return p.Mean.Sample }},
	{"hh_buckets", func(p *Point) float64 { return p.Mean.BucketsHH }},
	{"hl_buckets", func(p *Point) float64 { return p.Mean.BucketsHL }},
	{"ll_buckets", func(p *Point) float64 { return p.Mean.BucketsLL }},
	{"hh_flows", func(p *Point) float64 { return p.Mean.HH }},
	{"hl_flows", func(p *Point) float64 { return p.Mean.HL }},
	{"ll_flows", func(p *Point) float64 { return p.Mean.LL }},
	{"decoded_flows", func(p *Point) float64 { return p.Mean.Sum() }},
	{"load", func(p *Point) float64 { return p.Mean.Load() }},
	{"hh_load", func(p *Point) float64 { return p.Mean.LoadHH }},
	{"hl_load", func(p *Point) float64 { return p.Mean.LoadHL }},
	{"ll_load", func(p *Point) float64 { return p.Mean.LoadLL }},
	{"heavy_victims_f1", func(p *Point) float64 { return p.RecordedF1 }},
	{"lost_tl_f1", func(p *Point) float64 { return p.HeavyF1 }},
	{"lost_tl", func(p *Point) float64 { return float64(p.Heavy) }},
	{"victims_estimate_worst", func(p *Point) float64 { return p.Estimate }},
}

// WriteCSV writes points with a heading, but no times: the rows are the same on every machine.
func WriteCSV(w io.Writer, points []Point) error {
	lines := make([][]string, 1+len(points))
	for _, column := range csvColumns {
		lines[0] = append(lines[0], column.name)
	}
	for i := range points {
		for _, column := range csvColumns {
			lines[1+i] = append(lines[1+i], strconv.FormatFloat(math.Round(column.of(&points[i])*1e6)/1e6, 'g', 8, 64))
		}
	}
	return evidence.WriteCSV(w, lines)
}

// ReadCSV reads points that WriteCSV wrote.
func (s Sweep) ReadCSV(r io.Reader) ([]Point, error) {
	lines, err := evidence.ReadCSV(r)
	if err != nil {
		return nil, fmt.Errorf("points: %w", err)
	}
	var names []string
	for _, c := range csvColumns {
		names = append(names, c.name)
	}
	if len(lines) == 0 || !slices.Equal(lines[0], names) {
		return nil, fmt.Errorf("points: expected a first line with %v", names)
	}
	var points []Point
	for i, line := range lines[1:] {
		v := make(map[string]float64, len(names))
		for j, text := range line {
			if v[names[j]], err = strconv.ParseFloat(text, 64); err != nil {
				return nil, fmt.Errorf("points: line %d, %s: %w", i+2, names[j], err)
			}
		}
		p := Point{
			Place: Place{int(v["flows"]), v["victims"]}, Epochs: int(v["epochs"]), Ill: v["ill"], Decoded: v["decoded"],
			Exact: v["exact"],
			Mean: chamelemon.Measured{
				Th: v["th"], Tl: v["tl"], Sample: v["sample_rate"], BucketsHH: v["hh_buckets"],
				BucketsHL: v["hl_buckets"], BucketsLL: v["ll_buckets"],
				HH: v["hh_flows"], HL: v["hl_flows"], LL: v["ll_flows"], LoadHH: v["hh_load"], LoadHL: v["hl_load"],
				LoadLL: v["ll_load"],
			},
			RecordedF1: v["heavy_victims_f1"], HeavyF1: v["lost_tl_f1"], Heavy: int(v["lost_tl"]),
			Estimate: v["victims_estimate_worst"],
		}
		p.X = s.X(p.Place)
		points = append(points, p)
	}
	return points, nil
}

// Name is the prefix of a figure's files.
func (s Sweep) Name() string { return fmt.Sprintf("chamelemon-%d", s.Figure) }

// Page is the figure in Markdown: charts, and the paper's statements with the measurements.
func (s Sweep) Page(points []Point, method string) string {
	var b strings.Builder
	over := "the number of flows"
	if s.Victims {
		over = "the ratio of victims"
	}
	fmt.Fprintf(&b, "# Attention over %s, %s (ChameleMon, Figure %d)\n\n%s The rows as CSV: [%s.csv](%s.csv).\n", over,
		s.Workload, s.Figure, method, s.Name(), s.Name())
	for _, c := range s.Charts(points) {
		fmt.Fprintf(&b, "\n![%s](%s-%s.svg)", c.Title, s.Name(), c.File)
	}
	b.WriteString("\n\nThe paper's figures are pictures without numbers. Its text states:\n\n")
	claims(&b, "the paper", s.Claims(points))
	return b.String()
}

// claims writes a table of claims. The first column is of the paper, or of a requirement of this
// project.
func claims(b *strings.Builder, heading string, all []suite.Verdict) {
	fmt.Fprintf(b, "| %s | here | holds |\n|---|---|---|\n", heading)
	suite.SayOnce(all)
	for _, v := range all {
		fmt.Fprintf(b, "| %s | %s | %s |\n", v.Paper, v.Here, v.Mark())
	}
}
