// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/yang/table"
)

// stamp is the time and the version at which rows were published.
type stamp struct {
	version uint64 // version of the store
	time    time.Time
	epoch   uint64
}

// segment is a published table, or several merged tables. Its rows never change. For a superseded
// or deleted row, it holds the version from which the row is dead, so that a view of an earlier
// version still has the row.
type segment struct {
	t  *table.Table
	at []int // index of each value column among the list's leaves

	bytes int // size of the table, dead rows included

	one  *stamp   // origin of all rows; nil if rows have different origins
	each []*stamp // origin of each row; nil if all rows have the same
	// times holds the times of the columns whose cells are older than their rows, by the name of the
	// column: one for each row, in nanoseconds since 1970. The cells of other columns have the time
	// of their row. It is nil if there are no such columns, which is usual.
	times map[string][]int64
	newer uint64 // newest version among the origins

	dead atomic.Pointer[[]atomic.Uint64] // version from which each row is dead; nil if no row is
	gone int                             // number of dead rows; only used by the publisher

	indexed atomic.Bool  // the index is built
	scans   atomic.Int32 // searches that ran without the index
	index   struct {
		once  sync.Once
		seed  maphash.Seed
		slots []uint32 // row+1 by hash; open addressing, a power of two
	}
}

func newSegment(t *table.Table, times map[string][]int64, at []int, s *stamp) *segment {
	return &segment{t: t, at: at, bytes: t.Bytes() + timesBytes(times), one: s, newer: s.version, times: times}
}

func timesBytes(times map[string][]int64) int {
	n := 0
	for _, column := range times {
		n += 8 * len(column)
	}
	return n
}

// cellTime returns the time of a cell of the named column.
func (g *segment) cellTime(column string, row int) int64 {
	if times := g.times[column]; times != nil {
		return times[row]
	}
	return g.stamp(row).time.UnixNano()
}

// leafTimes returns the time of each of the list's leaves in a row; nil if all have the row's time.
func (g *segment) leafTimes(l *List, row int) []int64 {
	if g.times == nil {
		return nil
	}
	own := g.stamp(row).time.UnixNano()
	var out []int64
	for c, leaf := range g.at {
		times := g.times[g.t.Values[c].Name]
		if times == nil || times[row] == own || g.t.Values[c].Null(row) {
			continue
		}
		if out == nil {
			out = make([]int64, len(l.Leaves))
			for i := range out {
				out[i] = own
			}
		}
		out[leaf] = times[row]
	}
	return out
}

func (g *segment) rows() int { return g.t.Rows() }

func (g *segment) stamp(row int) *stamp {
	if g.one != nil {
		return g.one
	}
	return g.each[row]
}

// alive reports whether the row exists at a version.
func (g *segment) alive(row int, version uint64) bool {
	dead := g.dead.Load()
	if dead == nil {
		return true
	}
	d := (*dead)[row].Load()
	return d == 0 || d > version
}

// kill marks a row dead from a version on. Only the publisher calls it.
func (g *segment) kill(row int, version uint64) {
	dead := g.dead.Load()
	if dead == nil {
		d := make([]atomic.Uint64, g.rows())
		dead = &d
		g.dead.Store(dead)
	}
	if (*dead)[row].Load() == 0 {
		(*dead)[row].Store(version)
		g.gone++
	}
}

// appendKey appends a row's keys in a canonical form.
func appendKey(b []byte, keys []table.Column, row int) []byte {
	for i := range keys {
		b = appendKeyValue(b, cell(&keys[i], row))
	}
	return b
}

func appendKeyValue(b []byte, v Value) []byte {
	if v.kind == table.String {
		b = binary.AppendUvarint(b, uint64(len(v.str)))
		return append(b, v.str...)
	}
	return binary.LittleEndian.AppendUint64(b, v.num)
}

// find returns the row with these keys, or -1. The first call indexes the table by key.
func (g *segment) find(key []byte) int {
	g.index.once.Do(func() {
		g.buildIndex()
		g.indexed.Store(true)
	})
	slots := g.index.slots
	if len(slots) == 0 {
		return -1
	}
	mask := uint64(len(slots) - 1)
	var buf [128]byte
	for h := maphash.Bytes(g.index.seed, key) & mask; slots[h] != 0; h = (h + 1) & mask {
		row := int(slots[h] - 1)
		if slices.Equal(appendKey(buf[:0], g.t.Keys, row), key) {
			return row
		}
	}
	return -1
}

// buildIndex builds the index. Of rows with equal keys, it keeps the last one.
func (g *segment) buildIndex() {
	n := g.rows()
	if n == 0 {
		return
	}
	size := 4
	for size < 2*n {
		size *= 2
	}
	g.index.seed = maphash.MakeSeed()
	slots := make([]uint32, size)
	mask := uint64(size - 1)
	var key, other []byte
	for row := range n {
		key = appendKey(key[:0], g.t.Keys, row)
		h := maphash.Bytes(g.index.seed, key) & mask
		for slots[h] != 0 {
			other = appendKey(other[:0], g.t.Keys, int(slots[h]-1))
			if slices.Equal(key, other) {
				break
			}
			h = (h + 1) & mask
		}
		slots[h] = uint32(row + 1)
	}
	g.index.slots = slots
}

// value returns a row's value of the list's leaf, sharing the table's memory. col
// maps leaves to columns (leafColumns).
func (g *segment) value(l *List, col []int, leaf, row int) Value {
	if k := l.Leaves[leaf].KeyOf; k >= 0 {
		return cell(&g.t.Keys[k], row)
	}
	if leaf >= len(col) || col[leaf] < 0 {
		return Value{}
	}
	return cell(&g.t.Values[col[leaf]], row)
}

// leafColumns returns for each leaf of the list its column in this segment, or -1.
func (g *segment) leafColumns(l *List) []int {
	col := make([]int, len(l.Leaves))
	for i := range col {
		col[i] = -1
	}
	for c, leaf := range g.at {
		col[leaf] = c
	}
	return col
}

// keys returns a row's keys, sharing the table's memory.
func (g *segment) keys(row int) []Value {
	out := make([]Value, len(g.t.Keys))
	for i := range out {
		out[i] = cell(&g.t.Keys[i], row)
	}
	return out
}
