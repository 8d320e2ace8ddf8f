// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
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
			sum := sums.tally(tc.algorithm.name)
			for kind, least := range tc.bounds {
				f := sum.kind(kind)
				if f.Found.Of == 0 || f.Found.value() < least[0] || f.Right.value() < least[1] {
					t.Errorf("%s: recall %s of %d, precision %s of %d; want at least %v", kind, percent(f.Found), f.Found.Of,
						percent(f.Right), f.Right.Of, least)
				}
			}
			for what, s := range sum.Healthy {
				if s.N > 0 {
					t.Errorf("%s: %d false alerts in %d healthy epochs", what, s.N, s.Of)
				}
			}
			if t.Failed() {
				t.Log(strings.Join(sum.Notes, "\n"))
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
		r.Published.Rows("summary", whole).Add("", score.Leaves{"last-epoch": score.Number(n),
			"status": score.Text("COMPLETE")})
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
	f := got.Kinds["LOOP"]
	if f.Found != (share{2, 3}) || f.Near != (share{1, 2}) || f.Right != (share{3, 5}) || got.Skipped != 1 ||
		f.Exactly != (score.Confusion{TruePositive: 3, FalsePositive: 2, FalseNegative: 2}) {
		t.Errorf("found %v, near %v, right %v, exactly %+v, %d skipped\n%s", f.Found, f.Near, f.Right, f.Exactly,
			got.Skipped, strings.Join(got.Notes, "\n"))
	}
	if h := got.Healthy["nothing"]; h == nil || h.N != 2 || h.Of != 9 {
		t.Errorf("healthy: %+v", h)
	}
	twice := together([]*sum{{tallies: map[string]*tally{"x": got}}, {tallies: map[string]*tally{"x": got}}})
	sum := twice.tallies["x"]
	if f := sum.Kinds["LOOP"]; f.Found != (share{4, 6}) || sum.Healthy["nothing"].Of != 18 ||
		len(sum.Notes) != 2*len(got.Notes) {
		t.Errorf("sum %+v", f)
	}
	if err := aims(twice); err == nil || !strings.Contains(err.Error(), "recall of LOOP is 0.667") ||
		!strings.Contains(err.Error(), "precision of LOOP is 0.600") || !strings.Contains(err.Error(), "4 false alerts") {
		t.Errorf("aims: %v", err)
	}
	// The two intervals of a fault that grows begin when it is 1.5 times above its threshold.
	for alertAt, found := range map[int]int{4: 1, 5: 1, 6: 0} {
		var all []*score.Result
		for n := range 10 {
			required, near, alert := "", "", ""
			switch {
			case 1 <= n && n < 4:
				near = "a"
			case 4 <= n && n < 8:
				required = "a"
			}
			if n == alertAt {
				alert = "a begins"
			}
			all = append(all, epoch(n, alert, required, near))
		}
		if f := x.count(all).Kinds["LOOP"]; f.Found != (share{found, 1}) || f.Near.Of != 0 {
			t.Errorf("alert in epoch %d: found %v, near %v", alertAt, f.Found, f.Near)
		}
	}
}

