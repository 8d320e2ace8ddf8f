// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"cmp"
	"slices"
)

// ternaryIndex finds the entry of the highest priority, of equals the oldest. Entries are in order of priority, and are searched so when they are
// few or have hardly a mask in common; else in groups of one mask each, by hash, the group with the highest priority first (tuple space
// search). The ends of range fields are compared entry by entry among those that are equal in all else.
type ternaryIndex struct {
	def    *tableDef
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
	index hashIndex // to the first of a chain
}

// Below so many entries, and below so many to a group, they are searched one by one.
const (
	fewTernary    = 8
	perGroupAtMin = 3
)

// before is the order of search.
func (e *entryState) before(o *entryState) int {
	if e.priority != o.priority {
		return cmp.Compare(o.priority, e.priority)
	}
	return cmp.Compare(e.seq, o.seq)
}

// tuple is the part of an entry that a hash can find: the masks, zero for range fields, and the values under them.
func (x *ternaryIndex) tuple(e *entryState) (mask, value []uint64) {
	mask, value = slices.Clone(e.mask), slices.Clone(e.value)
	if x.def.lookup != MatchTernary {
		for i := range x.def.keys {
			if k := &x.def.keys[i]; k.Kind == MatchRange {
				clear(mask[k.word : k.word+k.words])
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
	key := string(bytesOf(mask, 64*len(mask)))
	g := x.byMask[key]
	if g == nil {
		if x.byMask == nil {
			x.byMask = map[string]*ternaryGroup{}
		}
		g = &ternaryGroup{key: key, mask: mask, top: e.priority, index: hashIndex{words: x.def.words}}
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
	g := x.byMask[string(bytesOf(mask, 64*len(mask)))]
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
			if x.def.matches(e, key) {
				return e
			}
		}
		return nil
	}
	masked = masked[:len(key)]
	ranges := x.def.lookup != MatchTernary
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
			if !ranges || x.def.matches(e, key) {
				best = e
				break
			}
		}
	}
	return best
}
