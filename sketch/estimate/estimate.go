// SPDX-License-Identifier: Apache-2.0

// Package estimate estimates numbers of flows, distributions of flow sizes and entropies from a row
// of counters, each of which sums the packets of the flows that hash to it. Its functions are pure
// and safe for concurrent use.
package estimate

import "math"

// Cardinality estimates the number of flows by linear counting (Whang et al. 1990), from the
// number of a row's counters that are zero. ok is false if no counter is zero, because there are
// then too many flows for an estimate.
func Cardinality(counters, zero int) (flows float64, ok bool) {
	if zero <= 0 || counters < zero {
		return math.Inf(1), false
	}
	n := float64(counters)
	return n * math.Log(n/float64(zero)), true
}

// Zeros counts the counters of a row that are zero.
func Zeros(row []uint32) (zero int) {
	for _, v := range row {
		if v == 0 {
			zero++
		}
	}
	return zero
}

// Distribution is the number of flows of each size: element x is the number of flows with x
// packets. Numbers are estimates and need not be whole. Element 0 is not used.
type Distribution []float64

// Flows returns the number of flows.
func (d Distribution) Flows() (n float64) {
	for x := 1; x < len(d); x++ {
		n += d[x]
	}
	return n
}

// Packets returns the number of packets.
func (d Distribution) Packets() (n float64) {
	for x := 1; x < len(d); x++ {
		n += float64(x) * d[x]
	}
	return n
}

// Entropy returns the entropy of the packets over the flows in bits (SketchINT §V-A):
// -Σ mₓ (x/M) log2(x/M), 0 for no packets.
func (d Distribution) Entropy() float64 {
	total, h := d.Packets(), 0.0
	if total <= 0 {
		return 0
	}
	for x := 1; x < len(d); x++ {
		if d[x] > 0 {
			p := float64(x) / total
			h -= d[x] * p * math.Log2(p)
		}
	}
	return h
}

// Sizes returns the distribution of exact sizes; sizes of 0 are left out.
func Sizes(sizes []uint32) Distribution {
	most := uint32(0)
	for _, x := range sizes {
		most = max(most, x)
	}
	d := make(Distribution, int(most)+1)
	for _, x := range sizes {
		if x > 0 {
			d[x]++
		}
	}
	return d
}

// WMRE returns the weighted mean relative error of an estimated distribution (SketchINT §VII):
// Σ|m-m̂| over Σ(m+m̂)/2, which is 0 for equal distributions and at most 2.
func WMRE(truth, estimate Distribution) float64 {
	diff, sum := 0.0, 0.0
	at := func(d Distribution, x int) float64 {
		if x < len(d) {
			return d[x]
		}
		return 0
	}
	for x := 1; x < max(len(truth), len(estimate)); x++ {
		a, b := at(truth, x), at(estimate, x)
		diff += math.Abs(a - b)
		sum += (a + b) / 2
	}
	if sum == 0 {
		return 0
	}
	return diff / sum
}
