// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/lab/plot"
)

// Chart is a diagram of a figure, and what its file is called after the figure's name.
type Chart struct {
	File string
	plot.Chart
}

// label is what the x axis is called.
func (s Sweep) label() string {
	if s.Victims {
		return "victims (%), 50,000 flows"
	}
	return "flows, 10 % victims"
}

// line makes a series of the points' means.
func line(name string, points []Point, of func(*Measured) float64) plot.Series {
	s := plot.Series{Name: name}
	for i := range points {
		s.Points = append(s.Points, plot.Point{X: points[i].X, Y: of(&points[i].Mean)})
	}
	return s
}

// reference makes a series of a value that the paper tells of the places where it holds.
func reference(name string, points []Point, value float64, holds func(x float64) bool) plot.Series {
	s := plot.Series{Name: "paper: " + name, Reference: true}
	for i := range points {
		if x := points[i].X; holds(x) && value > 0 {
			s.Points = append(s.Points, plot.Point{X: x, Y: value})
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
		sum = t.load * arrays * upBuckets
	}
	chart := func(file, title, y string, c plot.Chart, series ...plot.Series) Chart {
		c.Title, c.X, c.Y = s.Workload+", "+title, s.label(), y
		for _, x := range series {
			if len(x.Points) > 0 {
				c.Series = append(c.Series, x)
			}
		}
		return Chart{file, c}
	}
	return []Chart{
		chart("division", "memory division", "buckets of the upstream encoder", plot.Chart{Stack: true, Zero: true},
			line("HH", points, func(m *Measured) float64 { return m.BucketsHH }),
			line("HL", points, func(m *Measured) float64 { return m.BucketsHL }),
			line("LL", points, func(m *Measured) float64 { return m.BucketsLL }),
			reference("HH", points, arrays*1024, ill), reference("HH + HL", points, arrays*(1024+2560), ill)),
		chart("decoded", "decoded flows", "flows", plot.Chart{Zero: true},
			line("HH (a switch)", points, func(m *Measured) float64 { return m.HH }),
			line("HL", points, func(m *Measured) float64 { return m.HL }),
			line("LL", points, func(m *Measured) float64 { return m.LL }),
			line("sum", points, (*Measured).Sum), reference("sum above", points, sum, beyond)),
		chart("thresholds", "thresholds", "packets", plot.Chart{LogY: true},
			line("Th", points, func(m *Measured) float64 { return m.Th }), line("Tl", points, func(m *Measured) float64 { return m.Tl }),
			reference("Th = Tl", points, 1, func(x float64) bool { return x <= t.ones }),
			reference("Th", points, t.illTh, ill), reference("Tl", points, t.illTl, ill)),
		chart("sample-rate", "sample rate of LL candidates", "", plot.Chart{Zero: true},
			line("sample rate", points, func(m *Measured) float64 { return m.Sample }), reference("1 (healthy)", points, 1, healthy)),
	}
}

// csvColumns are those of the points in CSV.
var csvColumns = []struct {
	name string
	of   func(*Point) float64
}{
	{"flows", func(p *Point) float64 { return float64(p.Flows) }}, {"victims", func(p *Point) float64 { return p.Victim }},
	{"epochs", func(p *Point) float64 { return float64(p.Epochs) }}, {"ill", func(p *Point) float64 { return p.Ill }},
	{"decoded", func(p *Point) float64 { return p.Decoded }}, {"exact", func(p *Point) float64 { return p.Exact }},
	{"th", func(p *Point) float64 { return p.Mean.Th }}, {"tl", func(p *Point) float64 { return p.Mean.Tl }}, {"sample_rate", func(p *Point) float64 { return p.Mean.Sample }},
	{"hh_buckets", func(p *Point) float64 { return p.Mean.BucketsHH }}, {"hl_buckets", func(p *Point) float64 { return p.Mean.BucketsHL }}, {"ll_buckets", func(p *Point) float64 { return p.Mean.BucketsLL }},
	{"hh_flows", func(p *Point) float64 { return p.Mean.HH }}, {"hl_flows", func(p *Point) float64 { return p.Mean.HL }}, {"ll_flows", func(p *Point) float64 { return p.Mean.LL }},
	{"decoded_flows", func(p *Point) float64 { return p.Mean.Sum() }}, {"load", func(p *Point) float64 { return p.Mean.Load() }},
	{"hh_load", func(p *Point) float64 { return p.Mean.LoadHH }}, {"hl_load", func(p *Point) float64 { return p.Mean.LoadHL }}, {"ll_load", func(p *Point) float64 { return p.Mean.LoadLL }},
	{"heavy_losers_f1", func(p *Point) float64 { return p.RecordedF1 }}, {"lost_tl_f1", func(p *Point) float64 { return p.HeavyF1 }}, {"lost_tl", func(p *Point) float64 { return float64(p.Heavy) }},
	{"victims_estimate_worst", func(p *Point) float64 { return p.Estimate }},
}

// WriteCSV writes points with a heading. There are no times in it: it is the same on every machine.
func WriteCSV(w io.Writer, points []Point) error {
	c := csv.NewWriter(w)
	var cells []string
	for _, column := range csvColumns {
		cells = append(cells, column.name)
	}
	if err := c.Write(cells); err != nil {
		return err
	}
	for i := range points {
		cells = cells[:0]
		for _, column := range csvColumns {
			cells = append(cells, strconv.FormatFloat(math.Round(column.of(&points[i])*1e6)/1e6, 'g', 8, 64))
		}
		if err := c.Write(cells); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// Name is what a figure's files begin with.
func (s Sweep) Name() string { return fmt.Sprintf("chamelemon-%d", s.Figure) }

// Page is the figure in Markdown: charts, what the paper tells beside what was measured,
// and the numbers.
func (s Sweep) Page(points []Point, method string) string {
	var b strings.Builder
	over := "the number of flows"
	if s.Victims {
		over = "the ratio of victims"
	}
	fmt.Fprintf(&b, "# Attention over %s, %s (ChameleMon, Figure %d)\n\n%s\n", over, s.Workload, s.Figure, method)
	for _, c := range s.Charts(points) {
		fmt.Fprintf(&b, "\n![%s](%s-%s.svg)", c.Title, s.Name(), c.File)
	}
	b.WriteString("\n\nThe paper's figures are pictures; these are the points that its text tells:\n\n")
	claims(&b, s.Claims(points))
	fmt.Fprintf(&b, "\n| %s | state | Th | Tl | sample rate | buckets HH, HL, LL | flows HH, HL, LL | sum | load | load of HH, HL, LL | decoded | exact |\n|%s\n",
		map[bool]string{false: "flows", true: "victims"}[s.Victims], strings.Repeat("---|", 12))
	for i := range points {
		p, m := &points[i], &points[i].Mean
		fmt.Fprintf(&b, "| %s | %s | %.5g | %.4g | %.3f | %.0f, %.0f, %.0f | %.0f, %.0f, %.0f | %.0f | %.2f | %.2f, %.2f, %.2f | %.4g %% | %s |\n",
			s.axis(p.X), p.State(), m.Th, m.Tl, m.Sample, m.BucketsHH, m.BucketsHL, m.BucketsLL, m.HH, m.HL, m.LL, m.Sum(), m.Load(), m.LoadHH, m.LoadHL, m.LoadLL,
			100*p.Decoded, p.exact())
	}
	b.WriteString("\nMeans over the epochs that were decoded. HH is of one edge switch, HL and LL of the network; sum is of these three, and load is sum for each of 12,288 buckets, as the paper has it. " +
		"Decoded is the share of epochs in which every part was. Exact is the share in which every victim was told with the exact number of its lost packets; " +
		"while ill it stands for the F1 of heavy losers (flows that lost a packet while they were HL or HH candidates) and the worst estimate of the number of victims.\n")
	return b.String()
}

func (p *Point) exact() string {
	if p.State() == "healthy" {
		return fmt.Sprintf("%.4g %%", 100*p.Exact)
	}
	return fmt.Sprintf("F1 %.4f, victims %+.1f %%", p.RecordedF1, 100*(p.Estimate-1))
}

func claims(b *strings.Builder, all []Claim) {
	b.WriteString("| the paper | here | |\n|---|---|---|\n")
	for _, c := range all {
		fmt.Fprintf(b, "| %s | %s | %s |\n", c.Paper, c.Ours, map[bool]string{true: "yes", false: "**no**"}[c.Holds])
	}
}
