// SPDX-License-Identifier: Apache-2.0

// Package packet parses frames at an end host and changes them in place: the link layer with VLAN
// tags, the flow of an IP packet, and a frame with room in front of it for a header.
//
// It defines the flow of a packet as docs/p4.md does for switches, so that hosts and switches
// attribute a packet to the same flow. Nothing here allocates memory per packet.
package packet

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/netsketch/netsketch/sketch/flow"
)

// EtherTypes.
const (
	EtherTypeIPv4    = 0x0800
	EtherTypeIPv6    = 0x86dd
	EtherTypeVLAN    = 0x8100
	EtherTypeQinQ    = 0x88a8
	EtherTypeQinQOld = 0x9100
)

// IP protocols whose ports belong to a flow, and the IPv6 fragment header.
const (
	ProtocolTCP      = 6
	ProtocolUDP      = 17
	protocolFragment = 44
)

// TCP flags.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Reasons why a frame has no flow.
var (
	ErrTruncated = errors.New("truncated header")
	ErrNotIP     = errors.New("neither IPv4 nor IPv6")
	ErrVersion   = errors.New("the IP version differs from the EtherType")
	ErrLength    = errors.New("invalid IP header length or total length")
)

// OmniMon's option of IPv6 (docs/omnimon-p4.md), and how many bytes its fields have.
const (
	optionMark          = 0x3e
	leastMark, mostMark = 8, 30
)

const (
	macs    = 12 // bytes before the first EtherType
	maxTags = 2
	tag     = 4
	ipv4    = 20
	ipv6    = 40
	tcp     = 20
	udp     = 8
)

// Link is the link layer of a frame.
type Link struct {
	// TypeAt is the offset of the EtherType that describes the payload: the last one behind at most
	// two VLAN tags. The payload begins two bytes later.
	TypeAt int
	// Type is the EtherType.
	Type uint16
}

// ParseLink parses the MAC addresses and at most two VLAN tags.
func ParseLink(frame []byte) (Link, error) {
	at := macs
	for range maxTags {
		if len(frame) < at+2 {
			return Link{}, ErrTruncated
		}
		switch binary.BigEndian.Uint16(frame[at:]) {
		case EtherTypeVLAN, EtherTypeQinQ, EtherTypeQinQOld:
			at += tag
			continue
		}
		break
	}
	if len(frame) < at+2 {
		return Link{}, ErrTruncated
	}
	return Link{TypeAt: at, Type: binary.BigEndian.Uint16(frame[at:])}, nil
}

// Source returns the source address of the frame whose link layer this is. It is invalid if the
// frame is not IP or too short.
func (l Link) Source(frame []byte) netip.Addr {
	b := frame[l.TypeAt+2:]
	switch {
	case l.Type == EtherTypeIPv4 && len(b) >= ipv4:
		return netip.AddrFrom4([4]byte(b[12:16]))
	case l.Type == EtherTypeIPv6 && len(b) >= ipv6:
		return netip.AddrFrom16([16]byte(b[8:24]))
	}
	return netip.Addr{}
}

// IP has the fields of an IP packet that the data path uses.
type IP struct {
	// Key is the 5-tuple of the outermost IP header.
	Key flow.Key
	// Length is the length of the IP packet in bytes, from its header.
	Length int
	// HeaderLength is the length of the IP header with options, in bytes.
	HeaderLength int
	// TTL is the TTL or the hop limit.
	TTL uint8
	// TCP: the packet has a TCP header; Flags and Window are from it.
	TCP    bool
	Flags  uint8
	Window uint16
	// Payload is the data after the TCP or UDP header, or after the IP header of another protocol.
	Payload []byte
}

// Parse parses the IP packet b of the given EtherType into p. A TCP or UDP header must be whole.
func (p *IP) Parse(etherType uint16, b []byte) error {
	switch etherType {
	case EtherTypeIPv4:
		return p.parseIPv4(b)
	case EtherTypeIPv6:
		return p.parseIPv6(b)
	}
	return ErrNotIP
}

func (p *IP) parseIPv4(b []byte) error {
	if len(b) < ipv4 {
		return ErrTruncated
	}
	if b[0]>>4 != 4 {
		return ErrVersion
	}
	header := int(b[0]&0xf) * 4
	length := int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case header < ipv4:
		return ErrLength
	case len(b) < header:
		return ErrTruncated
	case length < header:
		return ErrLength
	}
	p.Key = flow.Key{Proto: b[9], Mask: flow.FiveTuple}
	p.Key.SetIPv4(binary.LittleEndian.Uint64(b[12:]))
	p.Length, p.HeaderLength, p.TTL = length, header, b[8]
	later := binary.BigEndian.Uint16(b[6:])&0x1fff != 0
	return p.parseTransport(b[header:], later)
}

func (p *IP) parseIPv6(b []byte) error {
	if len(b) < ipv6 {
		return ErrTruncated
	}
	if b[0]>>4 != 6 {
		return ErrVersion
	}
	p.Key = flow.Key{Proto: b[6], Mask: flow.FiveTuple, V6: true}
	copy(p.Key.Src[:], b[8:24])
	copy(p.Key.Dst[:], b[24:40])
	p.Length, p.HeaderLength, p.TTL = ipv6+int(binary.BigEndian.Uint16(b[4:])), ipv6, b[7]
	b = b[ipv6:]
	later := false
	if p.Key.Proto == protocolFragment {
		if len(b) < 8 {
			return ErrTruncated
		}
		p.Key.Proto = b[0]
		later = binary.BigEndian.Uint16(b[2:])&0xfff8 != 0
		b = b[8:]
	}
	return p.parseTransport(b, later)
}

// SkipMark corrects k, the flow that IP.Parse returned for the IPv6 packet b: if OmniMon's option
// follows the fixed header, k gets the protocol and the ports behind the option, so that it is the
// flow that the host sent. If the packet ends within the option, k stays as it is.
func SkipMark(k *flow.Key, b []byte) {
	if !k.V6 || k.Proto != protocolDestinations || len(b) < ipv6+16 {
		return
	}
	option := b[ipv6:]
	fields, size, proto, later := int(option[3]), 8*(int(option[1])+1), option[0], false
	if option[2] != optionMark || fields < leastMark || fields > mostMark || size != (4+fields+7)&^7 ||
		len(option) < size+8 {
		return
	}
	b = option[size:]
	if proto == protocolFragment {
		proto, later, b = b[0], binary.BigEndian.Uint16(b[2:])&0xfff8 != 0, b[8:]
	}
	if !later && (proto == ProtocolTCP || proto == ProtocolUDP) {
		if len(b) < udp {
			return
		}
		k.SrcPort, k.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
	k.Proto = proto
}

// parseTransport parses the ports, and the flags of TCP. A later fragment has neither.
func (p *IP) parseTransport(b []byte, later bool) error {
	p.TCP, p.Flags, p.Window, p.Payload = false, 0, 0, b
	if later {
		return nil
	}
	header := 0
	switch p.Key.Proto {
	case ProtocolTCP:
		header = tcp
	case ProtocolUDP:
		header = udp
	default:
		return nil
	}
	if len(b) < header {
		return ErrTruncated
	}
	p.Key.SrcPort = binary.BigEndian.Uint16(b)
	p.Key.DstPort = binary.BigEndian.Uint16(b[2:])
	if p.Key.Proto == ProtocolTCP {
		p.TCP, p.Flags, p.Window = true, b[13], binary.BigEndian.Uint16(b[14:])
		header = min(max(int(b[12]>>4)*4, tcp), len(b))
	}
	p.Payload = b[header:]
	return nil
}
