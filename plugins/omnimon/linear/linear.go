// SPDX-License-Identifier: Apache-2.0

// Package linear solves sparse systems of equations and inequalities whose coefficients are 0 and 1
// and whose unknowns are bounded integers. It returns exact bounds of each unknown and never
// guesses a value.
//
// Two methods alternate until neither finds more. Propagation narrows bounds by one equation or
// inequality at a time. Elimination, modulo a prime, finds the unknowns that the remaining
// equations determine together (see eliminate).
package linear

import "slices"

// System is a set of rows: the unknowns in each row add up to its right-hand side, or to a number
// between two limits.
type System struct {
	// Low and High bound each unknown: 0 <= Low <= High < 2^61-1. Solve narrows these bounds; an
	// unknown is determined if its two bounds are equal.
	Low, High []int64

	rows   []int32 // first entry of each row in terms, and the end of the last one
	terms  []int32
	rights []bound   // limits of the sums; equal in an equation
	hints  []bool    // rows that elimination leaves out
	uses   [][]int32 // rows of each unknown
	sums   []bound   // sum of each row
	queue  []int32
	queued []bool
	bad    []int // rows that contradict the bounds
}

type bound struct{ low, high int64 }

// Unlimited is the upper limit of a sum that has none.
const Unlimited = 1 << 62

// Add adds an equation over different unknowns.
func (s *System) Add(unknowns []int32, right int64) { s.add(unknowns, bound{right, right}, false) }

// Bound adds an inequality over different unknowns: their sum is at least low and at most high.
// With equal limits it is an equation that follows from others, and spares Propagate a step over
// several of them; elimination would learn nothing from it.
func (s *System) Bound(unknowns []int32, low, high int64) { s.add(unknowns, bound{low, high}, true) }

func (s *System) add(unknowns []int32, right bound, hint bool) {
	if len(s.rows) == 0 {
		s.rows = append(s.rows, 0)
	}
	s.terms = append(s.terms, unknowns...)
	s.rows = append(s.rows, int32(len(s.terms)))
	s.rights = append(s.rights, right)
	s.hints = append(s.hints, hint)
}

// Len is the count of equations and inequalities.
func (s *System) Len() int { return len(s.rights) }

func (s *System) row(r int32) []int32 { return s.terms[s.rows[r]:s.rows[r+1]] }

// Limits of one Solve. When they are reached, bounds are exact but may be wider than necessary.
const (
	maxVisits     = 64         // visits of an equation, on average
	maxOperations = 50_000_000 // operations of all eliminations
)

// Solve narrows the bounds. It returns the numbers of rows that contradict the others; the bounds
// of their unknowns are meaningless then.
func (s *System) Solve() (contradictions []int) {
	s.prepare()
	operations := maxOperations
	for {
		s.propagate()
		if len(s.bad) > 0 {
			break
		}
		found := false
		for _, c := range s.components() {
			var ok bool
			if ok, operations = s.eliminate(c, operations); ok {
				found = true
			}
		}
		if !found || len(s.bad) > 0 {
			break
		}
	}
	slices.Sort(s.bad)
	return slices.Compact(s.bad)
}

// Propagate narrows the bounds by single rows only, and returns contradictions as Solve.
func (s *System) Propagate() (contradictions []int) {
	s.prepare()
	s.propagate()
	slices.Sort(s.bad)
	return slices.Compact(s.bad)
}

func (s *System) prepare() {
	s.uses = make([][]int32, len(s.Low))
	s.sums = make([]bound, s.Len())
	s.queued = make([]bool, s.Len())
	s.bad = nil
	counts := make([]int32, len(s.Low))
	for _, v := range s.terms {
		counts[v]++
	}
	all := make([]int32, len(s.terms))
	for v, n := range counts {
		s.uses[v], all = all[:0:n], all[n:]
	}
	for r := range int32(s.Len()) {
		for _, v := range s.row(r) {
			s.uses[v] = append(s.uses[v], r)
			s.sums[r].low += s.Low[v]
			s.sums[r].high += s.High[v]
		}
		s.enqueue(r)
	}
}

func (s *System) enqueue(r int32) {
	if !s.queued[r] {
		s.queued[r] = true
		s.queue = append(s.queue, r)
	}
}

// propagate narrows bounds by single rows: an unknown is at most the upper limit of the sum minus
// the lower bounds of the others, and at least the lower limit minus their upper bounds.
func (s *System) propagate() {
	for visits := maxVisits * s.Len(); len(s.queue) > 0 && visits > 0; visits-- {
		r := s.queue[0]
		s.queue = s.queue[1:]
		s.queued[r] = false
		right := s.rights[r]
		if s.sums[r].low > right.high || s.sums[r].high < right.low {
			s.bad = append(s.bad, int(r))
			continue
		}
		if s.sums[r].low >= right.low && s.sums[r].high <= right.high {
			continue
		}
		for _, v := range s.row(r) {
			sum := s.sums[r]
			s.narrow(v, max(s.Low[v], right.low-(sum.high-s.High[v])), min(s.High[v], right.high-(sum.low-s.Low[v])))
		}
	}
}

// narrow sets the bounds of an unknown and updates its equations.
func (s *System) narrow(v int32, low, high int64) {
	if low > high || low == s.Low[v] && high == s.High[v] {
		return // a contradiction is visible in the sums of an equation
	}
	for _, r := range s.uses[v] {
		s.sums[r].low += low - s.Low[v]
		s.sums[r].high += high - s.High[v]
		s.enqueue(r)
	}
	s.Low[v], s.High[v] = low, high
}

// component is a set of undetermined unknowns that equations connect.
type component struct {
	unknowns []int32
	rows     []int32
}

// components returns the connected components of undetermined unknowns with more than one equation.
func (s *System) components() (all []component) {
	seen := make([]bool, len(s.Low))
	seenRow := make([]bool, s.Len())
	for first := range int32(len(s.Low)) {
		if seen[first] || s.Low[first] == s.High[first] {
			continue
		}
		seen[first] = true
		c := component{unknowns: []int32{first}}
		for i := 0; i < len(c.unknowns); i++ {
			for _, r := range s.uses[c.unknowns[i]] {
				if seenRow[r] || s.hints[r] {
					continue
				}
				seenRow[r] = true
				c.rows = append(c.rows, r)
				for _, v := range s.row(r) {
					if !seen[v] && s.Low[v] != s.High[v] {
						seen[v] = true
						c.unknowns = append(c.unknowns, v)
					}
				}
			}
		}
		if len(c.rows) > 1 {
			all = append(all, c)
		}
	}
	return all
}
