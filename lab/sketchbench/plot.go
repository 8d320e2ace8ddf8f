// SPDX-License-Identifier: Apache-2.0

package sketchbench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/lab/plot"
)

// fileName turns a title into a part of a file's name.
func fileName(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }

// series collects the rows that belong to a plot, by structure.
func (p *Plot) series(rows []Row) (all []plot.Series) {
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
		i := slices.IndexFunc(all, func(s plot.Series) bool { return s.Name == r.Structure })
		if i < 0 {
			i = len(all)
			all = append(all, plot.Series{Name: r.Structure})
		}
		all[i].Points = append(all[i].Points, plot.Point{X: x, Y: r.Value})
	}
	return all
}

// SVG draws the plot; ok is false when no row belongs to it.
func (p *Plot) SVG(rows []Row) (svg string, ok bool) {
	c := plot.Chart{Title: p.Title, X: p.X, LogY: p.Log, Series: p.series(rows)}
	if c.X == "memory" {
		c.X = "memory (KB)"
	}
	var xs []float64
	for _, s := range c.Series {
		for _, q := range s.Points {
			xs = append(xs, q.X)
		}
	}
	c.LogX = len(xs) > 0 && slices.Min(xs) > 0 && slices.Max(xs) > 20*slices.Min(xs)
	return c.SVG()
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
