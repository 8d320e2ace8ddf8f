// SPDX-License-Identifier: Apache-2.0

package sketchbench

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the pages and charts of docs/figures again, from the rows there")

const figures = "../../docs/figures"

// committed are the rows of a suite that docs/figures shows.
func committed(t *testing.T, name string) []Row {
	t.Helper()
	f, err := os.Open(filepath.Join(figures, name+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := ReadCSV(f)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestPages: every page and chart in docs/figures is what its rows give, and there is no chart of
// these figures besides.
func TestPages(t *testing.T) {
	known := make(map[string]bool)
	same := func(name, text string) {
		t.Helper()
		known[name] = true
		path := filepath.Join(figures, name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(b), text); d != "" {
			t.Errorf("%s is not what its rows give (write it with -update): %s", name, d)
		}
	}
	for _, s := range Suites() {
		rows := committed(t, s.Name)
		known[s.Name+".csv"] = true
		same(s.Name+".md", s.Page(rows, Command("zipf:1.1", 2_000_000, 1, s.Name)))
		for _, p := range s.Plots {
			if svg, ok := p.SVG(rows); ok {
				same(p.File+".svg", svg)
			} else {
				t.Errorf("%s: no row for chart %s", s.Name, p.File)
			}
		}
	}
	files, err := os.ReadDir(figures)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for _, s := range Suites() {
			if rest, ours := strings.CutPrefix(f.Name(), s.Name); ours && !known[f.Name()] && (rest[0] == '-' || rest[0] == '.') {
				t.Errorf("%s belongs to no figure", f.Name())
			}
		}
	}
}

// TestClaims: what the papers say holds of the committed rows, or the page says why not; and
// no reason stands there for what does hold.
func TestClaims(t *testing.T) {
	for _, s := range Suites() {
		rows := committed(t, s.Name)
		for _, c := range s.Claims {
			if strings.Contains(c.Ours(rows), "–") {
				t.Errorf("%s %s: %q: a value is missing: %s", s.Name, c.Figure, c.Paper, c.Ours(rows))
			}
			if c.Holds == nil {
				continue
			}
			switch holds := c.Holds(rows); {
			case !holds && c.Why == "":
				t.Errorf("%s %s: %q does not hold: %s", s.Name, c.Figure, c.Paper, c.Ours(rows))
			case holds && c.Why != "":
				t.Errorf("%s %s: %q holds, so the reason why not is out of date: %s", s.Name, c.Figure, c.Paper, c.Ours(rows))
			}
		}
	}
}

// TestNoWorse: against the authors' own programs nothing is worse beyond the spread, but what the
// page gives a reason for.
func TestNoWorse(t *testing.T) {
	lines := compareT1(committed(t, "accuracy-t1"))
	if len(lines) < 50 {
		t.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		if l.traces < 3 {
			t.Errorf("%+v: %d traces", l, l.traces)
		}
		if l.verdict == "no" && t1Why[[2]string{l.variant, l.task}] == "" {
			t.Errorf("worse than the authors': %+v", l)
		}
	}
}

// TestSpeedRows: each of the authors' speeds stands beside one of ours.
func TestSpeedRows(t *testing.T) {
	rows := Values(committed(t, "speed"))
	for k := range authors {
		if math.IsNaN(rows.Variant(k[0], k[1], "insertion", "speed")) && math.IsNaN(rows.Variant(k[0], k[1], "decoding", "time")) {
			t.Errorf("%v is not measured", k)
		}
	}
}

// TestCommittedRows: measuring again gives the committed rows, here those of TowerCU at
// 900 KB and of the parts that take no time. Processors that fuse multiplications and additions
// may differ in the last digits.
func TestCommittedRows(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: measures two million packets again")
	}
	tr, err := Load("zipf:1.1", 2_000_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := accuracy(t.Context(), tr, Options{Seed: 1, Runs: documentedRuns}, []kind{towerKind(true, "TowerCU")}, []int{900_000}, sixTasks)
	if err != nil {
		t.Fatal(err)
	}
	compare := func(name string, rows []Row) {
		t.Helper()
		want := Values(committed(t, name))
		for _, r := range rows {
			x := want.Variant(r.Structure, r.Variant, r.Task, r.Metric)
			if r.Memory > 0 {
				x = want.Get(r.Structure, r.Memory, r.Task, r.Metric)
			}
			if !(math.Abs(x-r.Value) <= 1e-3*math.Abs(x)) {
				t.Errorf("%s: %+v, committed %v", name, r, x)
			}
		}
	}
	compare("sketchint-5", rows)
	compare("lightguardian-5", chances(Options{Seed: 1})[:1])
}

// documentedRuns is the command's default, with which docs/figures is made.
const documentedRuns = 5
