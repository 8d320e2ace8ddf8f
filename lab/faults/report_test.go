// SPDX-License-Identifier: Apache-2.0

// The table of results, and its places in docs/evidence/faults.csv and faults.md.

package faults

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
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

// fields are the row in the file of rows.
func (r row) fields() []string {
	return []string{r.fault, lostOf(r.lost), cmp.Or(r.back, "-"), r.verdict()}
}

func (r row) String() string { return line(r.fields()) }

// line is a row in the table of the page.
func line(fields []string) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString("| " + cell(f) + " ")
	}
	return b.String() + "|\n"
}

// lostOf leaves out what lost nothing.
func lostOf(all []string) string {
	some := slices.DeleteFunc(slices.Clone(all), func(l string) bool { return strings.HasPrefix(l, "0 of ") })
	return cmp.Or(strings.Join(some, "; "), "nothing")
}

const (
	page     = "../../docs/evidence/faults.md"
	caseFile = "../../docs/evidence/faults.csv"
	begin    = "<!-- faults: written by `make faults`; do not edit -->\n"
	end      = "<!-- end -->\n"
)

var heading = []string{"fault", "lost", "back after", "result"}

// recordedRows returns the rows of the file, without the heading.
func recordedRows(tb testing.TB) [][]string {
	tb.Helper()
	f, err := os.Open(filepath.FromSlash(caseFile))
	if err != nil {
		tb.Fatal(err)
	}
	rows, err := evidence.ReadCSV(f)
	if err = errors.Join(err, f.Close()); err != nil || len(rows) == 0 || !slices.Equal(rows[0], heading) {
		tb.Fatalf("%s: %d rows, %v", caseFile, len(rows), err)
	}
	return rows[1:]
}

// split returns the page before, in and after the table.
func split(tb testing.TB) (before, part, after string) {
	tb.Helper()
	b, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		tb.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	part, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		tb.Fatalf("%s has no table of faults", page)
	}
	return before + begin, part, end + after
}

// worth are the lines of the page: of the rows that lost something, or that do not pass.
func worth(rows [][]string) string {
	var b strings.Builder
	b.WriteString(line(heading) + "|---|---|---|---|\n")
	for _, r := range rows {
		if r[1] != "nothing" || r[3] != "pass" {
			b.WriteString(line(r))
		}
	}
	return b.String()
}

// writeTable puts the rows into the file, and those worth reading into the page; cases that did not
// run keep theirs. It names the lengths of epochs, and the load when the run began.
func writeTable(tb testing.TB, rows []row, before float64) {
	tb.Helper()
	top, _, bottom := split(tb)
	old := recordedRows(tb)
	var all [][]string
	for _, f := range cases {
		if i := slices.IndexFunc(rows, func(r row) bool { return r.fault == f.name }); i >= 0 {
			all = append(all, rows[i].fields())
		} else if i := slices.IndexFunc(old, func(r []string) bool { return r[0] == f.name }); i >= 0 {
			all = append(all, old[i])
		}
	}
	var lengths []string
	for _, r := range rows {
		if text := r.interval.String(); r.interval > 0 && !slices.Contains(lengths, text) {
			lengths = append(lengths, text)
		}
	}
	slices.Sort(lengths)
	run := fmt.Sprintf("The newest run: %s (%.2f when it began),\n%d of %d cases, epochs of %s.", evidence.Run(),
		before, len(rows), len(cases), strings.Join(lengths, " and "))
	var b bytes.Buffer
	b.WriteString("# " + strings.ReplaceAll(run, "\n", " ") + "\n")
	if err := csv.NewWriter(&b).WriteAll(slices.Concat([][]string{heading}, all)); err != nil {
		tb.Fatal(err)
	}
	part := worth(all) + "\n" + run + "\n\n"
	for name, text := range map[string]string{caseFile: b.String(), page: top + part + bottom} {
		if err := os.WriteFile(filepath.FromSlash(name), []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

// The file has a row for each case, and none for others; the page has those worth reading.
func TestPageHasEveryCase(t *testing.T) {
	rows := recordedRows(t)
	if len(rows) != len(cases) {
		t.Fatalf("%d rows for %d cases: run make faults", len(rows), len(cases))
	}
	for i, f := range cases {
		if rows[i][0] != f.name {
			t.Errorf("row %d is about %q, want %q: run make faults", i+1, rows[i][0], f.name)
		}
	}
	if _, part, _ := split(t); !strings.HasPrefix(part, worth(rows)+"\n") {
		t.Errorf("the table of %s does not follow from %s: run make faults", page, caseFile)
	}
}
