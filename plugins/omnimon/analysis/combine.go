// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"cmp"
	"slices"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/linear"
)

// Limits of one call of combine.
const (
	maxOpen   = 24      // flows of a slot
	maxSteps  = 1 << 16 // steps of the search for one slot
	maxRounds = 16      // passes over all slots
)

// passage is a lossy flow at a slot: the unknown losses before the switch, and behind it.
type passage struct {
	flow           int32
	before, behind []int32
	whole          bool // whether the flow lost nothing or everything before the slot
}

// bounds returns the bounds of the packets that were lost before the slot.
func (p *passage) bounds(in *inference, sys *linear.System) (low, high int64) {
	total := in.flows[p.flow].Lost[wire.Packets]
	least, most := total, total
	for _, u := range p.before {
		low, high = low+sys.Low[u], high+sys.High[u]
	}
	for _, u := range p.behind {
		least, most = least-sys.High[u], most-sys.Low[u]
	}
	return max(low, least), min(high, most)
}

// state is the share of a flow's losses that it lost before a slot.
type state uint8

const (
	none state = iota
	all
	some
)

// part is a flow at a slot in a search.
type part struct {
	*passage
	lost        *wire.Values
	none, all   bool  // whether the flow may have lost none, or all, of its packets before
	first, last int64 // bounds of the packets, if some of them were lost before
	state       state
	least, most int64 // packets in all solutions
	divided     bool  // whether the solution divides the flow's losses
}

