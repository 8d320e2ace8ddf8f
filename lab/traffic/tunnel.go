// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
)

// Tunnels are the encapsulations that Tunnel knows: IP in IP, GRE, and VXLAN with Ethernet frames.
var Tunnels = []string{"ip", "gre", "vxlan"}

const (
	protoIPv4 uint8 = 4
	protoIPv6 uint8 = 41
	protoGRE  uint8 = 47

	vxlanPort = 4789
)

// Tunnel returns the packets of a source, whole IP packets, in tunnels. The ends of a packet's
// tunnel are the first addresses of the /24 or /64 networks of its source and destination.
func Tunnel(s Source, kind string) (Source, error) {
	for _, known := range Tunnels {
		if kind == known {
			return &tunnel{source: s, kind: kind}, nil
		}
	}
	return nil, fmt.Errorf("traffic: no tunnel is called %q; expected one of %v", kind, Tunnels)
}

type tunnel struct {
	source Source
	kind   string
	header []byte // behind the outer IP header; of VXLAN with the inner Ethernet header
}

func (t *tunnel) Next() (Packet, error) {
	p, err := t.source.Next()
	if err != nil {
		return p, err
	}
	kind, inner := binary.BigEndian.Uint16(p.Frame[ethernetLen-2:]), p.Frame[ethernetLen:]
	s := FrameSpec{Proto: protoIPv4}
	switch kind {
	case etherIPv4:
		s.Src, s.Dst = end(netip.AddrFrom4([4]byte(inner[12:]))), end(netip.AddrFrom4([4]byte(inner[16:])))
	case etherIPv6:
		s.Src, s.Dst = end(netip.AddrFrom16([16]byte(inner[8:]))), end(netip.AddrFrom16([16]byte(inner[24:])))
		s.Proto = protoIPv6
	default:
		return p, nil
	}
	ip := map[uint16]int{etherIPv4: ipv4Len, etherIPv6: ipv6Len}[kind]
	t.header = t.header[:0]
	switch t.kind {
	case "gre":
		s.Proto = protoGRE
		t.header = binary.BigEndian.AppendUint16(append(t.header, 0, 0), kind)
	case "vxlan":
		s.Proto, s.DstPort = protoUDP, vxlanPort
		s.SrcPort = 49152 | uint16(crc32.ChecksumIEEE(inner[:ip+4]))&0x3fff // RFC 7348: a hash of the flow
		t.header = append(append(t.header, 8, 0, 0, 0, 0, 0, 7, 0), p.Frame[:ethernetLen]...)
	}
	at := ethernetLen + ip
	if s.Proto == protoUDP {
		at += udpLen
	}
	s.Length = at + len(t.header) + len(inner)
	frame := BuildFrame(s)
	if s.Proto == protoUDP {
		frame[at-2], frame[at-1] = 0, 0 // no checksum, RFC 7348
	}
	copy(frame[at:], t.header)
	copy(frame[at+len(t.header):], inner)
	p.Frame = frame
	return p, nil
}

// end returns the end of tunnels in the network of an address.
func end(a netip.Addr) netip.Addr {
	bits := 24
	if a.Is6() {
		bits = 64
	}
	network, _ := a.Prefix(bits) // the length fits the family
	return network.Addr().Next()
}
