// SPDX-License-Identifier: Apache-2.0

package table

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Kind is the type of the values of a column.
type Kind uint8

// The kinds of columns, with the YANG types that they represent.
const (
	Invalid Kind = iota
	Uint64       // uint8, uint16, uint32, uint64
	Int64        // int8, int16, int32, int64
	Float64      // decimal64
	Bool         // boolean
	String       // string, enumeration, identityref, and unions of such types
)

// String returns the kind's name in lower case, e.g. "uint64".
func (k Kind) String() string {
	switch k {
	case Uint64:
		return "uint64"
	case Int64:
		return "int64"
	case Float64:
		return "float64"
	case Bool:
		return "bool"
	case String:
		return "string"
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// Column is one leaf of every row: packed values and a null bitmap. The zero Column is empty and
// invalid; columns come from the constructors below or from a Builder. Name and Kind are read-only.
type Column struct {
	// Name is the key leaf's name ("flow"), or the leaf's path relative to the
	// list entry ("state/packets").
	Name string
	// Kind selects the accessor that returns the values.
	Kind Kind

	n int // rows

	uints  []uint64
	ints   []int64
	floats []float64
	bools  []bool
	text   packed

	nulls   []uint64 // bit nullsAt+r is set if row r is absent; nil if no row is absent
	nullsAt int
}

// packed is a column of text. Entry e is data[offsets[e]:offsets[e+1]]; row r is entry codes[r], or
// entry r without codes.
type packed struct {
	data    string
	offsets []uint32
	codes   []uint32
}

func (p packed) entries() int { return max(len(p.offsets)-1, 0) }

func (p packed) entry(e int) string { return p.data[p.offsets[e]:p.offsets[e+1]] }

// Uint64s returns a column that keeps v.
func Uint64s(name string, v []uint64) Column {
	return Column{Name: name, Kind: Uint64, n: len(v), uints: v}
}

// Int64s returns a column that keeps v.
func Int64s(name string, v []int64) Column {
	return Column{Name: name, Kind: Int64, n: len(v), ints: v}
}

// Float64s returns a column that keeps v.
func Float64s(name string, v []float64) Column {
	return Column{Name: name, Kind: Float64, n: len(v), floats: v}
}

// Bools returns a column that keeps v.
func Bools(name string, v []bool) Column {
	return Column{Name: name, Kind: Bool, n: len(v), bools: v}
}

// Strings returns a column with a packed copy of v, one row per string, with a dictionary if values
// repeat. It panics if the distinct text exceeds 4 GiB.
func Strings(name string, v []string) Column {
	var b textBuilder
	for _, s := range v {
		b.append(s)
	}
	return Column{Name: name, Kind: String, n: len(v), text: b.packed()}
}

// PackedStrings returns a text column whose entry e is data[offsets[e]:offsets[e+1]]. Row r is
// entry r, or entry codes[r] if codes is not nil. The column keeps the slices. PackedStrings fails
// if offsets or codes are out of range.
func PackedStrings(name, data string, offsets, codes []uint32) (Column, error) {
	if len(offsets) == 0 {
		if len(data) != 0 || len(codes) != 0 {
			return Column{}, fmt.Errorf("column %s: text without offsets", name)
		}
		return Column{Name: name, Kind: String}, nil
	}
	if offsets[0] != 0 || uint64(offsets[len(offsets)-1]) != uint64(len(data)) {
		return Column{}, fmt.Errorf("column %s: offsets run from %d to %d over %d bytes of text",
			name, offsets[0], offsets[len(offsets)-1], len(data))
	}
	if !slices.IsSorted(offsets) {
		return Column{}, fmt.Errorf("column %s: offsets are not in ascending order", name)
	}
	p := packed{data: data, offsets: offsets, codes: codes}
	n := p.entries()
	if codes != nil {
		for r, c := range codes {
			if int(c) >= p.entries() {
				return Column{}, fmt.Errorf("column %s: row %d has code %d, the dictionary has %d entries",
					name, r, c, p.entries())
			}
		}
		n = len(codes)
	}
	return Column{Name: name, Kind: String, n: n, text: p}, nil
}

// WithNulls returns the column with row r absent if bit r%64 of word r/64 is set. The column keeps
// the bitmap; nil or all zero means that no row is absent. WithNulls fails if the bitmap is shorter
// than the column.
func (c Column) WithNulls(bitmap []uint64) (Column, error) {
	if bitmap != nil && len(bitmap) < (c.n+63)/64 {
		return c, fmt.Errorf("column %s: null bitmap of %d words for %d rows", c.Name, len(bitmap), c.n)
	}
	c.nulls, c.nullsAt = bitmap, 0
	if c.NullCount() == 0 {
		c.nulls = nil
	}
	return c, nil
}

// Len returns the number of rows.
func (c *Column) Len() int { return c.n }

// HasNulls reports whether the column has a bitmap; without one no row is absent.
func (c *Column) HasNulls() bool { return c.nulls != nil }

// Null reports whether the row does not have the leaf. The accessors' results for an absent row are
// undefined.
func (c *Column) Null(row int) bool {
	if c.nulls == nil {
		return false
	}
	bit := c.nullsAt + row
	return c.nulls[bit>>6]>>(bit&63)&1 != 0
}

// NullCount returns the number of absent rows.
func (c *Column) NullCount() int {
	sum := 0
	for _, w := range c.NullBits() {
		sum += bits.OnesCount64(w)
	}
	return sum
}

// NullBits returns a copy of the null bitmap starting at row 0, without bits beyond the last row,
// or nil if the column has no bitmap.
func (c *Column) NullBits() []uint64 {
	if c.nulls == nil {
		return nil
	}
	out := make([]uint64, (c.n+63)/64)
	word, shift := c.nullsAt>>6, c.nullsAt&63
	for i := range out {
		w := c.nulls[word+i] >> shift
		if shift != 0 && word+i+1 < len(c.nulls) {
			w |= c.nulls[word+i+1] << (64 - shift)
		}
		out[i] = w
	}
	if tail := c.n & 63; tail != 0 && len(out) > 0 {
		out[len(out)-1] &= 1<<tail - 1
	}
	return out
}

// Uint64 returns the row's value of a Uint64 column.
func (c *Column) Uint64(row int) uint64 { return c.uints[row] }

// Int64 returns the row's value of an Int64 column.
func (c *Column) Int64(row int) int64 { return c.ints[row] }

// Float64 returns the row's value of a Float64 column.
func (c *Column) Float64(row int) float64 { return c.floats[row] }

// Bool returns the row's value of a Bool column.
func (c *Column) Bool(row int) bool { return c.bools[row] }

// Text returns the row's value of a String column, without copying.
func (c *Column) Text(row int) string {
	if c.text.codes != nil {
		row = int(c.text.codes[row])
	}
	return c.text.entry(row)
}

// Uint64s returns the values of a Uint64 column; read-only.
func (c *Column) Uint64s() []uint64 { return c.uints }

// Int64s returns the values of an Int64 column; read-only.
func (c *Column) Int64s() []int64 { return c.ints }

// Float64s returns the values of a Float64 column; read-only.
func (c *Column) Float64s() []float64 { return c.floats }

// Bools returns the values of a Bool column; read-only.
func (c *Column) Bools() []bool { return c.bools }

// Packed returns the parts of a String column in the form of PackedStrings; read-only. After Slice,
// data may contain text that belongs to no row and offsets may not begin with 0; Compact returns a
// column whose parts PackedStrings accepts.
func (c *Column) Packed() (data string, offsets, codes []uint32) {
	return c.text.data, c.text.offsets, c.text.codes
}

// Compact returns the column without text that no row uses. Call it on a slice of a text column
// before its parts are sent. Other kinds, and compact text, are returned unchanged.
func (c Column) Compact() Column {
	p := c.text
	if c.Kind != String || len(p.offsets) == 0 {
		return c
	}
	if p.codes == nil {
		first, last := p.offsets[0], p.offsets[len(p.offsets)-1]
		if first == 0 && int(last) == len(p.data) {
			return c
		}
		offsets := make([]uint32, len(p.offsets))
		for i, o := range p.offsets {
			offsets[i] = o - first
		}
		c.text = packed{data: p.data[first:last], offsets: offsets}
		return c
	}
	if c.n >= p.entries() { // a short dictionary is sent as a whole
		return c
	}
	var b textBuilder
	for row := range c.n {
		b.append(c.Text(row))
	}
	c.text = b.packed()
	return c
}

// bytes returns the size of the column's values without compression.
func (c *Column) bytes() int {
	switch {
	case c.Kind == Bool:
		return c.n
	case c.Kind != String:
		return 8 * c.n
	case len(c.text.offsets) == 0:
		return 0
	case c.text.codes == nil:
		return int(c.text.offsets[len(c.text.offsets)-1] - c.text.offsets[0])
	}
	sum := 0
	for _, code := range c.text.codes {
		sum += int(c.text.offsets[code+1] - c.text.offsets[code])
	}
	return sum
}

// Value returns the row's value boxed as uint64, int64, float64, bool or string, or nil if it is
// absent. Loops use the typed accessors instead.
func (c *Column) Value(row int) any {
	if c.Null(row) {
		return nil
	}
	switch c.Kind {
	case Uint64:
		return c.uints[row]
	case Int64:
		return c.ints[row]
	case Float64:
		return c.floats[row]
	case Bool:
		return c.bools[row]
	case String:
		return c.Text(row)
	}
	return nil
}

// ParseText reads a value of a kind in YANG's lexical form, as AppendText writes it.
func ParseText(kind Kind, text string) (any, error) {
	switch kind {
	case Uint64:
		return strconv.ParseUint(text, 10, 64)
	case Int64:
		return strconv.ParseInt(text, 10, 64)
	case Float64:
		return strconv.ParseFloat(text, 64)
	case Bool:
		return strconv.ParseBool(text)
	}
	return text, nil
}

// AppendText appends the row's value in YANG's lexical form: integers in decimal, decimals without
// exponent, booleans as true and false. It appends nothing if the value is absent.
func (c *Column) AppendText(b []byte, row int) []byte {
	if c.Null(row) {
		return b
	}
	switch c.Kind {
	case Uint64:
		return strconv.AppendUint(b, c.uints[row], 10)
	case Int64:
		return strconv.AppendInt(b, c.ints[row], 10)
	case Float64:
		return strconv.AppendFloat(b, c.floats[row], 'f', -1, 64)
	case Bool:
		return strconv.AppendBool(b, c.bools[row])
	case String:
		return append(b, c.Text(row)...)
	}
	return b
}

// Slice returns rows from (inclusive) to to (exclusive), sharing memory. It panics if they are
// outside of the column.
func (c Column) Slice(from, to int) Column {
	if from < 0 || to < from || to > c.n {
		panic(fmt.Sprintf("table: column %s has %d rows, slice asks for %d:%d", c.Name, c.n, from, to))
	}
	c.n = to - from
	switch c.Kind {
	case Uint64:
		c.uints = c.uints[from:to:to]
	case Int64:
		c.ints = c.ints[from:to:to]
	case Float64:
		c.floats = c.floats[from:to:to]
	case Bool:
		c.bools = c.bools[from:to:to]
	case String:
		switch {
		case c.text.codes != nil:
			c.text.codes = c.text.codes[from:to:to]
		case len(c.text.offsets) > 0:
			c.text.offsets = c.text.offsets[from : to+1 : to+1]
		}
	}
	if c.nulls != nil {
		c.nullsAt += from
	}
	return c
}

// Check reports whether the column is well-formed: a name, a kind, one value per row.
func (c *Column) Check() error {
	if c.Name == "" {
		return errors.New("a column has no name")
	}
	if strings.HasPrefix(c.Name, "/") || strings.ContainsAny(c.Name, "[] ") {
		return fmt.Errorf("column %q: a name is a leaf's path relative to the list entry, e.g. state/packets", c.Name)
	}
	values := 0
	switch c.Kind {
	case Uint64:
		values = len(c.uints)
	case Int64:
		values = len(c.ints)
	case Float64:
		values = len(c.floats)
	case Bool:
		values = len(c.bools)
	case String:
		values = c.text.entries()
		if c.text.codes != nil {
			values = len(c.text.codes)
		}
	default:
		return fmt.Errorf("column %s: no kind", c.Name)
	}
	if values != c.n {
		return fmt.Errorf("column %s: %d values for %d rows", c.Name, values, c.n)
	}
	return nil
}
