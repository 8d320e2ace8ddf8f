// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// protoNames are the protocols with a name in the text form; others are written as a number.
// The names are IANA's keywords in lower case.
var protoNames = map[uint8]string{
	1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 47: "gre", 50: "esp", 51: "ah",
	58: "ipv6-icmp", 89: "ospf", 132: "sctp",
}

var protoNumbers = func() map[string]uint8 {
	m := make(map[string]uint8, len(protoNames))
	for n, s := range protoNames {
		m[s] = n
	}
	return m
}()

// String returns the text form: the fields in canonical order joined by commas,
// such as "10.0.0.1,10.0.0.2,tcp,1234,80" for a 5-tuple and "2001:db8::1" for a
// source. It has no character that a gNMI path key must escape. IPv6
// addresses are as in RFC 5952; well-known protocols are names, others numbers.
func (k Key) String() string {
	b, _ := k.AppendText(make([]byte, 0, 96))
	return string(b)
}

// AppendText appends the text form. It never fails.
func (k Key) AppendText(b []byte) ([]byte, error) {
	start := len(b)
	sep := func() {
		if len(b) > start {
			b = append(b, ',')
		}
	}
	if k.Mask&Src != 0 {
		b = k.SrcAddr().AppendTo(b)
	}
	if k.Mask&Dst != 0 {
		sep()
		b = k.DstAddr().AppendTo(b)
	}
	if k.Mask&Proto != 0 {
		sep()
		if name, ok := protoNames[k.Proto]; ok {
			b = append(b, name...)
		} else {
			b = strconv.AppendUint(b, uint64(k.Proto), 10)
		}
	}
	if k.Mask&SrcPort != 0 {
		sep()
		b = strconv.AppendUint(b, uint64(k.SrcPort), 10)
	}
	if k.Mask&DstPort != 0 {
		sep()
		b = strconv.AppendUint(b, uint64(k.DstPort), 10)
	}
	return b, nil
}

// Parse parses the text form of a key with fields f. It also accepts a protocol's number where
// String writes its name, and any notation of an address.
func Parse(f Fields, s string) (Key, error) {
	if f&^FiveTuple != 0 {
		return Key{}, fmt.Errorf("flow: unknown fields in mask %#x", uint8(f))
	}
	parts := strings.Split(s, ",")
	if s == "" {
		parts = nil
	}
	if len(parts) != f.Count() {
		return Key{}, fmt.Errorf("flow: %q has %d comma-separated fields, a %v key has %d", s, len(parts), f, f.Count())
	}
	k := Key{Mask: f}
	for _, e := range fieldNames {
		if f&e.f == 0 {
			continue
		}
		if err := k.parseField(e.f, parts[0]); err != nil {
			return Key{}, fmt.Errorf("flow: %q: %s: %w", s, e.name, err)
		}
		parts = parts[1:]
	}
	return k, nil
}

func (k *Key) parseField(f Fields, s string) (err error) {
	switch f {
	case Src, Dst:
		a, err := netip.ParseAddr(s)
		if err != nil {
			return fmt.Errorf("%q is not an IP address", s)
		}
		if f == Src {
			return k.setAddr(&k.Src, a, true)
		}
		return k.setAddr(&k.Dst, a, k.Mask&Src == 0)
	case Proto:
		if n, ok := protoNumbers[s]; ok {
			k.Proto = n
			return nil
		}
		n, err := strconv.ParseUint(s, 10, 8)
		if err != nil {
			return fmt.Errorf("%q is neither a protocol's name nor a number from 0 to 255", s)
		}
		k.Proto = uint8(n)
		return nil
	case SrcPort:
		k.SrcPort, err = parsePort(s)
	case DstPort:
		k.DstPort, err = parsePort(s)
	}
	return err
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a port from 0 to 65535", s)
	}
	return uint16(n), nil
}
