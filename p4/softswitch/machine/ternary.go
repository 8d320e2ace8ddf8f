// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"slices"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// ternaryIndex finds the entry of the highest priority, the oldest among equals. A few entries, or
// entries with hardly a common mask, are searched in order of priority; others are grouped by mask
// and found by hash, the group with the highest priority first (tuple space search). Ends of range
// fields are compared among entries that are equal otherwise.
type ternaryIndex struct {
	def    *program.Table
	sorted []*entryState
	groups []*ternaryGroup // highest top first
	byMask map[string]*ternaryGroup
}

// ternaryGroup is the entries of one mask.
type ternaryGroup struct {
	key   string
	mask  []uint64
	top   int32 // the highest priority
	count int
	index hashIndex // index of the first entry of a chain
}

// Limits below which entries are searched one by one: entries, and entries per group.
const (
	fewTernary    = 8
	perGroupAtMin = 3
)

// before orders entries by priority, then by age.
func (e *entryState) before(o *entryState) int {
	if e.priority != o.priority {
		return cmp.Compare(o.priority, e.priority)
	}
	return cmp.Compare(e.seq, o.seq)
}

// tuple returns the part of an entry that a hash can find: the masks, zero for range fields, and
// the values under them.
func (x *ternaryIndex) tuple(e *entryState) (mask, value []uint64) {
	mask, value = slices.Clone(e.mask), slices.Clone(e.value)
	if x.def.Lookup != control.MatchTernary {
		for i := range x.def.KeyFields {
			if k := &x.def.KeyFields[i]; k.Kind == control.MatchRange {
				clear(mask[k.Word : k.Word+k.Words])
			}
		}
	}
	for i := range value {
		value[i] &= mask[i]
	}
	return mask, value
}

func (x *ternaryIndex) put(e *entryState) {
	at, _ := slices.BinarySearchFunc(x.sorted, e, (*entryState).before)
	x.sorted = slices.Insert(x.sorted, at, e)
	mask, value := x.tuple(e)
	key := string(wide.Bytes(mask, 64*len(mask)))
	g := x.byMask[key]
	if g == nil {
		if x.byMask == nil {
			x.byMask = map[string]*ternaryGroup{}
		}
		g = &ternaryGroup{key: key, mask: mask, top: e.priority, index: hashIndex{words: x.def.Words}}
		x.byMask[key] = g
		x.groups = append(x.groups, g)
	}
	g.top = max(g.top, e.priority)
	g.count++
	first := g.index.find(value)
	if first == nil || e.before(first) < 0 {
		e.chain = first
		g.index.put(value, e)
	} else {
		for first.chain != nil && first.chain.before(e) < 0 {
			first = first.chain
		}
		e.chain, first.chain = first.chain, e
	}
	x.order()
}

func (x *ternaryIndex) remove(e *entryState) {
	if at, found := slices.BinarySearchFunc(x.sorted, e, (*entryState).before); found {
		x.sorted = slices.Delete(x.sorted, at, at+1)
	}
	mask, value := x.tuple(e)
	g := x.byMask[string(wide.Bytes(mask, 64*len(mask)))]
	if g == nil {
		return
	}
	switch first := g.index.find(value); {
	case first == e && e.chain == nil:
		g.index.remove(value)
	case first == e:
		g.index.put(value, e.chain)
	default:
		for first != nil && first.chain != e {
			first = first.chain
		}
		if first != nil {
			first.chain = e.chain
		}
	}
	e.chain = nil
	if g.count--; g.count == 0 {
		delete(x.byMask, g.key)
		x.groups = slices.DeleteFunc(x.groups, func(o *ternaryGroup) bool { return o == g })
		return
	}
	if e.priority == g.top {
		for _, o := range x.sorted {
			if m, _ := x.tuple(o); slices.Equal(m, g.mask) {
				g.top = o.priority
				break
			}
		}
		x.order()
	}
}

func (x *ternaryIndex) order() {
	higher := func(a, b *ternaryGroup) int { return cmp.Compare(b.top, a.top) }
	if !slices.IsSortedFunc(x.groups, higher) {
		slices.SortStableFunc(x.groups, higher)
	}
}

func (x *ternaryIndex) find(key, masked []uint64) *entryState {
	if len(x.sorted) <= fewTernary || perGroupAtMin*len(x.groups) > len(x.sorted) {
		for _, e := range x.sorted {
			if e.matches(x.def, key) {
				return e
			}
		}
		return nil
	}
	masked = masked[:len(key)]
	ranges := x.def.Lookup != control.MatchTernary
	var best *entryState
	for _, g := range x.groups {
		if best != nil && best.priority > g.top {
			break
		}
		for i, w := range key {
			masked[i] = w & g.mask[i]
		}
		for e := g.index.find(masked); e != nil; e = e.chain {
			if best != nil && best.before(e) < 0 {
				break
			}
			if !ranges || e.matches(x.def, key) {
				best = e
				break
			}
		}
	}
	return best
}
