// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// innerHeaders is the number of headers that are parsed behind the outer IP header.
const innerHeaders = 8

// walk is a walk through the headers that a tunnel carries.
type walk struct {
	rest    []byte
	headers int
	fault   string // why the packet has no flow
}

// take takes n bytes of headers, and counts the headers before.
func (w *walk) take(n, headers int) []byte {
	if w.count(headers); !w.has(n) {
		return nil
	}
	b := w.rest[:n]
	w.rest = w.rest[n:]
	return b
}

func (w *walk) count(headers int) {
	if w.headers += headers; w.headers > innerHeaders && w.fault == "" {
		w.fault = "too-deep"
	}
}

func (w *walk) has(n int) bool {
	if len(w.rest) < n && w.fault == "" {
		w.fault = "truncated"
	}
	return w.fault == ""
}

// inner returns the packet as it is measured when inner flows are: unchanged if it is not in a
// tunnel, otherwise with the addresses, protocol and ports of the last IP header, or with the
// reason why it has no flow.
func (p packet) inner(f []byte) packet {
	w := walk{rest: f[p.payload:]}
	of := p
	for !of.later {
		kind := w.tunnel(&of)
		for w.fault == "" && slices.Contains([]int{0x6558, 0x8100, 0x88a8, 0x9100, 0x8847, 0x8848, 0x8864}, kind) {
			kind = w.link(kind)
		}
		if w.fault == "" && kind != 0x0800 && kind != 0x86dd {
			break
		}
		next := packet{v6: kind == 0x86dd}
		switch {
		case w.fault != "":
		case next.v6:
			w.ipv6(&next)
		default:
			w.ipv4(&next)
		}
		if w.fault != "" {
			p.unparsed = w.fault
			return p
		}
		of = next
	}
	p.v6, p.src, p.dst, p.protocol, p.ports = of.v6, of.src, of.dst, of.protocol, of.ports
	return p
}

// tunnel returns the EtherType of what an IP packet carries, else 0.
func (w *walk) tunnel(p *packet) int {
	switch {
	case p.protocol == 4:
		return 0x0800
	case p.protocol == 41:
		return 0x86dd
	case p.protocol == 137:
		return 0x8847
	case p.protocol == 17 && p.ports[2] == 0x12 && p.ports[3] == 0xb5:
		if h := w.take(16, 1); h != nil && h[8]&8 != 0 {
			return 0x6558
		}
	case p.protocol == 47:
		if w.count(1); !w.has(4) {
			return 0
		}
		flags := binary.BigEndian.Uint16(w.rest)
		if flags&0x4007 != 0 {
			return 0
		}
		if h := w.take(4+4*bits.OnesCount16(flags&0xb000), 0); h != nil {
			return int(binary.BigEndian.Uint16(h[2:]))
		}
	}
	return 0
}

// link returns the EtherType behind a header of the link layer.
func (w *walk) link(kind int) int {
	switch kind {
	case 0x6558:
		if h := w.take(14, 1); h != nil {
			return int(binary.BigEndian.Uint16(h[12:]))
		}
	case 0x8864:
		if h := w.take(8, 1); h != nil && h[0] == 0x11 && h[1] == 0 {
			return map[uint16]int{0x21: 0x0800, 0x57: 0x86dd}[binary.BigEndian.Uint16(h[6:])]
		}
	case 0x8847, 0x8848:
		h := w.take(4, 1)
		switch {
		case h != nil && h[2]&1 == 0:
			return kind
		case h != nil && w.has(1):
			return map[byte]int{4: 0x0800, 6: 0x86dd}[w.rest[0]>>4]
		}
	default:
		if h := w.take(4, 1); h != nil {
			return int(binary.BigEndian.Uint16(h[2:]))
		}
	}
	return 0
}

func (w *walk) ipv4(p *packet) {
	switch {
	case !w.has(20):
		return
	case w.rest[0]>>4 != 4:
		w.fault = "bad-version"
		return
	case w.rest[0]&15 < 5:
		w.fault = "bad-length"
		return
	}
	words := int(w.rest[0] & 15)
	h := w.take(4*words, words-4)
	if h == nil {
		return
	}
	p.protocol, p.src, p.dst = h[9], h[12:16], h[16:20]
	p.later = binary.BigEndian.Uint16(h[6:])&0x1fff != 0
	if w.transport(p); w.fault == "" && checksum(h) != 0 {
		w.fault = "bad-checksum"
	}
}

