// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch"
)

// spread adds flows to random counters of a row.
func spread(seed uint64, sizes []uint32, width int) []uint32 {
	r := rand.New(rand.NewPCG(seed, 5))
	row := make([]uint32, width)
	for _, x := range sizes {
		row[r.IntN(width)] += x
	}
	return row
}

func zipfSizes(skew float64) []uint32 {
	var sizes []uint32
	for _, n := range zipf.New(1, 300_000, 50_000, skew, 8).Count {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	return sizes
}

// TestCardinality: the standard error of linear counting at a load t is sqrt(e^t-t-1)/(t sqrt(m)).
// An error exceeds five of these with a probability of 10^-6.
func TestCardinality(t *testing.T) {
	for _, n := range []int{0, 10, 1000, 10_000, 40_000} {
		const m = 10_000
		sizes := make([]uint32, n)
		for i := range sizes {
			sizes[i] = 1
		}
		got, ok := Cardinality(m, Zeros(spread(3, sizes, m)))
		load := float64(n) / m
		limit := 5*math.Sqrt(m*(math.Exp(load)-load-1)) + 1
		if !ok || math.Abs(got-float64(n)) > limit {
			t.Errorf("%d flows: %.1f (%v)", n, got, ok)
		}
	}
	for _, tc := range [][2]int{{10, 0}, {0, 0}, {5, 6}, {10, -1}} {
		if n, ok := Cardinality(tc[0], tc[1]); ok || !math.IsInf(n, 1) {
			t.Errorf("%v: %v %v", tc, n, ok)
		}
	}
}

// TestMRAC: the distribution is close to the ground truth at loads of up to 1.5 flows per counter.
// Its error is at most a third of the error of treating each counter as a flow.
func TestMRAC(t *testing.T) {
	for _, skew := range []float64{0.8, 1.1, 1.4} {
		sizes := zipfSizes(skew)
		truth := Sizes(sizes)
		for load, limit := range map[float64]float64{0.2: 0.05, 0.7: 0.12, 1.5: 0.2} {
			row := spread(4, sizes, int(float64(len(sizes))/load))
			d, err := MRAC{}.Run(row)
			if err != nil {
				t.Fatal(err)
			}
			e, plain := WMRE(truth, d), WMRE(truth, Sizes(row))
			h := math.Abs(d.Entropy()-truth.Entropy()) / truth.Entropy()
			t.Logf("Zipf %.1f, load %.1f: WMRE %.4f, of the counters %.4f; entropy off by %.5f, flows by %.4f", skew,
				load, e, plain, h, d.Flows()/truth.Flows()-1)
			if e > limit || e > plain/3 || h > 0.01 || math.Abs(d.Flows()/truth.Flows()-1) > 0.04 {
				t.Errorf("Zipf %.1f, load %.1f: WMRE %.4f, entropy off by %.5f", skew, load, e, h)
			}
		}
	}
}

// TestBounded: iterations and time are bounded, and further iterations, which fit noise, hardly
// change the result.
func TestBounded(t *testing.T) {
	sizes := zipfSizes(1.1)
	row, truth := spread(4, sizes, 2*len(sizes)), Sizes(sizes)
	last := math.Inf(1)
	for _, n := range []int{1, 5, 20, 60} {
		d, err := MRAC{Iterations: n}.Run(row)
		if err != nil {
			t.Fatal(err)
		}
		if e := WMRE(truth, d); e > last*1.3 {
			t.Errorf("%d iterations: WMRE %.4f, fewer gave %.4f", n, e, last)
		} else {
			last = e
		}
	}
	one, err := MRAC{Iterations: 1}.Run(row)
	if err != nil {
		t.Fatal(err)
	}
	timed, err := MRAC{Iterations: math.MaxInt, Time: 1}.Run(row)
	if err != nil || WMRE(one, timed) != 0 {
		t.Errorf("a time of 1 ns allows more than one iteration (%v)", err)
	}
}

func TestBadInput(t *testing.T) {
	for _, m := range []MRAC{{Largest: -1}, {Largest: 5000}, {Iterations: -1}, {Overflow: 1}} {
		if _, err := m.Run(make([]uint32, 5)); !errors.Is(err, sketch.ErrConfig) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if _, err := (MRAC{}).Run(nil); !errors.Is(err, sketch.ErrConfig) {
		t.Error(err)
	}
	if _, err := (MRAC{}).Run([]uint32{1, 2, 3}); !errors.Is(err, sketch.ErrLimit) {
		t.Error(err)
	}
	for _, v := range []uint32{1<<26 + 1, math.MaxUint32} {
		if _, err := (MRAC{}).Run([]uint32{0, 0, v}); !errors.Is(err, sketch.ErrLimit) {
			t.Errorf("a counter of %d: %v", v, err)
		}
		if _, err := (MRAC{Overflow: v}).Run([]uint32{0, 1, v}); err != nil {
			t.Errorf("a counter that overflowed at %d: %v", v, err)
		}
	}
	if d, err := (MRAC{}).Run([]uint32{0, 0, 0}); err != nil || d.Flows() != 0 || d.Entropy() != 0 {
		t.Errorf("no flows: %v, %v flows", err, d.Flows())
	}
	for _, bits := range [][]int{nil, {2}, {1, 8}, {8, 33}} {
		if _, err := Rows([][]uint32{{0}, {0}}, bits, MRAC{}); !errors.Is(err, sketch.ErrConfig) {
			t.Errorf("%v: %v", bits, err)
		}
	}
}

func TestWMRE(t *testing.T) {
	a, b := Distribution{0, 4, 2}, Distribution{0, 2, 2, 1}
	if got, want := WMRE(a, b), (2.+0+1)/(3+2+.5); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v, want %v", got, want)
	}
	if WMRE(a, a) != 0 || WMRE(nil, nil) != 0 || WMRE(a, nil) != 2 {
		t.Error("equal, empty or disjoint distributions")
	}
	if h := (Distribution{0, 8}).Entropy(); math.Abs(h-3) > 1e-12 {
		t.Errorf("eight equal flows: %v bits", h)
	}
}

func BenchmarkMRAC(b *testing.B) {
	row := spread(4, zipfSizes(1.1), 60_000)
	for b.Loop() {
		if _, err := (MRAC{Time: time.Second}).Run(row); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzMRAC(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200, 0, 0}, uint32(3), 10)
	f.Fuzz(func(t *testing.T, b []byte, overflow uint32, largest int) {
		row := make([]uint32, len(b))
		for i, v := range b {
			row[i] = uint32(v)
		}
		d, err := MRAC{Largest: largest % 300, Overflow: overflow, Iterations: 3}.Run(row)
		if err != nil {
			return
		}
		for x, n := range d {
			if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
				t.Fatalf("%v flows of size %d", n, x)
			}
		}
	})
}
