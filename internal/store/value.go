// SPDX-License-Identifier: Apache-2.0

package store

import (
	"math"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/yang/table"
)

// Value is one leaf's value. The zero Value is an absent leaf. Values of one kind
// compare with ==.
type Value struct {
	kind table.Kind
	num  uint64
	str  string
}

// Uint returns an unsigned value.
func Uint(v uint64) Value { return Value{kind: table.Uint64, num: v} }

// Int returns a signed value.
func Int(v int64) Value { return Value{kind: table.Int64, num: uint64(v)} }

// Float returns a decimal value.
func Float(v float64) Value { return Value{kind: table.Float64, num: math.Float64bits(v)} }

// Bool returns a boolean value.
func Bool(v bool) Value {
	if v {
		return Value{kind: table.Bool, num: 1}
	}
	return Value{kind: table.Bool}
}

// Text returns a text value.
func Text(v string) Value { return Value{kind: table.String, str: v} }

// Kind selects the accessor; table.Invalid for an absent leaf.
func (v Value) Kind() table.Kind { return v.kind }

// Absent reports whether the leaf has no value.
func (v Value) Absent() bool { return v.kind == table.Invalid }

// Uint returns the value of kind Uint64.
func (v Value) Uint() uint64 { return v.num }

// Int returns the value of kind Int64.
func (v Value) Int() int64 { return int64(v.num) }

// Float returns the value of kind Float64.
func (v Value) Float() float64 { return math.Float64frombits(v.num) }

// Bool returns the value of kind Bool.
func (v Value) Bool() bool { return v.num != 0 }

// Text returns the value of kind String.
func (v Value) Text() string { return v.str }

// AppendText appends the value in YANG's lexical form; nothing when absent.
func (v Value) AppendText(b []byte) []byte {
	switch v.kind {
	case table.Uint64:
		return strconv.AppendUint(b, v.num, 10)
	case table.Int64:
		return strconv.AppendInt(b, int64(v.num), 10)
	case table.Float64:
		return strconv.AppendFloat(b, v.Float(), 'f', -1, 64)
	case table.Bool:
		return strconv.AppendBool(b, v.num != 0)
	case table.String:
		return append(b, v.str...)
	}
	return b
}

// String returns the value in YANG's lexical form, "" when absent.
func (v Value) String() string {
	if v.kind == table.String {
		return v.str
	}
	return string(v.AppendText(nil))
}

// clone returns the value without sharing the table's memory.
func (v Value) clone() Value {
	v.str = strings.Clone(v.str)
	return v
}

// cell returns the value of a column's row, sharing the column's memory.
func cell(c *table.Column, row int) Value {
	if c.Null(row) {
		return Value{}
	}
	switch c.Kind {
	case table.Uint64:
		return Uint(c.Uint64(row))
	case table.Int64:
		return Int(c.Int64(row))
	case table.Float64:
		return Float(c.Float64(row))
	case table.Bool:
		return Bool(c.Bool(row))
	case table.String:
		return Text(c.Text(row))
	}
	return Value{}
}

// parseKey reads a key's text form as a value of a column's kind; false if the text is not of this
// kind.
func parseKey(kind table.Kind, s string) (Value, bool) {
	switch kind {
	case table.Uint64:
		n, err := strconv.ParseUint(s, 10, 64)
		return Uint(n), err == nil
	case table.Int64:
		n, err := strconv.ParseInt(s, 10, 64)
		return Int(n), err == nil
	case table.Float64:
		f, err := strconv.ParseFloat(s, 64)
		return Float(f), err == nil
	case table.Bool:
		return Bool(s == "true"), s == "true" || s == "false"
	case table.String:
		return Text(s), true
	}
	return Value{}, false
}
