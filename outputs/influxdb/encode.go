// SPDX-License-Identifier: Apache-2.0

// Encoding of columns as line protocol.

package influxdb

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/influxdata/line-protocol/v2/lineprotocol"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// encoder encodes tables as chunks of lines. Only one goroutine uses it; any may read the
// counters.
type encoder struct {
	lines    lineprotocol.Encoder
	unsigned bool
	exclude  map[string]bool
	limit    *seriesLimit
	lists    map[listKey]*liveRows
	points   int // points in lines
	maxBytes int
	maxLines int
	newest   time.Time
	emit     func(chunk)
	logger   *slog.Logger

	saturated   atomic.Uint64 // values above 2^63-1
	overSeries  atomic.Uint64 // rows dropped because of MaxSeries
	unencodable atomic.Uint64 // rows that line protocol cannot carry
	pending     atomic.Uint64 // points that are not emitted yet
}

// chunk is the content of one request.
type chunk struct {
	lines  string
	points int
	time   time.Time // time of the newest point
}

// column is a table's column with its name in the database.
type column struct {
	name string
	*table.Column
}

// layout maps the rows of a table to points.
type layout struct {
	measurement string
	tags        []column // in alphabetical order, as the encoder requires
	fields      []column
	target      int // index of the target among the tags
	targetName  string
}

// Measurement returns the measurement for a list's path: yang.FlatName, changed if line protocol
// would take it for a comment.
func Measurement(list string, keyed bool) string {
	name := yang.FlatName(list, keyed)
	if strings.HasPrefix(name, "#") { // not possible for YANG names
		name = "_" + name
	}
	return name
}

// Tag returns the name of the tag for a key column of a list.
func Tag(key string) string { return safeName(key) }

// safeName changes a name that InfluxDB or its query language reserves, or that the field for ended
// rows has. InfluxDB 2 refuses points with the tag _field or _measurement.
func safeName(name string) string {
	switch name {
	case "time", "_time", "_field", "_measurement", "_value", "_start", "_stop", endedField:
		return name + "-"
	}
	return name
}

func newLayout(t *table.Table) *layout {
	l := &layout{measurement: Measurement(t.List, len(t.Keys) > 0), targetName: "target"}
	taken := map[string]bool{}
	for i := range t.Keys {
		k := &t.Keys[i]
		tag := Tag(k.Name)
		l.tags = append(l.tags, column{tag, k})
		taken[tag], taken[safeName(k.Name)] = true, true
	}
	if taken["target"] {
		l.targetName = "gnmi-target"
	}
	for taken[l.targetName] {
		l.targetName += "-"
	}
	// The keys of a row determine these leaves. As tags, the leaves therefore add no series, and
	// points can be selected and grouped by them.
	for _, name := range yang.Derived(func(leaf string) bool { return t.Column("state/"+leaf) != nil }) {
		if !taken[name] {
			l.tags = append(l.tags, column{name, t.Column("state/" + name)})
			taken[name] = true
		}
	}
	slices.SortFunc(l.tags, func(a, b column) int { return strings.Compare(a.name, b.name) })
	for l.target < len(l.tags) && l.tags[l.target].name < l.targetName {
		l.target++
	}
	for i := range t.Values {
		v := &t.Values[i]
		name := safeName(strings.TrimPrefix(v.Name, "state/"))
		if taken[name] {
			continue // repeats a key
		}
		if name == l.targetName { // a field of the tag's name could not be queried
			name += "-"
		}
		l.fields = append(l.fields, column{name, v})
	}
	slices.SortFunc(l.fields, func(a, b column) int { return cmp.Compare(a.name, b.name) })
	return l
}

// add encodes the rows of a table.
func (e *encoder) add(l *layout, rows *liveRows, b *store.Batch, t *table.Table) {
	if len(l.fields) == 0 {
		return
	}
	target := tagText(b.Target)
	for row := range t.Rows() {
		e.row(l, target, rows, b.Time, t, row)
	}
}

// startLine begins the line of a row: measurement and tags. It returns this part of the line.
func (e *encoder) startLine(l *layout, target string, t *table.Table, row int) []byte {
	start := len(e.lines.Bytes())
	e.lines.StartLine(l.measurement)
	for i, tag := range l.tags {
		if i == l.target && target != "" {
			e.lines.AddTag(l.targetName, target)
		}
		if tag.Null(row) {
			continue
		}
		if v := tagText(tag.text(row)); v != "" {
			e.lines.AddTag(tag.name, v)
		}
	}
	if l.target == len(l.tags) && target != "" {
		e.lines.AddTag(l.targetName, target)
	}
	return e.lines.Bytes()[start:]
}

