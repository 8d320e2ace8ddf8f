// SPDX-License-Identifier: Apache-2.0

package table

import (
	"encoding"
	"fmt"
	"math"
	"slices"
)

// Builder makes a Table row by row:
//
//	b := table.NewBuilder("/netsketch-univmon:univmon/heavy-hitters/heavy-hitter")
//	flow := b.TextKey("flow")
//	packets := b.Uint("state/packets")
//	for _, h := range hitters {
//		flow.Append(h.Flow)
//		packets.Append(h.Packets)
//	}
//	t, err := b.Table()
//
// Keys and values keep the order of these calls. The first key begins a row. A row to whose value
// column nothing is appended does not have the leaf.
type Builder struct {
	list   string
	rows   *int // number of rows; 1 without a key
	keys   []source
	values []source
}

type source interface{ column() Column }

// NewBuilder returns a builder of a table of the list at this schema path.
func NewBuilder(list string) *Builder {
	rows := 1
	return &Builder{list: list, rows: &rows}
}

// key returns the beginning of a key column.
func (b *Builder) key(name string) base {
	if len(b.keys) == 0 {
		*b.rows = 0
	}
	return base{name: name, rows: b.rows, begins: len(b.keys) == 0}
}

// value returns the beginning of a value column.
func (b *Builder) value(name string) base { return base{name: name, rows: b.rows} }

// TextKey adds a key column of text.
func (b *Builder) TextKey(name string) *TextAppender {
	a := &TextAppender{base: b.key(name)}
	b.keys = append(b.keys, a)
	return a
}

// UintKey adds a key column of unsigned integers.
func (b *Builder) UintKey(name string) *UintAppender { return add(&b.keys, b.key(name), Uint64s) }

// IntKey adds a key column of signed integers.
func (b *Builder) IntKey(name string) *IntAppender { return add(&b.keys, b.key(name), Int64s) }

// BoolKey adds a key column of booleans.
func (b *Builder) BoolKey(name string) *BoolAppender { return add(&b.keys, b.key(name), Bools) }

// Text adds a value column of text.
func (b *Builder) Text(name string) *TextAppender {
	a := &TextAppender{base: b.value(name)}
	b.values = append(b.values, a)
	return a
}

// Uint adds a value column of unsigned integers.
func (b *Builder) Uint(name string) *UintAppender { return add(&b.values, b.value(name), Uint64s) }

// Int adds a value column of signed integers.
func (b *Builder) Int(name string) *IntAppender { return add(&b.values, b.value(name), Int64s) }

// Float adds a value column of decimals.
func (b *Builder) Float(name string) *FloatAppender { return add(&b.values, b.value(name), Float64s) }

// Bool adds a value column of booleans.
func (b *Builder) Bool(name string) *BoolAppender { return add(&b.values, b.value(name), Bools) }

// EachUint adds a value column with the same unsigned integer in each row, EachBool one with the
// same boolean.
func (b *Builder) EachUint(name string, v uint64) { each(b, name, v, Uint64s) }

func (b *Builder) EachBool(name string, v bool) { each(b, name, v, Bools) }

// Table returns the table, or an error if it is malformed (Table.Check). The builder and its
// appenders must not be used afterwards.
func (b *Builder) Table() (*Table, error) {
	t := &Table{List: b.list, Keys: columns(b.keys), Values: columns(b.values)}
	if err := t.Check(); err != nil {
		return nil, err
	}
	return t, nil
}

func columns(s []source) []Column {
	out := make([]Column, len(s))
	for i, a := range s {
		out[i] = a.column()
	}
	return out
}

