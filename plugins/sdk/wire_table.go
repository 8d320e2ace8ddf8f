// SPDX-License-Identifier: Apache-2.0

// Conversion of tables to messages of bounded size and back.

package sdk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/yang/table"
)

// Parts splits the table into messages of about MaxChunk bytes. On little-endian machines, the
// messages share the table's memory.
func (r TableResult) Parts(epoch uint64) iter.Seq[*pluginv1.TablePart] {
	rows := r.Table.Rows()
	step := rows
	if size := tableBytes(r.Table); size > MaxChunk {
		step = max(1, int(float64(rows)*float64(MaxChunk)/float64(size)))
	}
	return func(yield func(*pluginv1.TablePart) bool) {
		for from := 0; ; from += step {
			to := min(from+step, rows)
			piece := r.Table
			if to-from < rows {
				piece = piece.Slice(from, to)
			}
			part := &pluginv1.TablePart{
				Epoch: epoch, Table: tableProto(piece), Target: r.Target, Replace: r.Replace, Last: to == rows,
			}
			if !r.End.IsZero() {
				part.EndUnixNs = r.End.UnixNano()
			}
			if !yield(part) || to == rows {
				return
			}
		}
	}
}

// tableBytes estimates the size of the table as messages.
func tableBytes(t *table.Table) int {
	sum := 0
	add := func(columns []table.Column) {
		for i := range columns {
			c := &columns[i]
			switch c.Kind {
			case table.String:
				data, offsets, codes := c.Packed()
				sum += len(data) + 4*len(offsets) + 4*len(codes)
			case table.Bool:
				sum += c.Len()
			default:
				sum += 8 * c.Len()
			}
		}
	}
	add(t.Keys)
	add(t.Values)
	return sum
}

func tableProto(t *table.Table) *pluginv1.Table {
	return &pluginv1.Table{
		List: t.List, Rows: uint32(t.Rows()), Keys: toProto(t.Keys, columnProto),
		Values: toProto(t.Values, columnProto),
	}
}

func columnProto(c table.Column) *pluginv1.Column {
	c = c.Compact()
	out := &pluginv1.Column{Name: c.Name}
	switch c.Kind {
	case table.Uint64:
		out.Kind, out.Data = pluginv1.ColumnKind_COLUMN_KIND_UINT64, CellsOf("", c.Uint64s()).Packed
	case table.Int64:
		out.Kind, out.Data = pluginv1.ColumnKind_COLUMN_KIND_INT64, CellsOf("", reinterpret[uint64](c.Int64s())).Packed
	case table.Float64:
		out.Kind, out.Data = pluginv1.ColumnKind_COLUMN_KIND_FLOAT64,
			CellsOf("", reinterpret[uint64](c.Float64s())).Packed
	case table.Bool:
		out.Kind, out.Data = pluginv1.ColumnKind_COLUMN_KIND_BOOL, reinterpret[byte](c.Bools())
	case table.String:
		data, offsets, codes := c.Packed()
		out.Kind, out.Data = pluginv1.ColumnKind_COLUMN_KIND_STRING, unsafe.Slice(unsafe.StringData(data), len(data))
		if len(offsets) > 0 {
			out.Ends = CellsOf("", offsets[1:]).Packed
		}
		out.Codes = CellsOf("", codes).Packed
	}
	if words := c.NullBits(); words != nil {
		out.Nulls = CellsOf("", words).Packed[:(c.Len()+7)/8]
	}
	return out
}

// reinterpret views values as another type of the same size.
func reinterpret[To, From any](in []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(in))), len(in))
}

// MaxText is the longest text of a cell, in bytes, so that a whole row fits a gNMI message.
const MaxText = 64 << 10

// TableDecoder assembles tables from messages, whose memory the tables share. Only one goroutine
// may use a decoder, which cannot be used after an error.
type TableDecoder struct {
	limit int
	used  int // bytes of messages so far
	held  int // bytes of finished tables; a text counts in each row that has it
	open  *openTable
}

type openTable struct {
	list    string
	target  string
	replace bool
	end     int64 // TableResult.End in nanoseconds since 1970; 0: zero
	rows    int
	keys    []openColumn
	values  []openColumn
}

// openColumn collects the parts of a column.
type openColumn struct {
	name  string
	kind  pluginv1.ColumnKind
	data  [][]byte // data of each part; joined when the table is complete, so that a refused table is never copied
	size  int      // bytes of data
	ends  []uint32 // begins with 0 as soon as there is text
	codes []uint32 // nil as long as row i is entry i
	nulls []uint64 // nil as long as no row is null
}

// partOverhead is the approximate memory of a part in addition to its bytes.
const partOverhead = 256

// ErrTableTooLarge is wrapped if tables have more bytes than the limit.
var ErrTableTooLarge = errors.New("more bytes of tables than the limit")

