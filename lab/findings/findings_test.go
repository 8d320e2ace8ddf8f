// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

var plugins string

func TestMain(m *testing.M) {
	testkit.MainWithPlugins(m, &plugins, "univmon", "chamelemon", "omnimon", "sketchint", "lightguardian")
}

// TestSample plays a sample of small drawn networks on the virtual clock. Each plugin finds at
// least these shares of the faults, at least these shares of what it reports are faults, and in
// healthy networks it raises no alert.
func TestSample(t *testing.T) {
	r := run{plugins: plugins, parallel: 2}
	for _, tc := range []struct {
		algorithm *algorithm
		share     float64
		bounds    map[string][2]float64 // recall and precision
	}{
		{algorithms[0], 0.1, map[string][2]float64{}},
		{algorithms[1], 0.03, map[string][2]float64{"switch": {1, 1}, "link": {1, 1}}},
		{algorithms[2], 0.03, map[string][2]float64{"heavy victim": {0.95, 0.98}}},
		{algorithms[3], 0.03, map[string][2]float64{"inflated latency": {0.95, 0.98}, "latency alert": {0.95, 0.98}}},
		{algorithms[4], 0.1, map[string][2]float64{"attack": {0.95, 0.98}, "heavy change": {0.95, 0.98}}},
	} {
		t.Run(tc.algorithm.name, func(t *testing.T) {
			var trials []*trial
			for _, d := range []struct {
				topology string
				seed     uint64
				faulty   bool
			}{{"leaf-spine", 23, true}, {"ring", 19, false}, {"leaf-spine", 10, false}} {
				x, err := draw(tc.algorithm, d.topology, d.seed, d.faulty, tc.share)
				if err != nil {
					t.Fatal(err)
				}
				trials = append(trials, x)
			}
			sums, err := r.count(t.Context(), trials)
			if err != nil {
				t.Fatal(err)
			}
			sum := sums[tc.algorithm.name]
			for kind, least := range tc.bounds {
				f := sum.kind(kind)
				if f.found.of == 0 || f.found.value() < least[0] || f.right.value() < least[1] {
					t.Errorf("%s: recall %s of %d, precision %s of %d; want at least %v", kind, percent(f.found), f.found.of,
						percent(f.right), f.right.of, least)
				}
			}
			for what, s := range sum.healthy {
				if s.n > 0 {
					t.Errorf("%s: %d false alerts in %d healthy epochs", what, s.n, s.of)
				}
			}
			if t.Failed() {
				t.Log(strings.Join(sum.notes, "\n"))
			}
		})
	}
}

// TestDraw: networks of all kinds can be played, the same seed draws the same network, and another
// one draws another.
func TestDraw(t *testing.T) {
	for _, a := range algorithms {
		for _, topology := range topologies {
			for seed := range uint64(20) {
				x, err := draw(a, topology, seed, true, 1)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := scenario.Parse("drawn.yaml", []byte(x.text)); err != nil {
					t.Fatalf("%v: %v\n%s", x, err, x.text)
				}
				again, err := draw(a, topology, seed, true, 1)
				if err != nil || again.text != x.text {
					t.Errorf("%v: another network of the same seed (%v)", x, err)
				}
				if other, err := draw(a, topology, seed+20, true, 1); err != nil || other.text == x.text {
					t.Errorf("%v: the same network of another seed (%v)", x, err)
				}
			}
		}
	}
}

// TestCount: which alerts are right and which faults are found.
func TestCount(t *testing.T) {
	whole := score.View{Device: score.Network}
	epoch := func(n int, alert, required, near string) *score.Result {
		r := &score.Result{Published: score.Tables{}, Truth: score.Tables{}}
		r.Published.Rows("summary", whole).Add("", score.Leaves{"last-epoch": score.Number(n)})
		if name, begins, ok := strings.Cut(alert, " "); ok {
			since := n
			if begins == "goes on" {
				since--
			}
			r.Published.Rows("alert", whole).Add("LOOP/"+name, score.Leaves{"active": score.Number(1),
				"since-epoch": score.Number(since)})
		}
		rows := r.Truth.Rows("alert LOOP", whole)
		if required != "" { // some of its flows are near the threshold
			rows.Add("LOOP/"+required, nil).Near = true
		}
		if near != "" {
			row := rows.Add("LOOP/"+near, nil)
			row.Optional, row.Near = true, true
		}
		return r
	}
	x := &trial{network: &network{epoch: time.Second}, algorithm: algorithms[0], faulty: true,
		spans: []span{{what: "loop", from: 6 * time.Second, until: 8 * time.Second}}}
	got := x.count([]*score.Result{
		epoch(0, "", "", ""), epoch(1, "a begins", "", ""), epoch(2, "a goes on", "", ""), nil,
		epoch(4, "", "", ""), epoch(5, "", "", ""), epoch(6, "", "b", "c"), epoch(7, "b begins", "b", ""),
		epoch(8, "d begins", "", "d"), epoch(9, "", "e", ""), epoch(10, "e begins", "", ""), epoch(11, "f begins", "", ""),
		epoch(12, "", "g", ""), epoch(13, "", "", ""), epoch(14, "", "", ""),
	})
	f := got.kinds["LOOP"]
	if f.found != (share{2, 3}) || f.near != (share{1, 2}) || f.right != (share{3, 5}) || got.skipped != 1 ||
		f.exactly != (score.Confusion{TruePositive: 3, FalsePositive: 2, FalseNegative: 2}) {
		t.Errorf("found %v, near %v, right %v, exactly %+v, %d skipped\n%s", f.found, f.near, f.right, f.exactly,
			got.skipped, strings.Join(got.notes, "\n"))
	}
	if h := got.healthy["nothing"]; h == nil || h.n != 2 || h.of != 9 {
		t.Errorf("healthy: %+v", h)
	}
	sum := newTally()
	sum.add(got)
	sum.add(got)
	if f := sum.kinds["LOOP"]; f.found != (share{4, 6}) || sum.healthy["nothing"].of != 18 ||
		len(sum.notes) != 2*len(got.notes) {
		t.Errorf("sum %+v", f)
	}
	if err := aims(map[string]*tally{"x": sum}); err == nil || !strings.Contains(err.Error(), "recall of LOOP is 0.667") ||
		!strings.Contains(err.Error(), "precision of LOOP is 0.600") || !strings.Contains(err.Error(), "4 false alerts") {
		t.Errorf("aims: %v", err)
	}
}

