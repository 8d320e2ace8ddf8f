// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func newPlugin() sdk.Plugin { return plugin.New() }

// TestFigures plays some places of the figures, on both sides of the turns, with fixed seeds. With
// others an epoch fails to decode with a probability below 0.12 %: two victims share all three
// buckets, and neither is recorded elsewhere. An estimate of the number of victims has a standard
// error of 2 to 3 %.
func TestFigures(t *testing.T) {
	for _, tc := range []struct {
		sweep  Sweep
		place  Place
		state  string
		th, tl float64 // 0: any
		sum    float64 // least number of decoded flows
		long   bool    // played by `make figures-check` only
	}{
		{Sweep{14, "CACHE", false}, Place{20_000, 0.1}, "healthy", 1, 1, 7000, false},
		{Sweep{14, "CACHE", false}, Place{70_000, 0.1}, "healthy", 3, 1, 7500, true},
		{Sweep{14, "CACHE", false}, Place{80_000, 0.1}, "ill", 3, 2, 0, true},
		{Sweep{8, "DCTCP", true}, Place{50_000, 0.125}, "healthy", 0, 1, 8000, true},
		{Sweep{8, "DCTCP", true}, Place{50_000, 0.175}, "ill", 0, 0, 8000, false},
		{Sweep{16, "VL2", false}, Place{60_000, 0.1}, "healthy", 0, 1, 8000, true},
		{Sweep{18, "HADOOP", false}, Place{80_000, 0.1}, "ill", 0, 2, 6000, true},
	} {
		t.Run(tc.sweep.Workload+" "+tc.sweep.axis(tc.sweep.X(tc.place)), func(t *testing.T) {
			t.Parallel()
			if tc.long && os.Getenv("NETSKETCH_FIGURES") == "" {
				t.Skip("another workload on the same side of the turn: run `make figures-check`, which sets " +
					"NETSKETCH_FIGURES")
			}
			o := Options{Plugin: newPlugin, Seeds: []uint64{1}, Settle: 8, Measure: 2}
			if tc.long {
				o.Settle = 10
			}
			samples, err := tc.sweep.Run(context.Background(), o, tc.place)
			if err != nil {
				t.Fatal(err)
			}
			for i := range samples {
				x := &samples[i]
				if x.State != tc.state || !x.Decoded || x.False > 0 {
					t.Errorf("epoch %d: %s, decoded %v (%s), %d published wrongly", x.Epoch, x.State, x.Decoded,
						x.Problem, x.False)
				}
				if tc.state == "healthy" && !x.Exact {
					t.Errorf("epoch %d: %d of %d victims missed", x.Epoch, x.Missed, x.Judgment.Victims)
				}
				if f := x.Recorded.F1(); tc.state == "ill" &&
					(f < 0.99 || x.HeavyVictims.F1() < 0.99 || math.Abs(x.Estimate-1) > 0.1) {
					t.Errorf("epoch %d: heavy victims F1 %.4f and %+v, %.3f of the victims", x.Epoch, f, x.HeavyVictims,
						x.Estimate)
				}
			}
			p := Summarize(samples)[0]
			if p.State() != tc.state || tc.th > 0 && p.Mean.Th != tc.th || tc.tl > 0 && p.Mean.Tl != tc.tl ||
				p.Mean.Sum() < tc.sum {
				t.Errorf("%s, Th %.1f, Tl %.1f, %.0f decoded flows", p.State(), p.Mean.Th, p.Mean.Tl, p.Mean.Sum())
			}
			if p.Mean.LoadHL > 0.79 || p.Mean.LoadHH > 0.75 {
				t.Errorf("loads of HH %.3f, HL %.3f", p.Mean.LoadHH, p.Mean.LoadHL)
			}
		})
	}
}

// TestSameAgain: a seed gives the same epochs for any number of workers.
func TestSameAgain(t *testing.T) {
	s := Sweep{14, "CACHE", false}
	var first [][]string
	for _, workers := range []int{1, 2} {
		samples, err := s.Run(context.Background(),
			Options{Plugin: newPlugin, Seeds: []uint64{1, 2}, Settle: 2, Measure: 1, Workers: workers}, Place{10_000, 0.1})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := WriteCSV(&b, Summarize(samples)); err != nil {
			t.Fatal(err)
		}
		rows, err := evidence.ReadCSV(&b)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = rows
		} else if !reflect.DeepEqual(first, rows) {
			t.Errorf("%v\n%v", first, rows)
		}
	}
}