// NewTableDecoder returns a decoder. If all its tables together, with their names, have more than
// limit bytes, that is an error.
func NewTableDecoder(limit int) *TableDecoder { return &TableDecoder{limit: limit} }

// Open reports whether a table is incomplete.
func (d *TableDecoder) Open() bool { return d.open != nil }

// Add adds a part. It returns the table after its last part, otherwise nil. The table has passed
// table.Check.
func (d *TableDecoder) Add(part *pluginv1.TablePart) (*TableResult, error) {
	m := part.GetTable()
	// Names and the overhead of a part count as well, because both use memory.
	d.used += partOverhead + proto.Size(part)
	if d.used > d.limit {
		return nil, fmt.Errorf("%w (%d bytes)", ErrTableTooLarge, d.limit)
	}
	if err := d.start(part); err != nil {
		return nil, err
	}
	open := d.open
	rows := int(m.GetRows())
	if rows > math.MaxInt32-open.rows {
		return nil, fmt.Errorf("table %s: more than %d rows", open.list, math.MaxInt32)
	}
	for i, c := range m.GetKeys() {
		if err := d.add(&open.keys[i], c, open.rows, rows); err != nil {
			return nil, fmt.Errorf("table %s: key column %q: %w", open.list, c.GetName(), err)
		}
	}
	for i, c := range m.GetValues() {
		if err := d.add(&open.values[i], c, open.rows, rows); err != nil {
			return nil, fmt.Errorf("table %s: column %q: %w", open.list, c.GetName(), err)
		}
	}
	open.rows += rows
	if !part.GetLast() {
		return nil, nil
	}
	d.open = nil
	out, err := open.finish()
	if err != nil {
		return nil, err
	}
	if d.held += out.Table.Bytes(); d.held > d.limit { // a dictionary can expand few bytes to many
		return nil, fmt.Errorf("%w (%d bytes)", ErrTableTooLarge, d.limit)
	}
	return out, nil
}

// start opens a table with its first part, or checks that the part belongs to the open table.
func (d *TableDecoder) start(part *pluginv1.TablePart) error {
	m := part.GetTable()
	if m == nil {
		return errors.New("a table part without a table")
	}
	if d.open == nil {
		columns := func(in []*pluginv1.Column) []openColumn {
			return toProto(in, func(c *pluginv1.Column) openColumn {
				return openColumn{name: c.GetName(),
					kind: c.GetKind()}
			})
		}
		d.open = &openTable{
			list: m.GetList(), target: part.GetTarget(), replace: part.GetReplace(),
			end: part.GetEndUnixNs(), keys: columns(m.GetKeys()), values: columns(m.GetValues()),
		}
		return nil
	}
	if d.open.list != m.GetList() || d.open.target != part.GetTarget() || d.open.replace != part.GetReplace() ||
		d.open.end != part.GetEndUnixNs() ||
		len(d.open.keys) != len(m.GetKeys()) || len(d.open.values) != len(m.GetValues()) {
		return fmt.Errorf("table %s: a part of table %s, or with other columns, in between", d.open.list, m.GetList())
	}
	if m.GetRows() == 0 {
		return fmt.Errorf("table %s: an empty part", d.open.list)
	}
	return nil
}

// add appends a part's column, which has rows rows, to the at rows collected before.
func (d *TableDecoder) add(to *openColumn, c *pluginv1.Column, at, rows int) error {
	switch {
	case to.name != c.GetName() || to.kind != c.GetKind():
		return fmt.Errorf("was %q, %v in the part before", to.name, to.kind)
	}
	size := 8
	switch c.GetKind() {
	case pluginv1.ColumnKind_COLUMN_KIND_STRING:
		if err := to.addText(c, at, rows); err != nil {
			return err
		}
		return to.addNulls(c.GetNulls(), at, rows)
	case pluginv1.ColumnKind_COLUMN_KIND_BOOL:
		size = 1
		for i, b := range c.GetData() {
			if b > 1 {
				return fmt.Errorf("row %d is %d; a boolean is 0 or 1", at+i, b)
			}
		}
	case pluginv1.ColumnKind_COLUMN_KIND_UINT64, pluginv1.ColumnKind_COLUMN_KIND_INT64,
		pluginv1.ColumnKind_COLUMN_KIND_FLOAT64:
	default:
		return fmt.Errorf("is of the unknown kind %d", c.GetKind())
	}
	if len(c.GetData()) != size*rows || len(c.GetEnds()) != 0 || len(c.GetCodes()) != 0 {
		return fmt.Errorf("%d bytes for %d rows of %v", len(c.GetData()), rows, c.GetKind())
	}
	to.addData(c.GetData())
	return to.addNulls(c.GetNulls(), at, rows)
}

func (to *openColumn) addData(b []byte) {
	to.data, to.size = append(to.data, b), to.size+len(b)
}