// TestMeasured: rows within 1.5 times of a threshold have columns of their own, and so have rows
// that the plugin does not promise. Rows may be an epoch late.
func TestMeasured(t *testing.T) {
	view := score.View{Device: score.Network, Dimension: "src"}
	epoch := func(problem string, s score.Score) *score.Result {
		s.Measure, s.View = "heavy-change-f1", view
		r := &score.Result{Published: score.Tables{}, Scores: []score.Score{s,
			{Measure: "heavy-change-f1", View: score.View{Device: "leaf1", Dimension: "src"}}}}
		r.Published.Rows("node-summary", view).Add("", score.Leaves{"status": score.Text("COMPLETE"),
			"problem": score.Text(problem)})
		return r
	}
	counts := func(s score.Score) score.Score {
		s.Counts = &score.Confusion{TruePositive: 9, FalsePositive: 2 + len(s.False), FalseNegative: 3 + len(s.Missed)}
		s.Near = &score.Confusion{TruePositive: 2, FalsePositive: 2, FalseNegative: 3}
		return s
	}
	x := &trial{network: &network{}, algorithm: algorithms[4]}
	before := epoch("", score.Score{Actual: map[string]bool{"late": true}})
	r := epoch("", counts(score.Score{False: []string{"a", "late"}, Missed: []string{"b", "soon"}}))
	after := epoch("may be inexact", counts(score.Score{Missed: []string{"c"}}))
	after.Scores[0].Reported = map[string]bool{"soon": true}
	got := newTally()
	got.measured(x, 7, before, r, after)
	f := got.kinds["heavy change"]
	if f.found != (share{8, 9}) || f.near != (share{4, 7}) || f.right != (share{12, 13}) || f.exactly.FalsePositive != 4 ||
		f.incomplete != (share{}) {
		t.Errorf("%+v", f)
	}
	if len(got.notes) != 2 || !strings.HasSuffix(got.notes[0], "epoch 7: not found: heavy change src b (one of 1)") ||
		!strings.HasSuffix(got.notes[1], "epoch 7: false: heavy change src a (one of 1)") {
		t.Errorf("notes %v", got.notes)
	}
	got.measured(x, 8, r, after, nil)
	if f.found != (share{8, 9}) || f.incomplete != (share{7, 8}) || f.right != (share{23, 24}) {
		t.Errorf("incomplete: %+v", f)
	}
}

// TestIntervals has limits from tables.
func TestIntervals(t *testing.T) {
	for _, tc := range []struct {
		s                      share
		low, high, from, until float64
	}{
		{share{0, 100}, 0, 0.0370, 0, 0.0369},
		{share{10, 100}, 0.0552, 0.1744, 0.0480, 0.1839},
	} {
		low, high := tc.s.interval()
		from, until := tc.s.rate()
		for i, x := range [][2]float64{{low, tc.low}, {high, tc.high}, {from, tc.from}, {until, tc.until}} {
			if math.Abs(x[0]-x[1]) > 1e-4 {
				t.Errorf("%v: limit %d is %v, want %v", tc.s, i, x[0], x[1])
			}
		}
	}
}

// TestPage: the table of a page is replaced, and nothing else.
func TestPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run{seed: 7, seeds: 2, topologies: "ring,mesh"}
	sum := newTally()
	*sum.kind("loop") = finding{found: share{19, 20}, right: share{28, 30}, near: share{3, 4}, incomplete: share{1, 6},
		exactly: score.Confusion{TruePositive: 22, FalsePositive: 4, FalseNegative: 2}}
	sum.healthy["nothing"] = &share{0, 1000}
	if err := write(path, r.table(map[string]*tally{"lightguardian": sum})); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	for _, want := range []string{"before\n" + begin, "Seeds 7 to 8 on ring, mesh",
		"| loop | 19 of 20 | 0.950 (0.764 to 0.991) | 1 of 6 | 30 | 28 | 0.933 (0.787 to 0.982) | 4 | 3 | 0.917, 0.846 |",
		"| nothing | 1000 | 0 | 0.0 (0.0 to 3.7) |", end + "after\n"} {
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%q is missing (%v):\n%s", want, err, got)
		}
	}
	if err := write(filepath.Join(t.TempDir(), "none"), ""); err == nil {
		t.Error("a page that is not there")
	}
}
