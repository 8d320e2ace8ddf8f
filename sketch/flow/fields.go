// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"fmt"
	"math/bits"
	"strings"
)

// Fields is the set of fields that a key has.
type Fields uint8

// The five fields, in canonical order.
const (
	Src Fields = 1 << iota
	Dst
	Proto
	SrcPort
	DstPort

	// FiveTuple is the set of all fields.
	FiveTuple = Src | Dst | Proto | SrcPort | DstPort
)

var fieldNames = [...]struct {
	f    Fields
	name string
}{
	{Src, "src"}, {Dst, "dst"}, {Proto, "proto"}, {SrcPort, "src-port"}, {DstPort, "dst-port"},
}

// String returns the name of a measurement dimension: "5-tuple" for all fields,
// "none" for no field, and otherwise the fields' names joined by "+" in canonical
// order, such as "src" or "src+dst".
func (f Fields) String() string {
	switch {
	case f == FiveTuple:
		return "5-tuple"
	case f == 0:
		return "none"
	case f&^FiveTuple != 0:
		return fmt.Sprintf("fields(%#x)", uint8(f))
	}
	var parts []string
	for _, n := range fieldNames {
		if f&n.f != 0 {
			parts = append(parts, n.name)
		}
	}
	return strings.Join(parts, "+")
}

// ParseFields parses the text that Fields.String returns, except "none".
func ParseFields(s string) (Fields, error) {
	if s == "5-tuple" {
		return FiveTuple, nil
	}
	var f Fields
next:
	for part := range strings.SplitSeq(s, "+") {
		for _, n := range fieldNames {
			if part == n.name && f&n.f == 0 {
				f |= n.f
				continue next
			}
		}
		return 0, fmt.Errorf(`flow: fields %q: %q is not one of src, dst, proto, src-port, dst-port joined by `+
			`"+", or 5-tuple`, s, part)
	}
	return f, nil
}

// Size returns the length in bytes of the canonical binary form of a key with these
// fields, in IPv6 or IPv4.
func (f Fields) Size(v6 bool) int {
	addr := 4
	if v6 {
		addr = 16
	}
	n := 0
	if f&Src != 0 {
		n += addr
	}
	if f&Dst != 0 {
		n += addr
	}
	if f&Proto != 0 {
		n++
	}
	if f&SrcPort != 0 {
		n += 2
	}
	if f&DstPort != 0 {
		n += 2
	}
	return n
}

// Count returns the number of fields.
func (f Fields) Count() int { return bits.OnesCount8(uint8(f & FiveTuple)) }
