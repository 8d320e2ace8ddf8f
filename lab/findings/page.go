// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Aims of all plugins.
const (
	leastRecall    = 0.95
	leastPrecision = 0.98
	mostFalse      = 0.001 // alerts in a healthy epoch
)

// table returns the counts as Markdown: a line for all draws, and one for each of them if each is
// set.
func (r *run) table(draws []*sum, each bool) string {
	var b strings.Builder
	for _, d := range draws {
		fmt.Fprintf(&b, "Seeds %d to %d on %s,\nshare %g of the packets, %d of %d networks,\n%s.\n\n", d.seed,
			d.seed+uint64(r.seeds)-1, strings.ReplaceAll(r.topologies, ",", ", "), r.share, d.played, d.all,
			strings.Join(slices.Sorted(maps.Keys(d.runs)), ";\n"))
	}
	all := together(draws)
	// lines calls print for each draw that has tallies of a plugin, then for their sum.
	lines := func(name string, print func(draw string, t *tally)) {
		for _, d := range draws {
			if t := d.tallies[name]; t != nil && (each || len(draws) == 1) {
				print(fmt.Sprint(d.seed), t)
			}
		}
		if len(draws) > 1 {
			print("all", all.tallies[name])
		}
	}
	for i, name := range slices.Sorted(maps.Keys(all.tallies)) {
		if i > 0 {
			b.WriteString("\n")
		}
		if kinds := slices.Sorted(maps.Keys(all.tallies[name].Kinds)); len(kinds) > 0 {
			fmt.Fprintf(&b, "| %s: fault | draw | found | recall (95 %%) | found of incomplete epochs | reported | right | "+
				"precision (95 %%) | near the threshold | reported | exactly: recall, precision |\n|%s\n", name,
				strings.Repeat("---|", 11))
			for _, kind := range kinds {
				lines(name, func(draw string, t *tally) {
					f := t.kind(kind)
					fmt.Fprintf(&b, "| %s | %s | %d of %d | %s | %d of %d | %d | %d | %s | %d | %d | %.3f, %.3f |\n", kind, draw,
						f.Found.N, f.Found.Of, percent(f.Found), f.Incomplete.N, f.Incomplete.Of, f.Right.Of, f.Right.N,
						percent(f.Right), f.Near.Of, f.Near.N, f.Exactly.Recall(), f.Exactly.Precision())
				})
			}
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "| %s: healthy networks | draw | epochs | false alerts | in 1,000 epochs (95 %%) |\n|%s\n", name,
			strings.Repeat("---|", 5))
		for _, what := range slices.Sorted(maps.Keys(all.tallies[name].Healthy)) {
			s := all.tallies[name].Healthy[what]
			fmt.Fprintf(&b, "| %s | | %d | %d | %s |\n", what, s.Of, s.N, perThousand(*s))
		}
		lines(name, func(draw string, t *tally) {
			s := share{}
			for _, x := range t.Healthy {
				s.N, s.Of = s.N+x.N, s.Of+x.Of
			}
			fmt.Fprintf(&b, "| all | %s | %d | %d | %s |\n", draw, s.Of, s.N, perThousand(s))
		})
	}
	return b.String()
}

func percent(s share) string {
	if s.Of == 0 {
		return "none"
	}
	low, high := s.interval()
	return fmt.Sprintf("%.3f (%.3f to %.3f)", s.value(), low, high)
}

func perThousand(s share) string {
	low, high := s.rate()
	return fmt.Sprintf("%.1f (%.1f to %.1f)", 1000*float64(s.N)/float64(max(s.Of, 1)), 1000*low, 1000*high)
}

// aims returns an error that names what misses its aim.
func aims(all *sum) error {
	var errs []error
	alerts := share{}
	for _, name := range slices.Sorted(maps.Keys(all.tallies)) {
		for _, kind := range slices.Sorted(maps.Keys(all.tallies[name].Kinds)) {
			f := all.tallies[name].Kinds[kind]
			if f.Found.value() < leastRecall {
				errs = append(errs, fmt.Errorf("%s: recall of %s is %.3f; the aim is %v", name, kind, f.Found.value(),
					leastRecall))
			}
			if f.Right.value() < leastPrecision {
				errs = append(errs, fmt.Errorf("%s: precision of %s is %.3f; the aim is %v", name, kind, f.Right.value(),
					leastPrecision))
			}
		}
		for _, s := range all.tallies[name].Healthy {
			alerts.N, alerts.Of = alerts.N+s.N, alerts.Of+s.Of
		}
	}
	if rate := float64(alerts.N) / float64(max(alerts.Of, 1)); rate > mostFalse {
		errs = append(errs, fmt.Errorf("%d false alerts in %d healthy epochs; the aim is 1 in %.0f", alerts.N, alerts.Of,
			1/mostFalse))
	}
	return errors.Join(errs...)
}

// The table stands between these lines of the page.
const (
	begin = "<!-- `make findings` -->\n"
	end   = "<!-- end -->\n"
)

// write replaces the table of a page, and writes the lines of each draw into a file beside it.
func write(path, text, each string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s: the lines %q and %q are not there", path, begin, end)
	}
	runs, rows := "#", [][]string(nil)
	for line := range strings.Lines(each) {
		cells, isRow := strings.CutPrefix(strings.TrimSpace(line), "| ")
		switch {
		case isRow:
			cells = strings.ReplaceAll(strings.TrimSuffix(cells, " |"), "| |", "|  |")
			rows = append(rows, strings.Split(cells, " | "))
		case !strings.HasPrefix(line, "|"):
			runs = strings.TrimSpace(runs + " " + strings.TrimSpace(line))
		}
	}
	var b bytes.Buffer
	b.WriteString(runs + "\n")
	if err := csv.NewWriter(&b).WriteAll(rows); err != nil {
		return err
	}
	//nolint:gosec // rows of a page
	if err := os.WriteFile(strings.TrimSuffix(path, ".md")+".csv", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644) //nolint:gosec // a page
}
