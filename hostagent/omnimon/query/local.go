// SPDX-License-Identifier: Apache-2.0

package query

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// atHosts is the count of operators of a step that hosts can run: those before a join, up to the
// first reduce, and up to the first distinct whose tuples several hosts may have.
func (s *Step) atHosts() int {
	operators := s.Operators
	if i := slices.IndexFunc(operators, func(o *Operator) bool { return o.Kind == Join }); i >= 0 {
		operators = operators[:i]
	}
	n := local(operators)
	if d := shared(operators); d > 0 {
		n = min(n, d)
	}
	return n
}

// AtHosts returns the operators that hosts run, of a step whose source is packets.
func (s *Step) AtHosts() []*Operator { return s.Operators[:s.atHosts()] }

// Uses reports whether the step reads a field of packets.
func (s *Step) Uses(field string) bool {
	if s.Source != "packets" {
		return false
	}
	var in func(e *Expression) bool
	in = func(e *Expression) bool {
		return e != nil && (e.Operation == "" && e.Field == field || in(e.Left) || in(e.Right))
	}
	for _, o := range s.Operators {
		if in(o.Condition) || slices.ContainsFunc(o.Columns, func(c Column) bool { return in(c.Expression) }) ||
			slices.ContainsFunc(o.Keys, func(k Name) bool { return k.Text == field }) {
			return true
		}
		if o.Kind != Filter {
			return false
		}
	}
	return field != "queue" // all fields are in the result; hosts have a queue of 0
}

// Local runs the first operators of a step packet by packet, where the packets are.
type Local struct {
	operators []*Operator
	fields    [][]Field // fields in front of each operator, and the result's fields
	run       run
	seen      []map[string]bool // tuples that distinct has seen, by operator
	groups    map[string]Tuple  // groups of reduce, which is the last operator
	keys      []int             // positions of reduce's keys
	out       []Tuple
	limit     int
	dropped   int
	counts    []bool // values of reduce that count packets, if each tuple stands for several
	packets   int64  // packets that a tuple stands for
}

// Start returns an empty Local of a step whose source is packets. It keeps at most limit tuples for
// each operator.
func (s *Step) Start(limit int) *Local {
	l := &Local{operators: s.Operators[:s.atHosts()], limit: limit}
	l.seen = make([]map[string]bool, len(l.operators))
	l.fields = [][]Field{packetFields}
	for i, o := range l.operators {
		in := l.fields[i]
		_, out := l.run.apply(o, nil, in)
		l.fields = append(l.fields, out)
		switch o.Kind {
		case Distinct:
			l.seen[i] = map[string]bool{}
		case Reduce:
			l.groups = map[string]Tuple{}
			for _, k := range o.Keys {
				l.keys = append(l.keys, slices.IndexFunc(in, func(f Field) bool { return f.Name == k.Text }))
			}
		}
	}
	return l
}

// Add runs the operators on a packet, which must not change afterwards.
func (l *Local) Add(packet Tuple) {
	t := packet
	for i, o := range l.operators {
		switch o.Kind {
		case Filter:
			if v, ok := l.run.value(o.Condition, t); !ok || v.Int == 0 {
				return
			}
		case Reduce:
			l.reduce(o, t)
			return
		default:
			row := make(Tuple, len(o.Columns))
			for j, c := range o.Columns {
				v, ok := l.run.value(c.Expression, t)
				if !ok {
					return
				}
				row[j] = v
			}
			if t = row; o.Kind == Distinct {
				k := key(t)
				if l.seen[i][k] {
					return
				}
				if len(l.seen[i]) == l.limit {
					l.dropped++
					return
				}
				l.seen[i][k] = true
			}
		}
	}
	if len(l.out) == l.limit {
		l.dropped++
		return
	}
	l.out = append(l.out, t)
}

func (l *Local) reduce(o *Operator, t Tuple) {
	row := make(Tuple, 0, len(l.keys)+len(o.Columns))
	for _, i := range l.keys {
		row = append(row, t[i])
	}
	k := key(row)
	for i, c := range o.Columns {
		v := Value{Type: Integer, Int: 1}
		if c.Expression != nil {
			var ok bool
			if v, ok = l.run.value(c.Expression, t); !ok {
				return
			}
		}
		if l.counts != nil && l.counts[i] {
			v.Int *= l.packets
		}
		row = append(row, Value{Type: Integer, Int: v.Int})
	}
	group, ok := l.groups[k]
	switch {
	case ok:
		aggregate(o, group[len(l.keys):], row[len(l.keys):])
	case len(l.groups) == l.limit:
		l.dropped++
	default:
		l.groups[k] = row
	}
}

// aggregate adds the values of a group to the values of another part of the group.
func aggregate(o *Operator, to, from Tuple) {
	for i, c := range o.Columns {
		switch c.Function {
		case "max":
			to[i].Int = max(to[i].Int, from[i].Int)
		case "min":
			to[i].Int = min(to[i].Int, from[i].Int)
		default:
			to[i].Int += from[i].Int
		}
	}
}

