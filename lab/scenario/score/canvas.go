// SPDX-License-Identifier: Apache-2.0

package score

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Terminal control sequences (ECMA-48).
const (
	ClearScreen = "\x1b[H\x1b[2J"
	bold        = "\x1b[1m"
	dim         = "\x1b[2m"
	green       = "\x1b[32m"
	red         = "\x1b[31m"
	plain       = "\x1b[0m"
)

// Canvas is text for people, styled on a terminal.
type Canvas struct {
	strings.Builder
	Terminal bool
	// Later is set if an earlier text stays above this one, as in a file. The commands, which do not
	// change, are then left out.
	Later bool
	// Columns is the width to which tables are narrowed; 0 narrows none.
	Columns int
	// Rows is the number of rows of a table; 0 stands for Screen.Rows, or for all on a terminal.
	Rows int
}

// flowColumns is the width of flows in a table of flows, and flowFigures the width of its numbers.
const (
	flowColumns = 72
	flowFigures = 31
)

// Shorten cuts the middle of a text to a number of columns.
func Shorten(text string, columns int) string {
	runes := []rune(text)
	if len(runes) <= columns || columns < 3 {
		return text
	}
	tail := columns / 2 // columns for the protocol and ports of a flow
	return string(runes[:columns-tail-1]) + "…" + string(runes[len(runes)-tail:])
}

func (c *Canvas) style(code, text string) string {
	if !c.Terminal {
		return text
	}
	return code + text + plain
}

// Bold, Dim, Green and Red style a text.
func (c *Canvas) Bold(text string) string { return c.style(bold, text) }

// Dim is for headings of tables.
func (c *Canvas) Dim(text string) string { return c.style(dim, text) }

// Green marks good values.
func (c *Canvas) Green(text string) string { return c.style(green, text) }

// Red marks bad values.
func (c *Canvas) Red(text string) string { return c.style(red, text) }

// Printf adds formatted text.
func (c *Canvas) Printf(format string, args ...any) { fmt.Fprintf(&c.Builder, format, args...) }

// Flows adds a table of flows with measured and true values; nothing if flows is empty.
func (c *Canvas) Flows(title string, flows []FlowFigure) {
	if len(flows) == 0 {
		return
	}
	width := flowColumns
	if c.Columns > 0 {
		width = min(width, max(20, c.Columns-flowFigures))
	}
	c.WriteString(c.Dim(fmt.Sprintf("%-*s %10s %10s %8s\n", width, Shorten(title, width), "measured", "true", "error")))
	for _, f := range flows {
		measured, relative := fmt.Sprintf("%.0f", f.Measured), Percent(f.Error())
		if f.Measured == 0 {
			measured, relative = "-", "-" // below the threshold, not published
		}
		c.Printf("%-*s %10s %10.0f %8s\n", width, Shorten(f.Flow, width), measured, f.True, relative)
	}
	c.WriteByte('\n')
}

// Percent formats a share.
func Percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) + " %" }

// Draw shows the newest epoch.
func (s *Scorer) Draw(c *Canvas) {
	if len(s.history.Results) == 0 {
		return
	}
	a, r := s.algorithm, s.history.Newest()
	if len(r.Published[a.Summary]) == 0 {
		c.WriteString(c.Red(a.Plugin+" has no results for this epoch") + "\n\n")
		return
	}
	if a.Screen.Head != nil {
		a.Screen.Head(c, &s.history)
	}
	a.Screen.table(c, r, a.Summary)
	for i := range a.Top {
		t := &a.Top[i]
		focus := r.busiest(t.List, a.Summary)
		for _, rows := range r.Top {
			if rows.List == t.List && rows.View == focus {
				c.Flows(strings.ReplaceAll(t.Title, "%s", focus.String()), rows.Rows[:min(t.Shown, len(rows.Rows))])
			}
		}
	}
}

