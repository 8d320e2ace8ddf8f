// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/netsketch/netsketch/lab/evidence"
)

// TestCommittedCharts: the charts and pages in docs/figures follow from their rows, and writing the
// rows again changes nothing. Each statement of the paper holds or has a reason.
func TestCommittedCharts(t *testing.T) {
	const figures = "../../../docs/figures"
	copied := t.TempDir()
	rows, err := filepath.Glob(figures + "/chamelemon-*.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range rows {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, filepath.Base(name)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Draw(copied); err != nil {
		t.Fatal(err)
	}
	charts, err := filepath.Glob(copied + "/*.svg")
	if err != nil || len(charts) != 4*len(Sweeps())+2+len(Literal(Options{}).Plots) {
		t.Errorf("%d charts (%v)", len(charts), err)
	}
	pages, err := filepath.Glob(copied + "/*.md")
	if err != nil || len(pages) != len(Sweeps())+2 { // of the literal rules, and of the losses
		t.Errorf("%d pages (%v)", len(pages), err)
	}
	for _, name := range append(charts, pages...) {
		drawn, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		committed, err := os.ReadFile(filepath.Join(figures, filepath.Base(name)))
		if err != nil || !bytes.Equal(drawn, committed) {
			t.Errorf("%s differs from its rows (write it with `make figures`): %v", filepath.Base(name), err)
		}
	}
	for _, s := range Sweeps() {
		data, err := os.ReadFile(filepath.Join(figures, s.Name()+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		points, err := s.ReadCSV(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range s.Claims(points) {
			if !c.Holds && c.Why == "" {
				t.Errorf("%s: %q does not hold: %s", s.Name(), c.Paper, c.Here)
			}
		}
		var again bytes.Buffer
		if err := WriteCSV(&again, points); err != nil || len(points) != len(s.Places()) {
			t.Fatalf("%s: %d points, %v", s.Name(), len(points), err)
		}
		lines, err1 := evidence.ReadCSV(&again)
		wanted, err2 := evidence.ReadCSV(bytes.NewReader(data))
		if err1 != nil || err2 != nil || len(lines) != len(wanted) {
			t.Fatalf("%s: %v, %v, %d lines and %d committed", s.Name(), err1, err2, len(lines), len(wanted))
		}
		for i, line := range lines {
			if !sameCells(line, wanted[i]) {
				t.Errorf("%s, line %d: %s, committed %s", s.Name(), i+2, line, wanted[i])
			}
		}
	}
}

// sameCells compares two lines of CSV except decoded_flows and load, which are sums of rounded
// values.
func sameCells(x, y []string) bool {
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i] != y[i] && csvColumns[i].name != "decoded_flows" && csvColumns[i].name != "load" {
			return false
		}
	}
	return true
}
