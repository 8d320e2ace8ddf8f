// SPDX-License-Identifier: Apache-2.0

package query

import (
	"math/bits"
	"slices"
)

// Match restricts a field of packets. Addresses and flags match if the bits of Mask equal the bits
// of Value, other fields if they are between Value and High.
type Match struct {
	Field             string
	Value, Mask, High uint64
}

// Entry is a conjunction of matches, at most one for each field, sorted by field.
type Entry []Match

// Unit is the use of one unit of a switch by a sequence: the entries of the unit's filter, of which
// the first match applies, and the value that a match adds.
type Unit struct {
	Name    string // name of the aggregate
	Entries []Entry
	Adds    string   // "length", "ttl" or "window", or empty for one
	Keys    []string // fields of packets that the sequence groups by
}

// widths are the bits of the fields that filters match.
var widths = map[string]int{"src": 32, "dst": 32, "proto": 8, "sport": 16, "dport": 16, "length": 32, "ttl": 8,
	"flags": 8, "window": 16, "queue": 19}

// masked are the fields that match by mask.
var masked = []string{"src", "dst", "flags"}

// Units returns the sequence's use of units, one for each aggregate. ok is false if filters cannot
// express the sequence; hosts run it in either case, unless it uses the queue depth.
func (s *Step) Units() (units []Unit, ok bool) {
	if s.Place != Switches {
		return nil, false
	}
	defined := map[string]*Expression{}
	for _, f := range packetFields {
		defined[f.Name] = &Expression{Field: f.Name, kind: f.Type}
	}
	entries := []Entry{nil}
	for _, o := range s.Operators[:s.Local] {
		switch o.Kind {
		case Filter:
			more, ok := compile(substitute(o.Condition, defined), false)
			if entries = both(entries, more); !ok || len(entries) > maxEntries {
				return nil, false
			}
		case Map:
			next := map[string]*Expression{}
			for _, c := range o.Columns {
				next[c.Name.Text] = substitute(c.Expression, defined)
			}
			defined = next
		case Reduce:
			var keys []string
			for _, k := range o.Keys {
				keys = append(keys, defined[k.Text].Field)
			}
			for _, c := range o.Columns {
				u := Unit{Name: c.Name.Text, Entries: entries, Keys: keys}
				if c.Expression != nil {
					switch e := substitute(c.Expression, defined); {
					case e.Constant != nil && e.Constant.Int == 1:
					case slices.Contains([]string{"length", "ttl", "window"}, e.Field):
						u.Adds = e.Field
					default:
						return nil, false
					}
				}
				units = append(units, u)
			}
		}
	}
	return units, true
}

// compile returns the entries that match a condition, or its opposite.
func compile(e *Expression, negated bool) (out []Entry, ok bool) {
	switch e.Operation {
	case "!":
		return compile(e.Left, !negated)
	case "&&", "||":
		left, ok := compile(e.Left, negated)
		if !ok {
			return nil, false
		}
		right, ok := compile(e.Right, negated)
		if !ok || len(left)*len(right) > maxEntries*maxEntries {
			return nil, false
		}
		if (e.Operation == "&&") == negated {
			return append(slices.Clone(left), right...), true
		}
		return both(left, right), true
	}
	return compare(e, negated)
}

var flipped = map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!=", "in": "in"}

