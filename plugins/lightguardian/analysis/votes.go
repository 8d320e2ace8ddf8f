// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"math"
	"slices"
)

// Place is a place at which faults of one kind are found: a node, or a link to it.
type Place[N comparable] struct {
	Fault    Fault
	Link     bool
	From, To N // From: of a link
}

// Votes count the flows with a fault at each place. A fault of a switch, or of a link in front of
// it, is found at the same place for most of its flows; a flow that shares its buckets there with
// other flows, or whose buckets have not arrived, shows the fault only behind that place.
type Votes[N comparable] map[Place[N]]int

// at returns the votes for a fault at a hop: those for its link, then those for its node.
func (v Votes[N]) at(f Fault, nodes []N, hop int) [2]int {
	return [2]int{v[Place[N]{f, true, nodes[hop-1], nodes[hop]}], v[Place[N]{Fault: f, To: nodes[hop]}]}
}

// moves reports whether a fault that is found behind its place can be moved there.
func (f Fault) moves() bool { return f == RandomDrops || f == Blackhole || f == AbnormalJitter }

// Count adds the faults of a flow that can be at no hop before the hop that shows them. nodes are
// the nodes of the hops of its path.
func (v Votes[N]) Count(r *Rules, nodes []N, path []Hop, found []Finding) {
	for _, f := range found {
		if f.Hop > 0 && f.Fault.moves() && !r.Open(f.Fault, path, f.Hop-1) {
			v[Place[N]{f.Fault, true, nodes[f.Hop-1], nodes[f.Hop]}]++
			v[Place[N]{Fault: f.Fault, To: nodes[f.Hop]}]++
		}
	}
}

// Settle moves each fault of a flow to the place with the most votes among the places in front of
// it at which the flow's buckets do not exclude it: votes for the link, and if they are equal,
// for the node. A jitter stays where the flow's own gaps make it more likely than not. Findings
// between the two places become part of a blackhole that is moved. The result overwrites found.
func (v Votes[N]) Settle(r *Rules, nodes []N, path []Hop, found []Finding) []Finding {
	ended := len(path) // the hop of a blackhole
	for i := range found {
		f := &found[i]
		if !f.Fault.moves() || f.Hop == 0 || f.Fault == AbnormalJitter && r.Doubt(path, *f) < undecided {
			continue
		}
		most, at := v.at(f.Fault, nodes, f.Hop), f.Hop
		for hop := 1; hop < f.Hop; hop++ {
			if f.Fault == RandomDrops && slices.ContainsFunc(found, Finding{Fault: f.Fault, Hop: hop}.same) {
				continue // a fault is known at this hop, and these packets were lost behind it
			}
			if n := v.at(f.Fault, nodes, hop); slices.Compare(n[:], most[:]) > 0 && r.Open(f.Fault, path, hop) {
				most, at = n, hop
			}
		}
		if f.Hop = at; f.Fault == Blackhole {
			ended = at
		}
	}
	out := found[:0]
	for _, f := range found {
		if (f.Fault != RandomDrops || f.Hop < ended) && !slices.ContainsFunc(out, f.same) {
			out = append(out, f)
		}
	}
	return out
}

// Doubt returns the probability that the fault of a finding is at an earlier hop. hidden is the
// probability that other flows hide the fault at the hop before. The more flows show the fault at
// that hop instead of at the hop of the finding, the larger the result; it is never below hidden.
func (v Votes[N]) Doubt(nodes []N, f Finding, hidden float64) float64 {
	if !f.Fault.moves() || f.Hop < 2 {
		return hidden
	}
	here, before := v.at(f.Fault, nodes, f.Hop)[0], v.at(f.Fault, nodes, f.Hop-1)[1]
	there := hidden * float64(before)
	return max(hidden, there/(there+float64(max(here, 1))))
}

// same reports whether two findings are the same fault at the same hop.
func (f Finding) same(o Finding) bool { return f.Fault == o.Fault && f.Hop == o.Hop }

// sureToShow is the least probability of seeing a long gap with which a hop that shows none counts
// as a hop without one.
const sureToShow = 0.95

// Open reports whether a fault may be at a hop although another hop shows it: no bucket of the flow
// has arrived, other flows may have changed the inter-arrival time, or the size differs from the
// size before, so that all buckets may be other flows' buckets.
func (r *Rules) Open(f Fault, path []Hop, hop int) bool {
	h := &path[hop]
	switch {
	case !h.Valid:
		return true
	case f == AbnormalJitter:
		return h.Mixed && h.Seen < sureToShow
	case h.Shared:
		return true
	}
	before, known := uint32(math.MaxUint32), false
	for i := range path[:hop] {
		if path[i].Valid {
			before, known = min(before, path[i].Packets), true
		}
	}
	return known && max(before, h.Packets)-min(before, h.Packets) >= max(r.DropPackets, 1)
}
