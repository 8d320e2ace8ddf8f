// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"sync"

	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/sketch/flow"
)

// queueWords returns the words of the units in egress that are in use, by unit, array and slot.
func (c *counts) queueWords(cells []uint32, uses []use) [][]uint32 {
	out := make([][]uint32, min(len(c.units[inEgress]), len(uses)))
	for n := range out {
		if uses[n].Query == 0 {
			continue
		}
		at := c.words - len(c.units[inEgress]) + n
		for slot := range c.arrays * c.slots {
			out[n] = append(out[n], cells[slot*c.words+at])
		}
	}
	return out
}

// queueTuples returns the tuples of the sequences of a query that uses the queue depth: the amounts
// that the flows of each group added to the units in egress of all switches. waiting states that
// the switches do not count for the query yet.
func (r *run) queueTuples(q *running, inexact func(format string, args ...any)) (
	tuples map[string][]query.Tuple, waiting bool) {
	if r.result == nil {
		return nil, true
	}
	tuples = map[string][]query.Tuple{}
	for i := range q.plan.Steps {
		s := &q.plan.Steps[i]
		units, ok := s.Units()
		if !ok {
			continue
		}
		groups := map[flow.Key][]analysis.Bounds{}
		for column, u := range units {
			n := slices.IndexFunc(r.uses[inEgress], func(x use) bool { return x.Query == q.id && x.Value == s.Name+"."+u.Name })
			if n < 0 || r.epoch.Number < r.uses[inEgress][n].From {
				return nil, true
			}
			r.checkSwitches(&r.uses[inEgress][n], inexact)
			r.attribute(&u, n, inexact, func(group flow.Key, b analysis.Bounds) {
				if groups[group] == nil {
					groups[group] = make([]analysis.Bounds, len(units))
				}
				sum := &groups[group][column]
				sum.Low, sum.High = sum.Low+b.Low, sum.High+b.High
			})
		}
		bounded := 0
		for group, values := range groups {
			t := tupleOf(&group, units[0].Keys)
			exists, exact := false, true
			for _, b := range values {
				exists, exact = exists || b.Low > 0, exact && b.Exact()
				t = append(t, query.Value{Type: query.Integer, Int: b.Low})
			}
			if !exact {
				bounded++
			}
			if exists {
				tuples[s.Name] = append(tuples[s.Name], t)
			}
		}
		if bounded > 0 {
			inexact("%d of %d groups of sequence %s have bounds, of which the results have the lower ones, because flows of "+
				"several groups share slots: compile the program with more slots", bounded, len(groups), s.Name)
		}
	}
	return tuples, false
}

// checkSwitches names a switch that did not count for the query in the whole epoch.
func (r *run) checkSwitches(x *use, inexact func(format string, args ...any)) {
	if x.Failed != "" {
		inexact("switch %s did not apply the entries of the query: end it and start it again", x.Failed)
	}
	for i := range r.network.switches {
		w := &r.network.switches[i]
		if w.counts == nil { // a switch without counts: its flows have no path, of which another warning tells
			continue
		}
		if !r.switches[i].delivered {
			inexact("switch %s is missing: %s", w.name, r.switches[i].problem)
		} else if problem := r.switches[i].problem; problem != "" {
			inexact("switch %s: %s", w.name, problem)
		}
		if state := r.epoch.State(w.name); state != nil && (state.Mixed || state.Plan < x.Plan) {
			inexact("switch %s did not have the entries of the query in the whole epoch", w.name)
		}
	}
}

// share is the packets that a unit counted in a slot of a switch.
type share struct {
	counted int64
	most    map[flow.Key]int64 // most that the flows of each group can have added
	total   int64
}

