// SPDX-License-Identifier: Apache-2.0

// Package packettest makes frames with encapsulations for tests.
package packettest

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Frame is a frame and the flows of two of its IP headers.
type Frame struct {
	Bytes        []byte
	Outer, Inner flow.Key
	Carried      int // headers behind the outer IP header and its extension headers, and words of IPv4 options
}

// maker makes the headers of a frame, the last header first.
type maker struct {
	*rand.Rand
	headers int // headers made so far; each word of IPv4 options counts as one
	carried int // headers behind the newest IP header and its extension headers
}

// Random returns a frame with up to two tunnels, of IP, MPLS, GRE or VXLAN, behind up to four VLAN
// tags, MPLS labels or a PPPoE session, with IPv4 options and IPv6 extension headers.
func Random(r *rand.Rand) Frame {
	m := &maker{Rand: r}
	kind, b, inner := m.packet([]byte{6, 17, 1}[r.IntN(3)], 9, nil)
	outer := inner
	for range r.IntN(3) {
		switch r.IntN(4) {
		case 0:
			kind, b, outer = m.packet(map[uint16]byte{0x0800: 4, 0x86dd: 41}[kind], 0, b)
		case 1:
			kind, b, outer = m.packet(137, 0, m.labels(b))
		case 2:
			if r.IntN(2) == 0 {
				kind, b = 0x6558, m.ethernet(kind, b)
			}
			header := binary.BigEndian.AppendUint16([]byte{byte(r.IntN(2))<<7 | byte(r.IntN(4))<<4, 0}, kind)
			for flags := header[0]; flags != 0; flags &= flags - 1 {
				header = append(header, 1, 2, 3, 4)
			}
			m.headers++
			kind, b, outer = m.packet(47, 0, slices.Concat(header, b))
		case 3:
			header := []byte{0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0} // UDP's length and checksum, VXLAN
			b = slices.Concat(header, m.ethernet(kind, b))
			m.headers++
			kind, b, outer = m.packet(17, 4789, b)
		}
	}
	carried := m.carried
	return Frame{Bytes: m.ethernet(kind, b), Outer: outer, Inner: inner, Carried: carried}
}

// Deep returns a frame with about as many VLAN tags, MPLS labels or extension headers as switches
// parse, some more and some less.
func Deep(r *rand.Rand) []byte {
	f := make([]byte, 12)
	kind, ip, _ := (&maker{Rand: r}).packet(17, 9, nil)
	switch r.IntN(3) {
	case 0:
		f = append(f, slices.Repeat([]byte{0x81, 0, 0, 5}, 3+r.IntN(3))...)
		return append(binary.BigEndian.AppendUint16(f, kind), ip...)
	case 1:
		f = append(append(f, 0x88, 0x47), slices.Repeat([]byte{0, 17, 0, 64}, 4+r.IntN(3))...)
		return slices.Concat(f, []byte{0, 16, 1, 64}, ip)
	}
	ip = make([]byte, 40)
	ip[0], ip[6], ip[23], ip[39] = 0x60, []byte{0, 44, 51, 60}[r.IntN(4)], 1, 2
	at := 6 // offset of the field that names the protocol of the next header
	for range 1 + r.IntN(5) {
		header := make([]byte, 8)
		switch n := r.IntN(8); ip[at] {
		case 44:
		case 51:
			header = make([]byte, 8*(n+1))
			header[1] = byte(2 * n)
		default:
			header = make([]byte, 8*(n+1))
			header[1] = byte(n)
		}
		header[0] = []byte{0, 44, 51, 60}[r.IntN(4)]
		at, ip = len(ip), append(ip, header...)
	}
	ip[at] = 17
	return slices.Concat(f, []byte{0x86, 0xdd}, ip, []byte{0, 1, 0, 2})
}

// ethernet returns a frame with an IP packet.
func (m *maker) ethernet(kind uint16, b []byte) []byte {
	r, frame := m.Rand, make([]byte, 12)
	tags := r.IntN(5)
	m.headers += 1 + tags
	for range tags {
		frame = append(binary.BigEndian.AppendUint16(frame, []uint16{0x8100, 0x88a8, 0x9100}[r.IntN(3)]), 0, 5)
	}
	switch r.IntN(4) {
	case 0:
		kind, b = 0x8847+uint16(r.IntN(2)), m.labels(b)
	case 1:
		m.headers++
		protocol := map[uint16]byte{0x0800: 0x21, 0x86dd: 0x57}[kind]
		kind, b = 0x8864, slices.Concat([]byte{0x11, 0, 0, 1, 0, 0, 0, protocol}, b)
	}
	return append(binary.BigEndian.AppendUint16(frame, kind), b...)
}

// labels returns an IP packet behind MPLS labels.
func (m *maker) labels(b []byte) []byte {
	out := []byte{0, 16, 1, 64}
	for range m.IntN(3) {
		out = append([]byte{0, 17, 0, 64}, out...)
	}
	m.headers += len(out) / 4
	return append(out, b...)
}

// packet returns an IP packet, its EtherType and its flow. TCP and UDP packets have the destination
// port of the parameter to.
func (m *maker) packet(protocol byte, to uint16, payload []byte) (uint16, []byte, flow.Key) {
	r := m.Rand
	m.carried = m.headers
	m.headers++
	k := flow.Key{Mask: flow.FiveTuple, Proto: protocol, V6: r.IntN(2) == 0}
	if protocol == 6 || protocol == 17 {
		k.SrcPort, k.DstPort = uint16(r.IntN(3)), to
		head := binary.BigEndian.AppendUint16(nil, k.SrcPort)
		payload = slices.Concat(binary.BigEndian.AppendUint16(head, to), payload)
	}
	if k.V6 {
		k.Src[0], k.Src[15], k.Dst[15] = 0x20, byte(r.IntN(9)), byte(r.IntN(9))
		types, protocols, headers := []byte{0, 43, 44, 51, 60, 135, 139, 140}, []byte{}, []byte{}
		for range max(0, r.IntN(6)-3) {
			protocols = append(protocols, types[r.IntN(len(types))])
		}
		m.headers += len(protocols)
		protocols = append(protocols, protocol)
		for i, next := range protocols[1:] {
			header, n := []byte{next, 0, 0, 0, 0, 0, 0, 0}, r.IntN(3)
			switch protocols[i] {
			case 44:
			case 51:
				header[1] = byte(n)
				header = append(header, make([]byte, 4*n)...)
			default:
				header[1] = byte(n)
				header = append(header, make([]byte, 8*n)...)
			}
			headers = append(headers, header...)
		}
		ip := []byte{0x60, 0, 0, 0, 0, 0, protocols[0], 9}
		return 0x86dd, slices.Concat(ip, k.Src[:], k.Dst[:], headers, payload), k
	}
	copy(k.Src[:], []byte{10, 0, 0, byte(r.IntN(9))})
	copy(k.Dst[:], []byte{10, 0, 1, byte(r.IntN(9))})
	options := max(0, r.IntN(6)-3)
	m.headers += options
	ip := make([]byte, 20+4*options)
	ip[0], ip[8], ip[9] = 0x40|byte(len(ip)/4), 64, protocol
	copy(ip[12:], k.Src[:4])
	copy(ip[16:], k.Dst[:4])
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	return 0x0800, slices.Concat(ip, payload), k
}
