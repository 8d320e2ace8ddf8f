// SPDX-License-Identifier: Apache-2.0

package inband

import (
	"encoding/binary"
	"errors"

	"github.com/netsketch/netsketch/hostagent/packet"
)

// Numbers of the carriers.
const (
	protocolGRE    = 47
	protocolV6Frag = 44

	etherBridged = 0x6558 // an Ethernet frame in GRE

	vxlanPort     = 4789 // without GPE
	vxlanNextFlag = 0x04 // the field of the next protocol is valid
	vxlanINT1     = 0x08 // next protocol in INT 1.0
	vxlanINT2     = 0x80 // next protocol in INT 2.1

	udpHeader    = 8
	tcpHeader    = 20
	vxlanHeader  = 8
	geneveHeader = 8
	shimHeader   = 4
	maxShims     = 8 // headers in VXLAN
	probeMarker  = 8
)

// Decode reads an Ethernet frame. The packet is valid until the frame changes.
func (d *Decoder) Decode(frame []byte, link packet.Link, p *Packet) Problem {
	return d.decode(link.Type, frame[link.TypeAt+2:], false, p)
}

// decode reads an IP packet; a truncated packet has only its beginning.
func (d *Decoder) decode(etherType uint16, ip []byte, truncated bool, p *Packet) Problem {
	p.Carrier, p.size, p.hops, p.stack = 0, 0, 0, nil
	if err := p.IP.Parse(etherType, ip); err != nil {
		if errors.Is(err, packet.ErrNotIP) {
			return NotIP
		}
		return Malformed
	}
	dscp, fragment := ip[1]>>2, false
	p.l4 = p.IP.HeaderLength
	if p.IP.Key.V6 {
		dscp, fragment = (ip[0]<<4|ip[1]>>4)>>2, ip[6] == protocolV6Frag
	} else {
		fragment = binary.BigEndian.Uint16(ip[6:])&0x3fff != 0
	}
	if !d.locate(ip, dscp, p) {
		packet.SkipMark(&p.IP.Key, ip) // switches insert no INT behind it
		return Absent
	}
	if fragment {
		p.Carrier = 0
		return Fragment
	}
	problem := d.header(ip, truncated, p)
	if p.size == 0 {
		p.Carrier, p.hops, p.stack = 0, 0, nil
	}
	return problem
}

// locate sets the carrier and the offset of the shim header, or returns false without INT.
func (d *Decoder) locate(ip []byte, dscp uint8, p *Packet) bool {
	m := &d.marks
	marked := m.DSCPMask != 0 && dscp&m.DSCPMask == m.DSCP
	switch p.IP.Key.Proto {
	case packet.ProtocolTCP:
		header := tcpHeader
		if !m.BeforeOptions && p.IP.TCP {
			header = max(int(ip[p.l4+12]>>4)*4, tcpHeader)
		}
		p.Carrier, p.at = TCP, p.l4+header
	case packet.ProtocolUDP:
		p.Carrier, p.at = UDP, p.l4+udpHeader
		switch p.IP.Key.DstPort {
		case 0: // a later fragment
		case m.UDPPort:
			p.Carrier = UDPPort
			return true
		case m.VXLAN:
			b := ip[min(p.at, len(ip)):]
			if len(b) >= vxlanHeader && b[0]&vxlanNextFlag != 0 && d.nextINT(b[3]) {
				p.Carrier, p.at = VXLAN, p.at+vxlanHeader
				return true
			}
		case m.Geneve:
			if at, ok := d.option(ip, p.at); ok {
				p.Carrier, p.at = Geneve, at
				return true
			}
		}
	case protocolGRE:
		b := ip[min(p.l4, len(ip)):]
		if m.GRE == 0 || len(b) < 4 || binary.BigEndian.Uint16(b[2:]) != m.GRE {
			return false
		}
		header, ok := greHeader(b)
		p.Carrier, p.at = GRE, p.l4+header
		return ok
	default:
		return false
	}
	if m.Probe != 0 && len(ip) >= p.at+probeMarker && binary.BigEndian.Uint64(ip[p.at:]) == m.Probe {
		return true
	}
	return marked
}

