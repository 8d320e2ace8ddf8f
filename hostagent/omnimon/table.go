// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"math/bits"

	"github.com/netsketch/netsketch/hostagent/omnimon/mapping"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// entry is an outgoing flow. A report reads key, slots and first concurrently; they do not change
// while a report that contains the flow is in use. An entry is one cache line.
type entry struct {
	key     flow.Key
	slots   mapping.Slots
	first   uint32 // epoch of the first packet, as epochs since the table began
	last    uint32 // epoch of the latest packet, like first
	mapping uint32 // number in the pool
	state   state
	_       [3]byte
}

type state uint8

const (
	unused state = iota
	active
	ended    // FIN or RST was seen; the flow is in Role.endings
	reopened // a SYN followed; the flow is still in Role.endings
)

// table finds the index of a flow by its key: open addressing with linear probing, at most half
// full. A cell holds 32 bits of the hash and the index plus one, so that a lookup reads one key.
type table struct {
	seed    uint64
	cells   []uint64
	mask    uint32
	entries []entry
	free    []uint32
	fresh   uint32 // entries from here on have never been used
}

func newTable(size int, seed uint64) *table {
	cells := 1 << bits.Len(uint(2*size-1))
	return &table{seed: seed, cells: make([]uint64, cells), mask: uint32(cells - 1), entries: make([]entry, size)}
}

func (t *table) hash(k *flow.Key) uint32 { return uint32(wire.Hash(k, t.seed)) }

// find returns the index of the flow and true, or the cell to insert it at and false.
func (t *table) find(k *flow.Key, hash uint32) (uint32, bool) {
	for at := hash & t.mask; ; at = (at + 1) & t.mask {
		cell := t.cells[at]
		switch {
		case cell == 0:
			return at, false
		case uint32(cell>>32) == hash && t.entries[uint32(cell)-1].key == *k:
			return uint32(cell) - 1, true
		}
	}
}

// insert adds a flow at a cell that find returned. It returns false if the table is full.
func (t *table) insert(k *flow.Key, hash, cell uint32) (index uint32, ok bool) {
	switch {
	case len(t.free) > 0:
		index = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
	case int(t.fresh) < len(t.entries):
		index = t.fresh
		t.fresh++
	default:
		return 0, false
	}
	t.cells[cell] = uint64(hash)<<32 | uint64(index+1)
	t.entries[index].key = *k
	return index, true
}

// remove removes the flow at an index and moves the cells that follow it towards their place.
func (t *table) remove(index uint32) {
	hash := t.hash(&t.entries[index].key)
	hole := hash & t.mask
	for uint32(t.cells[hole]) != index+1 {
		hole = (hole + 1) & t.mask
	}
	for at := (hole + 1) & t.mask; t.cells[at] != 0; at = (at + 1) & t.mask {
		home := uint32(t.cells[at]>>32) & t.mask
		if (at-home)&t.mask >= (at-hole)&t.mask {
			t.cells[hole] = t.cells[at]
			hole = at
		}
	}
	t.cells[hole] = 0
	t.entries[index].state = unused
	t.free = append(t.free, index)
}
