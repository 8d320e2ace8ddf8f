// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"testing"

	"github.com/netsketch/netsketch/internal/test/omnimon/workload"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/suite/suitetest"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

func TestMain(m *testing.M) { suitetest.Main(m) }

func TestPages(t *testing.T) { suitetest.Pages(t, Paper().Suites, Paper().Command) }

func TestClaims(t *testing.T) { suitetest.Claims(t, Paper().Suites) }

// TestTable1: the recorded lines equal the lines of the queries.
func TestTable1(t *testing.T) {
	rows, err := queryLines()
	if err != nil {
		t.Fatal(err)
	}
	suitetest.Compare(t, "omnimon-table-1", rows)
}

// TestMappingSlots checks the least number of slots with which each of 10^6 flows gets a mapping of
// its own, for one to four slots in a mapping (Figure 14).
func TestMappingSlots(t *testing.T) {
	for i, want := range []float64{1_000_000, 1_415, 183, 72} {
		if r := mappingSlots()[i]; r.Value != want {
			t.Errorf("%+v, want %v", r, want)
		}
	}
}

// TestQueries: Figure 16 on a small workload. All results equal the results computed in Go.
func TestQueries(t *testing.T) {
	rows, err := runQueries(workload.Traffic(5_000, 2_000, 400))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range inExp10 {
		v := suite.Values(rows)
		if v.Get(file, 0, "queries", "F1") != 1 || v.Get(file, 0, "queries", "results") == 0 {
			t.Errorf("%s: F1 %v of %v results", file, v.Get(file, 0, "queries", "F1"), v.Get(file, 0, "queries", "results"))
		}
	}
}

// TestAccountability: Figure 12 with an eighth of the slots and a sixty-fourth of the flows. With
// losses at one switch all variables are determined with each mapping, and every result agrees with
// what happened.
func TestAccountability(t *testing.T) {
	rows, err := accountability(0.125, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mappingNames() {
		v := suite.Values(rows)
		if n, share := v.Get(m, 0, "one switch", "variables"), v.Get(m, 0, "one switch", "determined"); n < 40 || share != 1 {
			t.Errorf("%s: %v of %v variables determined", m, share, n)
		}
	}
}

// TestDiagnosis: Figure 15 (b) with one seed.
func TestDiagnosis(t *testing.T) {
	rows, err := diagnosis(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range failures {
		v := suite.Values(rows)
		with, path, without := v.Get("OmniMon", 0, kind, "determined"), v.Get("OmniMon", 0, kind, "without sparsity"),
			v.Get("OmniMon", 0, kind, "without step 3")
		if with != 1 || path < 0.995 || without < 0.5 || without > path {
			t.Errorf("%s: %v determined, %v without sparsity, %v without step 3", kind, with, path, without)
		}
	}
}

// TestMissing: Exp#9 with missing hosts and one seed.
func TestMissing(t *testing.T) {
	rows, err := missing(1)
	if err != nil {
		t.Fatal(err)
	}
	v := suite.Values(rows)
	for _, kind := range failures {
		for _, hosts := range []string{"hosts 0", "hosts 1", "hosts 8", "hosts 64"} {
			if v.Variant(noAgent, hosts, kind, "F1") != 1 || v.Variant(noAgent, hosts, kind, "determined") < 0.999 ||
				v.Variant(noReport, hosts, kind, "determined between others") < 0.95 {
				t.Errorf("%s at %s: F1 %v, %v and %v determined", kind, hosts, v.Variant(noAgent, hosts, kind, "F1"),
					v.Variant(noAgent, hosts, kind, "determined"), v.Variant(noReport, hosts, kind, "determined between others"))
			}
		}
	}
}

// TestStraggler: Figure 11 (c) with a clock that is a second behind. Hosts count every packet in
// one epoch, which clocks alone do not.
func TestStraggler(t *testing.T) {
	s, err := newStraggler(1_000_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	if r, err := s.results(); err != nil || r.counts != 0 || r.clockCounts < 0.3 || r.times > 0.02 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOverhead: Figure 10 with few flows.
func TestOverhead(t *testing.T) {
	rows, err := overhead([]int{2_000}, 1)
	if err != nil || len(rows) != 6 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// TestBalance: Figure 17 with few packets. OmniMon has no errors.
func TestBalance(t *testing.T) {
	tr, err := trace.Load("zipf:1.1", 20_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := balance(tr, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range schemes {
		for _, metric := range []string{"FNR", "FPR", "RE"} {
			v := suite.Values(rows).Variant("OmniMon", scheme, "heavy hitters of links", metric)
			if n := suite.Values(rows).Variant("OmniMon", scheme, "heavy hitters of links", "heavy hitters"); v != 0 || n < 100 {
				t.Errorf("%s: %s of %v heavy hitters is %v", scheme, metric, n, v)
			}
		}
	}
}

// TestRecordedRows: measuring again gives the recorded rows of all figures. It needs p4c.
func TestRecordedRows(t *testing.T) { suitetest.Again(t, Paper().Suites) }
