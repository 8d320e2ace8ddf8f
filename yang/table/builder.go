// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"math"
)

// Builder makes a Table column by column:
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
// Keys and values keep the order of these calls.
type Builder struct {
	list   string
	keys   []source
	values []source
}

type source interface{ column() Column }

// NewBuilder returns a builder of a table of the list at this schema path.
func NewBuilder(list string) *Builder { return &Builder{list: list} }

// TextKey adds a key column of text.
func (b *Builder) TextKey(name string) *TextAppender {
	a := &TextAppender{base: base{name: name}}
	b.keys = append(b.keys, a)
	return a
}

// UintKey adds a key column of unsigned integers.
func (b *Builder) UintKey(name string) *UintAppender { return add(&b.keys, name, Uint64s) }

// IntKey adds a key column of signed integers.
func (b *Builder) IntKey(name string) *IntAppender { return add(&b.keys, name, Int64s) }

// BoolKey adds a key column of booleans.
func (b *Builder) BoolKey(name string) *BoolAppender { return add(&b.keys, name, Bools) }

// Text adds a value column of text.
func (b *Builder) Text(name string) *TextAppender {
	a := &TextAppender{base: base{name: name}}
	b.values = append(b.values, a)
	return a
}

// Uint adds a value column of unsigned integers.
func (b *Builder) Uint(name string) *UintAppender { return add(&b.values, name, Uint64s) }

// Int adds a value column of signed integers.
func (b *Builder) Int(name string) *IntAppender { return add(&b.values, name, Int64s) }

// Float adds a value column of decimals.
func (b *Builder) Float(name string) *FloatAppender { return add(&b.values, name, Float64s) }

// Bool adds a value column of booleans.
func (b *Builder) Bool(name string) *BoolAppender { return add(&b.values, name, Bools) }

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
	at := base{name: name}
	switch kind {
	case Uint64:
		return collect(&UintAppender{at, make([]uint64, 0, n), Uint64s}, n, value)
	case Int64:
		return collect(&IntAppender{at, make([]int64, 0, n), Int64s}, n, value)
	case Float64:
		return collect(&FloatAppender{at, make([]float64, 0, n), Float64s}, n, value)
	case Bool:
		return collect(&BoolAppender{at, make([]bool, 0, n), Bools}, n, value)
	}
	return collect(&TextAppender{base: at}, n, value)
}

// collect appends n values and returns the column.
func collect[T any](a interface {
	source
	Append(T)
	AppendNull()
}, n int, value func(row int) any) Column {
	for row := range n {
		if v, ok := value(row).(T); ok {
			a.Append(v)
		} else {
			a.AppendNull()
		}
	}
	return a.column()
}

// base is the common part of the appenders: the name, the number of rows, the null bitmap.
type base struct {
	name  string
	n     int
	nulls []uint64
}

func (b *base) null() {
	b.nulls = setBit(b.nulls, b.n)
	b.n++
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
func add[T uint64 | int64 | float64 | bool](to *[]source, name string, pack func(string, []T) Column) *Appender[T] {
	a := &Appender[T]{base: base{name: name}, pack: pack}
	*to = append(*to, a)
	return a
}

// Append adds a row with this value. The schema refuses an infinity or NaN: append null instead.
func (a *Appender[T]) Append(v T) { a.v = append(a.v, v); a.n++ }

// AppendNull adds a row that does not have the leaf.
func (a *Appender[T]) AppendNull() {
	var none T
	a.v = append(a.v, none)
	a.null()
}

func (a *Appender[T]) column() Column { return a.finish(a.pack(a.name, a.v)) }

// TextAppender collects a column of text.
type TextAppender struct {
	base
	text textBuilder
}

// Append adds a row with this value.
func (a *TextAppender) Append(v string) { a.text.append(v); a.n++ }

// AppendBytes adds a row with a copy of this value. It allocates no memory if the value is in the
// dictionary.
func (a *TextAppender) AppendBytes(v []byte) { a.text.appendBytes(v); a.n++ }

// AppendNull adds a row that does not have the leaf.
func (a *TextAppender) AppendNull() { a.text.append(""); a.null() }

func (a *TextAppender) column() Column {
	return a.finish(Column{Name: a.name, Kind: String, n: a.n, text: a.text.packed()})
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
		if code, ok := b.index[string(s)]; ok { // this index expression does not allocate
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
