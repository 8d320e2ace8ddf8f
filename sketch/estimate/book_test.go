// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/sketch"
)

// TestHistogram: a histogram counts values on both sides of mostSplit, and forgets what is removed.
func TestHistogram(t *testing.T) {
	h := new(Histogram)
	for _, v := range []uint32{0, 0, 1, mostSplit, mostSplit + 1, mostSplit + 1, 70_000, largestSize + 1} {
		h.Add(v, 1)
	}
	h.Add(largestSize+1, -1)
	for value, want := range map[uint32]int{0: 7, 1: 5, 2: 4, mostSplit: 4, mostSplit + 1: 3, mostSplit + 2: 1, 70_000: 1,
		70_001: 0} {
		if got := h.AtLeast(value); got != want {
			t.Errorf("%d counters of at least %d, want %d", got, value, want)
		}
	}
	if _, ok := h.large[mostSplit]; ok || len(h.large) != 2 {
		t.Errorf("large values %v", h.large)
	}
	if _, err := (MRAC{}).RunHistogram(h); err != nil {
		t.Errorf("a removed counter: %v", err)
	}
}

// TestRowsByTheBook: each row gives the sizes that the rows before it cannot count.
func TestRowsByTheBook(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	rows, bits := make([][]uint32, 3), []int{2, 5, 32}
	for i, n := range []int{200, 100, 50} {
		rows[i] = make([]uint32, n)
		for range 60 {
			at := &rows[i][r.IntN(n)]
			*at = uint32(min(uint64(*at)+uint64(math.Exp(5*r.Float64())), uint64(1)<<bits[i]-1))
		}
	}
	m := MRAC{Iterations: 3}
	part := func(i int, d Distribution, from, to int) {
		t.Helper()
		row, err := MRAC{Iterations: 3, Overflow: uint32(uint64(1)<<bits[i] - 1)}.Run(rows[i])
		if err != nil {
			t.Fatal(err)
		}
		for x := from; x < to; x++ {
			got, want := 0.0, 0.0
			if x < len(d) {
				got = d[x]
			}
			if x < len(row) {
				want = row[x]
			}
			if got != want {
				t.Errorf("%v flows of %d packets, row %d has %v", got, x, i, want)
			}
		}
	}
	d, err := Rows(rows, bits, m)
	if err != nil {
		t.Fatal(err)
	}
	part(0, d, 1, 3)
	part(1, d, 3, 31)
	part(2, d, 31, 400)
	rows[0] = slices.Repeat([]uint32{1}, 200) // without a zero: the second row has the small sizes, too
	if d, err = Rows(rows, bits, m); err != nil {
		t.Fatal(err)
	}
	part(1, d, 1, 31)
	part(2, d, 31, 400)
	full := [][]uint32{{1, 2}, {3}}
	if _, err := Rows(full, []int{2, 8}, m); !errors.Is(err, sketch.ErrLimit) {
		t.Errorf("rows without a zero: %v", err)
	}
	if _, err := Rows(nil, nil, m); !errors.Is(err, sketch.ErrConfig) {
		t.Errorf("no rows: %v", err)
	}
}

// TestCrowd: from counters none of which is zero, the estimated number of flows is near the truth
// if all flows counted all of their packets, or a known share. Without sizes it is an upper bound.
func TestCrowd(t *testing.T) {
	const rows, columns, flows = 3, 400, 1200
	for name, tc := range map[string]struct {
		sizes, weights []float64
		share          float64
	}{
		"one size":   {[]float64{3}, []float64{5}, 1},
		"two sizes":  {[]float64{1, 20}, []float64{3, 1}, 1},
		"few shares": {[]float64{40, 400}, []float64{900, 100}, 0.02},
	} {
		r := rand.New(rand.NewPCG(5, 5))
		counters, total := make([]float64, rows*columns), 0.0
		for _, w := range tc.weights {
			total += w
		}
		for i, w := range tc.weights {
			for range int(flows * w / total) {
				for row := range rows {
					counters[row*columns+r.IntN(columns)] += max(1, math.Ceil(tc.share*tc.sizes[i]))
				}
			}
		}
		if got := Crowd(counters, rows, tc.sizes, tc.weights); relativeError(got, flows) > 0.06 {
			t.Errorf("%s: %.0f flows, want %d", name, got, flows)
		}
		if got := Crowd(counters, rows, nil, nil); !(got >= 0.95*flows) { // nor NaN
			t.Errorf("%s: %.0f flows at most, there are %d", name, got, flows)
		}
	}
	ones := make([]float64, rows*columns)
	r := rand.New(rand.NewPCG(6, 6))
	for range flows {
		for row := range rows {
			ones[row*columns+r.IntN(columns)]++
		}
	}
	if got := Crowd(ones, rows, nil, nil); relativeError(got, flows) > 0.06 {
		t.Errorf("flows of one packet: %.0f, want %d", got, flows)
	}
	for _, want := range []float64{1.5, 7, 90} {
		if got := bisect(1, 100, func(x float64) bool { return x < want }); relativeError(got, want) > 1.1e-4 || got < want {
			t.Errorf("bisect: %v, want %v", got, want)
		}
	}
}

func relativeError(got, want float64) float64 { return math.Abs(got-want) / want }

// TestDecompoundByTheBook: with classes of one value, the numbers of flows are those of a compound
// Poisson distribution with the counters' shares, and with wider classes those of the classes.
func TestDecompoundByTheBook(t *testing.T) {
	row := []uint32{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 5, 6, 6, 7, 20}
	const n = 8
	p, want := make([]float64, n), make([]float64, n)
	for _, v := range row {
		if v < n {
			p[v]++
		}
	}
	for v := 1; v < n; v++ { // v p(v) is the sum of x λ(x) p(v-x)
		sum := float64(v) * p[v]
		for x := 1; x < v; x++ {
			sum -= float64(x) * want[x] * p[v-x]
		}
		want[v] = sum / float64(v) / p[0]
	}
	for _, scale := range []uint32{1, 3} {
		scaled := make([]uint32, len(row))
		for i, v := range row {
			scaled[i] = v * scale
		}
		d, err := Decompound(scaled, 1, scale*classes)
		if err != nil {
			t.Fatal(err)
		}
		if len(d) != int(scale*classes) {
			t.Errorf("scale %d: %d sizes", scale, len(d))
		}
		for x := 1; x < 8-int(scale); x++ { // larger counters share a size of the result
			sum := 0.0
			for at := uint32(x)*scale - scale/2; at <= uint32(x)*scale+scale/2; at++ {
				sum += d[at]
			}
			if flows := max(want[x]*float64(len(row)), 0); math.Abs(sum-flows) > 1e-9 {
				t.Errorf("scale %d: %v flows of %d packets, want %v", scale, sum, uint32(x)*scale, flows)
			}
		}
	}
	if _, err := Decompound(row, 0, 8); !errors.Is(err, sketch.ErrConfig) {
		t.Errorf("sizes from 0: %v", err)
	}
	if _, err := Decompound(row, 8, 8); !errors.Is(err, sketch.ErrConfig) {
		t.Errorf("no sizes: %v", err)
	}
	if _, err := Decompound(row, 1, 2); err != nil {
		t.Errorf("one size: %v", err)
	}
	if _, err := Decompound(row[1:], 1, 8); !errors.Is(err, sketch.ErrLimit) {
		t.Errorf("seven counters of zero: %v", err)
	}
}
