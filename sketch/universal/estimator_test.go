// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

// TestKeeps: a flow is lost only if the slots of all ways hold larger flows, or as large ones,
// which are kept half of the time.
func TestKeeps(t *testing.T) {
	full := table{{{2, 2, 2, 2}, {0, 2, 2, 3}}}
	for _, tc := range []struct{ size, want float64 }{
		{1, 1 - 1*0.75}, {2, 1 - 0.5*(0.25+0.25)}, {3, 1 - 0*0.125}, {4, 1},
	} {
		equal(t, "probability that a flow is kept", full.keeps(0, tc.size), tc.want)
	}
}

// TestCountCells: the number of flows of any sizes follows from the cells, without a bias.
func TestCountCells(t *testing.T) {
	const columns, rows, seeds = 128, 3, 2000
	for _, flows := range []int{20, 60, 100} {
		mean := 0.0
		for seed := range uint64(seeds) {
			r := rand.New(rand.NewPCG(seed, 3))
			var cells [rows * columns]int32
			for range flows {
				size := 1 + r.Int32N(3)
				for row := range rows {
					cells[row*columns+r.IntN(columns)] += size * (1 - 2*r.Int32N(2))
				}
			}
			n, _, _ := countCells(cells[:], columns, rows)
			mean += n / seeds
		}
		t.Logf("%d flows: %.2f", flows, mean)
		if math.Abs(mean-float64(flows)) > 0.35 {
			t.Errorf("%d flows counted as %.2f on average", flows, mean)
		}
	}
}

// TestCellsByTheFormula: the sum over the flows of a cell, and its variance, follow from the
// characteristic function and from the influence of each cell on it, computed cell by cell.
func TestCellsByTheFormula(t *testing.T) {
	for run := range uint64(60) {
		r := rand.New(rand.NewPCG(run, 4))
		cells := make([]int32, 64+r.IntN(200))
		for i := range cells {
			if r.IntN(1+int(run%4)) == 0 {
				cells[i] = 1 + r.Int32N(int32(1+run*3))
			}
			if r.IntN(2) == 0 {
				cells[i] = -cells[i]
			}
		}
		const period = 256
		n, sum, least := float64(len(cells)), 0.0, 1.0
		influence := make([]float64, len(cells))
		unknown := false
		weight := func(t float64) float64 { return 1 + t }
		for k := 1; k < period/2; k += 2 {
			at := 2 * math.Pi * float64(k) / period
			mean, square := 0.0, 0.0
			for _, v := range cells {
				c := math.Cos(at * float64(v))
				mean, square = mean+c/n, square+c*c/n
			}
			least = math.Min(least, mean)
			unknown = unknown || mean < 4/math.Sqrt(n)
			sum -= weight(at) * (math.Log(mean) + (square/mean/mean-1)/n/2)
			for i, v := range cells {
				influence[i] -= weight(at) * math.Cos(at*float64(v)) / mean
			}
		}
		_, variance := moments(influence)
		variance *= variance * (n - 1) / n / n // over all cells
		fill := math.Log(least) / math.Log(4/math.Sqrt(n))
		if unknown {
			sum, variance, fill = 0, math.Inf(1), 1
		}
		near := func(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-6*(1+math.Abs(b)) }
		s, v, f := addUp(cells, period, weight)
		if !near(s, sum) || !near(v, variance) || !near(f, fill) {
			t.Fatalf("run %d: %v, %v, %v, want %v, %v, %v", run, s, v, f, sum, variance, fill)
		}
	}
	half := make([]int32, 64) // the mean of the cosines is just the limit, 4/√64
	for i := range 16 {
		half[i] = 128
	}
	if _, v, _ := addUp(half, 256, func(float64) float64 { return 1 }); math.IsInf(v, 1) {
		t.Error("cells at the limit do not give a sum")
	}
	if s, v, f := addUp(make([]int32, 5), 256, nil); s != 0 || v != 0 || f != 0 {
		t.Errorf("empty cells: %v, %v, %v", s, v, f)
	}
}

