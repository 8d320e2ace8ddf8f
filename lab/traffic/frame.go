// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"net/netip"

	"github.com/netsketch/netsketch/internal/checksum"
)

const (
	ethernetLen = 14
	ipv4Len     = 20
	ipv6Len     = 40
	tcpLen      = 20
	udpLen      = 8

	protoTCP uint8 = 6
	protoUDP uint8 = 17

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

// FrameSpec describes one Ethernet frame with an IP packet in it.
type FrameSpec struct {
	Src, Dst         netip.Addr // addresses of one family
	Proto            uint8      // 6 TCP, 17 UDP; another: no transport header
	SrcPort, DstPort uint16
	Length           int // whole frame in bytes; shorter than the headers: just the headers
}

// hopLimit is the hop limit of packets before the first hop.
const hopLimit = 64

// BuildFrame returns the frame, with correct lengths and checksums. Its MAC addresses and its
// payload are zeros: routers set the addresses, and nobody reads the payload.
func BuildFrame(s FrameSpec) []byte {
	v6 := s.Src.Is6()
	ip, transport := ipv4Len, 0
	if v6 {
		ip = ipv6Len
	}
	switch s.Proto {
	case protoTCP:
		transport = tcpLen
	case protoUDP:
		transport = udpLen
	}
	headers := ethernetLen + ip + transport
	b := make([]byte, max(s.Length, headers))
	l3, l4 := b[ethernetLen:], b[ethernetLen+ip:]
	switch s.Proto {
	case protoTCP:
		binary.BigEndian.PutUint16(l4[0:], s.SrcPort)
		binary.BigEndian.PutUint16(l4[2:], s.DstPort)
		l4[12], l4[13] = 5<<4, 0x10 // no options; ACK
		binary.BigEndian.PutUint16(l4[14:], 0xffff)
	case protoUDP:
		binary.BigEndian.PutUint16(l4[0:], s.SrcPort)
		binary.BigEndian.PutUint16(l4[2:], s.DstPort)
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	}
	var pseudo uint64
	if v6 {
		binary.BigEndian.PutUint16(b[12:], etherIPv6)
		src, dst := s.Src.As16(), s.Dst.As16()
		l3[0] = 6 << 4
		binary.BigEndian.PutUint16(l3[4:], uint16(len(l4)))
		l3[6], l3[7] = s.Proto, hopLimit
		copy(l3[8:], src[:])
		copy(l3[24:], dst[:])
		pseudo = uint64(checksum.Sum(0, l3[8:40]))
	} else {
		binary.BigEndian.PutUint16(b[12:], etherIPv4)
		src, dst := s.Src.As4(), s.Dst.As4()
		l3[0] = 0x45
		binary.BigEndian.PutUint16(l3[2:], uint16(len(l3)))
		l3[8], l3[9] = hopLimit, s.Proto
		copy(l3[12:], src[:])
		copy(l3[16:], dst[:])
		binary.BigEndian.PutUint16(l3[10:], ^checksum.Sum(0, l3[:ipv4Len]))
		pseudo = uint64(checksum.Sum(0, l3[12:20]))
	}
	pseudo += uint64(s.Proto) + uint64(len(l4))
	switch s.Proto {
	case protoTCP:
		binary.BigEndian.PutUint16(l4[16:], ^checksum.Sum(pseudo, l4))
	case protoUDP:
		c := ^checksum.Sum(pseudo, l4)
		if c == 0 {
			c = 0xffff // RFC 768: zero means no checksum
		}
		binary.BigEndian.PutUint16(l4[6:], c)
	}
	return b
}
