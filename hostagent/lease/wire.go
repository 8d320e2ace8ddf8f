// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"encoding/binary"
	"net/netip"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/checksum"
)

// magic begins the UDP payload of each probe and reply.
const magic = "NSKPROB1"

// MessageSize is the length of a message in bytes, without padding:
//
//	bytes 0-7    "NSKPROB1"
//	byte  8      kind
//	byte  9      flags
//	byte  10     in a reply, the switches that the carrier passed
//	byte  11     0
//	bytes 12-27  nonce
const MessageSize = 28

// Kind is the kind of a message.
type Kind uint8

// The kinds.
const (
	KindProbe Kind = 1
	KindReply Kind = 2
)

// Flags of a message.
const (
	// FlagCarrier states that a probe left in the carrier, and in a reply that the probe arrived in
	// the carrier.
	FlagCarrier = 1
	// FlagRefuses in a reply: the host will remove carriers no longer.
	FlagRefuses = 2
)

// Nonce identifies a probe.
type Nonce [16]byte

// Message is the payload of a probe or reply.
type Message struct {
	Kind  Kind
	Flags uint8
	Hops  uint8
	Nonce Nonce
}

// Append appends the encoded message.
func (m *Message) Append(b []byte) []byte {
	b = append(b, magic...)
	b = append(b, byte(m.Kind), m.Flags, m.Hops, 0)
	return append(b, m.Nonce[:]...)
}

// ParseMessage decodes the payload of a UDP packet to Port; ok is false if it is no message.
func ParseMessage(b []byte) (m Message, ok bool) {
	if len(b) < MessageSize || string(b[:8]) != magic {
		return Message{}, false
	}
	m = Message{Kind: Kind(b[8]), Flags: b[9], Hops: b[10], Nonce: Nonce(b[12:MessageSize])}
	return m, m.Kind == KindProbe || m.Kind == KindReply
}

// Probe is a probe or a reply to be sent.
type Probe struct {
	Message
	Source, Destination netip.Addr
	SourcePort          uint16
	// Length of the IP packet without carrier, in bytes.
	Length int
}

// Carrier reports whether the probe leaves in the carrier.
func (p *Probe) Carrier() bool { return p.Kind == KindProbe && p.Flags&FlagCarrier != 0 }

// AppendPayload appends the UDP payload, with padding to Length.
func (p *Probe) AppendPayload(b []byte) []byte {
	begin := len(b)
	b = p.Append(b)
	want := p.Length - headers(p.Destination)
	if n := want - (len(b) - begin); n > 0 {
		b = append(b, make([]byte, n)...)
	}
	return b
}

// headers is the length of the IP and UDP headers of a probe.
func headers(a netip.Addr) int {
	if a.Is4() {
		return 20 + 8
	}
	return 40 + 8
}

// AppendPacket appends the IP packet. Routers must not fragment it.
func (p *Probe) AppendPacket(b []byte) []byte {
	begin := len(b)
	if p.Destination.Is4() {
		src, dst := p.Source.As4(), p.Destination.As4()
		b = append(b, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, packet.ProtocolUDP, 0, 0) // do not fragment; TTL 64
		b = append(append(b, src[:]...), dst[:]...)
	} else {
		src, dst := p.Source.As16(), p.Destination.As16()
		b = append(b, 0x60, 0, 0, 0, 0, 0, packet.ProtocolUDP, 64)
		b = append(append(b, src[:]...), dst[:]...)
	}
	udp := len(b)
	b = binary.BigEndian.AppendUint16(b, p.SourcePort)
	b = binary.BigEndian.AppendUint16(b, Port)
	b = append(b, 0, 0, 0, 0)
	b = p.AppendPayload(b)
	binary.BigEndian.PutUint16(b[udp+4:], uint16(len(b)-udp))
	pseudo := packet.ProtocolUDP + uint64(len(b)-udp)
	if p.Destination.Is4() {
		binary.BigEndian.PutUint16(b[begin+2:], uint16(len(b)-begin))
		binary.BigEndian.PutUint16(b[begin+10:], ^checksum.Sum(0, b[begin:udp]))
		pseudo += uint64(checksum.Sum(0, b[begin+12:udp]))
	} else {
		binary.BigEndian.PutUint16(b[begin+4:], uint16(len(b)-udp))
		pseudo += uint64(checksum.Sum(0, b[begin+8:udp]))
	}
	if sum := ^checksum.Sum(pseudo, b[udp:]); sum != 0 {
		binary.BigEndian.PutUint16(b[udp+6:], sum)
	} else {
		binary.BigEndian.PutUint16(b[udp+6:], 0xffff) // 0 stands for no checksum
	}
	return b
}

// Received is a probe or reply that arrived.
type Received struct {
	Message
	Source, Destination netip.Addr
	SourcePort          uint16
	// Carried reports that the probe arrived in the carrier; CarrierHops are the switches that the
	// carrier passed.
	Carried     bool
	CarrierHops uint8
	// Length of the IP packet without carrier, in bytes.
	Length int
}

// Parse returns the probe or reply in a parsed IP packet without carrier; ok is false for other
// packets, which belong to the host.
func Parse(ip *packet.IP) (r Received, ok bool) {
	if ip.Key.Proto != packet.ProtocolUDP || ip.Key.DstPort != Port {
		return Received{}, false
	}
	m, ok := ParseMessage(ip.Payload)
	if !ok {
		return Received{}, false
	}
	return Received{Message: m, Source: ip.Key.SrcAddr(), Destination: ip.Key.DstAddr(), SourcePort: ip.Key.SrcPort,
		Length: ip.Length}, true
}
