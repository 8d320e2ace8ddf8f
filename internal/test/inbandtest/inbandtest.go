// SPDX-License-Identifier: Apache-2.0

// Package inbandtest builds packets with INT for tests, from the tables of the specifications and
// without code of package inband: all lengths and checksums are computed from the whole packet.
package inbandtest

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Sent describes an IP packet as its sender writes it.
type Sent struct {
	Src, Dst         netip.Addr
	Proto            uint8
	SrcPort, DstPort uint16
	DSCP, ECN        uint8
	Front            []byte // bytes between the fixed header of TCP and its options
	Options          []byte // options of TCP, a multiple of 4 bytes
	Payload          []byte
	NoChecksum       bool // leaves out the checksum of UDP
}

// ones returns the complement of the one's-complement sum of b.
func ones(parts ...[]byte) uint16 {
	s := uint32(0)
	for _, b := range parts {
		for i, v := range b {
			s += uint32(v) << (8 * (1 - i%2))
			s = s>>16 + s&0xffff
		}
	}
	return ^uint16(s)
}

// Transport returns the transport header and the payload.
func (s *Sent) Transport() []byte {
	var b []byte
	at := 0
	put := binary.BigEndian.AppendUint16
	switch s.Proto {
	case 6:
		b = put(put(b, s.SrcPort), s.DstPort)
		b = append(b, 1, 2, 3, 4, 5, 6, 7, 8, byte(5+len(s.Options)/4)<<4, 0x10, 0x20, 0, 0, 0, 0, 0)
		b = append(append(b, s.Front...), s.Options...)
		at = 16
	case 17:
		b = put(put(b, s.SrcPort), s.DstPort)
		b = put(put(b, uint16(8+len(s.Payload))), 0)
		at = 6
	}
	b = append(b, s.Payload...)
	if at == 0 || s.NoChecksum {
		return b
	}
	pseudo := slices.Concat(s.Src.AsSlice(), s.Dst.AsSlice(), []byte{0, s.Proto}, put(nil, uint16(len(b))))
	sum := ones(pseudo, b)
	if sum == 0 && s.Proto == 17 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], sum)
	return b
}

// IP returns the packet from its IP header on.
func (s *Sent) IP() []byte {
	body := s.Transport()
	class := s.DSCP<<2 | s.ECN
	if s.Src.Is6() {
		head := []byte{0x60 | class>>4, class << 4, 0, 7, 0, 0, s.Proto, 61}
		binary.BigEndian.PutUint16(head[4:], uint16(len(body)))
		return slices.Concat(head, s.Src.AsSlice(), s.Dst.AsSlice(), body)
	}
	head := []byte{0x45, class, 0, 0, 0, 9, 0x40, 0, 61, s.Proto, 0, 0}
	head = slices.Concat(head, s.Src.AsSlice(), s.Dst.AsSlice())
	binary.BigEndian.PutUint16(head[2:], uint16(len(head)+len(body)))
	binary.BigEndian.PutUint16(head[10:], ones(head))
	return append(head, body...)
}

// Frame returns the packet in an Ethernet frame.
func (s *Sent) Frame() []byte {
	etherType := []byte{8, 0}
	if s.Src.Is6() {
		etherType = []byte{0x86, 0xdd}
	}
	return slices.Concat([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}, etherType, s.IP())
}

// INT is a header of INT with its stack.
type INT struct {
	Version      uint8 // 1 or 2
	Flags        uint8 // first byte without the version
	MTU          bool  // flag of version 1, which is in the second byte
	HopWords     uint8
	Remaining    uint8
	Instructions uint16
	Domain, DomainInstructions,
	DomainFlags uint16
	Stack []uint32 // metadata words, those of the latest hop first
}

// Bytes returns the metadata header and the stack.
func (i *INT) Bytes() []byte {
	b := []byte{i.Version<<4 | i.Flags, 0, i.HopWords, i.Remaining}
	if i.MTU {
		b[1] = 0x80
	}
	b = binary.BigEndian.AppendUint16(b, i.Instructions)
	if i.Version == 1 {
		b = append(b, 0, 0)
	} else {
		for _, v := range []uint16{i.Domain, i.DomainInstructions, i.DomainFlags} {
			b = binary.BigEndian.AppendUint16(b, v)
		}
	}
	for _, v := range i.Stack {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// Shim returns a shim header and the INT header and stack behind it. last has the last two bytes of
// the header, which depend on the carrier; second has the bits next to the type in the first byte
// of version 2.
func (i *INT) Shim(kind, second uint8, last uint16) []byte {
	body := i.Bytes()
	words := uint8(len(body) / 4)
	head := []byte{kind<<4 | second, words}
	if i.Version == 1 {
		return append([]byte{kind, 0, words + 1, uint8(last)}, body...)
	}
	return append(binary.BigEndian.AppendUint16(head, last), body...)
}

// Mark returns the packet with INT-MD behind its TCP or UDP header, marked by a DSCP.
func (i *INT) Mark(s Sent, dscp uint8) Sent {
	s.Payload = append(i.Shim(1, 0, uint16(s.DSCP)<<2), s.Payload...)
	s.DSCP = dscp
	return s
}

// Hops returns a stack of n hops with switch id and hop latency, for the instructions 0xa000: hop i
// of the path has the id first+i, and the latency base+i.
func Hops(n int, first, base uint32) []uint32 {
	var stack []uint32
	for i := n - 1; i >= 0; i-- {
		stack = append(stack, first+uint32(i), base+uint32(i))
	}
	return stack
}