func (to *openColumn) addText(c *pluginv1.Column, at, rows int) error {
	ends, codes := c.GetEnds(), c.GetCodes()
	switch {
	case len(ends)%4 != 0 || len(codes)%4 != 0:
		return fmt.Errorf("%d bytes of ends and %d of codes are not multiples of 4", len(ends), len(codes))
	case len(codes) == 0 && len(ends) != 4*rows, len(codes) != 0 && len(codes) != 4*rows:
		return fmt.Errorf("%d ends and %d codes for %d rows", len(ends)/4, len(codes)/4, rows)
	case uint64(to.size)+uint64(len(c.GetData())) > math.MaxUint32:
		return errors.New("more than 4 GiB of text")
	}
	base, entries := uint32(to.size), max(len(to.ends)-1, 0)
	if len(codes) != 0 || to.codes != nil {
		if to.codes == nil {
			to.codes = make([]uint32, at, at+rows)
			for i := range to.codes {
				to.codes[i] = uint32(i)
			}
		}
		for i := range rows {
			code := uint32(i)
			if len(codes) != 0 {
				code = binary.LittleEndian.Uint32(codes[4*i:])
			}
			if uint64(code) >= uint64(len(ends)/4) {
				return fmt.Errorf("row %d refers to entry %d of a dictionary of %d entries", at+i, code, len(ends)/4)
			}
			to.codes = append(to.codes, uint32(entries)+code)
		}
	}
	if len(to.ends) == 0 {
		to.ends = append(make([]uint32, 0, 1+len(ends)/4), 0)
	}
	last := uint32(0)
	for i := 0; i < len(ends); i += 4 {
		end := binary.LittleEndian.Uint32(ends[i:])
		if end < last || uint64(end) > uint64(len(c.GetData())) {
			return fmt.Errorf("entry %d ends at byte %d; expected %d to %d", i/4, end, last, len(c.GetData()))
		}
		if end-last > MaxText {
			return fmt.Errorf("entry %d has %d bytes of text; the limit is %d", i/4, end-last, MaxText)
		}
		if !utf8.Valid(c.GetData()[last:end]) {
			return fmt.Errorf("entry %d is not UTF-8", i/4)
		}
		to.ends = append(to.ends, base+end)
		last = end
	}
	if int(last) != len(c.GetData()) {
		return fmt.Errorf("%d bytes of text after the last entry", len(c.GetData())-int(last))
	}
	to.addData(c.GetData())
	return nil
}

// addNulls adds the nulls of a part, after its values, whose count was checked.
func (to *openColumn) addNulls(bits []byte, at, rows int) error {
	if len(bits) == 0 {
		if to.nulls != nil {
			to.nulls = append(to.nulls, make([]uint64, (at+rows+63)/64-len(to.nulls))...)
		}
		return nil
	}
	if len(bits) != (rows+7)/8 {
		return fmt.Errorf("%d bytes of nulls for %d rows", len(bits), rows)
	}
	to.nulls = append(to.nulls, make([]uint64, (at+rows+63)/64-len(to.nulls))...)
	for i := range rows {
		if bits[i/8]>>(i%8)&1 != 0 {
			to.nulls[(at+i)/64] |= 1 << ((at + i) % 64)
		}
	}
	return nil
}

// finish returns the assembled table.
func (t *openTable) finish() (*TableResult, error) {
	out := &table.Table{List: t.list}
	for _, c := range t.keys {
		column, err := c.finish()
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", t.list, err)
		}
		out.Keys = append(out.Keys, column)
	}
	for _, c := range t.values {
		column, err := c.finish()
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", t.list, err)
		}
		out.Values = append(out.Values, column)
	}
	if err := out.Check(); err != nil {
		return nil, err
	}
	result := &TableResult{Target: t.target, Replace: t.replace, Table: out}
	if t.end != 0 {
		result.End = time.Unix(0, t.end).UTC()
	}
	return result, nil
}

func (c openColumn) finish() (table.Column, error) {
	data := c.data[0] // a table has at least one part
	if len(c.data) > 1 {
		data = slices.Concat(c.data...)
	}
	words := Cells{Width: 64, Packed: data}
	var column table.Column
	switch c.kind {
	case pluginv1.ColumnKind_COLUMN_KIND_UINT64:
		column = table.Uint64s(c.name, words.Uint64s())
	case pluginv1.ColumnKind_COLUMN_KIND_INT64:
		column = table.Int64s(c.name, reinterpret[int64](words.Uint64s()))
	case pluginv1.ColumnKind_COLUMN_KIND_FLOAT64:
		column = table.Float64s(c.name, reinterpret[float64](words.Uint64s()))
	case pluginv1.ColumnKind_COLUMN_KIND_BOOL:
		column = table.Bools(c.name, reinterpret[bool](data))
	case pluginv1.ColumnKind_COLUMN_KIND_STRING:
		var err error
		if column, err = table.PackedStrings(c.name, unsafe.String(unsafe.SliceData(data), len(data)), c.ends,
			c.codes); err != nil {
			return column, err
		}
	}
	return column.WithNulls(c.nulls)
}