// TestSkipped: an alert that was active only in an epoch without a result finds a fault that is
// known from the next epoch on. One that ended without a skipped epoch does not.
func TestSkipped(t *testing.T) {
	whole := score.View{Device: score.Network}
	epoch := func(n int, ends, required string) *score.Result {
		r := &score.Result{Published: score.Tables{}, Truth: score.Tables{}}
		r.Published.Rows("summary", whole).Add("", score.Leaves{"last-epoch": score.Number(n),
			"status": score.Text("COMPLETE")})
		r.Published.Rows("alert", whole).Add("LOOP/"+ends, score.Leaves{"since-epoch": score.Number(n)})
		if required != "" {
			r.Truth.Rows("alert LOOP", whole).Add("LOOP/"+required, nil)
		}
		return r
	}
	x := &trial{network: &network{epoch: time.Second}, algorithm: algorithms[0], faulty: true}
	for i, before := range []*score.Result{nil, {}} {
		got := x.count([]*score.Result{before, epoch(1, "a", "a"), epoch(2, "b", "b"), epoch(3, "", ""), epoch(4, "", "")})
		if f := got.Kinds["LOOP"]; f.Found != (share{1, 2}) || got.Skipped != 1-i {
			t.Errorf("%d: found %v, %d skipped\n%s", i, f.Found, got.Skipped, strings.Join(got.Notes, "\n"))
		}
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
	f := got.Kinds["heavy change"]
	if f.Found != (share{8, 9}) || f.Near != (share{4, 7}) || f.Right != (share{12, 13}) || f.Exactly.FalsePositive != 4 ||
		f.Incomplete != (share{}) {
		t.Errorf("%+v", f)
	}
	if len(got.Notes) != 2 || !strings.HasSuffix(got.Notes[0], "epoch 7: not found: heavy change src b (one of 1)") ||
		!strings.HasSuffix(got.Notes[1], "epoch 7: false: heavy change src a (one of 1)") {
		t.Errorf("notes %v", got.Notes)
	}
	got.measured(x, 8, r, after, nil)
	if f.Found != (share{8, 9}) || f.Incomplete != (share{7, 8}) || f.Right != (share{23, 24}) {
		t.Errorf("incomplete: %+v", f)
	}
}

// TestIntervals compares the limits of intervals with values from tables.
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

// TestKinds: -kinds plays the named faults as often as they are named, and no others.
func TestKinds(t *testing.T) {
	r := run{algorithms: "lightguardian", topologies: "mesh", seeds: 1, share: 1,
		kinds: "loop,abnormal jitter,abnormal jitter"}
	all, err := r.trials(7)
	if err != nil || len(all) != 1 || !all[0].faulty {
		t.Fatalf("trials %v, %v", all, err)
	}
	got := map[string]int{}
	for _, s := range all[0].spans {
		got[s.what]++
	}
	// One of the faults happens a second time, together with the last one.
	if got["loop"] < 1 || got["abnormal jitter"] < 2 || got["loop"]+got["abnormal jitter"] != 4 || len(got) != 2 {
		t.Errorf("faults %v", got)
	}
	if want := `-kinds "loop,abnormal jitter,abnormal jitter" -seed 7`; !strings.Contains(all[0].String(), want) {
		t.Errorf("%v; want %v", all[0], want)
	}
	r.kinds = "nothing"
	if all, err = r.trials(7); err != nil || len(all) != 1 || all[0].faulty {
		t.Errorf("trials %v, %v", all, err)
	}
	r.kinds = "flood"
	if _, err = r.trials(7); err == nil || !strings.Contains(err.Error(), `no "flood"`) {
		t.Errorf("error %v", err)
	}
}

// TestPage: the table of a page is replaced by the lines of all draws, and nothing else; the file
// beside it has those of each draw, too.
func TestPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run{seeds: 2, topologies: "ring,mesh", share: 0.1}
	draw := func(seed uint64, found int) *sum {
		x := newTally()
		*x.kind("loop") = finding{Found: share{found, 20}, Right: share{28, 30}, Near: share{3, 4}, Incomplete: share{1, 6},
			Exactly: score.Confusion{TruePositive: 22, FalsePositive: 4, FalseNegative: 2}}
		x.Healthy["nothing"] = &share{0, 1000}
		d := newSum()
		d.seed, d.all = seed, 4
		d.add("lightguardian", &piece{Played: "commit 0123456, 2026-01-02, 2 processors, load 0.5", Tally: x})
		d.add("lightguardian", &piece{Played: "commit 0123456, 2026-01-02, 2 processors, load 1.5", Tally: newTally()})
		return d
	}
	draws := []*sum{draw(7, 19), draw(40, 20)}
	if err := write(path, r.table(draws, false), r.table(draws, true)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	for _, want := range []string{"before\n" + begin,
		"Seeds 7 to 8 on ring, mesh,\nshare 0.1 of the packets, 2 of 4 networks,\n" +
			"commit 0123456, 2026-01-02, 2 processors.\n\nSeeds 40 to 41",
		"| loop | all | 39 of 40 |", "| nothing | | 2000 | 0 | 0.0 (0.0 to 1.8) |", "| all | all | 2000 | 0 |",
		end + "after\n"} {
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%q is missing (%v):\n%s", want, err, got)
		}
	}
	if strings.Contains(string(got), "| 40 |") {
		t.Errorf("the page has lines of single draws:\n%s", got)
	}
	got, err = os.ReadFile(strings.TrimSuffix(path, ".md") + ".csv")
	for _, want := range []string{
		"# Seeds 7 to 8 on ring, mesh, share 0.1 of the packets, 2 of 4 networks, commit 0123456,",
		"\nloop,7,19 of 20,0.950 (0.764 to 0.991),1 of 6,30,28,0.933 (0.787 to 0.982),4,3,\"0.917, 0.846\"\n",
		"\nloop,40,20 of 20,", "\nloop,all,39 of 40,", "\nall,7,1000,0,0.0 (0.0 to 3.7)\n",
		"\nnothing,,2000,0,"} {
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%q is missing (%v):\n%s", want, err, got)
		}
	}
	if err := write(filepath.Join(t.TempDir(), "none"), "", ""); err == nil {
		t.Error("a page that is not there")
	}
}

