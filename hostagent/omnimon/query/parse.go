// SPDX-License-Identifier: Apache-2.0

// Package query is the query language of OmniMon (paper, section 6): filter, map, distinct, reduce
// and join over the packets of an epoch. Parse checks types, Place assigns sequences to switches,
// hosts and the collector, and Run evaluates a query. docs/omnimon.md describes the language.
//
// A Query does not change after Parse and may be used by any number of goroutines.
package query

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"
)

// Query is a parsed query: sequences of operators. The last sequence is the result.
type Query struct {
	File      string
	Sequences []*Sequence
}

// Sequence is a named stream: operators applied to a source.
type Sequence struct {
	Name      string
	At        Position
	Source    string // "packets", "losses" or the name of an earlier sequence
	SourceAt  Position
	Operators []*Operator
	// Fields is the schema of the result, set by the type checker.
	Fields []Field
}

// Kind is the kind of an operator.
type Kind string

// The operators.
const (
	Filter   Kind = "filter"
	Map      Kind = "map"
	Distinct Kind = "distinct"
	Reduce   Kind = "reduce"
	Join     Kind = "join"
)

// Operator is one operator of a sequence.
type Operator struct {
	Kind Kind
	At   Position
	// Condition of a filter.
	Condition *Expression
	// Columns of map and distinct, and the aggregates of reduce.
	Columns []Column
	// Keys of reduce and join.
	Keys []Name
	// Other is the stream that join merges.
	Other Name
}

// Name is a name and its place.
type Name struct {
	Text string
	At   Position
}

// Column is a named expression. Of reduce, Function aggregates the expression, which is nil for
// count.
type Column struct {
	Name       Name
	Function   string
	Expression *Expression
}

// Expression is a tree. Exactly one of the forms is set: an operation with one or two operands, a
// field, or a constant.
type Expression struct {
	At          Position
	Operation   string // "==", "contains", "!", …; empty: no operation
	Left, Right *Expression
	Field       string
	Constant    *Value
	kind        Type
	index       int // index of the field in the tuple
}

// Type returns the type of an expression that was checked.
func (e *Expression) Type() Type { return e.kind }

