// SPDX-License-Identifier: Apache-2.0

// The table of results, and its place in docs/evidence/faults.md.

package faults

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/evidence"
)

// row is one line of the table.
type row struct {
	fault, promise string
	seen, lost     []string // what was observed, for the test's log alone; epochs, counts and points that were lost
	back           string
	broken         []string // promises that do not hold
	notRun         string   // the reason
	interval       time.Duration
	took           time.Duration
}

func (r row) verdict() string {
	switch {
	case r.notRun != "":
		return "not run: " + r.notRun
	case len(r.broken) > 0:
		return "**fail**: " + strings.Join(r.broken, "; ")
	}
	return "pass"
}

// cell makes a text fit a cell of a Markdown table.
func cell(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }

func (r row) String() string {
	back := r.back
	if back == "" {
		back = "-"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", cell(r.fault), cell(lostOf(r.lost)), back, cell(r.verdict()))
}

// lostOf leaves out what lost nothing.
func lostOf(all []string) string {
	some := slices.DeleteFunc(slices.Clone(all), func(l string) bool { return strings.HasPrefix(l, "0 of ") })
	return cmp.Or(strings.Join(some, "; "), "nothing")
}

const (
	page  = "../../docs/evidence/faults.md"
	begin = "<!-- faults: written by `make faults`; do not edit -->\n"
	end   = "<!-- end -->\n"
	head  = "| fault | lost | back after | result |\n|---|---|---|---|\n"
)

// split returns the page before, in and after the table.
func split(tb testing.TB) (before, table, after string) {
	tb.Helper()
	b, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		tb.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		tb.Fatalf("%s has no table of faults", page)
	}
	return before + begin, table, end + after
}

// writeTable puts the rows into the page; cases that did not run keep theirs. It names the lengths
// of epochs, and the load when the run began.
func writeTable(tb testing.TB, rows []row, before float64) {
	tb.Helper()
	top, table, bottom := split(tb)
	var b strings.Builder
	b.WriteString(head)
	for _, f := range cases {
		prefix := "| " + cell(f.name) + " |"
		for line := range strings.Lines(table) {
			if strings.HasPrefix(line, prefix) && !slices.ContainsFunc(rows, func(r row) bool { return r.fault == f.name }) {
				b.WriteString(line)
			}
		}
		for _, r := range rows {
			if r.fault == f.name {
				b.WriteString(r.String())
			}
		}
	}
	var lengths []string
	for _, r := range rows {
		if text := r.interval.String(); r.interval > 0 && !slices.Contains(lengths, text) {
			lengths = append(lengths, text)
		}
	}
	slices.Sort(lengths)
	fmt.Fprintf(&b, "\nThe newest run: %s (%.2f when it began),\n%d of %d cases, epochs of %s.\n\n", evidence.Run(),
		before, len(rows), len(cases), strings.Join(lengths, " and "))
	if err := os.WriteFile(filepath.FromSlash(page), []byte(top+b.String()+bottom), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// The page has a row for each case, and none for others.
func TestPageHasEveryCase(t *testing.T) {
	_, table, _ := split(t)
	table, _, _ = strings.Cut(strings.TrimPrefix(table, head), "\n\n")
	lines := strings.Split(table, "\n")
	if len(lines) != len(cases) {
		t.Fatalf("%d rows for %d cases: run make faults", len(lines), len(cases))
	}
	for i, f := range cases {
		if want := "| " + cell(f.name) + " |"; !strings.HasPrefix(lines[i], want) {
			t.Errorf("row %d is %q, want %q: run make faults", i+1, lines[i], want)
		}
	}
}