// TestKept: a network whose counts are kept is not played again, but one that the seed drew
// otherwise is an error.
func TestKept(t *testing.T) {
	x, err := draw(algorithms[0], "ring", 7, true, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	r := run{plugins: t.TempDir(), keep: t.TempDir(), parallel: 1, share: 0.1} // no plugins to play with
	if p, err := r.load(x); p != nil || err != nil {
		t.Fatalf("kept %v, %v", p, err)
	}
	played := newTally()
	*played.kind("LOOP") = finding{Found: share{1, 2}}
	played.Healthy["nothing"] = &share{1, 9}
	played.note(x, 3, "not found: LOOP")
	if err := r.store(x, &piece{Scenario: x.text, Played: "commit 0123456, 2026-01-02", Tally: played}); err != nil {
		t.Fatal(err)
	}
	got, err := r.count(t.Context(), []*trial{x})
	if err != nil || !reflect.DeepEqual(got.tallies["lightguardian"], played) || !got.runs["commit 0123456, 2026-01-02"] {
		t.Errorf("%+v, %v", got, err)
	}
	z, err := draw(algorithms[0], "ring", 8, true, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	r.kept = true
	if got, err := r.count(t.Context(), []*trial{x, z}); err != nil || got.played != 1 || got.all != 2 {
		t.Errorf("of what is kept: %+v, %v", got, err)
	}
	r.kept = false
	y := *x
	y.text += "# another\n"
	if _, err := r.count(t.Context(), []*trial{&y}); err == nil || !strings.Contains(err.Error(), "drew another network") {
		t.Errorf("another network: %v", err)
	}
	if _, err := r.count(t.Context(), []*trial{z}); err == nil {
		t.Error("played without plugins")
	}
	if err := os.Truncate(r.file(x), 40); err != nil {
		t.Fatal(err)
	}
	if _, err := r.count(t.Context(), []*trial{x}); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a file that was cut: %v", err)
	}
}

// TestSeeds: draws have the given seeds or drawn ones.
func TestSeeds(t *testing.T) {
	for text, want := range map[string]int{"": 3, "5": 1, "5,7": 2} {
		var r run
		if err := r.draw(text, 3); err != nil || len(r.draws) != want {
			t.Errorf("%q: %v, %v", text, r.draws, err)
		}
	}
	for _, text := range []string{"x", "5,5", "5,", "-1"} {
		var r run
		if err := r.draw(text, 3); err == nil {
			t.Errorf("%q: %v", text, r.draws)
		}
	}
}