// table draws a row for each view that was scored.
func (x *Screen) table(c *Canvas, r *Result, summary string) {
	views := slices.DeleteFunc(r.Published.Views(summary), func(v View) bool { return !r.Scored(summary, v) })
	slices.SortStableFunc(views, func(a, b View) int { // the network comes first
		switch {
		case a.Device == b.Device:
			return 0
		case a.Device == Network:
			return -1
		case b.Device == Network:
			return 1
		}
		return 0
	})
	rows := [][]string{make([]string, len(x.Columns))}
	for i := range x.Columns {
		rows[0][i] = x.Columns[i].Head
	}
	shown := cmp.Or(c.Rows, x.Rows)
	if c.Terminal && c.Rows == 0 || shown == 0 {
		shown = len(views)
	}
	for _, view := range views[:min(shown, len(views))] {
		row := make([]string, len(x.Columns))
		for i := range x.Columns {
			row[i] = x.Columns[i].Cell(r, view)
		}
		rows = append(rows, row)
	}
	widths := x.widths(rows, c.Columns)
	for i, row := range rows {
		for j := range row {
			row[j] = fmt.Sprintf("%*s", widths[j], row[j])
		}
		line := strings.Join(row, " ") + "\n"
		if i == 0 {
			line = c.Dim(line)
		}
		c.WriteString(line)
	}
	if more := len(views) - shown; more > 0 {
		c.Printf("… and %d more\n", more)
	}
	c.WriteByte('\n')
}

// widths returns the columns' widths, negative widths align left: the declared widths if they fit
// the screen, and otherwise the least.
func (x *Screen) widths(rows [][]string, columns int) []int {
	declared, least, sum := make([]int, len(x.Columns)), make([]int, len(x.Columns)), -1
	for i := range x.Columns {
		declared[i] = x.Columns[i].Width
		for _, row := range rows {
			least[i] = max(least[i], utf8.RuneCountInString(row[i]))
		}
		sum += 1 + max(declared[i], -declared[i])
		if declared[i] < 0 {
			least[i] = -least[i]
		}
	}
	if columns == 0 || sum <= columns {
		return declared
	}
	return least
}

// busiest returns the view with the most packets of those with top rows in a list; of equal views
// the one with the longest dimension.
func (r *Result) busiest(list, summary string) (best View) {
	most := -1.0
	for _, top := range r.Top {
		n := r.Published.Row(summary, top.View, "").Value("packets")
		if top.List == list && (n > most || n == most && len(top.View.Dimension) > len(best.Dimension)) {
			best, most = top.View, n
		}
	}
	return best
}

// Measured returns a cell with a published number.
func Measured(list, leaf string) func(*Result, View) string {
	return func(r *Result, v View) string {
		x, ok := r.Published.Row(list, v, "").Number(leaf)
		if !ok {
			return "-"
		}
		return fmt.Sprintf("%.0f", x)
	}
}

// WithTrue returns a cell with a published number and the true one, "12 (13)".
func WithTrue(list, leaf string, digits int) func(*Result, View) string {
	return func(r *Result, v View) string {
		f, ok := r.Figure(list, v, leaf)
		if !ok {
			return "-"
		}
		return fmt.Sprintf("%.*f (%.*f)", digits, f.Measured, digits, f.True)
	}
}

// Found returns a cell with the number of true rows that were found, "5 of 6".
func Found(measure string) func(*Result, View) string {
	return func(r *Result, v View) string {
		s := r.Score(measure, v)
		if s == nil {
			return "-"
		}
		return fmt.Sprintf("%d of %d", s.Counts.TruePositive, s.Counts.TruePositive+s.Counts.FalseNegative)
	}
}

// ScoreOf returns a cell with a measure.
func ScoreOf(measure string) func(*Result, View) string {
	return func(r *Result, v View) string {
		s := r.Score(measure, v)
		if s == nil {
			return "-"
		}
		return fmt.Sprintf("%.3f", s.Value)
	}
}
