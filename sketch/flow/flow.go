// SPDX-License-Identifier: Apache-2.0

// Package flow defines the flow key that switches, hosts, plugins and YANG paths share: any subset
// of source and destination address, protocol and ports, IPv4 or IPv6.
//
// A Key has one canonical binary form, the bytes a P4 program hashes
// (AppendBinary, ParseBinary), and one text form, the value of a YANG list key
// (String, Parse). Two keys are the same flow if and only if they are ==, and then both forms are
// equal, too.
//
// Values are plain data without pointers; all functions are safe for concurrent use.
package flow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
)

// Sizes of the canonical binary form in bytes.
const (
	// MaxBinary is the longest canonical form: an IPv6 5-tuple.
	MaxBinary = 16 + 16 + 1 + 2 + 2
	// FiveTupleV4 is the length of an IPv4 5-tuple.
	FiveTupleV4 = 4 + 4 + 1 + 2 + 2
	// FiveTupleV6 is the length of an IPv6 5-tuple.
	FiveTupleV6 = MaxBinary
)

// ErrLength is wrapped by errors of ParseBinary about a length that fits neither IPv4 nor IPv6.
var ErrLength = errors.New("length fits neither IPv4 nor IPv6")

// Key identifies a flow by the fields in Mask. Fields outside Mask are zero, and V6 is false if
// Mask has no address. New, Project, Parse and ParseBinary ensure this, so that == compares flows.
//
// An IPv4 address occupies the first four bytes of its array. The zero Key has no
// fields and stands for "all traffic".
type Key struct {
	Src, Dst         [16]byte
	SrcPort, DstPort uint16 // host order; 0 if the packet has no ports
	Proto            uint8  // IPv4 protocol or the IPv6 upper-layer next header
	Mask             Fields
	V6               bool
}

// New returns the 5-tuple key of a packet. Both addresses must be valid and of one
// family; an IPv4-mapped IPv6 address counts as IPv6, as it does on the wire.
func New(src, dst netip.Addr, proto uint8, srcPort, dstPort uint16) (Key, error) {
	k := Key{SrcPort: srcPort, DstPort: dstPort, Proto: proto, Mask: FiveTuple}
	if err := k.setAddr(&k.Src, src, true); err != nil {
		return Key{}, fmt.Errorf("flow: source: %w", err)
	}
	if err := k.setAddr(&k.Dst, dst, false); err != nil {
		return Key{}, fmt.Errorf("flow: destination: %w", err)
	}
	return k, nil
}

// setAddr stores a in slot. The key's first address also sets the family.
func (k *Key) setAddr(slot *[16]byte, a netip.Addr, first bool) error {
	switch {
	case !a.IsValid():
		return errors.New("not an IP address")
	case a.Zone() != "":
		return fmt.Errorf("address %s has a zone, which packets do not have", a)
	case !first && a.Is6() != k.V6:
		return fmt.Errorf("address %s is not in the family of the other address", a)
	}
	k.V6 = a.Is6()
	if k.V6 {
		*slot = a.As16()
		return nil
	}
	v4 := a.As4()
	*slot = [16]byte{}
	copy(slot[:], v4[:])
	return nil
}

// Project returns the key with the fields that both f and k have.
func (k Key) Project(f Fields) Key {
	f &= k.Mask
	p := Key{Mask: f, V6: k.V6 && f&(Src|Dst) != 0}
	if f&Src != 0 {
		p.Src = k.Src
	}
	if f&Dst != 0 {
		p.Dst = k.Dst
	}
	if f&Proto != 0 {
		p.Proto = k.Proto
	}
	if f&SrcPort != 0 {
		p.SrcPort = k.SrcPort
	}
	if f&DstPort != 0 {
		p.DstPort = k.DstPort
	}
	return p
}

// SrcAddr returns the source address, which is invalid if the key has none.
func (k Key) SrcAddr() netip.Addr { return k.addr(k.Src, Src) }

// DstAddr returns the destination address, which is invalid if the key has none.
func (k Key) DstAddr() netip.Addr { return k.addr(k.Dst, Dst) }

func (k Key) addr(a [16]byte, f Fields) netip.Addr {
	switch {
	case k.Mask&f == 0:
		return netip.Addr{}
	case k.V6:
		return netip.AddrFrom16(a)
	default:
		return netip.AddrFrom4([4]byte(a[:4]))
	}
}

