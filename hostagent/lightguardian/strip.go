// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/hostagent/packet"
)

const (
	ipv4Header, ipv6Header = 20, 40
	tcpHeader, udpHeader   = 20, 8

	tcpMark  = 0x08 // in the byte of the data offset
	udpMark  = 0x80 // in the byte of the IPv4 flags
	moreFrag = 0x20
)

// place holds the offsets of the sketchlet in a packet with the carry mark, counted from the IP
// header.
type place struct {
	l4, payload, end int
	v6, udp          bool
}

// locate finds the payload of a packet with the carry mark. ok is false without one: the packet is
// neither TCP nor UDP over IPv4, is a fragment, or its headers are not whole.
func (p *place) locate(etherType uint16, ip []byte) (ok bool) {
	var protocol byte
	switch {
	case etherType == packet.EtherTypeIPv4 && len(ip) >= ipv4Header && ip[0]>>4 == 4:
		p.l4, p.end, p.v6 = int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:])), false
		if p.l4 < ipv4Header || ip[6]&(moreFrag|0x1f) != 0 || ip[7] != 0 {
			return false
		}
		protocol = ip[9]
	case etherType == packet.EtherTypeIPv6 && len(ip) >= ipv6Header && ip[0]>>4 == 6:
		p.l4, p.end, p.v6 = ipv6Header, ipv6Header+int(binary.BigEndian.Uint16(ip[4:])), true
		protocol = ip[6]
	default:
		return false
	}
	p.udp = protocol == packet.ProtocolUDP
	p.payload = p.l4 + udpHeader
	switch {
	case p.udp && !p.v6:
		if ip[6]&udpMark == 0 {
			return false
		}
	case protocol == packet.ProtocolTCP:
		if len(ip) < p.l4+tcpHeader || ip[p.l4+12]&tcpMark == 0 {
			return false
		}
		n := int(ip[p.l4+12]>>4) * 4
		if n < tcpHeader {
			return false
		}
		p.payload = p.l4 + n
	default:
		return false
	}
	p.end = min(p.end, len(ip))
	return p.payload <= p.end
}

// strip removes size bytes at the payload of the packet whose IP header begins at offset start, so
// that it is as its sender wrote it: the mark, lengths and checksums are restored. A wrong checksum
// stays wrong, because it is updated by the difference.
func (p *place) strip(f *packet.Frame, start, size int) {
	ip := f.Bytes()[start:]
	removed := packet.Sum(ip[p.payload:p.payload+size]) + uint64(size)
	header := ip[p.l4:]
	if p.udp {
		binary.BigEndian.PutUint16(header[4:], binary.BigEndian.Uint16(header[4:])-uint16(size))
		if header[6]|header[7] != 0 { // zero: the packet has no checksum
			packet.AddChecksum(header[6:], removed+uint64(size), 0)
		}
	} else {
		header[12] &^= tcpMark
		packet.AddChecksum(header[16:], removed+tcpMark<<8, 0xffff)
	}
	if p.v6 {
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])-uint16(size))
	} else {
		changed := uint64(size)
		if p.udp {
			ip[6] &^= udpMark
			changed += udpMark << 8
		}
		binary.BigEndian.PutUint16(ip[2:], binary.BigEndian.Uint16(ip[2:])-uint16(size))
		packet.AddChecksum(ip[10:], changed, 0xffff)
	}
	f.Remove(start+p.payload, size)
}
