// SPDX-License-Identifier: Apache-2.0

package inband

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/hostagent/packet"
)

// Strip removes INT from the frame that was decoded into p, so that the packet is as its sender
// wrote it: DSCP, ports, lengths and checksums are restored. A wrong checksum stays wrong, because
// they are updated by the difference. It does nothing without INT.
func (p *Packet) Strip(f *packet.Frame, link packet.Link) {
	if p.size == 0 {
		return
	}
	start := link.TypeAt + 2
	ip := f.Bytes()[start:]
	shim := [shimHeader]byte(ip[p.shim:])
	at, size := p.at, p.size
	switch p.Carrier {
	case GREEncap:
		p.unwrap(f, link, binary.BigEndian.Uint16(shim[2:]))
		return
	case UDPEncap:
		at, size = p.l4, p.at+p.size-p.l4
	}
	removed := packet.Sum(ip[at : at+size])
	// The headers are moved before they change: loads of several stored fields at once are slow.
	f.Remove(start+at, size)
	ip = ip[size:]
	change := uint64(0) // change of the sum of the IPv4 header
	switch p.Carrier {
	case TCP:
		change = p.dscp(ip, shim)
		packet.AddChecksum(ip[p.l4+16:], removed+uint64(size), 0xffff)
	case UDP, UDPPort:
		change = p.udp(ip, removed, shim)
	case UDPEncap:
		change = p.protocol(ip, shim[3])
	case GRE:
		p.gre(ip, removed, shim)
	case VXLAN, VXLANEncap:
		change = p.vxlan(ip, removed, shim)
	case Geneve:
		change = p.geneve(ip, removed, shim)
	}
	if p.IP.Key.V6 {
		length := ip[4:]
		binary.BigEndian.PutUint16(length, binary.BigEndian.Uint16(length)-uint16(size))
	} else {
		binary.BigEndian.PutUint16(ip[2:], binary.BigEndian.Uint16(ip[2:])-uint16(size))
		packet.AddChecksum(ip[10:], change+uint64(size), 0xffff)
	}
	p.IP.Length -= size
	p.size, p.hops, p.stack = 0, 0, nil
}

// replace writes a 16-bit word at an even offset and returns what that adds to a checksum.
func replace(b []byte, word uint16) uint64 {
	old := binary.BigEndian.Uint16(b)
	binary.BigEndian.PutUint16(b, word)
	return uint64(old) + uint64(^word)
}

// dscp restores the DSCP of a marked packet and keeps its ECN. A packet with a probe marker has its
// own DSCP. It returns what that adds to the checksum of IPv4.
func (p *Packet) dscp(ip []byte, shim [shimHeader]byte) uint64 {
	if p.shim > p.at {
		return 0
	}
	value := shim[3] & 0xfc
	if p.IP.Key.V6 {
		class := value | ip[1]>>4&3
		ip[0], ip[1] = ip[0]&0xf0|class>>4, class<<4|ip[1]&0x0f
		return 0
	}
	return replace(ip, uint16(ip[0])<<8|uint16(value|ip[1]&3))
}

// protocol writes the protocol of the IP header and returns what that adds to its checksum.
func (p *Packet) protocol(ip []byte, protocol uint8) uint64 {
	if p.IP.Key.V6 {
		ip[6] = protocol
		return 0
	}
	return replace(ip[8:], uint16(ip[8])<<8|uint16(protocol))
}

// udp restores the UDP header of a packet from which bytes are removed; removed is their sum. If
// INT is in UDP, udp also restores the DSCP, and returns what that adds to the checksum of IPv4.
func (p *Packet) udp(ip []byte, removed uint64, shim [shimHeader]byte) (change uint64) {
	udp := ip[p.l4 : p.l4+udpHeader : p.l4+udpHeader]
	length := binary.BigEndian.Uint16(udp[4:])
	removed += replace(udp[4:], length-uint16(p.size)) + uint64(p.size)
	if p.Carrier == UDP {
		change = p.dscp(ip, shim)
	} else {
		removed += replace(udp[2:], p.IP.Key.DstPort)
	}
	if binary.BigEndian.Uint16(udp[6:]) != 0 { // zero: the packet has no checksum
		packet.AddChecksum(udp[6:], removed, 0)
	}
	return change
}

// gre restores the GRE header.
func (p *Packet) gre(ip []byte, removed uint64, shim [shimHeader]byte) {
	gre := ip[p.l4:]
	change := replace(gre[2:], binary.BigEndian.Uint16(shim[2:]))
	if gre[0]&0x80 != 0 {
		packet.AddChecksum(gre[4:], change+removed, 0xffff)
	}
}

// unwrap removes the outer headers of a packet that was put into GRE to carry INT.
func (p *Packet) unwrap(f *packet.Frame, link packet.Link, next uint16) {
	start := link.TypeAt + 2
	if next == etherBridged {
		f.Remove(0, start+p.at+p.size)
	} else {
		binary.BigEndian.PutUint16(f.Bytes()[link.TypeAt:], next)
		f.Remove(start, p.at+p.size)
	}
	p.size, p.hops, p.stack = 0, 0, nil
}

// vxlan restores the VXLAN header.
func (p *Packet) vxlan(ip []byte, removed uint64, shim [shimHeader]byte) uint64 {
	header := ip[p.l4+udpHeader:]
	flags, next := header[0], shim[3]
	if p.Carrier == VXLANEncap {
		flags, next = flags&^vxlanNextFlag, 0
	}
	removed += replace(header, uint16(flags)<<8|uint16(header[1]))
	removed += replace(header[2:], uint16(header[2])<<8|uint16(next))
	return p.udp(ip, removed, shim)
}

// geneve restores the Geneve header. The option of INT, which began with shim, is removed.
func (p *Packet) geneve(ip []byte, removed uint64, shim [shimHeader]byte) uint64 {
	header := ip[p.l4+udpHeader:]
	options := header[0]&0x3f - uint8(p.size/4)
	flags := header[1]
	if shim[2]&0x80 != 0 && !p.critical(ip, int(options)*4) {
		flags &^= 0x40
	}
	removed += replace(header, uint16(header[0]&0xc0|options)<<8|uint16(flags))
	return p.udp(ip, removed, shim)
}

// critical reports whether one of the given bytes of options of Geneve is critical.
func (p *Packet) critical(ip []byte, options int) bool {
	at := p.l4 + udpHeader + geneveHeader
	end := min(at+options, len(ip))
	for ; at+4 <= end; at += 4 + int(ip[at+3]&0x1f)*4 {
		if ip[at+2]&0x80 != 0 {
			return true
		}
	}
	return false
}
