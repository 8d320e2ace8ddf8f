// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"encoding/binary"
	"slices"
)

// SuperPacket is a frame that the kernel will segment or has merged, as a program at TC sees it.
type SuperPacket struct {
	Name    string
	Frame   []byte
	Size    uint32 // bytes of data per segment: gso_size
	Packets uint32 // packets on the wire
	Headers int    // bytes of headers that each segment repeats
}

// super builds a super-packet from the innermost header to the outermost one.
type super []byte

func tcp(options int, data []byte) super {
	h := make([]byte, 20+options)
	copy(h, []byte{0x04, 0xd2, 0x14, 0x51})
	h[12], h[13] = byte(len(h)/4)<<4, 0x10
	return append(h, data...)
}

func (b super) udp(port uint16) super {
	h := []byte{0xc0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(h[2:], port)
	binary.BigEndian.PutUint16(h[4:], uint16(8+len(b)))
	return append(h, b...)
}

func (b super) ipv4(protocol byte, options int) super {
	h := make([]byte, 20+options)
	h[0], h[8], h[9] = 0x40|byte(len(h)/4), 64, protocol
	if n := len(h) + len(b); n <= 0xffff { // longer packets have length 0, as in the kernel
		binary.BigEndian.PutUint16(h[2:], uint16(n))
	}
	copy(h[12:], []byte{10, 0, 1, 5, 10, 0, 2, 9})
	sum := uint32(0)
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum+sum>>16))
	return append(h, b...)
}

func (b super) ipv6(next byte) super {
	h := make([]byte, 40)
	h[0], h[6], h[7], h[8], h[23], h[24], h[39] = 0x60, next, 64, 0xfd, 1, 0xfd, 2
	if len(b) <= 0xffff {
		binary.BigEndian.PutUint16(h[4:], uint16(len(b)))
	}
	return append(h, b...)
}

func (b super) behind(header ...byte) super { return append(header, b...) }

func (b super) ethernet(kind uint16, tags ...uint16) super {
	h := make([]byte, 12)
	for i, t := range tags {
		tpid := uint16(0x8100)
		if i < len(tags)-1 {
			tpid = 0x88a8
		}
		h = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(h, tpid), t)
	}
	return append(binary.BigEndian.AppendUint16(h, kind), b...)
}

// SuperPackets returns a super-packet for each kind of headers, with ten segments of which the last
// one is shorter.
func SuperPackets() []SuperPacket {
	const size, packets = 200, 10
	data := make([]byte, size*packets-1)
	for i := range data {
		data[i] = byte(i)
	}
	plain := func() super { return tcp(12, data).ipv4(6, 0) }
	framed := func() super { return plain().ethernet(0x0800) }
	const ipv4, ipv6 = 0x0800, 0x86dd
	// Merged UDP datagrams whose data look like VXLAN with an inner packet as long as one segment.
	segment := tcp(0, make([]byte, size-70)).ipv4(6, 0).ethernet(ipv4).behind(8, 0, 0, 0, 0, 0, 9, 0)
	var datagrams super
	for range packets {
		datagrams = append(datagrams, segment[:size-8]...)
	}
	var all []SuperPacket
	for _, p := range []struct {
		name  string
		frame super
	}{
		{"tcp", framed()},
		{"tcp with options of IPv4", tcp(12, data).ipv4(6, 16).ethernet(ipv4)},
		{"udp", super(data).udp(5000).ipv4(17, 0).ethernet(ipv4)},
		{"tcp over IPv6", tcp(12, data).ipv6(6).ethernet(ipv6)},
		{"tcp behind extension headers", tcp(12, data).behind(6, 0, 1, 4, 0, 0, 0, 0).behind(slices.Concat([]byte{60, 2},
			make([]byte, 22))...).ipv6(43).ethernet(ipv6)},
		{"tcp behind options of each hop", tcp(12, data).behind(6, 0, 1, 4, 0, 0, 0, 0).ipv6(0).ethernet(ipv6)},
		{"a VLAN tag", plain().ethernet(ipv4, 5)},
		{"two VLAN tags", plain().ethernet(ipv4, 5, 6)},
		{"IPv4 in IPv4", plain().ipv4(4, 0).ethernet(ipv4)},
		{"IPv6 in IPv4", tcp(12, data).ipv6(6).ipv4(41, 0).ethernet(ipv4)},
		{"IPv4 in IPv6", plain().ipv6(4).ethernet(ipv6)},
		{"IPv6 in IPv6", tcp(12, data).ipv6(6).ipv6(41).ethernet(ipv6)},
		{"GRE", plain().behind(0, 0, 8, 0).ipv4(47, 0).ethernet(ipv4)},
		{"GRE with checksum, key and number", plain().behind(0xb0, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3).
			ipv4(47, 0).ethernet(ipv4)},
		{"Ethernet in GRE", framed().behind(0x20, 0, 0x65, 0x58, 0, 0, 0, 1).ipv4(47, 0).ethernet(ipv4)},
		{"MPLS", plain().behind(0, 1, 0x01, 64).ethernet(0x8847)},
		{"MPLS in IPv4", plain().behind(0, 1, 0x01, 64).ipv4(137, 0).ethernet(ipv4)},
		{"VXLAN", framed().behind(8, 0, 0, 0, 0, 0, 9, 0).udp(4789).ipv4(17, 0).ethernet(ipv4)},
		{"VXLAN at another port", framed().behind(8, 0, 0, 0, 0, 0, 9, 0).udp(8472).ipv4(17, 0).ethernet(ipv4)},
		{"VXLAN over IPv6, tags inside", plain().ethernet(ipv4, 7).behind(8, 0, 0, 0, 0, 0, 9, 0).udp(4789).ipv6(17).
			ethernet(ipv6)},
		{"VXLAN with a group policy", framed().behind(0x88, 0, 0, 7, 0, 0, 9, 0).udp(4789).ipv4(17, 0).ethernet(ipv4)},
		{"VXLAN GPE", plain().behind(0x0c, 0, 0, 1, 0, 0, 9, 0).udp(4790).ipv4(17, 0).ethernet(ipv4)},
		{"Geneve", framed().behind(0, 0, 0x65, 0x58, 0, 0, 9, 0).udp(6081).ipv4(17, 0).ethernet(ipv4)},
		{"Geneve with options", framed().behind(2, 0, 0x65, 0x58, 0, 0, 9, 0, 1, 2, 3, 1, 5, 6, 7, 8).udp(6081).
			ipv4(17, 0).ethernet(ipv4)},
		{"IPv4 in UDP", plain().udp(5555).ipv4(17, 0).ethernet(ipv4)},
		{"VXLAN in VXLAN", framed().behind(8, 0, 0, 0, 0, 0, 9, 0).udp(4789).ipv4(17, 0).ethernet(ipv4).
			behind(8, 0, 0, 0, 0, 0, 8, 0).udp(4789).ipv4(17, 0).ethernet(ipv4)},
	} {
		all = append(all, SuperPacket{p.name, p.frame, size, packets, len(p.frame) - len(data)})
	}
	sent := datagrams.udp(4789).ipv4(17, 0).ethernet(ipv4)
	return append(all, SuperPacket{"datagrams that look like VXLAN", sent, size - 8, packets, 14 + 20 + 8})
}
