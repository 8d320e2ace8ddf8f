// SPDX-License-Identifier: Apache-2.0

// The ends of rows.

package influxdb

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/netsketch/netsketch/internal/store"
)

// endedField is the field that every point has: false in the point of a row, true in the point
// that says that a row no longer exists.
const endedField = "ended"

// afterLast is the time between the last point of a row and the point that says that the row ended
// because the collector stopped. It is far below an epoch, so that the points of another collector,
// which continues the row, come later.
const afterLast = time.Millisecond

// listKey identifies a list of a target.
type listKey struct{ target, list string }

// liveRows are the rows of a list of a target that this collector wrote and that still exist.
type liveRows struct {
	newest       time.Time          // time of the newest points
	publications uint64             // number of publications that changed the list
	series       map[string]*uint64 // the last publication with the row, by the row's series as in a line
}

// live returns the rows of a list of a target that exist.
func (e *encoder) live(key listKey) *liveRows {
	rows := e.lists[key]
	if rows == nil {
		rows = &liveRows{series: map[string]*uint64{}}
		e.lists[key] = rows
	}
	return rows
}

// publish encodes a publication of a batch: the rows that it has, and the ends of the rows that it
// removes from the list. If another collector of the cluster publishes a row, that collector writes
// and ends it from then on. If it removes a row that this collector wrote last, publish encodes the
// end.
func (e *encoder) publish(b *store.Batch, p *store.Publication) {
	l := newLayout(p.Table)
	if e.exclude[l.measurement] {
		return
	}
	rows := e.live(listKey{b.Target, p.Table.List})
	rows.publications++
	if b.Time.After(rows.newest) {
		rows.newest = b.Time
	}
	switch {
	case b.Member == "" && !p.Delete:
		e.add(l, rows, b, p.Table)
	case len(rows.series) > 0:
		for row := range p.Table.Rows() {
			start := len(e.lines.Bytes())
			series := string(e.startLine(l, tagText(b.Target), p.Table, row))
			e.lines.SetBuffer(e.lines.Bytes()[:start])
			if rows.series[series] != nil && p.Delete {
				e.end(rows, series, rows.newest)
			} else {
				delete(rows.series, series)
			}
		}
	}
	if p.Replace {
		for _, series := range slices.Sorted(maps.Keys(rows.series)) {
			if *rows.series[series] != rows.publications {
				e.end(rows, series, rows.newest)
			}
		}
	}
}

// end encodes the end of a row.
func (e *encoder) end(rows *liveRows, series string, at time.Time) {
	delete(rows.series, series)
	e.lines.SetBuffer(fmt.Appendf(e.lines.Bytes(), "%s %s=true %d\n", series, endedField, at.UnixNano()))
	e.added(at)
}

// endAll encodes the end of every row, because the collector stops.
func (e *encoder) endAll() {
	for _, rows := range e.lists {
		for _, series := range slices.Sorted(maps.Keys(rows.series)) {
			e.end(rows, series, rows.newest.Add(afterLast))
		}
	}
}
