// SPDX-License-Identifier: Apache-2.0

// Package truth counts the ground truth of what the sketches estimate: every flow's packets, switch
// by switch and epoch by epoch. It shares no code with the switches: its own parser classifies
// packets by the rule of docs/p4.md for the programs under p4/programs. A disagreement between the
// two shows as an error of the results.
package truth

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/internal/checksum"
	"github.com/netsketch/netsketch/sketch/flow"
)

const (
	ethernetLen = 14
	vlanLen     = 4
	ipv4Len     = 20
	ipv6Len     = 40
	fragmentLen = 8
	portsLen    = 4
	labelLen    = 4
	pppoeLen    = 8

	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	typeVLAN  = 0x8100
	typeQinQ  = 0x88a8
	typeQinQ0 = 0x9100 // before IEEE 802.1ad chose 0x88a8

	typeMPLS          = 0x8847
	typeMPLSMulticast = 0x8848
	typePPPoE         = 0x8864

	leastEtherType = 0x600 // a smaller number is the length of an IEEE 802.3 frame

	protoTCP      = 6
	protoUDP      = 17
	protoFragment = 44

	protoAuthentication = 51

	maxTags   = 2
	v4Version = 4
	v6Version = 6
)

// Rule returns the flow of an Ethernet frame, and false when it belongs to none.
type Rule func(frame []byte) (flow.Key, bool)

// Parse returns the 5-tuple key of an Ethernet frame, and false when the frame belongs to no flow:
// neither IPv4 nor IPv6 within at most two VLAN tags, a truncated header, or an inconsistent IP
// header (version, header length, IPv4 checksum). Ports are zero when the packet is neither TCP nor
// UDP or is a later fragment. Parse follows only one IPv6 extension header, a fragment header right
// after the fixed header; any other is the flow's protocol.
func Parse(frame []byte) (flow.Key, bool) {
	switch kind, rest := parseLink(frame, maxTags); kind {
	case typeIPv4:
		k, _, ok := parseIPv4(rest)
		return k, ok
	case typeIPv6:
		k, _, _, ok := parseIPv6(rest, 0)
		return k, ok
	}
	return flow.Key{}, false
}

// ParseEncapsulated is Parse for the programs that parse encapsulations: the IP header is behind up
// to four VLAN tags and then six MPLS labels or a PPPoE session, and the ports are behind up to
// three IPv6 extension headers of 48 bytes. A frame with more such headers belongs to no flow.
func ParseEncapsulated(frame []byte) (flow.Key, bool) {
	k, _, ok := parseEncapsulated(frame)
	return k, ok
}

// parseEncapsulated also returns the payload behind the IP header and its extension headers; nil
// for a later fragment.
func parseEncapsulated(frame []byte) (flow.Key, []byte, bool) {
	kind, rest := unwrap(frame)
	switch kind {
	case typeIPv4:
		return parseIPv4(rest)
	case typeIPv6:
		k, carried, _, ok := parseIPv6(rest, 3)
		return k, carried, ok
	}
	return flow.Key{}, nil, false
}

// unwrap returns the EtherType and the bytes behind VLAN tags and then MPLS labels or a PPPoE
// session. If no IP is behind labels or session, it returns their EtherType.
func unwrap(frame []byte) (kind uint16, rest []byte) {
	kind, rest = parseLink(frame, 2*maxTags)
	carried, b := uint16(0), rest
	switch {
	case kind == typePPPoE && len(rest) >= pppoeLen:
		carried, b = pppoeType(rest), rest[pppoeLen:]
	case kind == typeMPLS || kind == typeMPLSMulticast:
		for labels := 1; labels <= 6 && len(b) >= labelLen; labels++ {
			bottom := b[2]&1 == 1
			if b = b[labelLen:]; bottom {
				carried, _ = labeledType(b)
				break
			}
		}
	}
	if carried != 0 {
		return carried, b
	}
	return kind, rest
}

// Refusal returns why ParseEncapsulated refuses a frame, for a count by reason.
func Refusal(frame []byte) string {
	kind, b := unwrap(frame)
	switch {
	case len(frame) < ethernetLen:
		return "shorter than an Ethernet header"
	case kind == 0:
		return "not IPv4 or IPv6"
	case kind == typeIPv4 && len(b) >= ipv4Len && b[0]>>4 == v4Version:
		header := int(b[0]&0xf) * 4
		switch {
		case header < ipv4Len || len(b) < header:
			return "IPv4 header cut or too short"
		case b[10]|b[11] == 0:
			return "IPv4 header checksum zero: captured before the device computed it; tcprewrite --fixcsum corrects the file"
		case checksum.Sum(0, b[:header]) != 0xffff:
			return "wrong IPv4 header checksum"
		}
		return "TCP or UDP header cut"
	case kind == typeIPv6 && len(b) >= ipv6Len && b[0]>>4 == v6Version:
		return "header behind IPv6 cut, or too many extension headers"
	case kind == typeIPv4 || kind == typeIPv6:
		return "IP header cut or of another version"
	case kind == typePPPoE || kind == typeMPLS || kind == typeMPLSMulticast:
		return "no IP behind MPLS labels or PPPoE"
	case kind < leastEtherType:
		return "not IPv4 or IPv6 (IEEE 802.3 with LLC)"
	}
	return fmt.Sprintf("not IPv4 or IPv6 (EtherType %#04x)", kind)
}

