// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// A search ends after this many attempts per dimension without a better placement, or when it has
// looked at maxWork switches and paths, about two seconds.
const (
	patience = 400
	maxWork  = 500_000_000
)

// search looks for placements of sketches that cover all sets: greedily at first, then by removing
// sketches of one dimension and covering the paths again.
type search struct {
	*Problem
	sets [][]int // sets of switches: the minimal paths
	of   [][]int // sets by switch
	rand *rand.Rand
	work int

	kept  []Set
	load  []int
	cover [][]int32 // number of sketches by dimension and set
}

// optimize returns Optimized's manifest.
func optimize(p *Problem) *Manifest {
	s := &search{Problem: p, sets: minimal(p), of: make([][]int, len(p.Switches)), rand: rand.New(rand.NewPCG(1, 2)),
		kept: make([]Set, len(p.Switches)), load: make([]int, len(p.Switches))}
	for i, set := range s.sets {
		for _, j := range set {
			s.of[j] = append(s.of[j], i)
		}
	}
	for k := range p.Dimensions {
		s.cover = append(s.cover, make([]int32, len(s.sets)))
		s.repair(k, s.most())
	}
	bound := lowerBound(p, s.sets)
	s.improve(bound)
	m := s.manifest()
	if len(m.Uncovered) == 0 {
		m.Bound = bound
	}
	return m
}

func (s *search) most() int { return slices.Max(append([]int{0}, s.load...)) }

// cost returns the objective, and the sum of the squared loads to choose between equal objectives:
// the sum falls when one of several switches with the maximal load is relieved, although the
// maximum stays.
func (s *search) cost() (cost, squares float64) {
	most := 0
	for _, load := range s.load {
		most = max(most, load)
		cost += float64(load)
		squares += float64(load) * float64(load)
	}
	return cost + float64(len(s.Switches)*most), squares
}

// covered returns the number of sets and dimensions with a sketch.
func (s *search) covered() (n int) {
	for _, row := range s.cover {
		for _, c := range row {
			if c > 0 {
				n++
			}
		}
	}
	return n
}

func (s *search) put(j, k int, by int32) {
	s.kept[j] ^= 1 << k
	s.load[j] += int(by) * s.Dimensions[k].Bytes
	for _, i := range s.of[j] {
		s.cover[k][i] += by
	}
	s.work += len(s.of[j])
}

// repair covers the sets that have no sketch of dimension k, greedily: it chooses the switch that
// covers the most such sets per cost of its sketch. A load above limit costs as much as it would
// add to the objective. Sketches that later ones make redundant are removed.
func (s *search) repair(k, limit int) {
	gain := make([]int, len(s.Switches))
	for i, set := range s.sets {
		if s.cover[k][i] == 0 {
			for _, j := range set {
				gain[j]++
			}
		}
	}
	bytes := s.Dimensions[k].Bytes
	for {
		best, value := -1, 0.0
		for j, g := range gain {
			if g == 0 || s.kept[j].Has(k) || !s.fits(j, s.load[j], k) {
				continue
			}
			price := bytes + len(s.Switches)*max(s.load[j]+bytes-limit, 0)
			if v := float64(g) / float64(price) * (1 + 0.1*s.rand.Float64()); v > value {
				best, value = j, v
			}
		}
		s.work += len(gain)
		if best < 0 {
			break
		}
		for _, i := range s.of[best] {
			if s.cover[k][i] == 0 {
				for _, j := range s.sets[i] {
					gain[j]--
				}
			}
		}
		s.put(best, k, 1)
	}
	s.prune(k)
}

// prune removes sketches of dimension k whose sets all have another sketch, beginning at the
// switches with the highest load.
func (s *search) prune(k int) {
	var holders []int
	for j := range s.kept {
		if s.kept[j].Has(k) {
			holders = append(holders, j)
		}
	}
	s.rand.Shuffle(len(holders), func(a, b int) { holders[a], holders[b] = holders[b], holders[a] })
	slices.SortStableFunc(holders, func(a, b int) int { return cmp.Compare(s.load[b], s.load[a]) })
	for _, j := range holders {
		s.work += len(s.of[j])
		if !slices.ContainsFunc(s.of[j], func(i int) bool { return s.cover[k][i] < 2 }) {
			s.put(j, k, -1)
		}
	}
}

