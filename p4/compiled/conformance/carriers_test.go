// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"slices"
)

// carriers are the forms in which a packet has OmniMon's header, as docs/omnimon-p4.md describes
// them.
var carriers = []string{"shim", "option", "tunnel"}

var someHeader = omHeader{epoch: 5, index: 7, hops: 3, slots: []uint16{9}}

// typeAt is the offset of the EtherType after at most two VLAN tags, 0 if the frame ends before.
func typeAt(f []byte) int {
	at := 12
	for tags := 0; tags < 2 && len(f) >= at+2; tags++ {
		if kind := binary.BigEndian.Uint16(f[at:]); kind != 0x8100 && kind != 0x88a8 && kind != 0x9100 {
			break
		}
		at += 4
	}
	if len(f) < at+2 {
		return 0
	}
	return at
}

// body returns OmniMon's header; fields that h lacks are zero.
func (l layout) body(h omHeader) []byte {
	b := binary.BigEndian.AppendUint16(nil, h.epoch)
	b = binary.BigEndian.AppendUint32(b, h.index<<8|uint32(h.hops))
	for _, slot := range h.slots {
		b = binary.BigEndian.AppendUint16(b, slot)
	}
	for _, d := range h.differences {
		b = binary.BigEndian.AppendUint32(b, d)
	}
	return append(b, make([]byte, l.size()-len(b))...)
}

// carry returns the frame with a header in a carrier; nil if there is no room for it or no IP
// header. carry does not repair damaged frames.
func (l layout) carry(kind string, f []byte, header omHeader) []byte {
	at, b := typeAt(f), l.body(header)
	if at == 0 {
		return nil
	}
	if kind == "shim" {
		return slices.Concat(f[:at], binary.BigEndian.AppendUint16(nil, l.etherType), b, f[at:])
	}
	ip, v6 := f[at+2:], binary.BigEndian.Uint16(f[at:]) == 0x86dd
	if !v6 && (binary.BigEndian.Uint16(f[at:]) != 0x0800 || len(ip) < 20) || v6 && len(ip) < 40 {
		return nil
	}
	if kind == "tunnel" {
		return slices.Concat(f[:at+2], l.outer(ip, v6, b), ip)
	}
	if v6 {
		if ip[6] == 0 {
			return nil
		}
		option := slices.Concat([]byte{ip[6], byte(l.option6()/8 - 1), 0x3e, byte(len(b))}, b)
		if pad := l.option6() - len(option); pad > 0 {
			option = slices.Concat(option, []byte{1, byte(pad - 2)}, make([]byte, pad-2))
		}
		out := slices.Concat(f[:at+2], ip[:40], option, ip[40:])
		out[at+2+6] = 60
		addLength(out[at+2+4:], len(option))
		return out
	}
	words := int(ip[0]&15) + l.option4()/4
	if words > 15 || ip[0]&15 < 5 || len(ip) < int(ip[0]&15)*4 {
		return nil
	}
	option := slices.Concat([]byte{0x9e, byte(2 + len(b))}, b)
	option = append(option, slices.Repeat([]byte{1}, l.option4()-len(option))...)
	wrong := checksum(ip[:int(ip[0]&15)*4])
	out := slices.Concat(f[:at+2], ip[:20], option, ip[20:])
	h := out[at+2:]
	h[0] = h[0]&0xf0 | byte(words)
	addLength(h[2:], len(option))
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], checksum(h[:4*words])^wrong)
	return out
}

// addLength adds to a length of 16 bits.
func addLength(b []byte, n int) { binary.BigEndian.PutUint16(b, binary.BigEndian.Uint16(b)+uint16(n)) }

// outer returns the headers of a tunnel in front of an IP packet.
func (l layout) outer(ip []byte, v6 bool, body []byte) []byte {
	words := (len(body) + 3) / 4
	udp := slices.Concat([]byte{0xc1, 0x23, 0x17, 0xc1}, make([]byte, 4), []byte{byte(1 + words), 0, 0x08, 0x00},
		make([]byte, 4), []byte{0xff, 0x5e, 0x01, byte(words)}, body, make([]byte, 4*words-len(body)))
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)+len(ip)))
	if v6 {
		udp[10], udp[11] = 0x86, 0xdd
		h := slices.Clone(ip[:40])
		binary.BigEndian.PutUint16(h[4:], uint16(len(udp)+len(ip)))
		h[0], h[6] = h[0]&0x0f|0x60, 17
		return append(h, udp...)
	}
	h := slices.Clone(ip[:20])
	h[0], h[9] = 0x45, 17
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(udp)+len(ip)))
	h[6], h[7], h[10], h[11] = h[6]&0x40, 0, 0, 0
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, udp...)
}

