// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"bytes"
	"flag"
	"math"
	"os"
	"testing"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

const figures = "../../../docs/figures"

// committed are the rows of a suite that docs/figures shows.
func committed(t *testing.T, name string) []suite.Row {
	t.Helper()
	rows, err := suite.Recorded(figures, name)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestPages: the pages and charts of docs/figures follow from their rows, and there is no other
// chart of these figures.
func TestPages(t *testing.T) {
	for _, err := range suite.CheckPages(figures, Suites(), command) {
		t.Error(err)
	}
}

// TestClaims: each statement of the papers holds for the committed rows or has a reason why not,
// and no statement that holds has one.
func TestClaims(t *testing.T) {
	for _, err := range suite.CheckClaims(figures, Suites()) {
		t.Error(err)
	}
}

// TestNoWorse: against the authors' own programs nothing is worse beyond the spread, unless the
// page gives a reason.
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

// TestCommittedRows: measuring again gives the committed rows of TowerCU at 900 KB and of the fast
// parts. Processors that fuse multiplications and additions may differ in the last digits.
func TestCommittedRows(t *testing.T) {
	if os.Getenv("NETSKETCH_FIGURES") == "" {
		t.Skip("measures two million packets again: run `make figures-check`, which sets NETSKETCH_FIGURES")
	}
	tr, err := trace.Load("zipf:1.1", 2_000_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := accuracy(t.Context(), tr, suite.Options{Seed: 1, Runs: documentedRuns},
		[]kind{towerKind(true, "TowerCU")},
		[]int{900_000}, sixTasks)
	if err != nil {
		t.Fatal(err)
	}
	compare := func(name string, rows []suite.Row) {
		t.Helper()
		want := suite.Values(committed(t, name))
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
	compare("lightguardian-5", chances(suite.Options{Seed: 1, Decodings: 10_000}, chanceWidths[:1]))
}

var update = flag.Bool("update", false, "write testdata/small.csv again")

// TestSmallRows: the same code gives the same rows, here those of TowerCU, UnivMon and
// LightGuardian's chances on 20,000 packets. Processors that fuse multiplications and additions may
// differ in the last digits.
func TestSmallRows(t *testing.T) {
	tr, err := trace.Load("zipf:1.1", 20_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := accuracy(t.Context(), tr, suite.Options{Seed: 1, Runs: 2},
		[]kind{towerKind(true, "TowerCU"), univmonKind()},
		[]int{100_000}, sixTasks)
	if err != nil {
		t.Fatal(err)
	}
	if update := *update; update {
		var b bytes.Buffer
		if err := suite.WriteCSV(&b, rows); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("testdata/small.csv", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open("testdata/small.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := suite.ReadCSV(f)
	if err != nil || len(want) != len(rows) || len(rows) < 8 {
		t.Fatalf("%d rows, recorded %d (%v)", len(rows), len(want), err)
	}
	for i, r := range rows {
		if w := want[i]; w.Structure != r.Structure || w.Task != r.Task || w.Metric != r.Metric ||
			math.Abs(w.Value-r.Value) > 1e-3*math.Abs(w.Value) {
			t.Errorf("%+v, recorded %+v (write it with -update)", r, w)
		}
	}
	for _, r := range chances(suite.Options{Seed: 1, Decodings: 10_000}, chanceWidths[:1]) {
		x := suite.Values(committed(t, "lightguardian-5")).Variant(r.Structure, r.Variant, r.Task, r.Metric)
		if !(math.Abs(x-r.Value) <= 1e-3*math.Abs(x)) {
			t.Errorf("%+v, committed %v", r, x)
		}
	}
}

// documentedRuns is the command's default, with which docs/figures is made.
const documentedRuns = 5
