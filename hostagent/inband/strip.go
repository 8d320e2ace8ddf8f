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
	frame := f.Bytes()
	ip := frame[start:]
	shim := ip[p.shim : p.shim+shimHeader]
	at, size := p.at, p.size
	switch p.Carrier {
	case TCP:
		p.dscp(ip, shim)
		packet.AddChecksum(ip[p.l4+16:], packet.Sum(ip[at:at+size])+uint64(size), 0xffff)
	case UDP, UDPPort:
		p.udp(ip, packet.Sum(ip[at:at+size]), shim)
	case UDPEncap:
		at, size = p.l4, p.at+p.size-p.l4
		p.protocol(ip, shim[3])
	case GRE:
		p.gre(ip, shim)
	case GREEncap:
		p.unwrap(f, link, binary.BigEndian.Uint16(shim[2:]))
		return
	case VXLAN, VXLANEncap:
		p.vxlan(ip, shim)
	case Geneve:
		p.geneve(ip)
	}
	if p.IP.Key.V6 {
		length := ip[4:]
		binary.BigEndian.PutUint16(length, binary.BigEndian.Uint16(length)-uint16(size))
	} else {
		binary.BigEndian.PutUint16(ip[2:], binary.BigEndian.Uint16(ip[2:])-uint16(size))
		packet.AddChecksum(ip[10:], uint64(size), 0xffff)
	}
	p.IP.Length -= size
	f.Remove(start+at, size)
	p.size, p.hops, p.stack = 0, 0, nil
}

// replace writes a 16-bit word at an even offset and returns what that adds to a checksum.
func replace(b []byte, word uint16) uint64 {
	old := binary.BigEndian.Uint16(b)
	binary.BigEndian.PutUint16(b, word)
	return uint64(old) + uint64(^word)
}

// dscp restores the DSCP of a marked packet and keeps its ECN. A packet with a probe marker has its
// own DSCP.
func (p *Packet) dscp(ip, shim []byte) {
	if p.shim > p.at {
		return
	}
	value := shim[3] & 0xfc
	if p.IP.Key.V6 {
		class := value | ip[1]>>4&3
		ip[0], ip[1] = ip[0]&0xf0|class>>4, class<<4|ip[1]&0x0f
		return
	}
	packet.AddChecksum(ip[10:], replace(ip, uint16(ip[0])<<8|uint16(value|ip[1]&3)), 0xffff)
}

// protocol writes the protocol of the IP header.
func (p *Packet) protocol(ip []byte, protocol uint8) {
	if p.IP.Key.V6 {
		ip[6] = protocol
		return
	}
	packet.AddChecksum(ip[10:], replace(ip[8:], uint16(ip[8])<<8|uint16(protocol)), 0xffff)
}

// udp restores the UDP header when bytes of the given sum are removed behind it.
func (p *Packet) udp(ip []byte, removed uint64, shim []byte) {
	udp := ip[p.l4:]
	length := binary.BigEndian.Uint16(udp[4:])
	removed += replace(udp[4:], length-uint16(p.size)) + uint64(p.size)
	if p.Carrier == UDP {
		p.dscp(ip, shim)
	} else {
		removed += replace(udp[2:], p.IP.Key.DstPort)
	}
	if binary.BigEndian.Uint16(udp[6:]) != 0 { // zero: the packet has no checksum
		packet.AddChecksum(udp[6:], removed, 0)
	}
}

// gre restores the GRE header.
func (p *Packet) gre(ip, shim []byte) {
	gre := ip[p.l4:]
	change := replace(gre[2:], binary.BigEndian.Uint16(shim[2:]))
	if gre[0]&0x80 != 0 {
		packet.AddChecksum(gre[4:], change+packet.Sum(ip[p.at:p.at+p.size]), 0xffff)
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
func (p *Packet) vxlan(ip, shim []byte) {
	header := ip[p.l4+udpHeader:]
	removed := packet.Sum(ip[p.at : p.at+p.size])
	flags, next := header[0], shim[3]
	if p.Carrier == VXLANEncap {
		flags, next = flags&^vxlanNextFlag, 0
	}
	removed += replace(header, uint16(flags)<<8|uint16(header[1]))
	removed += replace(header[2:], uint16(header[2])<<8|uint16(next))
	p.udp(ip, removed, shim)
}

// geneve restores the Geneve header.
func (p *Packet) geneve(ip []byte) {
	header := ip[p.l4+udpHeader:]
	removed := packet.Sum(ip[p.at : p.at+p.size])
	options := header[0]&0x3f - uint8(p.size/4)
	flags := header[1]
	if ip[p.at+2]&0x80 != 0 && !p.critical(ip) {
		flags &^= 0x40
	}
	removed += replace(header, uint16(header[0]&0xc0|options)<<8|uint16(flags))
	p.udp(ip, removed, nil)
}

// critical reports whether an option of Geneve other than INT is critical.
func (p *Packet) critical(ip []byte) bool {
	at := p.l4 + udpHeader + geneveHeader
	end := min(at+int(ip[p.l4+udpHeader]&0x3f)*4, len(ip))
	for ; at+4 <= end; at += 4 + int(ip[at+3]&0x1f)*4 {
		if at != p.at && ip[at+2]&0x80 != 0 {
			return true
		}
	}
	return false
}
