// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// intMD is shim, metadata header and stack of INT-MD version 2.1, as sections 5.6 and 5.7 of the
// INT specification lay them out.
type intMD struct {
	kind, npt, version, dscp                      byte
	discard, hopsExceeded, mtuExceeded            bool
	hopWords, remaining                           byte
	instructions, domain, dsInstructions, dsFlags uint16
	stack                                         []uint32
	length                                        int // length in the shim, if it differs from the stack's
}

func (m *intMD) bytes() []byte {
	length := m.length
	if length == 0 {
		length = 3 + len(m.stack)
	}
	out := []byte{m.kind<<4 | m.npt<<2, byte(length), 0, m.dscp << 2}
	word := uint32(m.version)<<28 | uint32(m.hopWords)<<8 | uint32(m.remaining)
	for i, flag := range []bool{m.discard, m.hopsExceeded, m.mtuExceeded} {
		if flag {
			word |= 1 << (27 - i)
		}
	}
	out = binary.BigEndian.AppendUint32(out, word)
	for _, v := range []uint16{m.instructions, m.domain, m.dsInstructions, m.dsFlags} {
		out = binary.BigEndian.AppendUint16(out, v)
	}
	for _, w := range m.stack {
		out = binary.BigEndian.AppendUint32(out, w)
	}
	return out
}

// words is the length of the metadata that instructions request: four bytes each, eight for bits 4
// to 6.
func words(instructions uint16) byte {
	return byte(bits.OnesCount16(instructions) + bits.OnesCount16(instructions&0x0e00))
}

// segment locates the parts of a frame with TCP or UDP.
type segment struct {
	ip, l4, payload, sum int // sum is the offset of the checksum
	v6, udp              bool
}

func locate(f []byte) (s segment) {
	p := parse(f)
	s.ip, s.v6, s.udp = p.ip, p.v6, p.protocol == 17
	s.l4 = s.ip + 40
	switch {
	case p.counted:
		s.l4 = p.payload
	case !s.v6:
		s.l4 = s.ip + int(f[s.ip]&15)*4
	}
	s.payload, s.sum = s.l4+8, s.l4+6
	if !s.udp {
		s.payload, s.sum = s.l4+int(f[s.l4+12]>>4)*4, s.l4+16
	}
	return s
}

// seal sets lengths, checksums and DSCP of a frame. UDP's checksum stays zero if it is.
func seal(f []byte, dscp byte) []byte {
	s := locate(f)
	setTos(f[s.ip:], s.v6, dscp<<2|tosOf(f)&3)
	size := uint16(len(f) - s.l4)
	var pseudo []byte
	if s.v6 {
		binary.BigEndian.PutUint16(f[s.ip+4:], uint16(len(f)-s.ip-40))
		pseudo = slices.Concat(f[s.ip+8:s.ip+40], []byte{0, 0, 0, 0, 0, 0, 0, parse(f).protocol})
	} else {
		h := f[s.ip:s.l4]
		binary.BigEndian.PutUint16(h[2:], uint16(len(f)-s.ip))
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		pseudo = slices.Concat(h[12:20], []byte{0, 0, 0, h[9]})
	}
	pseudo = binary.BigEndian.AppendUint16(pseudo, size)
	if s.udp {
		binary.BigEndian.PutUint16(f[s.l4+4:], size)
		if binary.BigEndian.Uint16(f[s.sum:]) == 0 {
			return f
		}
	}
	f[s.sum], f[s.sum+1] = 0, 0
	sum := checksum(append(slices.Concat(pseudo, f[s.l4:]), make([]byte, len(f[s.l4:])&1)...))
	if s.udp && sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(f[s.sum:], sum)
	return f
}

func tosOf(f []byte) byte { return parse(f).tos }

// intDSCP marks packets with INT.
const intDSCP = 0x17

// with returns a frame with INT behind its TCP or UDP header.
func (m *intMD) with(f []byte) []byte {
	at := locate(f).payload
	return seal(slices.Concat(f[:at], m.bytes(), f[at:]), intDSCP)
}

// hopValues are what a switch measured of a packet.
type hopValues struct {
	latency, occupancy uint32
	ingress, egress    uint64
	node               uint32
	inPort, outPort    uint16
}

// push returns INT after a switch: with a hop, or with the flag that says why there is none. reason
// is the index into sketchint_left_out; 0: pushed. size is the length of the IP packet.
func (m intMD) push(v hopValues, size, mtu int) (out intMD, reason int) {
	n := int(m.hopWords)
	switch {
	case m.hopWords < words(m.instructions):
		return m, 3
	case m.remaining == 0:
		m.hopsExceeded = true
		return m, 5
	case 3+len(m.stack)+n > 255:
		return m, 4
	case size+4*n > mtu:
		m.mtuExceeded = true
		return m, 6
	}
	var hop []uint32
	for bit, value := range [][]uint32{{v.node}, {uint32(v.inPort)<<16 | uint32(v.outPort)}, {v.latency}, {v.occupancy},
		{uint32(v.ingress >> 32), uint32(v.ingress)}, {uint32(v.egress >> 32), uint32(v.egress)}} {
		if m.instructions&(0x8000>>bit) != 0 {
			hop = append(hop, value...)
		}
	}
	for len(hop) < n {
		hop = append(hop, 0xffffffff)
	}
	m.remaining--
	m.stack = slices.Concat(hop, m.stack)
	return m, 0
}

// measured reads the values of the newest hop in a frame that left, from its place in the stack.
func measured(f []byte, instructions uint16) (v hopValues) {
	at := locate(f).payload + 16
	for bit := range 6 {
		if instructions&(0x8000>>bit) == 0 {
			continue
		}
		if len(f) < at+4 {
			return v
		}
		w := binary.BigEndian.Uint32(f[at:])
		at += 4
		switch bit {
		case 2:
			v.latency = w
		case 3:
			v.occupancy = w
		case 4, 5:
			if len(f) < at+4 {
				return v
			}
			time := uint64(w)<<32 | uint64(binary.BigEndian.Uint32(f[at:]))
			at += 4
			if bit == 4 {
				v.ingress = time
			} else {
				v.egress = time
			}
		}
	}
	return v
}