// ColumnOf returns a column of n rows of a kind. value returns a row's value as Column.Value does;
// nil or a value of another kind makes the row null.
func ColumnOf(name string, kind Kind, n int, value func(row int) any) Column {
	at := base{name: name, rows: new(int)}
	switch kind {
	case Uint64:
		return collect(&UintAppender{at, make([]uint64, 0, n), Uint64s}, at.rows, n, value)
	case Int64:
		return collect(&IntAppender{at, make([]int64, 0, n), Int64s}, at.rows, n, value)
	case Float64:
		return collect(&FloatAppender{at, make([]float64, 0, n), Float64s}, at.rows, n, value)
	case Bool:
		return collect(&BoolAppender{at, make([]bool, 0, n), Bools}, at.rows, n, value)
	}
	return collect(&TextAppender{base: at}, at.rows, n, value)
}

// collect appends the values of n rows and returns the column.
func collect[T any](a interface {
	source
	Append(T)
}, rows *int, n int, value func(row int) any) Column {
	for row := range n {
		*rows = row + 1
		if v, ok := value(row).(T); ok {
			a.Append(v)
		}
	}
	return a.column()
}

// base is the common part of the appenders: the name, the number of rows, the null bitmap.
type base struct {
	name   string
	rows   *int // number of rows of the table
	begins bool // each value begins a row
	n      int
	nulls  []uint64
}

// next counts a value, and returns how many rows before it have none.
func (b *base) next() (missing int) {
	if b.begins {
		*b.rows++
	}
	missing = b.skip(*b.rows - 1)
	b.n++
	return missing
}

// skip makes the rows before a row null that have no value yet.
func (b *base) skip(row int) (missing int) {
	for ; b.n < row; b.n++ {
		b.nulls = setBit(b.nulls, b.n)
		missing++
	}
	return missing
}

func (b *base) finish(c Column) Column {
	if b.nulls != nil {
		for len(b.nulls) < (b.n+63)/64 {
			b.nulls = append(b.nulls, 0)
		}
		c.nulls = b.nulls
	}
	return c
}

// constant is a column with the same value in each row.
type constant[T any] struct {
	base
	v    T
	pack func(name string, v []T) Column
}

func each[T any](b *Builder, name string, v T, pack func(string, []T) Column) {
	b.values = append(b.values, &constant[T]{b.value(name), v, pack})
}

func (c *constant[T]) column() Column { return c.pack(c.name, slices.Repeat([]T{c.v}, *c.rows)) }

func setBit(words []uint64, bit int) []uint64 {
	for len(words) <= bit>>6 {
		words = append(words, 0)
	}
	words[bit>>6] |= 1 << (bit & 63)
	return words
}

// Appender collects a column of numbers or booleans.
type Appender[T uint64 | int64 | float64 | bool] struct {
	base
	v    []T
	pack func(name string, v []T) Column
}

// The kinds of Appender.
type (
	UintAppender  = Appender[uint64]
	IntAppender   = Appender[int64]
	FloatAppender = Appender[float64]
	BoolAppender  = Appender[bool]
)

// add adds a column to the keys or to the values of a builder.
func add[T uint64 | int64 | float64 | bool](to *[]source, at base, pack func(string, []T) Column) *Appender[T] {
	a := &Appender[T]{base: at, pack: pack}
	*to = append(*to, a)
	return a
}

// Append sets the value of the row. The schema refuses an infinity or NaN.
func (a *Appender[T]) Append(v T) {
	a.fill(a.next())
	a.v = append(a.v, v)
}

// AppendIf sets the value of the row if ok is true.
func (a *Appender[T]) AppendIf(v T, ok bool) {
	if ok {
		a.Append(v)
	}
}

// fill adds rows without a value.
func (a *Appender[T]) fill(rows int) {
	for range rows {
		var none T
		a.v = append(a.v, none)
	}
}

func (a *Appender[T]) column() Column {
	a.fill(a.skip(*a.rows))
	return a.finish(a.pack(a.name, a.v))
}

// TextAppender collects a column of text.
type TextAppender struct {
	base
	text   textBuilder
	buffer []byte
}

// Append sets the value of the row.
func (a *TextAppender) Append(v string) {
	a.fill(a.next())
	a.text.append(v)
}

