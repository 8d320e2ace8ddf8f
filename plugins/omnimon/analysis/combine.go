// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/linear"
)

// Limits of one combine.
const (
	maxOpen   = 24      // flows of a slot
	maxSteps  = 1 << 16 // of one slot
	maxRounds = 16
)

// passage is a lossy flow at a slot: the unknowns that add up to what it lost before the switch.
type passage struct {
	flow     int32
	unknowns []int32
}

// part is what a flow may have lost before a slot: nothing or all values, if it lost one packet.
type part struct {
	passage
	lost *wire.Values
	ones int // solutions in which it is lost
}

// combine narrows the bounds of packets by all statistics together. A flow that lost one packet
// lost all statistics of the loss at one place. So the flows that lost it before a slot are a
// subset whose values add up to what the slot lacks. Flows that are in all subsets of this kind, or
// in none, are determined; the search is complete, so nothing is guessed.
func (in *inference) combine(r *Result, unknowns []int32, sys *linear.System) {
	slots := map[int][]passage{}
	var order []int
	for i := range r.Lossy {
		in.passages(&r.Lossy[i], unknowns, func(at int, before []int32) {
			if slots[at] == nil {
				order = append(order, at)
			}
			slots[at] = append(slots[at], passage{int32(i), before[:len(before):len(before)]})
		})
	}
	width := map[int]int64{} // of the bounds at a slot when it was searched
	var s search
	contradictions, found := 0, false
	for round, again := 0, true; again && round < maxRounds; round++ {
		again = false
		for _, at := range order {
			w := int64(0)
			for _, p := range slots[at] {
				for _, u := range p.unknowns {
					w += sys.High[u] - sys.Low[u]
				}
			}
			if old, searched := width[at]; w == 0 || searched && old == w {
				continue
			}
			width[at] = w
			if !s.begin(r, sys, slots[at], in.deficits[at:at+min(in.net.Values, int(wire.FirstExtreme))]) {
				continue
			}
			s.next(0)
			switch {
			case s.steps > maxSteps:
				continue
			case s.solutions == 0:
				contradictions++
				continue
			}
			again = s.add(sys) || again
		}
		if again {
			found = true
			contradictions += len(sys.Propagate())
		}
	}
	if found && contradictions == 0 {
		contradictions += len(sys.Solve())
	}
	if contradictions > 0 {
		r.warn("statistics of %d slots contradict each other", contradictions)
	}
}

// search finds the subsets of flows whose values add up to a deficit.
type search struct {
	parts            []part
	rest             []wire.Values // sums of the parts from each one on
	deficit          wire.Values
	count            int // of statistics
	taken            uint32
	others           others
	least, most      int64 // packets of others in the solutions
	steps, solutions int
}

// others are the flows at a slot that lost several packets. Only their sum is searched.
type others struct {
	unknowns  []int32
	low, high int64 // packets before the slot
	lost      wire.Values
}

// minBytes is the least length of an IP packet.
const minBytes = 20

// possible reports whether the flows may have lost these values before the slot: no packets have
// no values, all packets have all, and both the lost and the other packets have a length.
func (o *others) possible(v *wire.Values, count int) bool {
	packets, left := v[wire.Packets], o.lost[wire.Packets]-v[wire.Packets]
	if packets < o.low || packets > o.high {
		return false
	}
	for i := range count {
		if packets == 0 && v[i] != 0 || left == 0 && v[i] != o.lost[i] {
			return false
		}
	}
	return count <= int(wire.Bytes) ||
		v[wire.Bytes] >= minBytes*packets && o.lost[wire.Bytes]-v[wire.Bytes] >= minBytes*left
}

// begin prepares the search at a slot. It returns false if there is nothing to search.
func (s *search) begin(r *Result, sys *linear.System, passages []passage, deficits []int64) bool {
	*s = search{parts: s.parts[:0], rest: s.rest[:0], count: len(deficits)}
	copy(s.deficit[:], deficits)
	for _, p := range passages {
		lost := &r.Lossy[p.flow].Lost
		low, high := int64(0), int64(0)
		for _, u := range p.unknowns {
			low, high = low+sys.Low[u], high+sys.High[u]
		}
		switch total := lost[wire.Packets]; {
		case high == 0:
		case low == total:
			s.deficit.Sub(lost)
		case total == 1:
			s.parts = append(s.parts, part{passage: p, lost: lost})
		default:
			o := &s.others
			o.unknowns, o.low, o.high = append(o.unknowns, p.unknowns...), o.low+low, o.high+min(high, total)
			o.lost.Add(lost)
		}
	}
	if len(s.parts) > maxOpen || len(s.parts)+len(s.others.unknowns) == 0 {
		return false
	}
	s.rest = append(s.rest, make([]wire.Values, len(s.parts)+1)...)
	s.rest[len(s.parts)] = s.others.lost
	for i := len(s.parts) - 1; i >= 0; i-- {
		s.rest[i] = s.rest[i+1]
		s.rest[i].Add(s.parts[i].lost)
	}
	return true
}

// next decides the part of a number and those after it.
func (s *search) next(n int) {
	if s.steps++; s.steps > maxSteps {
		return
	}
	for i := range s.count {
		if s.deficit[i] < 0 || s.deficit[i] > s.rest[n][i] {
			return
		}
	}
	if n < len(s.parts) {
		s.next(n + 1)
		s.deficit.Sub(s.parts[n].lost)
		s.taken |= 1 << n
		s.next(n + 1)
		s.taken &^= 1 << n
		s.deficit.Add(s.parts[n].lost)
		return
	}
	if !s.others.possible(&s.deficit, s.count) {
		return
	}
	packets := s.deficit[wire.Packets]
	if s.solutions == 0 {
		s.least, s.most = packets, packets
	}
	s.least, s.most = min(s.least, packets), max(s.most, packets)
	s.solutions++
	for i := range s.parts {
		if s.taken&(1<<i) != 0 {
			s.parts[i].ones++
		}
	}
}

// add adds an equation for each flow that all solutions agree on.
func (s *search) add(sys *linear.System) (added bool) {
	for i := range s.parts {
		if p := &s.parts[i]; p.ones == 0 || p.ones == s.solutions {
			sys.Add(p.unknowns, int64(p.ones/s.solutions))
			added = true
		}
	}
	if len(s.others.unknowns) > 0 && s.least == s.most {
		sys.Add(s.others.unknowns, s.least)
		added = true
	}
	return added
}