// combine narrows the bounds of packets by all statistics together. A flow that lost nothing before
// a slot, or everything, lost no or all statistics there; if it lost some of its packets before,
// their statistics have bounds. The losses of all flows add up to the deficit of the slot. combine
// searches all solutions at a slot; values that all solutions agree on are determined, so nothing
// is guessed.
func (in *inference) combine(r *Result, unknowns []int32, sys *linear.System) {
	slots := map[int][]passage{}
	var order []int
	for i, f := range in.flows {
		in.passages(f, unknowns, func(at int, before, behind []int32) {
			if slots[at] == nil {
				order = append(order, at)
			}
			slots[at] = append(slots[at], passage{flow: int32(i), before: before, behind: behind})
		})
	}
	low, high := slices.Clone(sys.Low), slices.Clone(sys.High)
	width := map[int]int64{} // width of the bounds at a slot when it was searched last
	var s search
	contradictions, found := 0, false
	for round, again := 0, true; again && round < maxRounds; round++ {
		again = false
		for _, at := range order {
			w := int64(0)
			for i := range slots[at] {
				low, high := slots[at][i].bounds(in, sys)
				w += high - low
			}
			if old, searched := width[at]; w == 0 || searched && old == w {
				continue
			}
			width[at] = w
			if !s.begin(in, sys, slots[at], in.deficits[at:at+in.net.Values]) {
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
		r.contradict("statistics of %d slots contradict each other", contradictions)
		sys.Low, sys.High = low, high
	}
}

// search finds the possible losses of the flows before a slot: their values add up to a deficit.
type search struct {
	parts            []part
	rest             []wire.Values // sums of all parts from each index on
	deficit          wire.Values   // deficit without the parts that are taken whole
	low, high        wire.Values   // bounds of the sum of the divided parts
	count            int           // number of statistics
	steps, solutions int
}

// minBytes is the least length of an IP packet.
const minBytes = 20

// divided are bounds of the values of a loss of a to b packets before a slot and of the others
// behind it.
func (s *search) divided(lost *wire.Values, a, b int64) (low, high wire.Values) {
	total := lost[wire.Packets]
	low[wire.Packets], high[wire.Packets] = a, b
	for i := 1; i < s.count; i++ {
		if i == int(wire.Bytes) {
			low[i], high[i] = minBytes*a, lost[i]-minBytes*(total-b)
			continue
		}
		low[i], high[i] = max(0, lost[i]-(total-a)), min(lost[i], b) // a packet adds at most 1
	}
	return low, high
}

// begin prepares the search at a slot. It returns false if there is nothing to search.
func (s *search) begin(in *inference, sys *linear.System, passages []passage, deficits []int64) bool {
	*s = search{parts: s.parts[:0], rest: s.rest[:0], count: len(deficits)}
	copy(s.deficit[:], deficits)
	for n := range passages {
		p := &passages[n]
		lost := &in.flows[p.flow].Lost
		low, high := p.bounds(in, sys)
		total := lost[wire.Packets]
		switch {
		case high == 0:
		case low == total:
			s.deficit.Sub(lost)
		default:
			s.parts = append(s.parts, part{passage: p, lost: lost, none: low == 0, all: high == total,
				first: max(low, 1), last: min(high, total-1)})
			if p.whole {
				s.parts[len(s.parts)-1].last = 0
			}
		}
	}
	if len(s.parts) > maxOpen || len(s.parts) == 0 {
		return false
	}
	slices.SortFunc(s.parts, func(a, b part) int {
		return cmp.Or(-cmp.Compare(a.lost[min(s.count-1, int(wire.Bytes))], b.lost[min(s.count-1, int(wire.Bytes))]),
			cmp.Compare(a.flow, b.flow))
	})
	s.rest = append(s.rest, make([]wire.Values, len(s.parts)+1)...)
	for i := len(s.parts) - 1; i >= 0; i-- {
		s.rest[i] = s.rest[i+1]
		s.rest[i].Add(s.parts[i].lost)
	}
	return true
}

// next tries the values of part n, and then of the parts after it.
func (s *search) next(n int) {
	if s.steps++; s.steps > maxSteps {
		return
	}
	for i := range s.count {
		if s.deficit[i] < s.low[i] || s.deficit[i] > s.rest[n][i]+s.high[i] {
			return
		}
	}
	if n == len(s.parts) {
		s.solution()
		return
	}
	p := &s.parts[n]
	if p.none {
		p.state = none
		s.next(n + 1)
	}
	if p.all {
		p.state = all
		s.deficit.Sub(p.lost)
		s.next(n + 1)
		s.deficit.Add(p.lost)
	}
	if p.first <= p.last {
		p.state = some
		low, high := s.divided(p.lost, p.first, p.last)
		s.low.Add(&low)
		s.high.Add(&high)
		s.next(n + 1)
		s.low.Sub(&low)
		s.high.Sub(&high)
	}
}

// solution records the packets of each part in one solution, as bounds if the part is divided. The
// sum of all parts narrows these bounds. If the other statistics contradict the bounds, there is no
// solution and nothing is recorded.
func (s *search) solution() {
	packets := s.deficit[wire.Packets]
	var low, high wire.Values
	for i := range s.parts {
		if p := &s.parts[i]; p.state == some {
			a, b := s.share(p, packets)
			l, h := s.divided(p.lost, a, b)
			low.Add(&l)
			high.Add(&h)
		}
	}
	for i := range s.count {
		if s.deficit[i] < low[i] || s.deficit[i] > high[i] {
			return
		}
	}
	s.solutions++
	for i := range s.parts {
		p := &s.parts[i]
		a, b := int64(0), int64(0)
		switch p.state {
		case all:
			a, b = p.lost[wire.Packets], p.lost[wire.Packets]
		case some:
			a, b = s.share(p, packets)
			p.divided = true
		}
		if s.solutions == 1 {
			p.least, p.most = a, b
		}
		p.least, p.most = min(p.least, a), max(p.most, b)
	}
}

// share returns the possible values of a divided part if all parts add up to a number of packets.
func (s *search) share(p *part, packets int64) (low, high int64) {
	return max(p.first, packets-(s.high[wire.Packets]-p.last)), min(p.last, packets-(s.low[wire.Packets]-p.first))
}

// add narrows the bounds of the flows by all solutions.
func (s *search) add(sys *linear.System) (added bool) {
	for i := range s.parts {
		p := &s.parts[i]
		total := p.lost[wire.Packets]
		if !p.divided && p.first <= p.last {
			p.whole, added = true, true
		}
		switch {
		case p.least == p.most:
			sys.Add(p.before, p.least)
			added = true
		case len(p.before) == 1:
			added = narrow(sys, p.before[0], p.least, p.most) || added
		case len(p.behind) == 1:
			added = narrow(sys, p.behind[0], total-p.most, total-p.least) || added
		}
	}
	return added
}

// narrow narrows the bounds of an unknown. Bounds that exclude each other stay: they show in the
// equations.
func narrow(sys *linear.System, u int32, low, high int64) bool {
	low, high = max(low, sys.Low[u]), min(high, sys.High[u])
	if low > high || low == sys.Low[u] && high == sys.High[u] {
		return false
	}
	sys.Low[u], sys.High[u] = low, high
	return true
}
