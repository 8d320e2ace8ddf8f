// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"math"
	"testing"
)

// book is one iteration of MRAC without Panjer's recursion: the number of flows of each size in a
// counter is Poisson distributed, so the distribution of the counter is their convolution.
func book(lambda []float64, over float64, counts []float64, n, large float64) (next []float64, nextOver float64) {
	size := len(lambda)
	// without returns the probabilities of the values of a counter, leaving out the flows of a size.
	without := func(left int) []float64 {
		p := make([]float64, size)
		p[0] = math.Exp(-over)
		for x := 1; x < size; x++ {
			if x == left {
				continue
			}
			q := make([]float64, size)
			for v := range q {
				for k := 0; k*x <= v; k++ {
					q[v] += poisson(k, lambda[x]) * p[v-k*x]
				}
			}
			p = q
		}
		return p
	}
	all := without(0)
	beyond := 1.0
	for _, p := range all {
		beyond -= p
	}
	next = make([]float64, size)
	for x := 1; x < size; x++ {
		others, within := without(x), 0.0
		for v := range all {
			flows := 0.0 // expected flows of size x, if the counter has the value v, times its probability
			for k := 1; k*x <= v; k++ {
				flows += float64(k) * poisson(k, lambda[x]) * others[v-k*x]
			}
			within += flows
			next[x] += counts[v] / n * flows / all[v]
		}
		next[x] += large / n * (lambda[x] - within) / beyond
	}
	return next, large / n * over / beyond
}

func poisson(k int, mean float64) float64 {
	p := math.Exp(-mean)
	for i := 1; i <= k; i++ {
		p *= mean / float64(i)
	}
	return p
}

// TestMRACByTheBook: after one, two and three iterations MRAC has the expectations that book
// computes, for counters up to Largest and for larger ones.
func TestMRACByTheBook(t *testing.T) {
	row := []uint32{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 8, 9, 11, 14}
	const largest = 8
	counts, large, n := make([]float64, largest+1), 0.0, float64(len(row))
	for _, v := range row {
		if v <= largest {
			counts[v]++
		} else {
			large++
		}
	}
	// One flow for each counter, of its size, scaled to the number of flows by linear counting. Sizes
	// without a counter begin with a thousandth of a flow.
	flows, used := math.Log(n/counts[0]), n-counts[0]
	total := used + 1e-3*(largest+1)
	lambda := make([]float64, largest+1)
	for x := 1; x <= largest; x++ {
		lambda[x] = (counts[x] + 1e-3) / total * flows
	}
	over := (large + 1e-3) / total * flows
	for i := range 3 {
		lambda, over = book(lambda, over, counts, n, large)
		got, err := MRAC{Largest: largest, Iterations: i + 1}.Run(row)
		if err != nil {
			t.Fatal(err)
		}
		mean := 0.0
		for x := 1; x <= largest; x++ {
			mean += float64(x) * lambda[x]
			if want := lambda[x] * n; math.Abs(got[x]-want) > 1e-9*n {
				t.Errorf("%d iterations: %.9f flows of %d packets, want %.9f", i+1, got[x], x, want)
			}
		}
		// A larger counter has one large flow and the mean of the others.
		for _, v := range row {
			if x := max(int(v)-int(math.Round(mean)), largest+1); v > largest && (x >= len(got) || got[x] < 1) {
				t.Errorf("%d iterations: no flow of %d packets for a counter of %d: %v", i+1, x, v, got)
			}
		}
		sum := 0.0
		for _, flows := range got[largest+1:] {
			sum += flows
		}
		if sum != large {
			t.Errorf("%d iterations: %.3f large flows, want %.0f", i+1, sum, large)
		}
	}
}

// TestMRACLimits: each limit itself is valid, and a counter of Largest is split.
func TestMRACLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		m     MRAC
		row   []uint32
		flows map[int]float64
	}{
		"one size":        {MRAC{Largest: 1}, []uint32{0, 0, 0, 5}, map[int]float64{5: 1}},
		"most sizes":      {MRAC{Largest: mostSplit, Iterations: 1}, []uint32{0, 0, 1}, nil},
		"one counter":     {MRAC{}, []uint32{0}, nil},
		"overflow at two": {MRAC{Overflow: 2}, []uint32{0, 0, 2, 2}, map[int]float64{2: 0}},
		"below the overflow": {MRAC{Largest: 3, Overflow: 9}, []uint32{0, 0, 0, 0, 0, 0, 8, 9},
			map[int]float64{8: 1, 9: 0}},
		"the largest counter": {MRAC{Largest: 3}, []uint32{0, 0, largestSize}, map[int]float64{largestSize: 1}},
		"just above Largest":  {MRAC{Largest: 3}, []uint32{0, 0, 0, 0, 0, 0, 4}, map[int]float64{4: 1}},
		"above mostSplit": {MRAC{Largest: 3}, []uint32{0, 0, 0, 0, mostSplit, mostSplit + 1},
			map[int]float64{mostSplit: 1, mostSplit + 1: 1}},
		"overflow of Largest": {MRAC{Largest: 9, Overflow: 4}, []uint32{0, 0, 0, 4, 5, 9}, map[int]float64{4: 0, 5: 0, 9: 0}},
	} {
		d, err := tc.m.Run(tc.row)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for x, want := range tc.flows {
			got := 0.0
			if x < len(d) {
				got = d[x]
			}
			if math.Abs(got-want) > 0.05 {
				t.Errorf("%s: %.3f flows of %d packets, want %.0f", name, got, x, want)
			}
		}
	}
}

// TestMRACLargeCounters: a large counter has one large flow, and the mean of the small flows.
func TestMRACLargeCounters(t *testing.T) {
	row := []uint32{0, 0, 1, 2, 3, 4, 4, 3, 2, 4, 3, 50}
	d, err := MRAC{Largest: 4, Iterations: 1}.Run(row)
	if err != nil {
		t.Fatal(err)
	}
	mean := 0.0
	for x, flows := range d[:5] {
		mean += float64(x) * flows / float64(len(row))
	}
	if x := 50 - int(math.Round(mean)); mean < 1 || x >= len(d) || d[x] != 1 {
		t.Errorf("no flow of 50 packets less %.2f: %v", mean, d)
	}
}