func (e *encoder) row(l *layout, target string, rows *liveRows, at time.Time, t *table.Table, row int) {
	start := len(e.lines.Bytes())
	series := e.startLine(l, target, t, row)
	last := rows.series[string(series)]
	fields := 0
	for _, f := range l.fields {
		if f.Null(row) {
			continue
		}
		if v, ok := e.value(f, row); ok {
			if fields++; fields == 1 && !e.admit(l.measurement, rows, last != nil, series, at) {
				e.lines.SetBuffer(e.lines.Bytes()[:start])
				return
			}
			e.lines.AddField(f.name, v)
		}
	}
	if fields == 0 && e.lines.Err() == nil {
		e.lines.SetBuffer(e.lines.Bytes()[:start])
		return
	}
	e.lines.AddField(endedField, lineprotocol.BoolValue(false))
	e.lines.EndLine(at)
	if err := e.lines.Err(); err != nil {
		e.lines.SetBuffer(e.lines.Bytes()[:start])
		if e.unencodable.Add(1) == 1 {
			e.logger.Warn("a row cannot be written as a point", "row", t.RowPath(row), "error", err)
		}
		return
	}
	if last == nil {
		last = new(uint64)
		rows.series[string(series)] = last
	}
	*last = rows.publications
	e.added(at)
}

// admit reports whether a point of a series may be written; exists is set if the series has a row
// that exists. A point is dropped and counted if its measurement has too many series or rows.
func (e *encoder) admit(measurement string, rows *liveRows, exists bool, series []byte, at time.Time) bool {
	if (exists || len(rows.series) < e.limit.max) && e.limit.admit(measurement, series, at) {
		return true
	}
	if e.overSeries.Add(1) == 1 {
		e.logger.Warn("rows are dropped because there are too many series; see max-series", "measurement",
			measurement, "max-series", e.limit.max)
	}
	return false
}

// added counts a line, and emits the lines if they fill a request.
func (e *encoder) added(at time.Time) {
	if at.After(e.newest) {
		e.newest = at
	}
	e.points++
	e.pending.Store(uint64(e.points))
	if e.points >= e.maxLines || len(e.lines.Bytes()) >= e.maxBytes {
		e.flush()
	}
}

func (c column) text(row int) string {
	if c.Kind == table.String {
		return c.Text(row)
	}
	return string(c.AppendText(nil, row))
}

// tagText returns the text in a form that is valid as a tag: control characters, bytes that are
// not UTF-8, and a backslash at the end become % and two hexadecimal digits. So does a % in front
// of two such digits: keys that differ have tags that differ. Most texts are returned unchanged.
func tagText(s string) string {
	var b strings.Builder
	done := 0 // bytes of s that are in b
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r < ' ' || r == 0x7f || (r == utf8.RuneError && size == 1) || (r == '\\' && i+1 == len(s)) ||
			(r == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2])) {
			fmt.Fprintf(&b, "%s%%%02X", s[done:i], s[i])
			done = i + 1
		}
		i += size
	}
	return b.String() + s[done:]
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// value returns a cell as a field value. The type depends only on the kind of the column.
func (e *encoder) value(c column, row int) (lineprotocol.Value, bool) {
	switch c.Kind {
	case table.Uint64:
		v := c.Uint64(row)
		if e.unsigned {
			return lineprotocol.UintValue(v), true
		}
		if v > math.MaxInt64 {
			if e.saturated.Add(1) == 1 {
				e.logger.Warn("values above 2^63-1 are written as 2^63-1; see unsigned", "field", c.name)
			}
			v = math.MaxInt64
		}
		return lineprotocol.IntValue(int64(v)), true
	case table.Int64:
		return lineprotocol.IntValue(c.Int64(row)), true
	case table.Float64:
		return lineprotocol.FloatValue(c.Float64(row))
	case table.Bool:
		return lineprotocol.BoolValue(c.Bool(row)), true
	case table.String:
		return lineprotocol.StringValue(fieldText(c.Text(row)))
	}
	return lineprotocol.Value{}, false
}

// maxText is the length of the longest string that InfluxDB accepts as a field.
const maxText = 60_000

// fieldText returns the text in a form that is valid as a field on one line.
func fieldText(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// flush emits the encoded lines.
func (e *encoder) flush() {
	if e.points == 0 {
		return
	}
	c := chunk{lines: string(e.lines.Bytes()), points: e.points, time: e.newest}
	e.lines.Reset()
	e.points = 0
	e.emit(c)
	e.pending.Store(0)
}
