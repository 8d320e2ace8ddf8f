// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Reading is the content of sealed sketches: counters, the keys in their heavy-key slots, and
// packet counts. Readings of one layout can be combined: Sum over switches for a view of the
// network (paper, section 5), Subtract over epochs for heavy changes (section 4.3).
type Reading struct {
	layout  Layout
	cells   []uint32 // two's complement; shared with the sketch until owned is set
	owned   bool
	packets []int64 // packets by level; nil if a sketch did not count them
	keys    []candidate
	table   table // table of the sketch that counted the packets
	earlier table // of a difference: table of the sketch of the epoch before
	// difference is set after a subtraction: sizes of flows may then be negative, so packets is not
	// their sum.
	difference bool
}

// candidate is a key from a heavy-key slot.
type candidate struct {
	key   flow.Key
	hash  uint32
	level int32
}

// table holds the counts of a sketch's heavy-key slots in ascending order, for each level and way.
// They determine from which size on a flow was kept.
type table [][maxWays][]uint32

// Reading returns the reading of a sketch. It shares the sketch's counters, so these must not
// change afterwards.
func (s *Sketch) Reading() *Reading {
	l := s.layout
	r := &Reading{layout: l, cells: s.counters, keys: s.keys(), table: s.occupancy()}
	if s.packets != nil {
		r.packets = make([]int64, l.Levels)
		for i, n := range s.packets {
			r.packets[i] = int64(n)
		}
	}
	return r
}

// keys returns the keys in the slots, sorted.
func (s *Sketch) keys() []candidate {
	l, words := &s.layout, s.layout.Words()
	var keys []candidate
	for level := range l.Levels {
		for i := l.heavy(level); i < l.heavy(level+1); i++ {
			if k, h, ok := load(s.slot(i, words), l.Key, level, l.Levels); ok {
				keys = append(keys, candidate{key: k, hash: h, level: int32(level)})
			}
		}
	}
	return sortKeys(keys)
}

func (s *Sketch) occupancy() table {
	l, words := s.layout, s.layout.Words()
	t := make(table, l.Levels)
	counts := make([]uint32, l.heavy(l.Levels))
	for i := range counts {
		counts[i] = s.heavy[i*words+wordCount]
	}
	for level := range t {
		for way := range l.Ways {
			n := l.slots(level)
			t[level][way], counts = counts[:n:n], counts[n:]
			slices.Sort(t[level][way])
		}
	}
	return t
}

// compare orders keys by level and then by hash. Two keys with the same hash, which no sketch can
// distinguish, are ordered by their value.
func (c *candidate) compare(o *candidate) int {
	switch {
	case c.level != o.level:
		return int(c.level) - int(o.level)
	case c.hash < o.hash:
		return -1
	case c.hash > o.hash:
		return 1
	default:
		return c.key.Compare(o.key)
	}
}

// sortKeys sorts keys. Of keys with the same hash, it keeps only the first.
func sortKeys(keys []candidate) []candidate {
	slices.SortFunc(keys, func(a, b candidate) int { return a.compare(&b) })
	return slices.CompactFunc(keys, func(a, b candidate) bool { return a.hash == b.hash })
}

// mergeKeys merges sorted lists. Of keys with the same hash, it keeps only the first.
func mergeKeys(lists ...[]candidate) []candidate {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return slices.Clone(lists[0])
	case 2:
	default:
		return mergeKeys(mergeKeys(lists[:len(lists)/2]...), mergeKeys(lists[len(lists)/2:]...))
	}
	a, b := lists[0], lists[1]
	out := make([]candidate, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		from := &a
		if len(a) == 0 || len(b) > 0 && b[0].compare(&a[0]) < 0 {
			from = &b
		}
		if n := len(out); n == 0 || out[n-1].hash != (*from)[0].hash {
			out = append(out, (*from)[0])
		}
		*from = (*from)[1:]
	}
	return out
}

// Packets returns the number of counted packets, and false if the data plane does not count
// packets. For a difference, it returns the difference of both numbers.
func (r *Reading) Packets() (n int64, ok bool) {
	for _, p := range r.packets {
		n += p
	}
	return n, r.packets != nil
}

// Clone returns a copy that can be changed without changing r.
func (r *Reading) Clone() *Reading {
	c := *r
	c.cells, c.owned = slices.Clone(r.cells), true
	c.packets = slices.Clone(r.packets)
	c.keys = slices.Clone(r.keys)
	return &c
}

// Sum returns the reading of one sketch that counted all packets in plus, without the packets in
// minus (paper, section 5: the network is one big switch). The packets in minus must be a part of
// the packets in plus, because another switch counted them too. Of the heavy keys of all readings,
// Sum keeps the keys that the one sketch would keep: estimates rely on a level's slots holding the
// largest keys. Sum fails if the layouts differ, if plus is empty, or if a reading is a difference.
func Sum(plus, minus []*Reading) (*Reading, error) {
	if len(plus) == 0 {
		return nil, fmt.Errorf("universal: a sum needs at least one reading: %w", ErrMismatch)
	}
	r := &Reading{layout: plus[0].layout, cells: slices.Clone(plus[0].cells), owned: true,
		packets: slices.Clone(plus[0].packets)}
	var lists [][]candidate
	for i, o := range slices.Concat(plus, minus) {
		if err := r.fits(o); err != nil {
			return nil, err
		}
		lists = append(lists, o.keys)
		switch {
		case i >= len(plus):
			r.add(o, -1)
		case i > 0:
			r.add(o, 1)
		}
	}
	r.keep(mergeKeys(lists...))
	return r, nil
}

// keep drops the heavy keys of the reading that a single sketch with the same counters would not
// hold.
func (r *Reading) keep(keys []candidate) {
	s := over(r.layout, r.cells, make([]uint32, r.layout.HeavyCells()), nil)
	s.rank(keys)
	r.keys, r.table = s.keys(), s.occupancy()
}

// Subtract makes r the change from o to r, in which flows may have negative sizes. It fails, and
// changes nothing, if the layouts differ or if r or o is a difference already. See Compare.
func (r *Reading) Subtract(o *Reading) error {
	if err := r.fits(o); err != nil {
		return err
	}
	r.add(o, -1)
	r.keys = mergeKeys(r.keys, o.keys)
	r.earlier = o.table
	r.difference = true
	return nil
}

func (r *Reading) fits(o *Reading) error {
	if r.layout != o.layout {
		return fmt.Errorf("universal: %v and %v: %w", r.layout, o.layout, ErrMismatch)
	}
	if r.difference || o.difference {
		return fmt.Errorf("universal: a difference of readings cannot be combined further: %w", ErrMismatch)
	}
	return nil
}

// add adds or subtracts the cells and packets of o, which has the same layout.
func (r *Reading) add(o *Reading, sign int32) {
	if !r.owned {
		r.cells, r.owned = slices.Clone(r.cells), true
	}
	for i, v := range o.cells {
		r.cells[i] += uint32(sign) * v
	}
	if r.packets == nil || o.packets == nil {
		r.packets = nil
		return
	}
	for i, n := range o.packets {
		r.packets[i] += int64(sign) * n
	}
}