// TestAll plays the figures as the command does, for the number of seeds in the environment, and
// checks all claims.
func TestAll(t *testing.T) {
	number := os.Getenv("NETSKETCH_CHAMELEMON_SEEDS")
	if number == "" {
		t.Skip("takes minutes: NETSKETCH_CHAMELEMON_SEEDS sets the number of seeds; " + suite.Make("attention") +
			" measures the same")
	}
	seeds, err := strconv.Atoi(number)
	if err != nil || seeds < 1 {
		t.Fatalf("NETSKETCH_CHAMELEMON_SEEDS=%s: set a number of seeds, at least 1", number)
	}
	o := Options{Plugin: newPlugin, Workers: 2}
	for i := range seeds {
		o.Seeds = append(o.Seeds, uint64(i+1))
	}
	drawn, err := Bench(context.Background(), o, []int{7, 8, 14, 15, 16, 17, 18, 19},
		os.Getenv("NETSKETCH_CHAMELEMON_OUT"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drawn {
		for _, c := range d.Claims {
			if !c.Holds && c.Why == "" {
				t.Errorf("figure %d, %s: %s; here %s", d.Figure, d.Workload, c.Paper, c.Here)
			}
		}
	}
}

// TestBench writes all files of a figure from invented points.
func TestBench(t *testing.T) {
	out := t.TempDir()
	var samples []Sample
	for _, s := range Sweeps() {
		for _, p := range s.Places() {
			m := &chamelemon.Measured{State: "healthy", Decoded: true, Th: 1, Tl: 1, Sample: 1, BucketsHH: 9000,
				BucketsHL: 3000, HH: 5000, HL: 3500}
			if x := s.X(p); x >= 80_000 || s.Victims && x >= 15 {
				m = &chamelemon.Measured{State: "ill", Decoded: true, Th: max(paper[s.Figure].illTh, 2), Tl: 2,
					Sample: 0.2, BucketsHH: 3072, BucketsHL: 7680, BucketsLL: 1536, HH: 2000, HL: 5500, LL: 1000}
			} else if s.X(p) > paper[s.Figure].ones {
				m.Th = 5
			}
			samples = append(samples, Sample{s, p, 1, chamelemon.Played{Epoch: 20, Measured: m},
				Judgment{Victims: 10, Exact: m.State == "healthy", Estimate: 1.01, Recorded: Score{Hits: 5}}})
		}
		points := Summarize(slices.DeleteFunc(slices.Clone(samples), func(x Sample) bool { return x.Sweep != s }))
		for _, c := range s.Claims(points) {
			if !c.Holds && c.Why == "" {
				t.Errorf("figure %d: %+v", s.Figure, c)
			}
		}
		if err := s.write(out, points, "Made up."); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(filepath.Join(out, s.Name()+".md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range s.Charts(points) {
			if svg, err := os.ReadFile(filepath.Join(out, s.Name()+"-"+c.File+".svg")); err != nil ||
				!bytes.Contains(svg, []byte("</svg>")) || !bytes.Contains(page, []byte(c.File+".svg")) {
				t.Errorf("figure %d, chart %s: %v", s.Figure, c.File, err)
			}
		}
		f, err := os.ReadFile(filepath.Join(out, s.Name()+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		if rows, err := evidence.ReadCSV(bytes.NewReader(f)); err != nil || len(rows) != 11 {
			t.Errorf("figure %d: %d rows of points, %v", s.Figure, len(rows), err)
		}
	}
	claims := LossClaims(samples)
	for _, c := range claims {
		if !c.Holds {
			t.Errorf("%+v", c)
		}
	}
	samples[0].FailedHL = true // of DCTCP, healthy
	var written bytes.Buffer
	if err := writeSamples(&written, samples); err != nil {
		t.Fatal(err)
	}
	read, err := readSamples(strings.NewReader(written.String()))
	if err != nil {
		t.Fatal(err)
	}
	page := lossPage(read, claims, "Made up.")
	if page != lossPage(samples, claims, "Made up.") {
		t.Error("the page of epochs that were written and read differs")
	}
	broken := strings.Replace(written.String(), "DCTCP,healthy,1", "DCTCP,healthy,-1", 1)
	if _, err := readSamples(strings.NewReader(broken)); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a seed of -1: %v", err)
	}
	for _, want := range []string{"| CACHE | 8 | 8 | 0 | 1.0000 |", "| VL2 |", "in 28 of 28 epochs"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	// A point that turns two steps too late, and victims that are published wrongly.
	s := Sweep{8, "DCTCP", true}
	late := []Point{{X: 17.5, Mean: chamelemon.Measured{Th: 2}},
		{X: 20, Ill: 1, Mean: chamelemon.Measured{Th: 2, HH: 9000}}}
	if c := s.Claims(late); c[0].Holds || c[1].Holds {
		t.Errorf("%+v", c)
	}
	samples[3].False, samples[3].Exact = 1, false
	if c := LossClaims(samples); c[0].Holds || c[len(c)-1].Holds {
		t.Errorf("%+v", c)
	}
}

// TestFiguresByName parses lists of figures.
func TestFiguresByName(t *testing.T) {
	for list, want := range map[string][]int{"all": {7, 8, 14, 15, 16, 17, 18, 19, 20},
		"7,8,14-20": {7, 8, 14, 15, 16, 17, 18, 19, 20}, " 20 ,8": {8, 20}, "15-16,16": {15, 16}} {
		if got, err := Figures(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; expected %v", list, got, err, want)
		}
	}
	for _, list := range []string{"", "9", "x", "16-15", "7,", "9-13"} {
		if got, err := Figures(list); err == nil ||
			!strings.HasSuffix(err.Error(), "there are 7, 8, 14, 15, 16, 17, 18, 19, 20") {
			t.Errorf("%q gives %v, %v", list, got, err)
		}
	}
}

// TestJudge: Judge finds each kind of wrong result.
func TestJudge(t *testing.T) {
	bed := chamelemon.New(chamelemon.Config{Seed: 3})
	sizes := chamelemon.Traffic{Sizes: one, Flows: 4, Victims: 1, Loss: 1}
	flows := bed.Flows(sizes)
	for i := range flows {
		flows[i].Packets, flows[i].Lost = 10, int64(i) // the first lost nothing
	}
	flows[3].LostHeavy = 3
	judge := func(rows ...[4]string) Judgment {
		return Judge(flows, &chamelemon.Played{Results: victimResults(t, rows),
			Measured: &chamelemon.Measured{Tl: 3, Victims: 3}})
	}
	key := func(i int) string { return flows[i].Key.String() }
	right := [][4]string{{key(1), "1", "true", "LIGHT"}, {key(2), "2", "true", "LIGHT"}, {key(3), "3", "true", "HEAVY"}}
	if j := judge(right...); !j.Exact || j.Victims != 3 || j.Estimate != 1 || j.HeavyVictims != (Score{Hits: 1}) ||
		j.Recorded != (Score{Hits: 1}) || j.HeavyVictims.F1() != 1 {
		t.Errorf("%+v", j)
	}
	if j := judge(right[:2]...); j.Exact || j.Missed != 1 || j.Recorded != (Score{Missed: 1}) || j.Recorded.F1() != 0 {
		t.Errorf("one missed: %+v", j)
	}
	if j := judge(append(right[:2:2], [4]string{key(3), "2", "false", "HEAVY"})...); j.Exact || j.False != 0 ||
		j.HeavyVictims != (Score{Missed: 1}) {
		t.Errorf("a lower bound: %+v", j)
	}
	if j := judge(append(right[:2:2], [4]string{key(3), "2", "true", "HEAVY"})...); j.Exact || j.False != 1 {
		t.Errorf("a wrong number published as exact: %+v", j)
	}
	if j := judge(append(right[:3:3], [4]string{key(0), "4", "true", "HEAVY"})...); j.Exact || j.False != 1 ||
		j.Recorded.F1() != 2.0/3 {
		t.Errorf("a flow that lost nothing: %+v", j)
	}
	if (Score{}).F1() != 1 {
		t.Error("F1 of no flows is not 1")
	}
}