func (w *walk) ipv6(p *packet) {
	switch {
	case !w.has(40):
		return
	case w.rest[0]>>4 != 6:
		w.fault = "bad-version"
		return
	}
	h := w.take(40, 1)
	if h == nil {
		return
	}
	p.protocol, p.src, p.dst = h[6], h[8:24], h[24:40]
	for !p.later {
		known, unit, least := 2, 8, 8
		switch p.protocol {
		case 0, 43, 60, 135, 139, 140:
		case 51:
			unit = 4
		case 44:
			known, unit = 4, 0
		default:
			w.transport(p)
			return
		}
		if !w.has(known) {
			return
		}
		length := least + unit*int(w.rest[1])
		p.later = p.protocol == 44 && binary.BigEndian.Uint16(w.rest[2:])>>3 != 0
		h := w.take(length, 1)
		if h == nil {
			return
		}
		if length > 48 {
			w.fault = "too-deep"
			return
		}
		p.protocol = h[0]
	}
}

// transport copies the ports.
func (w *walk) transport(p *packet) {
	if !p.later && (p.protocol == 6 || p.protocol == 17) && w.has(4) {
		copy(p.ports[:], w.rest)
	}
}

// tunnelFrames are packets in tunnels, whole and damaged.
func tunnelFrames() [][]byte {
	a, b := [4]byte{10, 9, 0, 5}, [4]byte{10, 0, 0, 6}
	a6, b6 := address6(9, 9), address6(0, 0, 9)
	v4 := func(protocol byte, payload ...[]byte) []byte {
		return ipv4(a, b, protocol, 64, 0, nil, slices.Concat(payload...))
	}
	v6 := func(protocol byte, payload ...[]byte) []byte {
		return ipv6(a6, b6, protocol, 64, slices.Concat(payload...))
	}
	udp4 := ipv4([4]byte{172, 16, 0, 1}, [4]byte{172, 16, 0, 2}, 17, 64, 0, nil, ports(7, 8))
	tcp6 := ipv6(address6(7, 1), address6(7, 2), 6, 64, ports(9, 10))
	options := ipv4([4]byte{172, 16, 0, 3}, [4]byte{172, 16, 0, 4}, 17, 64, 0, slices.Repeat([]byte{1}, 12), ports(1, 2))
	later := ipv4([4]byte{172, 16, 0, 5}, [4]byte{172, 16, 0, 6}, 4, 64, 5, nil, udp4)
	vxlan := append(ports(99, 4789)[:8], 8, 0, 0, 0, 0, 0, 7, 0)
	gre := func(flags, kind uint16, more ...byte) []byte {
		return append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, flags), kind), more...)
	}
	extensions := ipv6(address6(7, 3), address6(7, 4), 0, 64, slices.Concat([]byte{44, 0, 0, 0, 0, 0, 0, 0},
		[]byte{51, 0, 0, 0, 0, 0, 0, 0}, []byte{17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ports(3, 4)))
	long := ipv6(address6(7, 3), address6(7, 5), 60, 64, slices.Concat([]byte{17, 6}, make([]byte, 54), ports(3, 4)))
	nested := func(n int) []byte {
		p := udp4
		for range n {
			p = v4(4, p)
		}
		return p
	}
	checksumOf := func(p []byte) []byte { // checksum of the outer header, which is changed
		p[10], p[11] = 0, 0
		binary.BigEndian.PutUint16(p[10:], checksum(p[:20]))
		return p
	}
	var out [][]byte
	for _, p := range [][]byte{
		v4(4, udp4), v4(41, tcp6), v4(4, options), v4(4, later), v4(41, extensions), v4(41, long),
		v4(137, []byte{0, 17, 0, 64}, []byte{0, 16, 1, 64}, tcp6), v4(137, []byte{0, 16, 1, 64}, make([]byte, 20)),
		v4(137, []byte{0, 16, 1, 64}),
		v4(47, gre(0, 0x0800), udp4), v4(47, gre(0xb000, 0x86dd, make([]byte, 12)...), tcp6),
		v4(47, gre(0x2000, 0x0800, 1, 2, 3, 4), options),
		v4(47, gre(0, 0x6558), ethernet(0x0800, []uint16{0x8100}, udp4)),
		v4(47, gre(0, 0x8864), []byte{0x11, 0, 0, 1, 0, 0, 0, 0x57}, tcp6),
		v4(47, gre(0, 0x8847), []byte{0, 16, 1, 64}, udp4),
		v4(47, gre(1, 0x880b), udp4), v4(47, gre(0x4000, 0x0800), udp4), v4(47, gre(0, 0x0806), make([]byte, 28)),
		v4(47, gre(0xb000, 0x0800, 1, 2)), v4(47, []byte{0, 0}),
		v4(17, vxlan, ethernet(0x0800, nil, udp4)), v4(17, vxlan, ethernet(0x86dd, []uint16{0x88a8, 0x8100}, tcp6)),
		v4(17, vxlan, ethernet(0x0806, nil, make([]byte, 28))), v4(17, change(vxlan, 8, 0), ethernet(0x0800, nil, udp4)),
		v4(17, vxlan[:12]), v4(17, vxlan, make([]byte, 10)), v4(6, vxlan, ethernet(0x0800, nil, udp4)),
		v4(17, vxlan, ethernet(0x0800, nil, v4(47, gre(0, 0x86dd), tcp6))),
		v4(4, change(udp4, 0, 0x55)), v4(41, change(tcp6, 0, 0x45)), v4(4, change(udp4, 0, 0x44)), v4(4, change(udp4, 8, 9)),
		v4(4, udp4[:22]), v4(4, udp4[:18]), v4(4, options[:26]), v4(41, tcp6[:30]), v4(41, tcp6[:42]),
		v4(4, slices.Concat(change(udp4, 8, 9)[:22])), v4(41, extensions[:41]), v4(41, extensions[:50]),
		nested(8), nested(9), v4(17, vxlan, ethernet(0x0800, slices.Repeat([]uint16{0x8100}, 6), udp4)),
		v4(17, vxlan, ethernet(0x0800, slices.Repeat([]uint16{0x8100}, 5), udp4)),
		v4(4, change(v4(4, change(udp4, 8, 9)), 8, 7)), v4(4, v4(4, change(udp4, 8, 9))),
		checksumOf(change(v4(4, udp4), 6, 0x20)), checksumOf(change(v4(4, udp4), 7, 5)), // first and later fragment
		change(v4(4, udp4), 8, 3), change(v4(4, udp4[:18]), 8, 3), // checksum of the outer header
		checksumOf(change(v4(4, udp4[:18]), 8, 1)), // TTL
	} {
		out = append(out, ethernet(0x0800, nil, p))
	}
	for _, p := range [][]byte{
		v6(4, udp4), v6(41, tcp6), v6(47, gre(0x8000, 0x0800, 0, 0, 0, 0), udp4), v6(137, []byte{0, 16, 1, 64}, udp4),
		v6(17, vxlan, ethernet(0x86dd, nil, tcp6)), v6(4, udp4[:21]),
		v6(60, []byte{4, 0, 0, 0, 0, 0, 0, 0}, udp4), v6(44, []byte{41, 0, 0, 1, 0, 0, 0, 1}, tcp6),
		v6(44, []byte{41, 0, 0, 8, 0, 0, 0, 1}, tcp6), v6(44, []byte{47, 0, 0, 0, 0, 0, 0, 1}, gre(0, 0x86dd), tcp6),
	} {
		out = append(out, ethernet(0x86dd, nil, p))
	}
	ecmp := ipv4([4]byte{10, 9, 0, 7}, [4]byte{10, 1, 0, 8}, 4, 64, 0, nil, udp4)
	return append(out, ethernet(0x0800, nil, ecmp),
		ethernet(0x8847, []uint16{0x8100}, append([]byte{0, 16, 1, 64}, v4(4, udp4)...)))
}
