// SPDX-License-Identifier: Apache-2.0

// Package sizes has the distribution of the sizes of flows that ChameleMon computes from a
// classifier and from the flows of an encoder (§4.2).
package sizes

import (
	"maps"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch/estimate"
)

// Most is the mean number of flows in a counter of the classifier's first row up to which estimated
// sizes are good: the entropy is then within 1 %. With 2 flows it is within 2.2 %, with 8 within
// 11 % (TestEntropyByFlowsPerCounter).
const Most = 1.5

// Sizes is a distribution of flow sizes. The sizes in Rest are larger than the sizes in Small.
type Sizes struct {
	Small estimate.Distribution
	Rest  []uint64
	OK    bool
	Exact bool // every flow was measured
}

// Of returns the exact distribution of flows with these packets. Sizes from most on are in Rest.
func Of(flows map[string]int64, most uint32) Sizes {
	s := Sizes{OK: true, Exact: true, Small: make(estimate.Distribution, most)}
	for _, n := range flows {
		if n < int64(len(s.Small)) {
			s.Small[n]++
		} else {
			s.Rest = append(s.Rest, uint64(n))
		}
	}
	slices.Sort(s.Rest) // so that sums do not depend on the map's order
	return s
}

// Tail returns the distribution as input of the control.
func (s *Sizes) Tail() estimate.Tail {
	var at, n []float64
	for x, flows := range s.Small {
		if flows > 0 && x > 0 {
			at, n = append(at, float64(x)), append(n, flows)
		}
	}
	for _, x := range s.Rest {
		at, n = append(at, float64(x)), append(n, 1)
	}
	return estimate.NewTail(at, n)
}

// Add adds another switch's flows: a flow enters at one switch.
func (s *Sizes) Add(o *Sizes) {
	for len(s.Small) < len(o.Small) {
		s.Small = append(s.Small, 0)
	}
	for x, n := range o.Small {
		s.Small[x] += n
	}
	s.Rest = append(s.Rest, o.Rest...)
}

// Entropy is the entropy of the packets over the flows, in bits (§4.2).
func (s *Sizes) Entropy() float64 {
	total := s.Small.Packets()
	for _, x := range s.Rest {
		total += float64(x)
	}
	if total <= 0 {
		return 0
	}
	sum := 0.0 // Σ n x log2 x
	for x, n := range s.Small {
		if n > 0 && x > 1 {
			sum += n * float64(x) * math.Log2(float64(x))
		}
	}
	for _, x := range s.Rest {
		sum += float64(x) * math.Log2(float64(x))
	}
	return max(math.Log2(total)-sum/total, 0)
}

// Range is the flows of a range of sizes.
type Range struct {
	First, Last uint64
	Flows       float64
}

// Ranges returns the ranges with flows, in the order of sizes.
func (s *Sizes) Ranges() (out []Range) {
	n := make(map[uint64]float64) // numbers of flows by the range's first size
	for x, f := range s.Small {
		if x > 0 && f > 0 {
			first, _ := RangeOf(uint64(x))
			n[first] += f
		}
	}
	for _, x := range s.Rest {
		first, _ := RangeOf(x)
		n[first]++
	}
	for _, first := range slices.Sorted(maps.Keys(n)) {
		_, last := RangeOf(first)
		out = append(out, Range{first, last, n[first]})
	}
	return out
}

// Single is the largest size that has a range of its own. Each range above it is twice as long as
// the one before.
const Single = 32

// RangeOf returns the range of sizes that x is in.
func RangeOf(x uint64) (first, last uint64) {
	if x <= Single {
		return x, x
	}
	first, last = Single+1, 2*Single
	for x > last && last < 1<<62 {
		first, last = last+1, 2*last
	}
	return first, last
}
