// SPDX-License-Identifier: Apache-2.0

package table

import (
	"hash/maphash"
	"math/bits"
)

// Duplicate returns the first row that has the keys of an earlier row; -1 without duplicates.
func (t *Table) Duplicate() int {
	n := t.Rows()
	if n < 2 || len(t.Keys) == 0 {
		return -1
	}
	sums := t.keySums()
	slots := make([]uint32, 1<<bits.Len(uint(2*n-1))) // row+1 by hash; open addressing
	mask := uint64(len(slots) - 1)
	for row, sum := range sums {
		at := sum & mask
		for ; slots[at] != 0; at = (at + 1) & mask {
			if other := int(slots[at] - 1); sums[other] == sum && t.sameKeys(row, other) {
				return row
			}
		}
		slots[at] = uint32(row + 1)
	}
	return -1
}

// keySums returns a hash of each row's keys.
func (t *Table) keySums() []uint64 {
	seed := maphash.MakeSeed()
	sums := make([]uint64, t.Rows())
	for i := range t.Keys {
		k := &t.Keys[i]
		var entries []uint64 // hashes of a dictionary's entries
		if k.Kind == String && k.text.codes != nil && k.text.entries() <= k.n {
			entries = make([]uint64, k.text.entries())
			for e := range entries {
				entries[e] = maphash.String(seed, k.text.entry(e))
			}
		}
		for row := range sums {
			var h uint64
			switch {
			case entries != nil:
				h = entries[k.text.codes[row]]
			case k.Kind == String:
				h = maphash.String(seed, k.Text(row))
			case k.Kind == Uint64:
				h = maphash.Comparable(seed, k.uints[row])
			case k.Kind == Int64:
				h = maphash.Comparable(seed, k.ints[row])
			default:
				h = maphash.Comparable(seed, k.Value(row))
			}
			high, low := bits.Mul64(sums[row]^h, 0x9e3779b97f4a7c15)
			sums[row] = high ^ low
		}
	}
	return sums
}

func (t *Table) sameKeys(a, b int) bool {
	for i := range t.Keys {
		k := &t.Keys[i]
		if k.Kind == String && k.Text(a) != k.Text(b) || k.Kind != String && k.Value(a) != k.Value(b) {
			return false
		}
	}
	return true
}
