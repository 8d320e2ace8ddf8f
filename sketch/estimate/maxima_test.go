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

// conserve inserts flows with conservative update, packet by packet in turns, into rows that
// overflow at limits.
func conserve(seed uint64, sizes []uint32, widths []int, limits []uint32) [][]uint32 {
	r := rand.New(rand.NewPCG(seed, 6))
	rows := make([][]uint32, len(widths))
	for i, w := range widths {
		rows[i] = make([]uint32, w)
	}
	places := make([][]int, len(sizes))
	for f := range sizes {
		for _, w := range widths {
			places[f] = append(places[f], r.IntN(w))
		}
	}
	left := append([]uint32(nil), sizes...)
	active := make([]int, len(sizes))
	for f := range active {
		active[f] = f
	}
	for ; len(active) > 0; active = slices.DeleteFunc(active, func(f int) bool { return left[f] == 0 }) {
		for _, f := range active {
			left[f]--
			least := uint32(math.MaxUint32)
			for i, c := range places[f] {
				if rows[i][c] < limits[i] {
					least = min(least, rows[i][c])
				}
			}
			for i, c := range places[f] {
				if rows[i][c] == least && least < limits[i] {
					rows[i][c]++
				}
			}
		}
	}
	return rows
}

// TestMaxima: for rows with conservative update and loads up to 1.5, the distribution is within
// WMRE 0.12 of the ground truth, and the entropy and the number of flows are within 2 %, both in a
// tower and in equal rows. MRAC, which treats counters as sums, has at least twice the error.
func TestMaxima(t *testing.T) {
	sizes := zipfSizes(1.1)
	n := len(sizes)
	truth := Sizes(sizes)
	for _, tc := range []struct {
		name   string
		widths []int
		limits []uint32
	}{
		{"rows", []int{n, n, n}, []uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32}},
		{"full rows", []int{2 * n / 3, 2 * n / 3, 2 * n / 3}, []uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32}},
		{"tower", []int{4 * n, 2 * n, n, n / 2}, []uint32{3, 15, 255, 65535}},
	} {
		rows := conserve(1, sizes, tc.widths, tc.limits)
		d, err := Maxima(rows, tc.limits)
		if err != nil {
			t.Fatal(err)
		}
		wmre, entropy, flows := WMRE(truth, d), math.Abs(d.Entropy()/truth.Entropy()-1),
			math.Abs(d.Flows()/float64(n)-1)
		t.Logf("%s: WMRE %.4f, entropy %.5f, flows %.5f", tc.name, wmre, entropy, flows)
		if wmre > 0.12 || entropy > 0.02 || flows > 0.02 {
			t.Errorf("%s: WMRE %.4f, entropy %.5f, flows %.5f", tc.name, wmre, entropy, flows)
		}
		if m, err := (MRAC{}).Run(rows[0]); tc.limits[0] == math.MaxUint32 && (err != nil || WMRE(truth, m) < 2*wmre) {
			t.Errorf("%s: MRAC: WMRE %.4f (%v)", tc.name, WMRE(truth, m), err)
		}
	}
}

// TestFlows: the estimate from three rows is more accurate than from one, on average by about the
// square root of three. Over 100 seeds, each mean error is known to 8 %.
func TestFlows(t *testing.T) {
	sizes := make([]uint32, 10_000)
	for i := range sizes {
		sizes[i] = 1
	}
	one, three, uneven := 0.0, 0.0, 0.0
	for seed := range uint64(100) {
		a, b, c := spread(3*seed, sizes, 8000), spread(3*seed+1, sizes, 8000), spread(3*seed+2, sizes, 16_000)
		x, ok1 := Flows(a)
		y, ok2 := Flows(a, b, c)
		if !ok1 || !ok2 {
			t.Fatal("full")
		}
		// A row of 2,500 counters at a load of 4 has 11 times the error of the large row, and must not
		// spoil the estimate.
		z, _ := Flows(c, spread(3*seed+2000, sizes, 2500))
		uneven += math.Abs(z - 10_000)
		one, three = one+math.Abs(x-10_000), three+math.Abs(y-10_000)
	}
	if !(three < 0.75*one) {
		t.Errorf("mean errors: one row %.1f, three rows %.1f", one/100, three/100)
	}
	if !(uneven < one) {
		t.Errorf("mean errors: one row %.1f, a large and a full row %.1f", one/100, uneven/100)
	}
	if n, ok := Flows([]uint32{1, 2}, []uint32{0, 3}); !ok || math.Abs(n-2*math.Log(2)) > 1e-9 {
		t.Errorf("a full row next to another: %v %v", n, ok)
	}
	if n, ok := Flows([]uint32{1}); ok || !math.IsInf(n, 1) {
		t.Errorf("a full row: %v %v", n, ok)
	}
	if n, ok := Flows([]uint32{0, 0}); !ok || n != 0 {
		t.Errorf("an empty row: %v %v", n, ok)
	}
}

func TestMaximaBadInput(t *testing.T) {
	for name, tc := range map[string]struct {
		rows   [][]uint32
		limits []uint32
		want   error
	}{
		"lengths":    {[][]uint32{{1}}, nil, sketch.ErrConfig},
		"full":       {[][]uint32{{5, 6}}, []uint32{255}, sketch.ErrLimit},
		"huge":       {[][]uint32{{0, math.MaxUint32 - 1}}, []uint32{math.MaxUint32}, sketch.ErrLimit},
		"overflowed": {[][]uint32{{3, 3}}, []uint32{3}, nil},
		"none":       {nil, nil, nil},
		"empty":      {[][]uint32{{0, 0}, {}}, []uint32{3, 15}, nil},
	} {
		if _, err := Maxima(tc.rows, tc.limits); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
