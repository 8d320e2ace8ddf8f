// SPDX-License-Identifier: Apache-2.0

package store

import (
	"hash/maphash"

	"github.com/netsketch/netsketch/yang/table"
)

// place is the location of a row; the segment is nil if the row was not found.
type place struct {
	g   *segment
	row int
}

// maxScans is the number of full searches of a segment before the segment is indexed: to index a
// million rows costs as much as to search them maxScans times.
const maxScans = 4

// lookup finds rows by their keys. It searches a large segment without an index once for all keys,
// and uses the index of other segments.
func (s *snapshot) lookup(terms []term) []place {
	out := make([]place, len(terms))
	for _, g := range s.segs { // a later segment has the row's newer values
		if !g.indexed.Load() && g.rows() > 64*len(terms) && len(g.t.Keys) > 0 && g.scans.Add(1) <= maxScans {
			g.scan(s.version, terms, out)
			continue
		}
		for i := range terms {
			if row := g.find(terms[i].key); row >= 0 && g.alive(row, s.version) {
				out[i] = place{g, row}
			}
		}
	}
	return out
}

// scan searches all rows. It tests the last key first, which is the most selective one, with a
// small bit filter.
func (g *segment) scan(version uint64, terms []term, out []place) {
	const bits = 1 << 14
	var maybe [bits / 64]uint64
	wanted := make(map[string]int, len(terms))
	same := make([]int, len(terms)) // index of another term with the same key, or -1
	seed := maphash.MakeSeed()
	last := len(g.t.Keys) - 1
	for i := range terms {
		h := hashOf(seed, terms[i].want[last]) % bits
		maybe[h/64] |= 1 << (h % 64)
		same[i] = -1
		if j, ok := wanted[string(terms[i].key)]; ok {
			same[i] = j
		}
		wanted[string(terms[i].key)] = i
	}
	c := &g.t.Keys[last]
	var key []byte
	for row := range g.rows() {
		h := hashCell(seed, c, row) % bits
		if maybe[h/64]>>(h%64)&1 == 0 {
			continue
		}
		key = appendKey(key[:0], g.t.Keys, row)
		i, ok := wanted[string(key)]
		if !ok || !g.alive(row, version) {
			continue
		}
		for ; i >= 0; i = same[i] {
			out[i] = place{g, row}
		}
	}
}

func hashOf(seed maphash.Seed, v Value) uint64 {
	if v.kind == table.String {
		return maphash.String(seed, v.str)
	}
	return scramble(v.num)
}

func hashCell(seed maphash.Seed, c *table.Column, row int) uint64 {
	if c.Kind == table.String {
		return maphash.String(seed, c.Text(row))
	}
	return scramble(cell(c, row).num)
}

func scramble(n uint64) uint64 { return n * 0x9e3779b97f4a7c15 >> 32 }