// attribute calls add, for each slot, with the bounds of the amounts that the flows of each group
// added to a unit in egress. The unit counts all flows of a slot together. One group added at most
// what it sent, and at least what the other groups cannot have added.
func (r *run) attribute(u *query.Unit, n int, inexact func(format string, args ...any),
	add func(group flow.Key, b analysis.Bounds)) {
	shares := map[[2]int32]*share{}
	for i := range r.switches {
		if state := &r.switches[i]; n < len(state.queue) {
			w := &r.network.switches[i]
			for at, v := range state.queue[n] {
				if v > 0 {
					shares[[2]int32{w.array + int32(at/w.counts.slots), int32(at % w.counts.slots)}] = &share{
						counted: int64(v), most: map[flow.Key]int64{}}
				}
			}
		}
	}
	if len(shares) == 0 {
		return
	}
	var mu sync.Mutex // guards the shares
	candidate := func(f *analysis.Flow) {
		if !mayMatch(u.Entries, &f.Key) {
			return
		}
		group, most := project(&f.Key, u.Keys), f.Sent[wire.Packets]
		switch u.Adds {
		case "length":
			most = f.Sent[wire.Bytes]
		case "ttl":
			most *= 1<<8 - 1
		case "window":
			most *= 1<<16 - 1
		}
		counted := 0
		for _, hop := range f.Path.Hops {
			if hop.Array == analysis.None {
				continue
			}
			at := [2]int32{hop.Array, int32(f.Slots[counted%r.config.SlotsPerFlow])}
			counted++
			if s := shares[at]; s != nil {
				mu.Lock()
				s.most[group] += most
				s.total += most
				mu.Unlock()
			}
		}
	}
	r.result.Each(func(_ int, f *analysis.Flow) { candidate(f) })
	for _, flows := range [][]analysis.LossyFlow{r.result.Lossy, r.result.Open} {
		for i := range flows {
			candidate(&flows[i].Flow)
		}
	}
	for _, flows := range [][]analysis.Flow{r.result.Unplaced, r.result.Odd} {
		for i := range flows {
			if f := &flows[i]; mayMatch(u.Entries, &f.Key) {
				inexact("the path of flow %v is not determined", f.Key)
			}
		}
	}
	if r.result.Unknown {
		inexact("switches counted packets of flows that no host reported")
	}
	for at, s := range shares {
		switch {
		case s.counted > s.total:
			inexact("slot %d of a switch counted %d in egress, its flows can have added %d", at[1], s.counted, s.total)
		case s.total >= 1<<32:
			inexact("what the flows of slot %d of a switch can have added, %d, exceeds a word of 32 bits", at[1], s.total)
		}
		for group, most := range s.most {
			b := analysis.Bounds{Low: max(s.counted-(s.total-most), 0), High: min(s.counted, most)}
			add(group, analysis.Bounds{Low: min(b.Low, b.High), High: b.High})
		}
	}
}

// field returns a field of a flow's key as filters match it: an IPv6 address is 0. ok is false for
// other fields of packets.
func field(k *flow.Key, name string) (v uint64, ok bool) {
	switch name {
	case "src", "dst":
		a := k.Src
		if name == "dst" {
			a = k.Dst
		}
		if k.V6 {
			return 0, true
		}
		return uint64(a[0])<<24 | uint64(a[1])<<16 | uint64(a[2])<<8 | uint64(a[3]), true
	case "proto":
		return uint64(k.Proto), true
	case "sport":
		return uint64(k.SrcPort), true
	case "dport":
		return uint64(k.DstPort), true
	}
	return 0, false
}

// mayMatch reports whether packets of a flow can match one of the entries.
func mayMatch(entries []query.Entry, k *flow.Key) bool {
	return slices.ContainsFunc(entries, func(e query.Entry) bool {
		return !slices.ContainsFunc(e, func(m query.Match) bool {
			v, ok := field(k, m.Field)
			if m.Field == "src" || m.Field == "dst" {
				return v&m.Mask != m.Value
			}
			return ok && (v < m.Value || v > m.High)
		})
	})
}

// project returns the key of a flow with only the fields that a sequence groups by.
func project(k *flow.Key, fields []string) (out flow.Key) {
	for _, name := range fields {
		switch name {
		case "src":
			out.Src, out.V6, out.Mask = k.Src, k.V6, out.Mask|flow.Src
		case "dst":
			out.Dst, out.V6, out.Mask = k.Dst, k.V6, out.Mask|flow.Dst
		case "proto":
			out.Proto = k.Proto
		case "sport":
			out.SrcPort = k.SrcPort
		case "dport":
			out.DstPort = k.DstPort
		}
	}
	return out
}

// tupleOf returns the fields of a key as values of a query.
func tupleOf(k *flow.Key, fields []string) (t query.Tuple) {
	for _, name := range fields {
		v := query.Value{Type: query.Integer}
		switch name {
		case "src":
			v = query.Value{Type: query.Address, Address: k.SrcAddr()}
		case "dst":
			v = query.Value{Type: query.Address, Address: k.DstAddr()}
		default:
			n, _ := field(k, name) // the fields of groups are fields of a key
			v.Int = int64(n)
		}
		t = append(t, v)
	}
	return t
}