// Result returns the tuples, the count of packets that an expression that divides by zero left out,
// and the count of tuples above the limit, without which the result is incomplete.
func (l *Local) Result() (tuples []Tuple, undefined, dropped int) {
	tuples = l.out
	for _, t := range l.groups {
		tuples = append(tuples, t)
	}
	slices.SortFunc(tuples, compareTuples)
	return tuples, l.run.undefined, l.dropped
}

// Merge merges tuples that several parts of a host have for a step, and sorts them.
func (s *Step) Merge(tuples []Tuple) []Tuple {
	l := s.Start(0)
	if n := len(l.operators); n > 0 {
		tuples = merge(l.operators[n-1], tuples, len(l.keys))
	}
	slices.SortFunc(tuples, compareTuples)
	return tuples
}

// Finish computes the result of a query from the tuples that hosts returned for each of its steps
// over packets, and from the losses. The result is sorted.
func (p *Plan) Finish(parts map[string][]Tuple, losses []Tuple) (result []Tuple, undefined int) {
	r := &run{streams: map[string][]Tuple{"losses": losses}, fields: map[string][]Field{"losses": lossFields}}
	for i := range p.Steps {
		s := &p.Steps[i]
		tuples, fields, operators := r.streams[s.Source], r.fields[s.Source], s.Operators
		if s.Source == "packets" {
			l := s.Start(0)
			tuples, fields, operators = parts[s.Name], l.fields[len(l.operators)], s.Operators[len(l.operators):]
			if n := len(l.operators); n > 0 {
				tuples = merge(l.operators[n-1], tuples, len(l.keys))
			}
		}
		for _, o := range operators {
			tuples, fields = r.apply(o, tuples, fields)
		}
		r.streams[s.Name], r.fields[s.Name] = tuples, fields
		result = tuples
	}
	result = slices.Clone(result)
	slices.SortFunc(result, compareTuples)
	return result, r.undefined
}

// merge merges the results of an operator at several hosts.
func merge(o *Operator, tuples []Tuple, keys int) (out []Tuple) {
	switch o.Kind {
	case Distinct:
		return unique(tuples)
	case Reduce:
		groups := map[string]Tuple{}
		for _, t := range tuples {
			k := key(t[:keys])
			if g, ok := groups[k]; ok {
				aggregate(o, g[keys:], t[keys:])
				continue
			}
			g := slices.Clone(t)
			groups[k] = g
			out = append(out, g)
		}
		return out
	}
	return tuples
}

// errTuples is wrapped by errors about encoded tuples.
var errTuples = errors.New("invalid tuples")

// AppendTuples appends encoded tuples: their number, then their values. An integer is a varint; an
// address and text are their length and bytes. The types follow from the step's fields.
func AppendTuples(b []byte, tuples []Tuple) []byte {
	b = binary.AppendUvarint(b, uint64(len(tuples)))
	for _, t := range tuples {
		for _, v := range t {
			switch v.Type {
			case Address:
				raw := v.Address.AsSlice()
				b = append(append(b, byte(len(raw))), raw...)
			case Text:
				b = append(binary.AppendUvarint(b, uint64(len(v.Text))), v.Text...)
			default:
				b = binary.AppendVarint(b, v.Int)
			}
		}
	}
	return b
}

// DecodeTuples decodes the tuples that a host returned for a step.
func (s *Step) DecodeTuples(b []byte) ([]Tuple, error) {
	l := s.Start(0)
	fields := l.fields[len(l.operators)]
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)) {
		return nil, fmt.Errorf("%w: truncated count", errTuples)
	}
	b = b[size:]
	take := func(n uint64) []byte {
		if n > uint64(len(b)) {
			return nil
		}
		out := b[:n]
		b = b[n:]
		return out
	}
	out := make([]Tuple, 0, n)
	for range n {
		t := make(Tuple, len(fields))
		for i, f := range fields {
			t[i].Type = f.Type
			switch f.Type {
			case Address:
				length := take(1)
				if len(length) == 0 {
					return nil, fmt.Errorf("%w: truncated", errTuples)
				}
				a, ok := netip.AddrFromSlice(take(uint64(length[0])))
				if !ok {
					return nil, fmt.Errorf("%w: address of %d bytes", errTuples, length[0])
				}
				t[i].Address = a
			case Text:
				length, size := binary.Uvarint(b)
				if size <= 0 || length > uint64(len(b)-size) {
					return nil, fmt.Errorf("%w: truncated text", errTuples)
				}
				b = b[size:]
				t[i].Text = string(take(length))
			default:
				v, size := binary.Varint(b)
				if size <= 0 {
					return nil, fmt.Errorf("%w: truncated integer", errTuples)
				}
				t[i].Int = v
				b = b[size:]
			}
		}
		out = append(out, t)
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: trailing bytes", errTuples)
	}
	return out, nil
}