var opposite = map[string]string{"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "==", "in": "!in"}

// compare returns the entries of a comparison of a field with a constant.
func compare(e *Expression, negated bool) (out []Entry, ok bool) {
	field, constant, operation := e.Left, e.Right, e.Operation
	if field == nil || constant == nil {
		return nil, false
	}
	if field.Constant != nil {
		field, constant, operation = constant, field, flipped[operation]
	}
	if negated {
		operation = opposite[operation]
	}
	var mask *Value
	if field.Operation == "&" && field.Right.Constant != nil {
		field, mask = field.Left, field.Right.Constant
	}
	width, known := widths[field.Field]
	if !known || field.Operation != "" || constant.Constant == nil {
		return nil, false
	}
	if slices.Contains(masked, field.Field) {
		return byMask(field.Field, operation, constant.Constant, mask)
	}
	if mask != nil {
		return nil, false
	}
	return byRange(field.Field, operation, constant.Constant.Int, width)
}

// byRange returns the ranges of a field that fulfill a comparison.
func byRange(field, operation string, n int64, width int) (out []Entry, ok bool) {
	last := int64(1)<<width - 1
	add := func(low, high int64) {
		if low, high = max(low, 0), min(high, last); low <= high {
			out = append(out, Entry{{Field: field, Value: uint64(low), High: uint64(high)}})
		}
	}
	switch operation {
	case "==":
		add(n, n)
	case "!=":
		if n > 0 {
			add(0, n-1)
		}
		if n < last {
			add(n+1, last)
		}
	case "<":
		add(0, max(n, 0)-1)
	case "<=":
		add(0, n)
	case ">":
		add(min(n, last)+1, last)
	case ">=":
		add(n, last)
	default:
		return nil, false
	}
	return out, true
}

// byMask returns the entries of an address or of flags.
func byMask(field, operation string, v, flags *Value) (out []Entry, ok bool) {
	m := Match{Field: field, Mask: 1<<widths[field] - 1}
	switch {
	case v.Type == Integer:
		m.Value = uint64(v.Int)
		if flags != nil {
			m.Mask &= uint64(flags.Int)
			if uint64(v.Int)&^uint64(flags.Int) != 0 || flags.Int < 0 {
				return nil, false
			}
		}
		if v.Int < 0 || m.Value >= 1<<widths[field] {
			return nil, false
		}
	case v.Type == Address && v.Address.Is4():
		m.Value = bitsOf(v.Address.As4())
	case v.Type == Prefix && v.Prefix.Addr().Is4():
		m.Mask = m.Mask << (32 - v.Prefix.Bits()) & m.Mask
		m.Value = bitsOf(v.Prefix.Addr().As4()) & m.Mask
	default:
		return nil, false
	}
	switch operation {
	case "==", "in":
		return []Entry{{m}}, true
	case "!=", "!in":
		for rest := m.Mask; rest != 0; rest &= rest - 1 { // one entry for each bit that may differ
			bit := uint64(1) << bits.TrailingZeros64(rest)
			out = append(out, Entry{{Field: field, Mask: bit, Value: ^m.Value & bit}})
		}
		return out, true
	}
	return nil, false
}

func bitsOf(b [4]byte) uint64 {
	return uint64(b[0])<<24 | uint64(b[1])<<16 | uint64(b[2])<<8 | uint64(b[3])
}

// both returns the entries that match one entry of each side.
func both(left, right []Entry) (out []Entry) {
	for _, l := range left {
		for _, r := range right {
			if e, ok := l.and(r); ok {
				out = append(out, e)
			}
		}
	}
	return out
}

// and returns the conjunction of two entries, or false if nothing matches both.
func (e Entry) and(o Entry) (Entry, bool) {
	out := slices.Clone(e)
	for _, m := range o {
		i := slices.IndexFunc(out, func(x Match) bool { return x.Field == m.Field })
		if i < 0 {
			out = append(out, m)
			continue
		}
		x := &out[i]
		if slices.Contains(masked, m.Field) {
			if (x.Value^m.Value)&x.Mask&m.Mask != 0 {
				return nil, false
			}
			x.Value, x.Mask = x.Value|m.Value, x.Mask|m.Mask
			continue
		}
		if x.Value, x.High = max(x.Value, m.Value), min(x.High, m.High); x.Value > x.High {
			return nil, false
		}
	}
	slices.SortFunc(out, func(a, b Match) int {
		if a.Field < b.Field {
			return -1
		}
		return 1
	})
	return out, true
}