// TestCombine: the number of flows is that of a Kalman filter, written with matrices: the state is
// the number in a stratum and the number in all deeper ones.
func TestCombine(t *testing.T) {
	for run := range uint64(400) {
		r := rand.New(rand.NewPCG(run, 8))
		e := &Estimate{levels: make([]level, 2+r.IntN(5))}
		for i := range e.levels {
			lv := &e.levels[i]
			lv.distinct = float64(r.IntN(1000) >> i)
			lv.fill = []float64{0, r.Float64(), 0.8, 1}[r.IntN(4)]
			lv.spread = []float64{0, 30 * r.Float64(), 1, math.Inf(1)}[r.IntN(4)]
		}
		last := e.levels[len(e.levels)-1]
		n, v := last.distinct, last.spread*last.spread // number of deeper flows and its variance
		counted := []bool{last.fill <= 0.8}
		for i := len(e.levels) - 2; i >= 0; i-- {
			lv := &e.levels[i]
			z, noise := lv.distinct, lv.spread*lv.spread
			use := true
			switch {
			case noise == 0:
				n += z
			case math.IsInf(noise, 1) || !math.IsInf(v, 1) && n*lv.fill > 0.8*z:
				use = false
				n, v = 2*n, 4*v+2*n
			case math.IsInf(v, 1):
				n, v = 2*z, 4*noise+2*z
			default:
				p := [2][2]float64{{v, v}, {v, v + 2*n}} // covariance of the deeper flows and the stratum's
				gain := [2]float64{p[0][1] / (p[1][1] + noise), p[1][1] / (p[1][1] + noise)}
				x := [2]float64{n + gain[0]*(z-n), n + gain[1]*(z-n)}
				v = 0
				for row := range 2 {
					for column := range 2 {
						v += p[row][column] - gain[row]*p[1][column]
					}
				}
				n = math.Max(x[0]+x[1], 0)
			}
			counted = append(counted, use)
		}
		flows, deviation := e.combine()
		near := func(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-6*(1+math.Abs(b)) }
		if !near(flows, n) || !near(deviation*deviation, v) {
			t.Fatalf("run %d: %v ± %v, want %v ± %v; %+v", run, flows, deviation, n, math.Sqrt(v), e.levels)
		}
		for i, want := range counted {
			if lv := &e.levels[len(e.levels)-1-i]; lv.counted != want {
				t.Fatalf("run %d: stratum %d is counted: %v", run, len(e.levels)-1-i, lv.counted)
			}
		}
	}
}

// TestChangeOfFlows: a change has the flow's packets before and after it.
func TestChangeOfFlows(t *testing.T) {
	count := func(packets ...int) *Estimate {
		s := measure(t, small, nil)
		for i, n := range packets {
			k := flow.Key{Mask: flow.FiveTuple, Proto: 6, SrcPort: uint16(i)}
			for range n {
				s.Update(&k)
			}
		}
		return s.Reading().Estimate()
	}
	c, err := Compare(count(100, 30, 7), count(40, 250, 7))
	if err != nil {
		t.Fatal(err)
	}
	if all := c.Above(0); len(all) != 2 {
		t.Errorf("a flow that did not change is listed: %+v", all)
	}
	found := c.Above(1)
	if len(found) != 2 || found[0].Before != 30 || found[0].After != 250 || found[0].Packets != 220 ||
		found[1].Before != 100 || found[1].After != 40 || found[1].Packets != -60 {
		t.Errorf("found %+v", found)
	}
	if got := c.Total(); math.Abs(got-280) > 1 {
		t.Errorf("total change %v, want 280", got)
	}
	// The smaller size follows from the change, even if its own estimate is wrong.
	nothing := count()
	grown := (&Change{before: nothing, after: c.after, difference: c.difference}).Above(1)[0]
	shrunk := (&Change{before: c.before, after: nothing, difference: c.difference}).Above(1)[1]
	if grown.Before != 30 || shrunk.After != 40 {
		t.Errorf("%+v and %+v", grown, shrunk)
	}
	if _, err := Compare(nothing, measure(t, src1M, nil).Reading().Estimate()); !errors.Is(err, ErrMismatch) {
		t.Errorf("sketches of two layouts: %v", err)
	}
}

// TestMomentOfFloods: the sum of squares has no bias where noise makes small flows look larger.
func TestMomentOfFloods(t *testing.T) {
	for name, l := range map[string]Layout{"univmon": src1M, "univmon-300k": src300K} {
		var errors []float64
		for seed := range uint32(24) {
			e, packets, _ := sources(t, l, 50_000, 99_999*seed)
			few := packets - 50_000 // nine packets of every 50th flow
			errors = append(errors, e.Moment2()/(50_000+few/9*99)-1)
		}
		mean, deviation := moments(errors)
		t.Logf("%s: %+.4f, deviation %.4f", name, mean, deviation)
		if math.Abs(mean) > 0.01+2*deviation/math.Sqrt(float64(len(errors))) || deviation > 0.06 {
			t.Errorf("%s: off by %+.4f on average, deviation %.4f", name, mean, deviation)
		}
	}
}
