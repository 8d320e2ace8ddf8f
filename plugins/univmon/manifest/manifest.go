// SPDX-License-Identifier: Apache-2.0

// Package manifest decides which switch counts which packets in which sketch, so that the sketches
// of a network add up to the sketches of one switch (Liu et al., SIGCOMM 2016, section 5).
//
// The packets between two edge switches are an origin-destination pair. A manifest assigns each
// dimension of each pair to a switch on the pair's path. With several paths of equal length, each
// path is covered by exactly one switch, so every packet still counts once.
//
// Optimize approximates the integer program of the paper's Figure 4: of all placements of sketches
// that cover every path, a placement with the least N × Max + Sum. Max is the memory of the
// sketches on the switch with the most, Sum the memory of all N switches. A sketch is read as a
// whole, so its bytes are the load of both memory and read-out. The other schemes are the ones that
// the paper compares with.
package manifest

import (
	"fmt"
	"math/bits"
	"slices"
)

// Set is a set of dimensions: bit k is dimension k of the Problem.
type Set uint32

// MaxDimensions is the number of dimensions that a Set can hold.
const MaxDimensions = 32

// Has reports whether the set contains dimension k.
func (s Set) Has(k int) bool { return s>>k&1 == 1 }

// Len returns the number of dimensions in the set.
func (s Set) Len() int { return bits.OnesCount32(uint32(s)) }

// Switch is a switch of a Problem.
type Switch struct {
	Name string
	// Capacity is the memory for sketches, in bytes; 0: no limit.
	Capacity int
	// Excluded: the switch forwards packets and counts none, for example because it does not answer.
	Excluded bool
}

// Dimension is a flow key with a sketch of its own.
type Dimension struct {
	Name  string
	Bytes int // bytes of one sketch, above 0
}

// Pair is the packets from one edge switch to another, or the local packets of one switch.
type Pair struct {
	Origin, Destination int // indexes of switches
	// Paths are the ways of the packets, as indexes of switches in order. Each begins at the origin
	// and ends at the destination, or where packets are dropped for lack of a route; each is a
	// sub-pair of its own (paper, section 5.4).
	Paths [][]int
}

// Problem is a network and the pairs and dimensions to count in it.
type Problem struct {
	Switches   []Switch
	Dimensions []Dimension
	Pairs      []Pair
}

// Duty states which dimensions of a pair a switch counts.
type Duty struct {
	Pair int // index into Problem.Pairs
	Set  Set
}

// Manifest is a solution.
type Manifest struct {
	// Duties holds the duties of each switch, ordered by pair.
	Duties [][]Duty
	// Kept has, for each switch, the dimensions of which it keeps a sketch.
	Kept []Set
	// Uncovered are pairs with a path that no switch can count, because all of its switches are
	// excluded or full.
	Uncovered []Duty
	// Max is the largest number of bytes that a switch's sketches take, Sum the bytes of all
	// sketches.
	Max, Sum int
	// Bound is a lower bound of Cost over all manifests of the problem. It is 0 if pairs are
	// uncovered, and for all schemes except Optimized.
	Bound float64
	// Requests is the number of requests to a controller while packets flow: 0, but for Query.
	Requests int
}

// Cost is the objective of the paper's Figure 4, in bytes.
func (m *Manifest) Cost() int { return len(m.Kept)*m.Max + m.Sum }

// Gap is the share by which Cost may exceed the optimum, from 0; 0 without a Bound.
func (m *Manifest) Gap() float64 {
	if m.Bound <= 0 {
		return 0
	}
	return max(float64(m.Cost())/m.Bound-1, 0)
}

// Sketches is the number of sketches of all switches.
func (m *Manifest) Sketches() (n int) {
	for _, s := range m.Kept {
		n += s.Len()
	}
	return n
}

