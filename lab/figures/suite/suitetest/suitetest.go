// SPDX-License-Identifier: Apache-2.0

// Package suitetest compares the records in docs/figures with the programs that measure them, in
// the tests of the programs under lab/figures.
package suitetest

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// figures is the directory of rows, pages and charts, seen from the root of the repository.
const figures = "docs/figures"

// Main runs the tests of a package three directories below the root, where the command runs.
func Main(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Pages fails if pages and charts do not follow from their rows. command returns the command line
// that measures a suite.
func Pages(t *testing.T, suites []suite.Suite, command func(name string) string) {
	t.Helper()
	for _, err := range suite.CheckPages(figures, suites, command) {
		t.Error(err)
	}
}

// Claims fails if a statement of the paper neither holds for the recorded rows nor has a reason why
// not, or if one that holds has a reason.
func Claims(t *testing.T, suites []suite.Suite) {
	t.Helper()
	for _, err := range suite.CheckClaims(figures, suites) {
		t.Error(err)
	}
}

// Recorded are the rows of a suite.
func Recorded(t *testing.T, name string) suite.Values {
	t.Helper()
	rows, err := suite.Recorded(figures, name)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Compare fails if rows differ from the recorded ones by more than their rounding, a hundred
// thousandth. Times are not compared.
func Compare(t *testing.T, name string, rows []suite.Row) {
	t.Helper()
	want := Recorded(t, name)
	if len(rows) != len(want) {
		t.Fatalf("%s: %d rows, recorded %d", name, len(rows), len(want))
	}
	for i, r := range rows {
		w, x := want[i], r
		w.Value, x.Value = 0, 0
		if w != x || r.Unit != "ms" && r.Unit != "µs" && !(math.Abs(r.Value-want[i].Value) <= 1e-5*math.Abs(want[i].Value)) {
			t.Errorf("%s: %+v, recorded %+v", name, r, want[i])
		}
	}
}

// Again measures suites again, which must give the recorded rows. It skips unless
// NETSKETCH_FIGURES is set.
func Again(t *testing.T, suites []suite.Suite) {
	t.Helper()
	if os.Getenv("NETSKETCH_FIGURES") == "" {
		t.Skip("measures for minutes: run `make figures-check`, which sets NETSKETCH_FIGURES")
	}
	for _, s := range suites {
		rows, err := s.Run(t.Context(), nil, suite.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		Compare(t, s.Name, rows)
	}
}
