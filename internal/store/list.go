// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"slices"

	"github.com/netsketch/netsketch/yang/table"
)

// snapshot is an immutable list at one version.
type snapshot struct {
	target  string
	list    *List
	version uint64     // version of the last change
	stamp   *stamp     // stamp of the last change
	removed uint64     // version of the last change that removed a row
	segs    []*segment // the last segment that has a row has the row's newest values
}

// find returns the place of the row with these keys at the snapshot's version.
func (s *snapshot) find(key []byte) (*segment, int, bool) {
	for _, g := range slices.Backward(s.segs) {
		if row := g.find(key); row >= 0 && g.alive(row, s.version) {
			return g, row, true
		}
	}
	return nil, 0, false
}

// size returns the number of rows that segments hold, dead ones included.
func (s *snapshot) size() int {
	n := 0
	for _, g := range s.segs {
		n += g.rows()
	}
	return n
}

// bytes estimates the size of the live rows. Only the publisher calls it.
func (s *snapshot) bytes() int {
	n := 0
	for _, g := range s.segs {
		if rows := g.rows(); rows > 0 {
			n += int(float64(g.bytes) * float64(rows-g.gone) / float64(rows))
		}
	}
	return n
}

// rows returns the number of live rows.
func (s *snapshot) rows() int {
	n := 0
	for _, g := range s.segs {
		for row := range g.rows() {
			if g.alive(row, s.version) {
				n++
			}
		}
	}
	return n
}

// apply returns the list with a checked publication applied. It runs in the publisher, and marks
// rows dead from version st.version on, which no view has yet.
func (s *snapshot) apply(p *Publication, st *stamp) *snapshot {
	next := &snapshot{target: s.target, list: s.list, version: st.version, stamp: st, removed: s.removed, segs: s.segs}
	t := p.Table
	var times map[string][]int64
	switch {
	case p.Delete:
		next.remove(t, st.version)
		return next
	case p.Replace:
		if s.size() > 0 {
			next.removed = st.version
		}
		next.segs = nil
	default:
		t, times = next.complete(t, st)
		next.supersede(t, st.version)
	}
	shape, at := next.list.widen(t)
	next.list = shape
	next.push(newSegment(t, times, at, st))
	return next
}

// push adds a segment on top, and merges the top two segments while their sizes are similar, so
// that a list that is updated row by row has few segments.
func (s *snapshot) push(g *segment) {
	segs := make([]*segment, 0, len(s.segs)+1)
	for _, old := range s.segs {
		if old.gone < old.rows() {
			segs = append(segs, old)
		}
	}
	if g.rows() > 0 || len(s.list.Keys) == 0 {
		segs = append(segs, g)
	}
	for len(segs) > 1 {
		a, b := segs[len(segs)-2], segs[len(segs)-1]
		if a.rows()-a.gone > 2*b.rows() && a.gone <= a.rows()/2 {
			break
		}
		segs = append(segs[:len(segs)-2], s.merge(a, b))
	}
	s.segs = segs
}

// remove kills the rows with a table's keys.
func (s *snapshot) remove(t *table.Table, version uint64) {
	var key []byte
	for row := range t.Rows() {
		key = appendKey(key[:0], t.Keys, row)
		if g, r, ok := s.find(key); ok {
			g.kill(r, version)
			s.removed = version
		}
	}
	s.segs = slices.DeleteFunc(slices.Clone(s.segs), func(g *segment) bool { return g.gone == g.rows() })
}

// supersede kills the rows that a table's rows replace.
func (s *snapshot) supersede(t *table.Table, version uint64) {
	var key []byte
	for row := range t.Rows() {
		key = appendKey(key[:0], t.Keys, row)
		for _, g := range s.segs {
			if r := g.find(key); r >= 0 {
				g.kill(r, version)
			}
		}
	}
}

// complete returns the table with further columns: columns that only existing rows have, filled
// with these rows' values. It also returns the times of those columns that hold a value older than
// the table. It runs before the table's rows supersede the existing rows.
func (s *snapshot) complete(t *table.Table, st *stamp) (*table.Table, map[string][]int64) {
	missing := map[string]table.Kind{}
	for _, g := range s.segs {
		for i := range g.t.Values {
			if c := &g.t.Values[i]; t.Column(c.Name) == nil {
				missing[c.Name] = c.Kind
			}
		}
	}
	if len(missing) == 0 {
		return t, nil
	}
	src := make([]cellRef, t.Rows())
	var key []byte
	for row := range src {
		key = appendKey(key[:0], t.Keys, row)
		if g, r, ok := s.find(key); ok {
			src[row] = cellRef{g, r}
		}
	}
	out := &table.Table{List: t.List, Keys: t.Keys, Values: slices.Clone(t.Values)}
	var times map[string][]int64
	now := st.time.UnixNano()
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		out.Values = append(out.Values, gather(name, missing[name], src))
		times = withTimes(times, &out.Values[len(out.Values)-1], src, func(int) int64 { return now })
	}
	return out, times
}

// withTimes adds the times of a gathered column to times, unless they equal the times of the rows.
// own returns the time of a row.
func withTimes(times map[string][]int64, c *table.Column, src []cellRef, own func(row int) int64) map[string][]int64 {
	var column []int64
	for row, r := range src {
		if r.g == nil || c.Null(row) {
			continue
		}
		at := r.g.cellTime(c.Name, r.row)
		if column == nil && at == own(row) {
			continue
		}
		if column == nil {
			column = make([]int64, len(src))
			for i := range column {
				column[i] = own(i)
			}
		}
		column[row] = at
	}
	if column == nil {
		return times
	}
	if times == nil {
		times = map[string][]int64{}
	}
	times[c.Name] = column
	return times
}

// merge combines two segments, without their dead rows.
func (s *snapshot) merge(a, b *segment) *segment {
	var src []cellRef
	var each []*stamp
	var newer uint64
	for _, g := range []*segment{a, b} {
		for row := range g.rows() {
			// Version s.version is being published, so rows that it killed are left out, too.
			if g.alive(row, s.version) {
				src = append(src, cellRef{g, row})
				each = append(each, g.stamp(row))
				newer = max(newer, g.stamp(row).version)
			}
		}
	}
	kinds := map[string]table.Kind{}
	for _, g := range []*segment{a, b} {
		for i := range g.t.Values {
			kinds[g.t.Values[i].Name] = g.t.Values[i].Kind
		}
	}
	t := &table.Table{List: s.list.Path, Keys: make([]table.Column, len(a.t.Keys))}
	for i := range a.t.Keys {
		t.Keys[i] = gather(a.t.Keys[i].Name, a.t.Keys[i].Kind, src)
	}
	var times map[string][]int64
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		t.Values = append(t.Values, gather(name, kinds[name], src))
		if a.times[name] != nil || b.times[name] != nil {
			times = withTimes(times, &t.Values[len(t.Values)-1], src,
				func(row int) int64 { return each[row].time.UnixNano() })
		}
	}
	_, at := s.list.widen(t)
	return &segment{t: t, at: at, bytes: t.Bytes() + timesBytes(times), each: each, newer: newer, times: times}
}

// kinds returns the kinds of the columns.
func (s *snapshot) kinds() map[string]table.Kind {
	kinds := map[string]table.Kind{}
	for _, g := range s.segs {
		for i := range g.t.Values {
			kinds[g.t.Values[i].Name] = g.t.Values[i].Kind
		}
	}
	return kinds
}