// Check returns an error that names the fault of an invalid problem.
func (p *Problem) Check() error {
	if len(p.Dimensions) > MaxDimensions {
		return fmt.Errorf("manifest: %d dimensions; at most %d", len(p.Dimensions), MaxDimensions)
	}
	for _, d := range p.Dimensions {
		if d.Bytes <= 0 {
			return fmt.Errorf("manifest: a sketch of %s has %d bytes; expected more than 0", d.Name, d.Bytes)
		}
	}
	for i, pair := range p.Pairs {
		if len(pair.Paths) == 0 {
			return fmt.Errorf("manifest: pair %d has no path", i)
		}
		for _, path := range pair.Paths {
			for _, j := range path {
				if j < 0 || j >= len(p.Switches) {
					return fmt.Errorf("manifest: pair %d crosses switch %d, but there are %d switches", i, j, len(p.Switches))
				}
			}
			if len(path) == 0 || path[0] != pair.Origin {
				return fmt.Errorf("manifest: a path of pair %d does not begin at its origin", i)
			}
		}
	}
	return nil
}

// bytes is the memory of a set of sketches.
func (p *Problem) bytes(s Set) (n int) {
	for k := range p.Dimensions {
		if s.Has(k) {
			n += p.Dimensions[k].Bytes
		}
	}
	return n
}

// fits reports whether a switch with these sketches can keep one more.
func (p *Problem) fits(j, load, k int) bool {
	s := &p.Switches[j]
	return !s.Excluded && (s.Capacity == 0 || load+p.Dimensions[k].Bytes <= s.Capacity)
}

// builder collects the duties of a manifest.
type builder struct {
	*Problem
	duties [][]Duty
	left   []Duty
	number []int // number of pairs and dimensions that a switch counts
}

func (p *Problem) builder() *builder {
	return &builder{p, make([][]Duty, len(p.Switches)), nil, make([]int, len(p.Switches))}
}

// assign makes a switch count a dimension of a pair. Pairs come in order.
func (b *builder) assign(j, pair, k int) {
	b.number[j]++
	b.duties[j] = add(b.duties[j], pair, k)
}

// add adds a dimension of a pair to duties whose last one is of this or an earlier pair.
func add(duties []Duty, pair, k int) []Duty {
	if n := len(duties); n > 0 && duties[n-1].Pair == pair {
		duties[n-1].Set |= 1 << k
		return duties
	}
	return append(duties, Duty{pair, 1 << k})
}

// manifest returns the manifest of the collected duties.
func (b *builder) manifest() *Manifest {
	m := &Manifest{Duties: b.duties, Kept: make([]Set, len(b.Switches)), Uncovered: b.left}
	for j, duties := range b.duties {
		for _, d := range duties {
			m.Kept[j] |= d.Set
		}
		load := b.bytes(m.Kept[j])
		m.Max, m.Sum = max(m.Max, load), m.Sum+load
	}
	return m
}

// divide chooses the switches that count dimension k of a pair, among the switches that keep a
// sketch of it: a single switch that is on all paths, and of several the one with the fewest
// duties, or else several switches so that each path has exactly one. ok is false if the switches
// allow neither.
func (b *builder) divide(pair int, k int, kept []Set) (chosen []int, ok bool) {
	paths := b.Pairs[pair].Paths
	for _, j := range paths[0] {
		if kept[j].Has(k) && onAll(j, paths) && (chosen == nil || b.number[j] < b.number[chosen[0]]) {
			chosen = []int{j}
		}
	}
	if chosen != nil {
		return chosen, true
	}
	for _, last := range []bool{false, true} {
		if chosen, ok = cut(paths, last, func(j int) bool { return kept[j].Has(k) }); ok {
			return chosen, true
		}
	}
	return nil, false
}

func onAll(j int, paths [][]int) bool {
	return !slices.ContainsFunc(paths, func(path []int) bool { return !slices.Contains(path, j) })
}

// cut takes the first, or the last, usable switch of each path. ok is false if a path then has none
// or several: a switch cannot distinguish the paths that lead through it.
func cut(paths [][]int, last bool, usable func(j int) bool) (chosen []int, ok bool) {
	for _, path := range paths {
		found := -1
		for _, j := range path {
			if usable(j) && (found < 0 || last) {
				found = j
			}
		}
		if found < 0 {
			return nil, false
		}
		if !slices.Contains(chosen, found) {
			chosen = append(chosen, found)
		}
	}
	for _, path := range paths {
		n := 0
		for _, j := range path {
			if slices.Contains(chosen, j) {
				n++
			}
		}
		if n != 1 {
			return nil, false
		}
	}
	return chosen, true
}