// improve is the local search. It ends early at a placement that costs no more than the bound. A
// step may cost a little more than the best placement, to leave local optima.
func (s *search) improve(bound float64) {
	if len(s.sets) == 0 {
		return
	}
	cost, squares := s.cost()
	covered := s.covered()
	best, bestCost := slices.Clone(s.kept), cost
	least := slices.MinFunc(s.Dimensions, func(a, b Dimension) int { return cmp.Compare(a.Bytes, b.Bytes) }).Bytes
	for idle := 0; idle < patience*len(s.Dimensions) && s.work < maxWork && bestCost > bound; idle++ {
		before := slices.Clone(s.kept)
		limit := s.most()
		first := s.rand.IntN(len(s.Dimensions))
		some := 1 + s.rand.IntN(min(2, len(s.Dimensions)))
		for i := range some {
			s.ruin((first + i) % len(s.Dimensions))
		}
		for i := range some {
			k := (first + i) % len(s.Dimensions)
			s.repair(k, limit-s.rand.IntN(2)*s.Dimensions[k].Bytes)
		}
		next, nextSquares := s.cost()
		n := s.covered()
		allowed := bestCost + float64(least*s.rand.IntN(3))
		if n < covered || n == covered && next > max(cost, allowed) ||
			n == covered && next == cost && nextSquares > squares && s.rand.IntN(4) > 0 {
			s.restore(before)
			continue
		}
		if n > covered || next < bestCost {
			best, bestCost, idle = slices.Clone(s.kept), next, 0
		}
		cost, squares, covered = next, nextSquares, n
	}
	s.restore(best)
}

// ruin removes some sketches of dimension k, either in a neighborhood or a random share of all.
func (s *search) ruin(k int) {
	if s.rand.IntN(2) == 0 {
		share := s.rand.Float64()
		for j := range s.kept {
			if s.kept[j].Has(k) && s.rand.Float64() < share {
				s.put(j, k, -1)
			}
		}
		return
	}
	for at, n := s.rand.IntN(len(s.sets)), 2+s.rand.IntN(6); n > 0; n-- {
		set := s.sets[at]
		for _, j := range set {
			if s.kept[j].Has(k) {
				s.put(j, k, -1)
			}
		}
		sets := s.of[set[s.rand.IntN(len(set))]]
		at = sets[s.rand.IntN(len(sets))]
	}
}

// restore sets the sketches that switches keep.
func (s *search) restore(kept []Set) {
	for j := range kept {
		for k := range s.Dimensions {
			switch have := s.kept[j].Has(k); {
			case have && !kept[j].Has(k):
				s.put(j, k, -1)
			case !have && kept[j].Has(k):
				s.put(j, k, 1)
			}
		}
	}
}

// manifest divides the pairs among the switches that keep sketches. If these do not divide the
// paths of a pair, its origin or destination gets a sketch too.
func (s *search) manifest() *Manifest {
	b := s.builder()
	for i := range s.Pairs {
		for k := range s.Dimensions {
			chosen, ok := b.divide(i, k, s.kept)
			if !ok {
				pair := &s.Pairs[i]
				ends := []int{pair.Origin, pair.Destination}
				slices.SortStableFunc(ends, func(a, b int) int { return cmp.Compare(s.load[a], s.load[b]) })
				for _, j := range ends {
					if !ok && onAll(j, pair.Paths) && s.fits(j, s.load[j], k) {
						s.put(j, k, 1)
						chosen, ok = []int{j}, true
					}
				}
			}
			if !ok {
				chosen, ok = cut(s.Pairs[i].Paths, false, func(j int) bool {
					return s.kept[j].Has(k) || s.fits(j, s.load[j], k)
				})
				for _, j := range chosen {
					if ok && !s.kept[j].Has(k) {
						s.put(j, k, 1)
					}
				}
			}
			if !ok {
				b.left = add(b.left, i, k)
				continue
			}
			for _, j := range chosen {
				b.assign(j, i, k)
			}
		}
	}
	return b.manifest()
}
