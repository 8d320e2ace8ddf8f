// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

const figures = "docs/figures"

func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil { // where the command runs
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestPages: the pages and charts of docs/figures follow from their rows.
func TestPages(t *testing.T) {
	for _, err := range suite.CheckPages(figures, Suites(), Command) {
		t.Error(err)
	}
}

// TestClaims: each statement of the paper holds for the recorded rows or has a reason why not, and
// no statement that holds has one.
func TestClaims(t *testing.T) {
	for _, err := range suite.CheckClaims(figures, Suites()) {
		t.Error(err)
	}
}

// TestTasks: both figures with a hundredth of the flows and of the memory.
func TestTasks(t *testing.T) {
	rows, err := flowTasks(0.01, 1)
	if err != nil {
		t.Fatal(err)
	}
	more, err := latencyTasks(0.01, 1, []int{600_000, 3_000_000})
	if err != nil {
		t.Fatal(err)
	}
	v := suite.Values(append(rows, more...))
	for _, r := range v {
		t.Logf("%+v", r)
	}
	for _, task := range []string{hitterTask, changeTask} {
		if x := v.Get(ofRole, 50_000, task, "F1"); x < 0.98 {
			t.Errorf("%s: F1 %v", task, x)
		}
		if x, y := v.Get("TowerCU", 10_000, task, "F1"), v.Get("CM", 10_000, task, "F1"); !(x > y) {
			t.Errorf("%s: F1 %v of TowerCU, %v of CM", task, x, y)
		}
	}
	if x := v.Get(ofRole, 3_000_000, latencyTask, "ARE"); x > 0.02 {
		t.Errorf("ARE of latencies %v", x)
	}
	if x, n := v.Get(ofRole, 600_000, inflationTask, "F1"), v.Get(ofRole, 600_000, inflationTask, "instances"); x < 0.9 ||
		n < 50 {
		t.Errorf("F1 of %v inflated latencies %v", n, x)
	}
}

// TestRecordedRows: measuring again gives the recorded rows.
func TestRecordedRows(t *testing.T) {
	if os.Getenv("NETSKETCH_FIGURES") == "" {
		t.Skip("measures for minutes: run `make figures-check`, which sets NETSKETCH_FIGURES")
	}
	for _, s := range Suites() {
		rows, err := s.Run(t.Context(), nil, suite.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		want, err := suite.Recorded(figures, s.Name)
		if err != nil || len(want) != len(rows) {
			t.Fatalf("%d rows, recorded %d: %v", len(rows), len(want), err)
		}
		for i, r := range rows {
			if w := want[i]; r.Structure != w.Structure || r.Memory != w.Memory || r.Task != w.Task || r.Metric != w.Metric ||
				!(math.Abs(r.Value-w.Value) <= 1e-5*math.Abs(w.Value)) {
				t.Errorf("%+v, recorded %+v", r, w)
			}
		}
	}
}
