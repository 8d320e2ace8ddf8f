// SPDX-License-Identifier: Apache-2.0

// Package overtime draws ChameleMon's attention over the epochs of a scenario: the sub-figures of
// the paper's Figure 9. Everything is read over gNMI from a run of switches, collector and plugin.
// It also measures what the controller exchanges with the edge switches, for Figures 21 and 22.
package overtime

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/figures/chart"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/chamelemon"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

const title = "ChameleMon's attention over time"

// column is a column of the table: a number, text or boolean of an epoch; "" for none.
type column struct {
	name string
	of   func(*score.Result, *chamelemon.Attention) string
}

func columns() []column {
	network := score.View{Device: score.Network}
	attention := func(of func(*chamelemon.Attention) any) func(*score.Result, *chamelemon.Attention) string {
		return func(_ *score.Result, a *chamelemon.Attention) string {
			if x, ok := of(a).(float64); ok {
				return number(x)
			}
			return fmt.Sprint(of(a))
		}
	}
	decoded := func(p func(*chamelemon.Attention) *chamelemon.Part) func(*score.Result, *chamelemon.Attention) string {
		return func(_ *score.Result, a *chamelemon.Attention) string {
			if !p(a).Decoded {
				return ""
			}
			return number(p(a).Flows)
		}
	}
	row := func(published bool, list, leaf string) func(*score.Result, *chamelemon.Attention) string {
		return func(r *score.Result, _ *chamelemon.Attention) string {
			tables := r.Truth
			if published {
				tables = r.Published
			}
			x, ok := tables.Row(list, network, "").Number(leaf)
			if !ok {
				return ""
			}
			return number(x)
		}
	}
	lost := func(of func(*score.Figure) float64) func(*score.Result, *chamelemon.Attention) string {
		return func(r *score.Result, _ *chamelemon.Attention) string {
			if s := r.Score(chamelemon.LostPacketsError, network); s != nil {
				return number(of(s.Figure))
			}
			return ""
		}
	}
	hh := func(a *chamelemon.Attention) *chamelemon.Part { return &a.Heavy }
	hl := func(a *chamelemon.Attention) *chamelemon.Part { return &a.HL }
	ll := func(a *chamelemon.Attention) *chamelemon.Part { return &a.LL }
	return []column{
		{"epoch", func(r *score.Result, _ *chamelemon.Attention) string { return strconv.Itoa(r.Index + 1) }},
		{"state", attention(func(a *chamelemon.Attention) any { return strings.ToLower(a.State) })},
		{"decoded", attention(func(a *chamelemon.Attention) any { return a.Decoded })},
		{"settled", attention(func(a *chamelemon.Attention) any { return a.Settled })},
		{"balanced", attention(func(a *chamelemon.Attention) any { return a.Balanced })},
		{"flows", row(false, "node-summary", "distinct-flows")},
		{"victims", row(false, "attention", "victims")}, {"victims_published", row(true, "attention", "victims")},
		{"victims_exact", func(r *score.Result, _ *chamelemon.Attention) string {
			if s := r.Score(chamelemon.VictimsExact, network); s != nil {
				return strconv.Itoa(s.Counts.TruePositive)
			}
			return ""
		}},
		{"lost_packets", lost(func(f *score.Figure) float64 { return f.True })},
		{"lost_packets_published", lost(func(f *score.Figure) float64 { return f.Measured })},
		{"hh_buckets", attention(func(a *chamelemon.Attention) any { return a.Heavy.Buckets })},
		{"hl_buckets", attention(func(a *chamelemon.Attention) any { return a.HL.Buckets })},
		{"ll_buckets", attention(func(a *chamelemon.Attention) any { return a.LL.Buckets })},
		{"hh_flows", decoded(hh)}, {"hl_flows", decoded(hl)}, {"ll_flows", decoded(ll)},
		{"hh_load", attention(func(a *chamelemon.Attention) any { return a.Heavy.Load })},
		{"hl_load", attention(func(a *chamelemon.Attention) any { return a.HL.Load })},
		{"ll_load", attention(func(a *chamelemon.Attention) any { return a.LL.Load })},
		{"tl", attention(func(a *chamelemon.Attention) any { return a.Low })},
		{"th_highest", attention(func(a *chamelemon.Attention) any { return a.High })},
		{"sample_rate", attention(func(a *chamelemon.Attention) any { return a.Sample })},
		{"false_claims", func(r *score.Result, _ *chamelemon.Attention) string {
			return strconv.Itoa(len(r.FalseClaims))
		}},
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// table returns the heading and a line for each epoch.
func table(h *score.History) [][]string {
	var heading []string
	all := columns()
	for _, c := range all {
		heading = append(heading, c.name)
	}
	lines := [][]string{heading}
	for _, r := range h.Results {
		a := chamelemon.AttentionOf(r, h.Edges)
		var line []string
		for _, c := range all {
			line = append(line, c.of(r, a))
		}
		lines = append(lines, line)
	}
	return lines
}

// charts draws columns of a table over its epochs. Cells that are not numbers leave gaps.
func charts(lines [][]string) []chart.Chart {
	line := func(name, column string) chart.Series {
		x, y := slices.Index(lines[0], "epoch"), slices.Index(lines[0], column)
		s := chart.Series{Name: name}
		for _, cells := range lines[1:] {
			s.Points = append(s.Points, chart.Point{X: parse(cells[x]), Y: parse(cells[y])})
		}
		return s
	}
	actual := line("true", "victims")
	actual.Reference = true
	return []chart.Chart{
		{Title: "Flows that enter", Y: "flows", Zero: true, Steps: true, Series: []chart.Series{line("true", "flows")}},
		{Title: "Victims: published (measured or estimated), and true", Y: "flows", Zero: true,
			Series: []chart.Series{line("published", "victims_published"), actual}},
		{Title: "Division of the upstream encoder", Y: "buckets", Stack: true, Zero: true, Steps: true,
			Series: []chart.Series{
				line("HH", "hh_buckets"), line("HL", "hl_buckets"), line("LL", "ll_buckets"),
			}},
		{Title: "Decoded flows (gaps: not decoded)", Y: "flows", Zero: true,
			Series: []chart.Series{line("HH, an edge", "hh_flows"), line("HL", "hl_flows"),
				line("LL, sampled", "ll_flows")}},
		{Title: "Thresholds", Y: "packets", LogY: true, Steps: true,
			Series: []chart.Series{line("Th, highest", "th_highest"), line("Tl", "tl")}},
		{Title: "Sample rate of light victims", X: "epoch", Zero: true, Steps: true,
			Series: []chart.Series{line("rate", "sample_rate")}},
	}
}

func parse(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// Write writes the figures of a run to files: base.svg, base.csv with the numbers, and base.md, a
// page with both and the scenario's bounds. command is the command line for the page.
func Write(s *scenario.Scenario, r *scenario.Report, h *score.History, base, command string) error {
	lines := table(h)
	var rows bytes.Buffer
	if err := evidence.WriteCSV(&rows, lines); err != nil {
		return err
	}
	for ext, data := range map[string][]byte{".svg": chart.SVG(charts(lines)...), ".csv": rows.Bytes(),
		".md": []byte(chart.Wrap(page(s, r, h, filepath.Base(base), command)))} {
		if err := os.WriteFile(base+ext, data, 0o644); err != nil { //nolint:gosec // figures are public
			return err
		}
	}
	return nil
}

// Draw writes base.svg from base.csv.
func Draw(base string) error {
	f, err := os.Open(base + ".csv")
	if err != nil {
		return err
	}
	defer f.Close()
	lines, err := evidence.ReadCSV(f)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	for _, name := range []string{"epoch", "flows", "victims", "victims_published", "hh_buckets", "hl_buckets",
		"ll_buckets", "hh_flows", "hl_flows", "ll_flows", "th_highest", "tl", "sample_rate"} {
		if len(lines) == 0 || !slices.Contains(lines[0], name) {
			return fmt.Errorf("%s: expected a column %s in the first line", f.Name(), name)
		}
	}
	return os.WriteFile(base+".svg", chart.SVG(charts(lines)...), 0o644) //nolint:gosec // figures are public
}

func page(s *scenario.Scenario, r *scenario.Report, h *score.History, name, command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nScenario %s: %s. Made by `%s`, on the %s clock.\n\n", title, r.Scenario, s.Summary,
		command, r.Clock)
	fmt.Fprintf(&b, "%d switches (%s), %d hosts, %d epochs of %v; %d packets sent. All published figures were read "+
		"over gNMI; the ground truth is exact. Numbers: [%s.csv](%s.csv).\n\n",
		r.Switches, r.Program, r.Hosts, len(r.Epochs), s.Epoch, r.Network.Sent, name, name)
	if balance := chamelemon.Balance(h); len(balance) > 0 {
		fmt.Fprintf(&b, "Epochs from each change of the network until balance (everything decoded, the state the "+
			"same, and parts at loads of %.2f to %.2f or unchanged) that lasts until the next change:\n\n"+
			"| change in epoch | epochs until balance |\n|---|---|\n", chamelemon.LowLoad, chamelemon.HighLoad)
		for _, at := range slices.Sorted(maps.Keys(balance)) {
			fmt.Fprintf(&b, "| %d | %d |\n", at+1, balance[at])
		}
		b.WriteByte('\n')
	}
	if s.Notes != "" {
		fmt.Fprintf(&b, "%s\n\n", strings.TrimSpace(s.Notes))
	}
	if len(r.Expected) > 0 {
		b.WriteString("| bound | dimension | value | kept |\n|---|---|---|---|\n")
		for _, v := range r.Expected {
			fmt.Fprintf(&b, "| %s | %s | %.5g | %s |\n", v.Bound, v.Dimension, v.Value,
				map[bool]string{true: "yes", false: "**no**"}[v.OK])
		}
	}
	fmt.Fprintf(&b, "\n![%s](%s.svg)\n", title, name)
	return b.String()
}