// greHeader returns the length of a GRE header. One with source routes has no known length.
func greHeader(b []byte) (int, bool) {
	n := 4
	if b[0]&0xc0 != 0 { // with a checksum or routing, both fields are present
		n += 4
	}
	if b[0]&0x20 != 0 { // key
		n += 4
	}
	if b[0]&0x10 != 0 { // sequence number
		n += 4
	}
	return n, b[0]&0x40 == 0
}

// option returns the offset of the INT option in the options of Geneve, which begin behind at.
func (d *Decoder) option(ip []byte, at int) (int, bool) {
	if len(ip) < at+geneveHeader {
		return 0, false
	}
	end := at + geneveHeader + int(ip[at]&0x3f)*4
	for at += geneveHeader; at+4 <= min(end, len(ip)); at += 4 + int(ip[at+3]&0x1f)*4 {
		if binary.BigEndian.Uint16(ip[at:]) == d.marks.GeneveClass && ip[at+2] == d.marks.GeneveType {
			return at, true
		}
	}
	return 0, false
}

// end returns the offset behind the last byte that INT may occupy, by the lengths of IP and UDP. It
// returns false if they disagree.
func (p *Packet) end(ip []byte, truncated bool) (int, bool) {
	end := p.IP.Length
	if p.IP.Key.Proto == packet.ProtocolUDP {
		if end = p.l4 + int(binary.BigEndian.Uint16(ip[p.l4+4:])); end > p.IP.Length {
			return 0, false
		}
	}
	if p.Carrier == Geneve {
		end = min(end, p.l4+udpHeader+geneveHeader+int(ip[p.l4+udpHeader]&0x3f)*4)
	}
	return end, truncated || p.IP.Length <= len(ip)
}

// header reads the shim header and the headers behind it.
func (d *Decoder) header(ip []byte, truncated bool, p *Packet) Problem {
	end, ok := p.end(ip, truncated)
	if !ok {
		return LengthMismatch
	}
	at := p.at
	if d.marks.Probe != 0 && (p.Carrier == TCP || p.Carrier == UDP) && at+probeMarker <= min(end, len(ip)) &&
		binary.BigEndian.Uint64(ip[at:]) == d.marks.Probe {
		at += probeMarker
	}
	whole := ip[:min(end, len(ip))]
	if p.Carrier == Geneve {
		size := 4 + int(ip[at+3]&0x1f)*4
		if at+size > len(whole) {
			return cut(at+size, end)
		}
		p.Kind, p.shim, p.size = MD, at, size
		return d.metadata(whole[at+4:at+size], p)
	}
	result := None
	p.Kind = Destination
	for n := 1; ; n++ {
		if at+shimHeader > len(whole) {
			p.size = 0
			return cut(at+shimHeader, end)
		}
		b := whole[at:]
		kind, size := Kind(b[0]>>4), shimHeader+int(b[1])*4
		if kind == 0 { // version 1.0
			kind, size = Kind(b[0]), int(b[2])*4
		}
		if kind < MD || kind > MX || size < shimHeader {
			p.size = 0
			return UnknownType
		}
		if at+size > len(whole) {
			p.size = 0
			return cut(at+size, end)
		}
		if kind != Destination && p.Kind != MD && p.Kind != MX { // skips other types of INT
			p.Kind = kind
			result = d.metadata(b[shimHeader:size], p)
		}
		p.shim, p.size = at, at+size-p.at
		at += size
		if p.Carrier != VXLAN || !d.nextINT(b[3]) {
			break
		}
		if n == maxShims {
			p.size = 0
			return UnknownType
		}
	}
	if problem := p.original(ip); problem != None {
		return problem
	}
	return result
}

// nextINT reports whether a next protocol of VXLAN GPE is INT.
func (d *Decoder) nextINT(protocol uint8) bool {
	if d.marks.VXLANNext != 0 {
		return protocol == d.marks.VXLANNext
	}
	return protocol == vxlanINT1 || protocol == vxlanINT2
}

// cut returns why INT ends at an offset behind the bytes that the packet has: LengthMismatch if INT
// ends behind end, the end by the lengths of IP and UDP, and Truncated otherwise.
func cut(at, end int) Problem {
	if at > end {
		return LengthMismatch
	}
	return Truncated
}