// carrierFrames are carriers in all kinds of frames, and what resembles a carrier: with lengths
// that lie, options of another type or another size first, fragments, and headers that end early.
// header returns the header of the next one.
func (l layout) carrierFrames(header func() omHeader) (out [][]byte) {
	base := slices.Concat(oddFrames(), tunnelFrames())
	for _, kind := range carriers {
		for _, f := range base {
			if f = l.carry(kind, f, header()); f != nil {
				out = append(out, f)
			}
		}
	}
	tcp, udp := ports(1234, 80), ports(53, 53)
	bare := append(tcp[:12:12], 0x50, 0x10, 1, 2, 0, 0, 0, 0)
	v4 := func(options []byte, protocol byte, payload []byte) []byte {
		return ethernet(0x0800, nil, ipv4([4]byte{10, 9, 0, 1}, [4]byte{10, 1, 0, 2}, protocol, 64, 0x4000, options, payload))
	}
	v6 := func(next byte, payload []byte) []byte {
		return ethernet(0x86dd, nil, ipv6(address6(9), address6(0, 1, 2), next, 64, payload))
	}
	frames := [][]byte{v4(nil, 6, bare), v4(nil, 17, udp), v6(6, bare), v6(17, udp)}
	// Each byte of each carrier but OmniMon's header, one at a time, and every length. A changed
	// IPv4 header has a right checksum.
	for _, kind := range carriers[1:] {
		for _, f := range frames {
			f = l.carry(kind, f, header())
			end := 14 + 40 + l.tunnel()
			for at := 14; at < min(end, len(f)); at++ {
				for _, bit := range []byte{1, 2, 0x20, 0x80} {
					out = append(out, resum(change(f, at, f[at]^bit)))
				}
			}
			for n := 14; n < len(f); n += 3 {
				out = append(out, f[:n])
			}
		}
	}
	// Packets with another option before or behind OmniMon's option.
	nop, other := []byte{1, 1, 1, 1}, []byte{0x9f, 4, 1, 2}
	option := append([]byte{0x9e, byte(2 + l.size())}, l.body(header())...)
	option = append(option, slices.Repeat([]byte{1}, l.option4()-len(option))...)
	for _, options := range [][]byte{slices.Concat(nop, option), slices.Concat(other, option), slices.Concat(option, nop),
		slices.Concat(option, other), slices.Concat(option, option), option[:l.option4()-4],
		{0x9e, 4, 0, 0}, {0x9e, 0, 0, 0}, {0x9e, 40, 0, 0}, {0x9e, 2, 1, 1}} {
		if len(options) <= 40 {
			out = append(out, v4(options, 6, bare), v4(options, 17, udp))
		}
	}
	geneve := func(words byte, options ...byte) []byte {
		return slices.Concat([]byte{0xc1, 0x23, 0x17, 0xc1, 0, 0, 0, 0, words, 0, 8, 0, 0, 0, 0, 0}, options)
	}
	inner := ipv4([4]byte{10, 9, 0, 1}, [4]byte{10, 1, 0, 2}, 6, 64, 0, nil, bare)
	ours := slices.Concat([]byte{0xff, 0x5e, 1, byte((l.size() + 3) / 4)}, l.body(header()),
		make([]byte, (4-l.size()%4)%4))
	n := byte(len(ours) / 4)
	for _, payload := range [][]byte{
		geneve(0), geneve(0)[:4], geneve(0)[:8], geneve(0)[:10], slices.Concat(geneve(0), inner),
		slices.Concat(geneve(2, 0xff, 0x5e, 2, 1, 0, 0, 0, 0), inner),
		slices.Concat(geneve(2+n, 0xff, 0x5e, 2, 1, 0, 0, 0, 0), ours, inner),
		slices.Concat(geneve(2+n), ours, []byte{0xff, 0x5e, 2, 1, 0, 0, 0, 0}, inner),
		slices.Concat(geneve(n), ours, inner), slices.Concat(geneve(n), ours, inner[:19]),
		slices.Concat(geneve(n), ours, inner[:21]), slices.Concat(geneve(n), ours),
	} {
		out = append(out, v4(nil, 17, payload), v6(17, payload), v4(nil, 6, payload), v4(nop, 17, payload))
	}
	// A carrier in a carrier.
	for _, outer := range carriers {
		for _, within := range carriers {
			for _, f := range frames {
				if f = l.carry(within, f, header()); f != nil && within != "shim" {
					out = append(out, l.carry(outer, f, header()))
				}
			}
		}
	}
	for _, f := range frames { // fragments and small TTLs
		for _, kind := range carriers {
			tagged := l.carry(kind, f, header())
			if ip := parse(tagged).ip; !parse(tagged).v6 {
				out = append(out, resum(change(tagged, ip+6, 0x20)), resum(change(tagged, ip+7, 9)),
					resum(change(tagged, ip+8, 1)), resum(change(tagged, ip+8, 2)))
			} else {
				out = append(out, change(tagged, ip+7, 1), change(tagged, ip+7, 2))
			}
		}
	}
	return slices.DeleteFunc(out, func(f []byte) bool { return f == nil })
}

// change returns the frame with another byte.
func change(f []byte, at int, b byte) []byte {
	f = slices.Clone(f)
	f[at] = b
	return f
}

// resum returns the frame with the right checksum of its outermost IPv4 header, if it has one.
func resum(f []byte) []byte {
	at := parse(f).ip
	if at == 0 || len(f) < at+20 || f[at]>>4 != 4 {
		return f
	}
	h := f[at:min(len(f), at+int(f[at]&15)*4)]
	if len(h) >= 20 && len(h)%2 == 0 {
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], checksum(h))
	}
	return f
}
