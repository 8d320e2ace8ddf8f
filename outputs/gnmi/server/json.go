// SPDX-License-Identifier: Apache-2.0

// JSON_IETF (RFC 7951) and plain JSON.

package server

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// appendJSON appends a leaf's value. In JSON_IETF, 64-bit integers and decimals are strings and
// identities have their module; in plain JSON, numbers are numbers.
func appendJSON(b []byte, ietf bool, f *leafInfo, v store.Value) []byte {
	switch v.Kind() {
	case table.Uint64, table.Int64:
		if ietf && f.wide(v.Kind()) {
			b = append(b, '"')
			b = v.AppendText(b)
			return append(b, '"')
		}
		return v.AppendText(b)
	case table.Float64:
		if ietf && f.wide(v.Kind()) {
			b = append(b, '"')
			b = appendDecimal(b, f, v)
			return append(b, '"')
		}
		return strconv.AppendFloat(b, rounded(f, v), 'f', -1, 64)
	case table.Bool:
		return strconv.AppendBool(b, v.Bool())
	case table.String:
		s := v.Text()
		if ietf && f.leaf != nil {
			s = f.leaf.Type.Qualify(s)
		}
		return appendQuoted(b, s)
	}
	return append(b, "null"...)
}

func appendDecimal(b []byte, f *leafInfo, v store.Value) []byte {
	if f.leaf != nil && f.leaf.Type.Base == yang.Decimal64 {
		return yang.AppendDecimal(b, v.Float(), f.leaf.Type.FractionDigits)
	}
	return v.AppendText(b)
}

// doubleBits returns the bits of a decimal after rounding to the leaf's fraction digits, so that
// every encoding has the same value.
func doubleBits(f *leafInfo, v store.Value) uint64 { return math.Float64bits(rounded(f, v)) }

func rounded(f *leafInfo, v store.Value) float64 {
	x := v.Float()
	if f.leaf != nil && f.leaf.Type.Base == yang.Decimal64 {
		scale := math.Pow10(f.leaf.Type.FractionDigits)
		if r := math.Round(x*scale) / scale; !math.IsInf(r, 0) && !math.IsNaN(r) {
			x = r
		}
	}
	return x
}

const hex = "0123456789abcdef"

// appendQuoted appends a JSON string.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(b, `\ufffd`...)
			} else {
				b = append(b, s[i:i+n]...)
			}
			i += n
			continue
		}
		i++
	}
	return append(b, '"')
}

// tree collects leaves into one JSON value.
type tree struct {
	name   string
	module string
	value  []byte           // value of a leaf
	list   bool             // kids are list entries
	kids   []*tree          // children in order of arrival
	by     map[string]*tree // kids by name, or entries by keys
}

// child returns the child with a name, or the entry with these keys.
func (t *tree) child(id string) *tree {
	if c := t.by[id]; c != nil {
		return c
	}
	c := &tree{}
	if t.by == nil {
		t.by = map[string]*tree{}
	}
	t.by[id] = c
	t.kids = append(t.kids, c)
	return c
}

// append appends the tree as JSON. above is the module of the parent node. At the top of a value,
// above is empty, because RFC 7951 requires the module there.
func (t *tree) append(b []byte, ietf bool, above string) []byte {
	switch {
	case t.value != nil:
		return append(b, t.value...)
	case t.list:
		b = append(b, '[')
		for i, e := range t.kids {
			if i > 0 {
				b = append(b, ',')
			}
			b = e.object(b, ietf, t.module)
		}
		return append(b, ']')
	}
	return t.object(b, ietf, above)
}

func (t *tree) object(b []byte, ietf bool, module string) []byte {
	b = append(b, '{')
	for i, c := range t.kids {
		if i > 0 {
			b = append(b, ',')
		}
		name := c.name
		if ietf && c.module != "" && c.module != module {
			name = c.module + ":" + name
		}
		b = appendQuoted(b, name)
		b = append(b, ':')
		b = c.append(b, ietf, c.module)
	}
	return append(b, '}')
}