// constants are names of integers.
var constants = map[string]int64{"ICMP": 1, "TCP": 6, "UDP": 17, "ICMPv6": 58,
	"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32}

// ID identifies the text of a query.
func ID(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// ClientName is the name of a query that a client requests by its text.
func ClientName(text string) string { return fmt.Sprintf("q-%016x", ID(text)) }

// maxSource is the largest length of a query in bytes.
const maxSource = 1 << 16

// Parse parses and checks a query. file names the query in errors.
func Parse(file, source string) (*Query, error) {
	if len(source) > maxSource {
		return nil, &Error{file, Position{1, 1}, fmt.Sprintf("a query of %d bytes: at most %d", len(source), maxSource)}
	}
	tokens, err := lex(file, source)
	if err != nil {
		return nil, err
	}
	p := &parser{file: file, tokens: tokens}
	q := &Query{File: file}
	if err := p.query(q); err != nil {
		return nil, err
	}
	if err := check(q); err != nil {
		return nil, err
	}
	return q, nil
}

type parser struct {
	file   string
	tokens []token
	depth  int
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != end {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) is(s string) bool { return p.peek().kind == symbol && p.peek().text == s }

func (p *parser) accept(s string) bool {
	if p.is(s) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(s, where string) error {
	if t := p.peek(); !p.accept(s) {
		return p.fail(t.at, "expected %q %s, found %v", s, where, t)
	}
	return nil
}

func (p *parser) name(what string) (Name, error) {
	t := p.next()
	if t.kind != name {
		return Name{}, p.fail(t.at, "expected %s, found %v", what, t)
	}
	return Name{t.text, t.at}, nil
}

func (p *parser) fail(at Position, format string, args ...any) error {
	return &Error{p.file, at, fmt.Sprintf(format, args...)}
}

func (p *parser) query(q *Query) error {
	for p.peek().kind != end {
		n, err := p.name("the name of a sequence, as in: result = packets.filter(…)")
		if err != nil {
			return err
		}
		s := &Sequence{Name: n.Text, At: n.At}
		if err := p.expect("=", "after the name of the sequence"); err != nil {
			return err
		}
		source, err := p.name("a source: packets, losses or an earlier sequence")
		if err != nil {
			return err
		}
		s.Source, s.SourceAt = source.Text, source.At
		for p.accept(".") {
			o, err := p.operator()
			if err != nil {
				return err
			}
			s.Operators = append(s.Operators, o)
		}
		q.Sequences = append(q.Sequences, s)
	}
	if len(q.Sequences) == 0 {
		return p.fail(p.peek().at, "the query has no sequence, such as: result = packets.filter(proto == TCP)")
	}
	return nil
}

func (p *parser) operator() (*Operator, error) {
	n, err := p.name("an operator: filter, map, distinct, reduce or join")
	if err != nil {
		return nil, err
	}
	o := &Operator{Kind: Kind(n.Text), At: n.At}
	if err := p.expect("(", "after the operator"); err != nil {
		return nil, err
	}
	switch o.Kind {
	case Filter:
		o.Condition, err = p.expression(0)
	case Map, Distinct:
		err = p.list(func() error { return p.column(o) })
	case Reduce:
		err = p.reduce(o)
	case Join:
		if o.Other, err = p.name("the sequence to join"); err == nil {
			if err = p.expect(",", "and keys=(…) after the sequence"); err == nil {
				err = p.keys(o)
			}
		}
	default:
		return nil, p.fail(n.At, "unknown operator %q: filter, map, distinct, reduce or join", n.Text)
	}
	if err != nil {
		return nil, err
	}
	return o, p.expect(")", "at the end of "+n.Text)
}

// list parses at least one item, separated by commas.
func (p *parser) list(item func() error) error {
	for {
		if err := item(); err != nil {
			return err
		}
		if !p.accept(",") {
			return nil
		}
	}
}

// column parses NAME or NAME = EXPRESSION.
func (p *parser) column(o *Operator) error {
	n, err := p.name("a field, or NAME = EXPRESSION")
	if err != nil {
		return err
	}
	e := &Expression{At: n.At, Field: n.Text}
	if p.accept("=") {
		if e, err = p.expression(0); err != nil {
			return err
		}
	}
	o.Columns = append(o.Columns, Column{Name: n, Expression: e})
	return nil
}

func (p *parser) keys(o *Operator) error {
	if t := p.next(); t.kind != name || t.text != "keys" {
		return p.fail(t.at, "expected keys=(…), found %v", t)
	}
	if err := p.expect("=", "after keys"); err != nil {
		return err
	}
	if err := p.expect("(", "before the keys"); err != nil {
		return err
	}
	if p.accept(")") {
		return nil
	}
	err := p.list(func() error {
		n, err := p.name("the name of a key")
		o.Keys = append(o.Keys, n)
		return err
	})
	if err != nil {
		return err
	}
	return p.expect(")", "after the keys")
}

// reduce parses keys=(…) and aggregates such as bytes=sum(length).
func (p *parser) reduce(o *Operator) error {
	if err := p.keys(o); err != nil {
		return err
	}
	if !p.is(",") {
		return p.fail(p.peek().at, "expected an aggregate after the keys, such as packets=count()")
	}
	p.next()
	return p.list(func() error {
		n, err := p.name("NAME=FUNCTION(…)")
		if err != nil {
			return err
		}
		if err := p.expect("=", "after the name of the aggregate"); err != nil {
			return err
		}
		f, err := p.name("sum, count, max or min")
		if err != nil {
			return err
		}
		c := Column{Name: n, Function: f.Text}
		if !contains([]string{"sum", "count", "max", "min"}, f.Text) {
			return p.fail(f.At, "unknown function %q: sum, count, max or min", f.Text)
		}
		if err := p.expect("(", "after the function"); err != nil {
			return err
		}
		if f.Text != "count" {
			if c.Expression, err = p.expression(0); err != nil {
				return err
			}
		}
		o.Columns = append(o.Columns, c)
		return p.expect(")", "at the end of "+f.Text)
	})
}

// levels are the binary operations by precedence, the weakest first.
var levels = [][]string{{"||"}, {"&&"}, {"==", "!=", "<", "<=", ">", ">=", "in", "contains"}, {"+", "-"},
	{"*", "/", "&", "|"}}

// maxDepth bounds the nesting of expressions.
const maxDepth = 100

func (p *parser) expression(level int) (*Expression, error) {
	if level == len(levels) {
		return p.operand()
	}
	left, err := p.expression(level + 1)
	if err != nil {
		return nil, err
	}
	for {
		t := p.peek()
		if t.kind != symbol && t.kind != name || !contains(levels[level], t.text) {
			return left, nil
		}
		p.next()
		right, err := p.expression(level + 1)
		if err != nil {
			return nil, err
		}
		left = &Expression{At: t.at, Operation: t.text, Left: left, Right: right}
	}
}

func (p *parser) operand() (*Expression, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail(p.peek().at, "the expression is nested more than %d levels deep", maxDepth)
	}
	defer func() { p.depth-- }()
	t := p.next()
	e := &Expression{At: t.at}
	switch {
	case t.kind == symbol && t.text == "(":
		e, err := p.expression(0)
		if err != nil {
			return nil, err
		}
		return e, p.expect(")", "at the end of the expression")
	case t.kind == symbol && t.text == "!":
		operand, err := p.operand()
		e.Operation, e.Left = "!", operand
		return e, err
	case t.kind == number:
		if len(t.text) > 1 && t.text[0] == '0' && strings.Trim(t.text, "0123456789_") == "" {
			return nil, p.fail(t.at, "%q begins with 0: leave the zeros out, or write an octal number as 0o10", t.text)
		}
		n, err := strconv.ParseInt(t.text, 0, 64)
		if err != nil {
			return nil, p.fail(t.at, "%q is no integer", t.text)
		}
		e.Constant = &Value{Type: Integer, Int: n}
	case t.kind == text:
		e.Constant = &Value{Type: Text, Text: t.text}
	case t.kind == address:
		v, err := parseAddress(t.text)
		if err != nil {
			return nil, p.fail(t.at, "%q is neither an address nor a prefix such as 10.0.0.0/8", t.text)
		}
		e.Constant = v
	case t.kind == name:
		if n, ok := constants[t.text]; ok {
			e.Constant = &Value{Type: Integer, Int: n}
		} else {
			e.Field = t.text
		}
	default:
		return nil, p.fail(t.at, "expected a field or a value, found %v", t)
	}
	return e, nil
}

func parseAddress(s string) (*Value, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		return &Value{Type: Prefix, Prefix: p.Masked()}, err
	}
	a, err := netip.ParseAddr(s)
	return &Value{Type: Address, Address: a}, err
}