// original sets the carrier and the flow of the packet as the sender wrote it.
func (p *Packet) original(ip []byte) Problem {
	shim := ip[p.shim:]
	switch p.Carrier {
	case UDPPort:
		switch shim[0] >> 2 & 3 {
		case 1:
			p.IP.Key.DstPort = binary.BigEndian.Uint16(shim[2:])
		case 2:
			p.Carrier = UDPEncap
			return p.inner(ip, shim[3], p.at+p.size)
		default:
			p.size = 0
			return UnknownType
		}
	case GRE:
		switch {
		case shim[0]>>4 == 0: // version 1.0 has no INT in GRE
			p.size = 0
			return UnknownType
		case shim[0]&0x08 == 0:
			return None
		}
		p.Carrier = GREEncap
		next, b := binary.BigEndian.Uint16(shim[2:]), ip[p.at+p.size:]
		if next == etherBridged {
			link, err := packet.ParseLink(b)
			if err != nil {
				p.size = 0
				return Malformed
			}
			next, b = link.Type, b[link.TypeAt+2:]
		}
		if p.IP.Parse(next, b) != nil {
			p.IP = packet.IP{} // the original packet is not IP, so it has no flow
		}
	case VXLAN:
		if shim[0]>>4 != 0 && shim[2]&0x80 != 0 {
			p.Carrier = VXLANEncap
			p.IP.Key.DstPort = vxlanPort
		}
	}
	return None
}

// inner sets the flow of a packet whose transport header follows INT.
func (p *Packet) inner(ip []byte, protocol uint8, at int) Problem {
	b := ip[at:min(max(p.IP.Length, at), len(ip))]
	p.IP.Key.Proto, p.IP.Key.SrcPort, p.IP.Key.DstPort = protocol, 0, 0
	p.IP.TCP, p.IP.Flags, p.IP.Window, p.IP.Payload = false, 0, 0, b
	if protocol != packet.ProtocolTCP && protocol != packet.ProtocolUDP {
		return None
	}
	if len(b) < udpHeader {
		p.size = 0
		return Malformed
	}
	p.IP.Key.SrcPort, p.IP.Key.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	if protocol == packet.ProtocolTCP && len(b) >= tcpHeader {
		p.IP.TCP, p.IP.Flags, p.IP.Window = true, b[13], binary.BigEndian.Uint16(b[14:])
	}
	return None
}

// metadata reads the metadata header and finds the hops of the stack.
func (d *Decoder) metadata(b []byte, p *Packet) Problem {
	if len(b) < 4 {
		return Truncated
	}
	p.Version = b[0] >> 4
	header := 12
	switch p.Version {
	case 1:
		header = 8
		p.Copy, p.HopLimit = b[0]&0x02 != 0, b[0]&0x01 != 0
		p.MTU = b[1]&0x80 != 0
	case 2:
		p.Copy, p.HopLimit, p.MTU = b[0]&0x08 != 0, b[0]&0x04 != 0, b[0]&0x02 != 0
	default:
		return UnknownVersion
	}
	if len(b) < header {
		return Truncated
	}
	p.Remaining, p.Instructions = b[3], binary.BigEndian.Uint16(b[4:])
	p.Domain, p.DomainInstructions, p.DomainFlags = 0, 0, 0
	if p.Version == 2 {
		p.Domain = binary.BigEndian.Uint16(b[6:])
		p.DomainInstructions, p.DomainFlags = binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:])
	}
	return d.hops(b[header:], int(b[2]&0x1f), p)
}

// hops divides the stack into hops of the given words.
func (d *Decoder) hops(stack []byte, words int, p *Packet) Problem {
	if len(stack) == 0 { // INT-MX, or no hop added anything
		return None
	}
	p.layout = d.layout(p.Version, p.Instructions)
	if words < max(p.layout.words, 1) {
		return BadHopLength
	}
	p.hop = words * 4
	source := 0
	if p.DomainInstructions != 0 {
		known := false
		for _, s := range d.marks.SourceOnly {
			if s.Domain == p.Domain {
				known = true
				if s.Instruction&p.DomainInstructions != 0 {
					source += s.Words * 4
				}
			}
		}
		if !known && (words == p.layout.words || len(stack)%p.hop != 0) {
			return UnknownDomain
		}
	}
	if len(stack) < source || (len(stack)-source)%p.hop != 0 {
		return BadStackLength
	}
	n := (len(stack) - source) / p.hop
	switch {
	case n > MaxHops:
		return TooManyHops
	case !p.layout.has.Contains(NodeID):
		return NoNodeID
	}
	p.hops, p.stack = n, stack
	return None
}
