// SPDX-License-Identifier: Apache-2.0

package bmv2json

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// node is a value in the JSON tree, with its path for error messages. The first error ends the
// parser by a panic with *Error, which Parse recovers.
type node struct {
	v    any
	up   *node
	name string // key or "[3]" within up
}

func (n *node) path() string {
	if n.up == nil {
		return "BMv2 JSON"
	}
	p := n.up.path()
	if n.name != "" && n.name[0] != '[' {
		p += "."
	}
	p += n.name
	if m, ok := n.v.(map[string]any); ok {
		if s, ok := m["name"].(string); ok {
			p += fmt.Sprintf(" %q", clip(s))
		} else if s, ok := m["op"].(string); ok {
			p += fmt.Sprintf(" %q", clip(s))
		}
	}
	return p
}

func clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

func (n *node) source() string {
	for at := n; at != nil; at = at.up {
		if m, ok := at.v.(map[string]any); ok {
			if si, ok := m["source_info"].(map[string]any); ok {
				f, _ := si["filename"].(string)
				l, _ := si["line"].(json.Number)
				if f != "" {
					return clip(f) + ":" + l.String()
				}
			}
		}
	}
	return ""
}

func (n *node) fail(format string, args ...any) {
	panic(&Error{Construct: n.path(), Source: n.source(), Detail: fmt.Sprintf(format, args...)})
}

func (n *node) object() map[string]any {
	m, ok := n.v.(map[string]any)
	if !ok {
		n.fail("expected an object, have %s", kindOf(n.v))
	}
	return m
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	}
	return "an object"
}

func (n *node) has(key string) bool {
	v, ok := n.object()[key]
	return ok && v != nil
}

// at returns a member; a missing one is null.
func (n *node) at(key string) *node {
	return &node{v: n.object()[key], up: n, name: key}
}

func (n *node) index(i int) *node {
	return &node{v: n.v.([]any)[i], up: n, name: "[" + strconv.Itoa(i) + "]"}
}

// list returns the length of a list; null counts as empty.
func (n *node) list() int {
	if n.v == nil {
		return 0
	}
	l, ok := n.v.([]any)
	if !ok {
		n.fail("expected a list, have %s", kindOf(n.v))
	}
	if len(l) > MaxObjects {
		n.fail("%d elements; at most %d are accepted", len(l), MaxObjects)
	}
	return len(l)
}

func (n *node) tuple(sizes ...int) int {
	got := n.list()
	for _, s := range sizes {
		if got == s {
			return got
		}
	}
	n.fail("expected a list of %v elements, have %d", sizes, got)
	return 0
}

func (n *node) str() string {
	s, ok := n.v.(string)
	if !ok {
		n.fail("expected a string, have %s", kindOf(n.v))
	}
	return s
}

// optStr returns "" for null.
func (n *node) optStr() string {
	if n.v == nil {
		return ""
	}
	return n.str()
}

func (n *node) integer(lo, hi int) int {
	num, ok := n.v.(json.Number)
	if !ok {
		n.fail("expected a number, have %s", kindOf(n.v))
	}
	i, err := strconv.ParseInt(num.String(), 10, 64)
	if err != nil || i < int64(lo) || i > int64(hi) {
		n.fail("expected an integer from %d to %d, have %s", lo, hi, clip(num.String()))
	}
	return int(i)
}

func (n *node) optInt(lo, hi, missing int) int {
	if n.v == nil {
		return missing
	}
	return n.integer(lo, hi)
}

func (n *node) id() int { return n.integer(0, math.MaxInt32) }

func (n *node) boolean(missing bool) bool {
	if n.v == nil {
		return missing
	}
	// p4c writes fields of type bool in this form
	if number, ok := n.v.(json.Number); ok && (number == "0" || number == "1") {
		return number == "1"
	}
	b, ok := n.v.(bool)
	if !ok {
		n.fail("expected true or false, have %s", kindOf(n.v))
	}
	return b
}

// hex reads a hexstr: an optional minus, an optional 0x, hexadecimal digits.
func (n *node) hex() *big.Int {
	s := n.str()
	digits, neg := s, false
	if len(digits) > 0 && digits[0] == '-' {
		neg, digits = true, digits[1:]
	}
	if len(digits) > 1 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') {
		digits = digits[2:]
	}
	if len(digits) == 0 || len(digits) > MaxWidth/4 {
		n.fail("expected hexadecimal digits (at most %d), have %q", MaxWidth/4, clip(s))
	}
	for i := range len(digits) {
		if !isHex(digits[i]) {
			n.fail("expected hexadecimal digits, have %q", clip(s))
		}
	}
	v, ok := new(big.Int).SetString(digits, 16)
	if !ok {
		n.fail("expected hexadecimal digits, have %q", clip(s))
	}
	if neg {
		v.Neg(v)
	}
	return v
}

// hexBytes reads a hexstr as the bytes it spells, leading zeros included.
func (n *node) hexBytes() []byte {
	s := n.str()
	digits := s
	if len(digits) > 1 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') {
		digits = digits[2:]
	}
	if len(digits)%2 == 1 {
		digits = "0" + digits
	}
	if len(digits) == 0 || len(digits) > MaxWidth/4 {
		n.fail("expected hexadecimal digits (at most %d), have %q", MaxWidth/4, clip(s))
	}
	b := make([]byte, len(digits)/2)
	for i := range len(digits) {
		c := digits[i]
		if !isHex(c) {
			n.fail("expected hexadecimal digits, have %q", clip(s))
		}
		d := c - '0'
		if c >= 'a' {
			d = c - 'a' + 10
		} else if c >= 'A' {
			d = c - 'A' + 10
		}
		b[i/2] = b[i/2]<<4 | d
	}
	return b
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func each[T any](n *node, f func(*node) T) []T {
	out := make([]T, n.list())
	for i := range out {
		out[i] = f(n.index(i))
	}
	return out
}
