// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Type is the type of a value.
type Type uint8

// The types.
const (
	Integer Type = iota + 1
	Address
	Prefix
	Text
	Boolean
)

var typeNames = []string{"nothing", "an integer", "an address", "a prefix", "text", "a condition"}

// String returns "an integer" and so on.
func (t Type) String() string { return typeNames[t] }

// Value is a value of a field. Values of the same type are equal if they are ==.
type Value struct {
	Type    Type
	Int     int64
	Address netip.Addr
	Prefix  netip.Prefix
	Text    string
}

// Field is a field of a stream.
type Field struct {
	Name string
	Type Type
}

// packetFields are the fields of the stream of packets. The fields below this line are in the flow
// key, so that the values of a flow can be grouped by them.
var packetFields = []Field{{"src", Address}, {"dst", Address}, {"proto", Integer}, {"sport", Integer},
	{"dport", Integer},
	{"length", Integer}, {"ttl", Integer}, {"flags", Integer}, {"window", Integer},
	{"payload", Text}, {"dns_type", Integer}, {"dns_response", Integer}, {"flowlet", Integer}, {"queue", Integer}}

// lossFields are the fields of the stream of lost packets: one tuple per flow and location.
var lossFields = []Field{{"src", Address}, {"dst", Address}, {"proto", Integer}, {"sport", Integer}, {"dport", Integer},
	{"location", Text}, {"lost", Integer}}

// keyFields is the count of fields in the flow key, the first ones of both streams.
const keyFields = 5

type checker struct {
	file    string
	streams map[string][]Field
}

// check computes the types and the schema of each sequence.
func check(q *Query) error {
	c := &checker{q.File, map[string][]Field{"packets": packetFields, "losses": lossFields}}
	for _, s := range q.Sequences {
		if _, ok := c.streams[s.Name]; ok {
			return c.fail(s.At, "the name %q is taken", s.Name)
		}
		fields, ok := c.streams[s.Source]
		if !ok {
			return c.fail(s.SourceAt, "unknown source %q: packets, losses or an earlier sequence", s.Source)
		}
		for _, o := range s.Operators {
			var err error
			if fields, err = c.operator(o, fields); err != nil {
				return err
			}
		}
		s.Fields = fields
		c.streams[s.Name] = fields
	}
	last := q.Sequences[len(q.Sequences)-1]
	if last.Source == "packets" && !slices.ContainsFunc(last.Operators, func(o *Operator) bool {
		return o.Kind == Reduce || o.Kind == Distinct || o.Kind == Join
	}) {
		return c.fail(last.At, "the result %q is a stream of packets: end it with reduce or distinct", last.Name)
	}
	return nil
}

func (c *checker) fail(at Position, format string, args ...any) error {
	return &Error{c.file, at, fmt.Sprintf(format, args...)}
}

// operator returns the fields of the operator's result.
func (c *checker) operator(o *Operator, in []Field) (out []Field, err error) {
	switch o.Kind {
	case Filter:
		return in, c.want(o.Condition, in, Boolean, "a filter's condition")
	case Map, Distinct:
		for _, col := range o.Columns {
			t, err := c.expression(col.Expression, in)
			if err != nil {
				return nil, err
			}
			if t == Boolean || t == Prefix {
				return nil, c.fail(col.Expression.At, "a field cannot be %v", t)
			}
			if out, err = c.add(out, col.Name, t); err != nil {
				return nil, err
			}
		}
		return out, nil
	case Reduce:
		if out, err = c.keys(o, in); err != nil {
			return nil, err
		}
		for _, col := range o.Columns {
			if col.Expression != nil {
				if err := c.want(col.Expression, in, Integer, "an aggregate of "+col.Function); err != nil {
					return nil, err
				}
			}
			if out, err = c.add(out, col.Name, Integer); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	other, ok := c.streams[o.Other.Text]
	switch {
	case !ok:
		return nil, c.fail(o.Other.At, "unknown sequence %q", o.Other.Text)
	case o.Other.Text == "packets" || o.Other.Text == "losses":
		return nil, c.fail(o.Other.At, "join needs a sequence that ends with reduce or distinct, not %q", o.Other.Text)
	}
	left, err := c.keys(o, in)
	if err != nil {
		return nil, err
	}
	right, err := c.keys(o, other)
	if err != nil {
		return nil, err
	}
	for i := range left {
		if left[i] != right[i] {
			return nil, c.fail(o.Keys[i].At, "key %q is %v on the left and %v in %q", left[i].Name, left[i].Type, right[i].Type,
				o.Other.Text)
		}
	}
	out = slices.Clone(in)
	for _, f := range other {
		if slices.Contains(left, f) {
			continue
		}
		if out, err = c.add(out, Name{f.Name, o.Other.At}, f.Type); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *checker) add(fields []Field, n Name, t Type) ([]Field, error) {
	if slices.ContainsFunc(fields, func(f Field) bool { return f.Name == n.Text }) {
		return nil, c.fail(n.At, "two fields have the name %q: rename one with map", n.Text)
	}
	return append(fields, Field{n.Text, t}), nil
}

func (c *checker) keys(o *Operator, in []Field) (out []Field, err error) {
	for _, k := range o.Keys {
		_, t, err := c.field(k.Text, k.At, in)
		if err != nil {
			return nil, err
		}
		if out, err = c.add(out, k, t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// field returns the position and the type of a field.
func (c *checker) field(name string, at Position, in []Field) (int, Type, error) {
	names := make([]string, len(in))
	for i, f := range in {
		if f.Name == name {
			return i, f.Type, nil
		}
		names[i] = f.Name
	}
	return 0, 0, c.fail(at, "unknown field %q; this stream has: %s", name, strings.Join(names, ", "))
}

func (c *checker) want(e *Expression, in []Field, want Type, what string) error {
	got, err := c.expression(e, in)
	if err == nil && got != want {
		return c.fail(e.At, "%s must be %v, this is %v", what, want, got)
	}
	return err
}

// expression computes and stores the type of an expression. It replaces an operation on constants
// by its result, so that switches can match it.
func (c *checker) expression(e *Expression, in []Field) (t Type, err error) {
	defer func() { e.kind = t }()
	switch {
	case e.Constant != nil:
		return e.Constant.Type, nil
	case e.Operation == "":
		e.index, t, err = c.field(e.Field, e.At, in)
		return t, err
	case e.Operation == "!":
		return Boolean, c.want(e.Left, in, Boolean, "the operand of !")
	}
	left, err := c.expression(e.Left, in)
	if err != nil {
		return 0, err
	}
	right, err := c.expression(e.Right, in)
	if err != nil {
		return 0, err
	}
	fits := left == Integer && right == Integer
	t = Integer
	switch e.Operation {
	case "&&", "||":
		t, fits = Boolean, left == Boolean && right == Boolean
	case "==", "!=":
		t, fits = Boolean, left == right && (left == Integer || left == Address || left == Text)
	case "<", "<=", ">", ">=":
		t = Boolean
	case "in":
		t, fits = Boolean, left == Address && right == Prefix
	case "contains":
		t, fits = Boolean, left == Text && right == Text
	}
	if !fits {
		return 0, c.fail(e.At, "%s does not apply to %v and %v", e.Operation, left, right)
	}
	if t == Integer && e.Left.Constant != nil && e.Right.Constant != nil {
		v, ok := e.evaluate(nil)
		if !ok {
			return 0, c.fail(e.At, "division by zero")
		}
		*e = Expression{At: e.At, Constant: &v}
	}
	return t, nil
}
