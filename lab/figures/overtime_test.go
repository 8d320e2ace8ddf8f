// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/figures/overtime"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/scenario"
)

// plugins is the directory of the plugins, built once for the tests.
var plugins string

func TestMain(m *testing.M) { testkit.MainWithPlugins(m, &plugins, "chamelemon") }

const recorded9 = "../../docs/figures/chamelemon-9"

// TestOvertimeCharts: the charts in docs/figures are what their rows give.
func TestOvertimeCharts(t *testing.T) {
	base := filepath.Join(t.TempDir(), "chamelemon-9")
	data, err := os.ReadFile(recorded9 + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(base+".csv", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := overtime.Draw(base); err != nil {
		t.Fatal(err)
	}
	drawn, err1 := os.ReadFile(base + ".svg")
	want, err2 := os.ReadFile(recorded9 + ".svg")
	if err1 != nil || err2 != nil || string(drawn) != string(want) {
		t.Errorf("chamelemon-9.svg is not what its rows give (write it with `make figures`): %v, %v", err1, err2)
	}
}

// TestOvertimeOverhead: the pages of Figures 21 and 22 follow from their rows, each statement holds
// or has a reason, and measuring again gives the recorded bytes.
func TestOvertimeOverhead(t *testing.T) {
	const figures = "../../docs/figures"
	overhead := overtime.Overhead()
	for _, err := range append(suite.CheckPages(figures, overhead.Suites, overhead.Command),
		suite.CheckClaims(figures, overhead.Suites)...) {
		t.Error(err)
	}
	for _, s := range overhead.Suites {
		rows, err := s.Run(t.Context(), nil, suite.Options{Seed: 1, Decodings: 20})
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := suite.Recorded(figures, s.Name)
		if err != nil || len(recorded) != len(rows) {
			t.Fatalf("%s: %d rows, recorded %d: %v", s.Name, len(rows), len(recorded), err)
		}
		for i, r := range rows {
			most := 0.001
			if strings.HasPrefix(r.Structure, "requests") { // how gRPC cuts messages into frames varies by up to 4 %
				most = 0.06
			}
			if w := recorded[i]; r.Variant != w.Variant || r.Structure != w.Structure || r.Unit != "ms" &&
				math.Abs(r.Value/w.Value-1) > most {
				t.Errorf("%+v, recorded %+v", r, w)
			}
		}
	}
	if _, err := overtime.Overhead().Select([]string{"23"}); err == nil ||
		!strings.Contains(err.Error(), "chamelemon-22") {
		t.Errorf("figure 23: %v", err)
	}
}

func TestOvertimeNamesAMissingColumn(t *testing.T) {
	base := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(base+".csv", []byte("epoch,flows\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := overtime.Draw(base); err == nil || !strings.Contains(err.Error(), "victims") {
		t.Errorf("%v", err)
	}
}

// TestOvertimeWrite plays a short scenario and writes its figures.
func TestOvertimeWrite(t *testing.T) {
	s, err := scenario.Load("../../examples/chamelemon/small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.Epochs, s.Traffic[0].Flows = 3, 1000
	run, err := scenario.Open(t.Context(), s, scenario.Options{PluginDir: plugins, Listen: "127.0.0.1:0",
		Virtual: true})
	if err != nil {
		t.Fatal(err)
	}
	report, err := run.Play(t.Context())
	if err != nil {
		t.Error(err)
	}
	if err := run.Close(); err != nil {
		t.Error(err)
	}
	h, ok := run.History("chamelemon")
	if !ok {
		t.Fatal("the scenario has no results of ChameleMon")
	}
	base := filepath.Join(t.TempDir(), "run")
	if err := overtime.Write(s, report, h, base, "the test"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(base + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := evidence.ReadCSV(f)
	if err != nil || len(lines) != 1+s.Epochs {
		t.Fatalf("%v, %v", lines, err)
	}
	for name, want := range map[string]string{"epoch": "3", "state": "healthy", "flows": "1000", "victims": "100",
		"victims_published": "100", "victims_exact": "100", "false_claims": "0"} {
		if got := lines[3][slices.Index(lines[0], name)]; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	page, err := os.ReadFile(base + ".md")
	if err != nil || !strings.Contains(string(page), "(run.svg)") ||
		!strings.Contains(string(page), "| victim-f1 ≥ 1 | healthy | 1 | yes |") {
		t.Errorf("%s, %v", page, err)
	}
	old, err := os.ReadFile(recorded9 + ".csv")
	if err != nil || !strings.Contains(string(old), "\n"+strings.Join(lines[0], ",")+"\n") {
		t.Errorf("the rows in docs/figures have other columns than %v", lines[0])
	}
}