// AppendSome sets the value of the row unless it is empty.
func (a *TextAppender) AppendSome(v string) {
	if v != "" {
		a.Append(v)
	}
}

// AppendBytes sets the value of the row to a copy of v. It allocates no memory if the value is in
// the dictionary.
func (a *TextAppender) AppendBytes(v []byte) {
	a.fill(a.next())
	a.text.appendBytes(v)
}

// AppendText sets the value of the row to the text of v, which must have a text.
func (a *TextAppender) AppendText(v encoding.TextAppender) {
	a.buffer, _ = v.AppendText(a.buffer[:0])
	a.AppendBytes(a.buffer)
}

// fill adds rows without a value.
func (a *TextAppender) fill(rows int) {
	for range rows {
		a.text.append("")
	}
}

func (a *TextAppender) column() Column {
	a.fill(a.skip(*a.rows))
	return a.finish(Column{Name: a.name, Kind: String, n: a.n, text: a.text.packed()})
}

// Whole rounds an estimate of a count that cannot be negative.
func Whole(x float64) uint64 {
	if !(x > 0) {
		return 0
	}
	return uint64(math.Round(min(x, math.MaxInt64/2)))
}

// Decimal rounds to the fraction digits of a leaf of type decimal64.
func Decimal(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}

// maxDictionary is the number of distinct values up to which text is stored as a dictionary.
// Switch names, dimensions and states have far fewer; flows usually have more, and are stored end
// to end.
const maxDictionary = 1024

// textBuilder packs text, as a dictionary up to maxDictionary distinct values.
type textBuilder struct {
	data    []byte
	offsets []uint32
	codes   []uint32
	index   map[string]uint32 // nil without a dictionary
	plain   bool
}

func (b *textBuilder) append(s string) {
	if !b.plain {
		if code, ok := b.index[s]; ok {
			b.codes = append(b.codes, code)
			return
		}
		if b.intern(s) {
			return
		}
	}
	b.grow(len(s))
	b.data = append(b.data, s...)
	b.offsets = append(b.offsets, uint32(len(b.data)))
}

func (b *textBuilder) appendBytes(s []byte) {
	if !b.plain {
		if code, ok := b.index[string(s)]; ok { // indexing by a conversion in place does not allocate
			b.codes = append(b.codes, code)
			return
		}
		if b.intern(string(s)) {
			return
		}
	}
	b.grow(len(s))
	b.data = append(b.data, s...)
	b.offsets = append(b.offsets, uint32(len(b.data)))
}

// intern adds a new value to the dictionary. If the dictionary is full, intern drops it and
// returns false.
func (b *textBuilder) intern(s string) bool {
	if b.index == nil {
		b.index = make(map[string]uint32)
		b.offsets = append(b.offsets, 0)
	}
	if len(b.index) == maxDictionary {
		b.flatten()
		return false
	}
	code := uint32(len(b.index))
	b.index[s] = code
	b.grow(len(s))
	b.data = append(b.data, s...)
	b.offsets = append(b.offsets, uint32(len(b.data)))
	b.codes = append(b.codes, code)
	return true
}

// flatten stores the rows so far end to end, without the dictionary.
func (b *textBuilder) flatten() {
	old := packed{data: string(b.data), offsets: b.offsets, codes: b.codes}
	*b = textBuilder{plain: true, offsets: append(make([]uint32, 0, 2*len(old.codes)), 0)}
	for _, c := range old.codes {
		b.append(old.entry(int(c)))
	}
}

func (b *textBuilder) grow(n int) {
	if uint64(len(b.data))+uint64(n) > math.MaxUint32 {
		panic(fmt.Sprintf("table: a text column over 4 GiB (%d bytes and %d more)", len(b.data), n))
	}
}

func (b *textBuilder) packed() packed {
	p := packed{data: string(b.data), offsets: b.offsets, codes: b.codes}
	if len(b.codes) > 0 && len(b.codes) == len(b.index) {
		p.codes = nil // every value occurs once, in order, so row r is entry r
	}
	return p
}