// pppoeType returns the EtherType of the payload of a PPPoE session; 0 if it is not IP.
func pppoeType(b []byte) uint16 {
	if b[0] != 0x11 || b[1] != 0 { // no session
		return 0
	}
	return map[uint16]uint16{0x21: typeIPv4, 0x57: typeIPv6}[binary.BigEndian.Uint16(b[6:])]
}

// labeledType returns the EtherType of the payload behind the last label; 0 if it is not IP.
func labeledType(b []byte) (uint16, bool) {
	if len(b) == 0 {
		return 0, false
	}
	return map[byte]uint16{v4Version: typeIPv4, v6Version: typeIPv6}[b[0]>>4], true
}

// Length returns the length of the IP packet in a frame that Parse accepts, from its header.
func Length(frame []byte) int {
	kind, rest := parseLink(frame, maxTags)
	if kind == typeIPv6 {
		return ipv6Len + int(binary.BigEndian.Uint16(rest[4:]))
	}
	return int(binary.BigEndian.Uint16(rest[2:]))
}

// parseLink returns the EtherType behind VLAN tags, and the bytes that follow it; 0 if the frame
// has no EtherType.
func parseLink(frame []byte, most int) (kind uint16, rest []byte) {
	if len(frame) < ethernetLen {
		return 0, nil
	}
	kind, rest = binary.BigEndian.Uint16(frame[12:]), frame[ethernetLen:]
	for tags := 0; kind == typeVLAN || kind == typeQinQ || kind == typeQinQ0; tags++ {
		if tags == most || len(rest) < vlanLen {
			return 0, nil
		}
		kind, rest = binary.BigEndian.Uint16(rest[2:]), rest[vlanLen:]
	}
	return kind, rest
}

// parseIPv4 returns the flow of an IPv4 packet and its payload; nil for later fragments.
func parseIPv4(b []byte) (flow.Key, []byte, bool) {
	if len(b) < ipv4Len || b[0]>>4 != v4Version {
		return flow.Key{}, nil, false
	}
	header := int(b[0]&0xf) * 4
	if header < ipv4Len || len(b) < header || checksum.Sum(0, b[:header]) != 0xffff {
		return flow.Key{}, nil, false
	}
	k := flow.Key{Mask: flow.FiveTuple, Proto: b[9]}
	copy(k.Src[:], b[12:16])
	copy(k.Dst[:], b[16:20])
	return withPorts(k, offsetField(b[6:])&0x1fff == 0, b[header:])
}

// parseIPv6 is parseIPv4 for IPv6. Besides a fragment header right behind the fixed header, it
// follows at most most extension headers; 0 follows none. headers counts both kinds.
func parseIPv6(b []byte, most int) (k flow.Key, rest []byte, headers int, ok bool) {
	if len(b) < ipv6Len || b[0]>>4 != v6Version {
		return flow.Key{}, nil, 0, false
	}
	k = flow.Key{Mask: flow.FiveTuple, Proto: b[6], V6: true}
	copy(k.Src[:], b[8:24])
	copy(k.Dst[:], b[24:40])
	b = b[ipv6Len:]
	first, others := true, 0
	if k.Proto == protoFragment {
		if len(b) < fragmentLen {
			return flow.Key{}, nil, 0, false
		}
		first = offsetField(b[2:])>>3 == 0
		k.Proto, b = b[0], b[fragmentLen:]
		headers++
	}
	for ; most > 0 && first; others++ {
		n := extensionLen(k.Proto, b)
		if n == 0 {
			break
		}
		if others == most || len(b) < n || n > 48 {
			return flow.Key{}, nil, 0, false
		}
		first = k.Proto != protoFragment || offsetField(b[2:])>>3 == 0
		k.Proto, b = b[0], b[n:]
	}
	k, rest, ok = withPorts(k, first, b)
	return k, rest, headers + others, ok
}

// extensionLen returns the length of an IPv6 extension header, which may be cut, and 0 for another
// protocol.
func extensionLen(protocol uint8, b []byte) int {
	switch {
	case protocol == protoFragment:
		return fragmentLen
	case !slices.Contains([]uint8{0, 43, protoAuthentication, 60, 135, 139, 140}, protocol): // RFC 7045
		return 0
	case len(b) < 2:
		return 2
	case protocol == protoAuthentication:
		return 4 * (int(b[1]) + 2)
	}
	return 8 * (int(b[1]) + 1)
}

// offsetField reads the 16 bits that hold the fragment offset: the low 13 in IPv4,
// the high 13 in IPv6.
func offsetField(b []byte) uint16 { return binary.BigEndian.Uint16(b) }

// withPorts adds the ports of a TCP or UDP packet that is not a later fragment. It returns the
// payload; nil for a later fragment.
func withPorts(k flow.Key, first bool, transport []byte) (_ flow.Key, rest []byte, ok bool) {
	if !first {
		return k, nil, true
	}
	if k.Proto != protoTCP && k.Proto != protoUDP {
		return k, transport, true
	}
	if len(transport) < portsLen {
		return flow.Key{}, nil, false
	}
	k.SrcPort = binary.BigEndian.Uint16(transport)
	k.DstPort = binary.BigEndian.Uint16(transport[2:])
	return k, transport, true
}
