// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"cmp"
	"slices"
	"sort"
)

// Tail is a complementary distribution: the number of flows of at least each size.
type Tail struct {
	Sizes []float64 // ascending
	Flows []float64 // number of flows of at least the size
}

// NewTail returns the tail of weighted sizes.
func NewTail(sizes, weights []float64) Tail {
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(sizes[a], sizes[b]) })
	t := Tail{Sizes: make([]float64, len(sizes)), Flows: make([]float64, len(sizes))}
	sum := 0.0
	for i := len(order) - 1; i >= 0; i-- {
		sum += weights[order[i]]
		t.Sizes[i], t.Flows[i] = sizes[order[i]], sum
	}
	return t
}

// AtLeast returns the number of flows with at least x packets.
func (t *Tail) AtLeast(x uint32) float64 {
	i := sort.SearchFloat64s(t.Sizes, float64(x))
	if i == len(t.Flows) {
		return 0
	}
	return t.Flows[i]
}

// Number returns the number of flows of the i-th size.
func (t *Tail) Number(i int) float64 {
	if i+1 == len(t.Flows) {
		return t.Flows[i]
	}
	return t.Flows[i] - t.Flows[i+1]
}