// AppendBinary appends the canonical binary form: the fields in Mask, in the order
// source, destination, protocol, source port, destination port, each in network
// order. An IPv4 5-tuple is 13 bytes, an IPv6 one 37, a lone address 4 or 16.
func (k Key) AppendBinary(b []byte) []byte {
	n := k.addrLen()
	if k.Mask&Src != 0 {
		b = append(b, k.Src[:n]...)
	}
	if k.Mask&Dst != 0 {
		b = append(b, k.Dst[:n]...)
	}
	if k.Mask&Proto != 0 {
		b = append(b, k.Proto)
	}
	if k.Mask&SrcPort != 0 {
		b = binary.BigEndian.AppendUint16(b, k.SrcPort)
	}
	if k.Mask&DstPort != 0 {
		b = binary.BigEndian.AppendUint16(b, k.DstPort)
	}
	return b
}

func (k Key) addrLen() int {
	if k.V6 {
		return 16
	}
	return 4
}

// ParseBinary reads the canonical binary form of a key with fields f. The family
// follows from the length; any other length is an error wrapping ErrLength.
func ParseBinary(f Fields, b []byte) (Key, error) {
	if f&^FiveTuple != 0 {
		return Key{}, fmt.Errorf("flow: unknown fields in mask %#x", uint8(f))
	}
	k := Key{Mask: f}
	switch len(b) {
	case f.Size(false):
	case f.Size(true):
		k.V6 = true
	default:
		return Key{}, fmt.Errorf("flow: binary key %v of %d bytes: %w (%d or %d)",
			f, len(b), ErrLength, f.Size(false), f.Size(true))
	}
	n := k.addrLen()
	if f&Src != 0 {
		copy(k.Src[:], b[:n])
		b = b[n:]
	}
	if f&Dst != 0 {
		copy(k.Dst[:], b[:n])
		b = b[n:]
	}
	if f&Proto != 0 {
		k.Proto = b[0]
		b = b[1:]
	}
	if f&SrcPort != 0 {
		k.SrcPort = binary.BigEndian.Uint16(b)
		b = b[2:]
	}
	if f&DstPort != 0 {
		k.DstPort = binary.BigEndian.Uint16(b)
	}
	return k, nil
}

// SetIPv4 sets both addresses to IPv4 addresses, given as a little-endian word that holds source
// and destination as in the header.
func (k *Key) SetIPv4(addresses uint64) {
	// Rotated words are stored as a whole, so that the processor can forward them to the loads in
	// Hash.
	binary.LittleEndian.PutUint64(k.Src[:], bits.RotateLeft64(addresses<<32, 32))
	binary.LittleEndian.PutUint64(k.Src[8:], 0)
	binary.LittleEndian.PutUint64(k.Dst[:], bits.RotateLeft64(addresses>>32<<32, 32))
	binary.LittleEndian.PutUint64(k.Dst[8:], 0)
}

// Hash returns a 64-bit hash for tables of 5-tuples.
func (k *Key) Hash(seed uint64) uint64 {
	h := mix(seed, binary.LittleEndian.Uint64(k.Src[:]))
	h = mix(h, binary.LittleEndian.Uint64(k.Dst[:]))
	if k.V6 {
		h = mix(h, binary.LittleEndian.Uint64(k.Src[8:]))
		h = mix(h, binary.LittleEndian.Uint64(k.Dst[8:]))
	}
	return mix(h, uint64(k.SrcPort)<<32|uint64(k.DstPort)<<16|uint64(k.Proto))
}

func mix(h, word uint64) uint64 {
	h = (h ^ word) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// Compare orders keys by family, then by canonical binary form, then by mask. The order is total,
// so that results are the same in every run.
func (k Key) Compare(o Key) int {
	if k.V6 != o.V6 {
		if o.V6 {
			return -1
		}
		return 1
	}
	for i := range k.Src {
		if k.Src[i] != o.Src[i] {
			return int(k.Src[i]) - int(o.Src[i])
		}
	}
	for i := range k.Dst {
		if k.Dst[i] != o.Dst[i] {
			return int(k.Dst[i]) - int(o.Dst[i])
		}
	}
	switch {
	case k.Proto != o.Proto:
		return int(k.Proto) - int(o.Proto)
	case k.SrcPort != o.SrcPort:
		return int(k.SrcPort) - int(o.SrcPort)
	case k.DstPort != o.DstPort:
		return int(k.DstPort) - int(o.DstPort)
	default:
		return int(k.Mask) - int(o.Mask)
	}
}
