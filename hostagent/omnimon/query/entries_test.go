// SPDX-License-Identifier: Apache-2.0

package query

import (
	"slices"
	"testing"
)

// matches reports whether a packet matches an entry, as a switch does.
func (e Entry) matches(p Tuple) bool {
	for _, m := range e {
		i := slices.IndexFunc(packetFields, func(f Field) bool { return f.Name == m.Field })
		v := uint64(p[i].Int)
		if p[i].Type == Address {
			v = bitsOf(p[i].Address.As4())
		}
		if slices.Contains(masked, m.Field) {
			if v&m.Mask != m.Value {
				return false
			}
		} else if v < m.Value || v > m.High {
			return false
		}
	}
	return true
}

// The entries of a filter match the packets that fulfill the condition.
func TestEntries(t *testing.T) {
	packets := traffic()
	for condition, want := range map[string]bool{
		"proto == TCP":                               true,
		"!(proto == TCP && dport == 80)":             true,
		"dport != 53 && dport < 1000 && 22 <= dport": true,
		"flags & SYN == SYN && flags & ACK == 0":     true,
		"flags == FIN | ACK":                         true,
		"flags & (SYN | ACK) != SYN":                 true,
		"src in 10.9.0.0/16 || dst == 10.9.0.2":      true,
		"!(src in 10.0.0.0/24) && length > 1000":     true,
		"src != 10.9.0.1 && length >= 40":            true,
		"length > 5 && length < 3":                   true,
		"sport == dport":                             false,
		"queue > 5 && dst != 10.9.0.2":               true,
		"length & 1 == 0":                            false,
		"flags < 4":                                  false,
	} {
		q, err := Parse("test", "x = packets.filter("+condition+").reduce(keys=(dst), n=count(), bytes=sum(length))")
		if err != nil {
			t.Fatalf("%s: %v", condition, err)
		}
		s := &q.Place().Steps[0]
		units, ok := s.Units()
		if ok != want {
			t.Errorf("%s: units %v, %v", condition, units, ok)
			continue
		}
		if !ok {
			continue
		}
		if len(units) != 2 || units[0].Adds != "" || units[1].Adds != "length" {
			t.Errorf("%s: units %+v", condition, units)
		}
		for _, p := range packets {
			tuple := tuple(p)
			fits, _ := s.Operators[0].Condition.evaluate(tuple)
			got := slices.ContainsFunc(units[0].Entries, func(e Entry) bool { return e.matches(tuple) })
			if got != (fits.Int != 0) {
				t.Fatalf("%s: %v matches %v, want %v, entries %v", condition, p, got, fits.Int != 0, units[0].Entries)
			}
		}
	}
}
