// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// Tuple is one element of a stream: a value for each field.
type Tuple []Value

// String returns the values, separated by spaces.
func (t Tuple) String() string {
	var words []string
	for _, v := range t {
		words = append(words, v.String())
	}
	return strings.Join(words, " ")
}

// PacketFields are the fields of a packet in their order.
func PacketFields() []Field { return slices.Clone(packetFields) }

type run struct {
	streams   map[string][]Tuple
	fields    map[string][]Field
	undefined int
}

func (r *run) apply(o *Operator, in []Tuple, fields []Field) (out []Tuple, schema []Field) {
	switch o.Kind {
	case Filter:
		for _, t := range in {
			if v, ok := r.value(o.Condition, t); ok && v.Int != 0 {
				out = append(out, t)
			}
		}
		return out, fields
	case Map, Distinct:
		out, schema = r.project(o, in)
		if o.Kind == Distinct {
			out = unique(out)
		}
		return out, schema
	case Reduce:
		return r.reduce(o, in, fields)
	}
	return r.join(o, in, fields)
}

func (r *run) value(e *Expression, t Tuple) (Value, bool) {
	v, ok := e.evaluate(t)
	if !ok {
		r.undefined++
	}
	return v, ok
}

func (r *run) project(o *Operator, in []Tuple) (out []Tuple, schema []Field) {
	for _, c := range o.Columns {
		schema = append(schema, Field{c.Name.Text, c.Expression.kind})
	}
next:
	for _, t := range in {
		row := make(Tuple, len(o.Columns))
		for i, c := range o.Columns {
			v, ok := r.value(c.Expression, t)
			if !ok {
				continue next
			}
			row[i] = v
		}
		out = append(out, row)
	}
	return out, schema
}

// unique keeps the first tuple of equal ones.
func unique(in []Tuple) (out []Tuple) {
	seen := map[string]bool{}
	for _, t := range in {
		if k := key(t); !seen[k] {
			seen[k] = true
			out = append(out, t)
		}
	}
	return out
}

// key is a string that is equal for equal tuples only.
func key(t Tuple) string {
	b := make([]byte, 0, 64)
	for _, v := range t {
		b = v.encode(b)
	}
	return string(b)
}

func (r *run) reduce(o *Operator, in []Tuple, fields []Field) (out []Tuple, schema []Field) {
	at := make([]int, len(o.Keys))
	for i, k := range o.Keys {
		at[i] = slices.IndexFunc(fields, func(f Field) bool { return f.Name == k.Text })
		schema = append(schema, fields[at[i]])
	}
	for _, c := range o.Columns {
		schema = append(schema, Field{c.Name.Text, Integer})
	}
	groups := map[string]int{}
next:
	for _, t := range in {
		values := make([]int64, len(o.Columns))
		for i, c := range o.Columns {
			if c.Expression == nil {
				values[i] = 1
				continue
			}
			v, ok := r.value(c.Expression, t)
			if !ok {
				continue next
			}
			values[i] = v.Int
		}
		row := make(Tuple, 0, len(schema))
		for _, i := range at {
			row = append(row, t[i])
		}
		k := key(row)
		g, ok := groups[k]
		if !ok {
			groups[k] = len(out)
			for _, v := range values {
				row = append(row, Value{Type: Integer, Int: v})
			}
			out = append(out, row)
			continue
		}
		more := make(Tuple, len(values))
		for i, v := range values {
			more[i].Int = v
		}
		aggregate(o, out[g][len(at):], more)
	}
	return out, schema
}

// join merges the tuples of both sides whose keys are equal.
func (r *run) join(o *Operator, left []Tuple, fields []Field) (out []Tuple, schema []Field) {
	right, others := r.streams[o.Other.Text], r.fields[o.Other.Text]
	isKey := func(f Field) bool { return slices.ContainsFunc(o.Keys, func(k Name) bool { return k.Text == f.Name }) }
	keyOf := func(t Tuple, fields []Field) string {
		var k Tuple
		for _, n := range o.Keys {
			k = append(k, t[slices.IndexFunc(fields, func(f Field) bool { return f.Name == n.Text })])
		}
		return key(k)
	}
	byKey := map[string][]Tuple{}
	for _, t := range right {
		k := keyOf(t, others)
		byKey[k] = append(byKey[k], t)
	}
	schema = slices.Clone(fields)
	for _, f := range others {
		if !isKey(f) {
			schema = append(schema, f)
		}
	}
	for _, l := range left {
		for _, t := range byKey[keyOf(l, fields)] {
			row := slices.Clone(l)
			for i, f := range others {
				if !isKey(f) {
					row = append(row, t[i])
				}
			}
			out = append(out, row)
		}
	}
	return out, schema
}

// evaluate returns the value of an expression; ok is false if it divides by zero.
func (e *Expression) evaluate(t Tuple) (v Value, ok bool) {
	switch {
	case e.Constant != nil:
		return *e.Constant, true
	case e.Operation == "":
		return t[e.index], true
	}
	left, ok := e.Left.evaluate(t)
	if !ok {
		return v, false
	}
	switch e.Operation {
	case "!":
		return boolean(left.Int == 0), true
	case "&&", "||":
		if (left.Int != 0) == (e.Operation == "||") {
			return left, true
		}
		return e.Right.evaluate(t)
	}
	right, ok := e.Right.evaluate(t)
	if !ok {
		return v, false
	}
	a, b := left.Int, right.Int
	switch e.Operation {
	case "==":
		return boolean(left == right), true
	case "!=":
		return boolean(left != right), true
	case "<":
		return boolean(a < b), true
	case "<=":
		return boolean(a <= b), true
	case ">":
		return boolean(a > b), true
	case ">=":
		return boolean(a >= b), true
	case "in":
		return boolean(right.Prefix.Contains(left.Address)), true
	case "contains":
		return boolean(strings.Contains(left.Text, right.Text)), true
	case "+":
		a += b
	case "-":
		a -= b
	case "*":
		a *= b
	case "&":
		a &= b
	case "|":
		a |= b
	case "/":
		if b == 0 {
			return v, false
		}
		a /= b
	}
	return Value{Type: Integer, Int: a}, true
}

func boolean(b bool) Value {
	if b {
		return Value{Type: Boolean, Int: 1}
	}
	return Value{Type: Boolean}
}

// encode appends a self-delimiting form of a value.
func (v Value) encode(b []byte) []byte {
	switch b = append(b, byte(v.Type)); v.Type {
	case Address:
		raw := v.Address.As16()
		return append(append(b, byte(v.Address.BitLen())), raw[:]...)
	case Text:
		return append(binary.AppendUvarint(b, uint64(len(v.Text))), v.Text...)
	}
	return binary.AppendVarint(b, v.Int)
}

func compareTuples(a, b Tuple) int {
	for i := range min(len(a), len(b)) {
		if c := compareValues(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareValues(a, b Value) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Int, b.Int), a.Address.Compare(b.Address),
		strings.Compare(a.Text, b.Text))
}
