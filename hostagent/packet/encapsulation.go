// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/netsketch/netsketch/sketch/flow"
)

// MaxHeaders is the length of the begin of a frame in which OuterFlow and InnerFlow look for
// headers, in bytes.
const MaxHeaders = 256

// ErrDepth says that the headers of a frame are longer than MaxHeaders, or more than switches
// parse.
var ErrDepth = errors.New("more encapsulations than are followed")

// EtherTypes of encapsulations. etherTypeBridged is the type of an Ethernet frame in GRE (RFC 7637)
// and stands for an Ethernet frame in VXLAN.
const (
	etherTypeMPLS          = 0x8847
	etherTypeMPLSMulticast = 0x8848
	etherTypePPPoE         = 0x8864
	etherTypeBridged       = 0x6558
)

// PPP protocols (RFC 1661).
const (
	pppIPv4 = 0x0021
	pppIPv6 = 0x0057
)

// Protocols of IPv6 extension headers that name the next one (RFC 7045), and of packets in packets.
const (
	protocolHopByHop     = 0
	protocolIPv4         = 4
	protocolIPv6         = 41
	protocolRouting      = 43
	protocolGRE          = 47
	protocolAH           = 51
	protocolDestinations = 60
	protocolMobility     = 135
	protocolMPLS         = 137
	protocolHIP          = 139
	protocolShim6        = 140
)

const (
	label     = 4 // bytes of an MPLS label
	pppoe     = 8 // bytes of a PPPoE header with the protocol of PPP
	extension = 8 // least bytes of an IPv6 extension header
	gre       = 4
	vxlan     = 8
	vxlanPort = 4789
)

// limits bound the headers that are followed.
type limits struct {
	inner        bool // whether to follow headers to the last IP header
	tags, labels int  // most tags and labels in front of the first IP header
	extensions   int  // most IPv6 extension headers behind the first IP header
	carried      int  // most headers behind all of these; each word of an IPv4 header's options counts as one
	length       int  // most bytes of an extension header
}

// The limits of switches are the sizes of stacks in p4/programs/include/headers.p4.
var (
	switchLimits = limits{tags: 4, labels: 6, extensions: 3, carried: 8, length: 48}
	outerLimits  = limits{tags: MaxHeaders, labels: MaxHeaders, extensions: MaxHeaders, carried: MaxHeaders,
		length: MaxHeaders}
)

// take takes n from the rest of a bound.
func take(bound *int, n int) error {
	if *bound -= n; *bound < 0 {
		return ErrDepth
	}
	return nil
}

// OuterFlow parses the 5-tuple of a frame's first IP header into k and returns a reason for a frame
// without one. It follows any VLAN tags, MPLS labels (RFC 3032; the payload is IP by its version,
// RFC 4928) and PPPoE sessions (RFC 2516) to the IP header, and IPv6 extension headers to the
// ports.
func OuterFlow(k *flow.Key, frame []byte) error { return follow(k, frame, outerLimits) }

// InnerFlow returns the flow of the last IP header. Besides the headers that OuterFlow follows, it
// follows IP, MPLS (RFC 4023), GRE (RFC 2784 and 2890) and VXLAN (RFC 7348, UDP port 4789) in IP.
// If these carry anything else, or the packet is a later fragment, the flow is that of the last IP
// header before. All IP headers must be valid.
func InnerFlow(k *flow.Key, frame []byte) error { return follow(k, frame, inner(outerLimits)) }

// inner returns the same bounds for the last IP header.
func inner(l limits) limits {
	l.inner = true
	return l
}

func follow(k *flow.Key, frame []byte, l limits) error {
	err := followHeaders(k, frame[:min(len(frame), MaxHeaders)], l)
	if len(frame) > MaxHeaders && errors.Is(err, ErrTruncated) {
		return ErrDepth
	}
	return err
}

// followHeaders follows one header after the other. b begins with the first header that is not
// parsed, and kind is its EtherType.
func followHeaders(k *flow.Key, b []byte, l limits) error {
	kind, b, err := next(b, macs, 2)
	for found := false; err == nil; {
		switch kind {
		case EtherTypeIPv4, EtherTypeIPv6:
			later := false
			if kind == EtherTypeIPv4 {
				b, later, err = flowIPv4(k, b, found, &l)
			} else {
				b, later, err = flowIPv6(k, b, found, &l)
			}
			if err != nil || !l.inner || later {
				return err
			}
			found = true
			kind, b, err = behindIP(k, b, &l)
			continue
		case EtherTypeVLAN, EtherTypeQinQ, EtherTypeQinQOld, etherTypeMPLS, etherTypeMPLSMulticast, etherTypePPPoE,
			etherTypeBridged:
			kind, b, err = behindLink(kind, b, found, &l)
			continue
		}
		if found {
			return nil
		}
		return ErrNotIP
	}
	return err
}

// behindLink returns the type and the data behind a header of the link layer, in a tunnel or not;
// type 0 if the data is not IP.
func behindLink(kind uint16, b []byte, tunnel bool, l *limits) (uint16, []byte, error) {
	bound := &l.carried
	switch kind {
	case EtherTypeVLAN, EtherTypeQinQ, EtherTypeQinQOld:
		if !tunnel {
			bound = &l.tags
		}
		if err := take(bound, 1); err != nil {
			return 0, nil, err
		}
		return next(b, 2, 2)
	case etherTypeMPLS, etherTypeMPLSMulticast:
		if !tunnel {
			bound = &l.labels
		}
		if err := take(bound, 1); err != nil {
			return 0, nil, err
		}
		return behindLabel(kind, b)
	case etherTypeBridged:
		if !tunnel {
			return 0, nil, nil
		}
	}
	if tunnel {
		if err := take(bound, 1); err != nil {
			return 0, nil, err
		}
	}
	if kind == etherTypePPPoE {
		return behindPPPoE(b)
	}
	return next(b, macs, 2)
}

// next returns the EtherType at an offset and the bytes behind it.
func next(b []byte, at, n int) (uint16, []byte, error) {
	if len(b) < at+n {
		return 0, nil, ErrTruncated
	}
	return binary.BigEndian.Uint16(b[at:]), b[at+n:], nil
}

// behindLabel returns the type and the data behind an MPLS label; type 0 if the data is not IP.
func behindLabel(kind uint16, b []byte) (uint16, []byte, error) {
	if len(b) < label {
		return 0, nil, ErrTruncated
	}
	if bottom := b[2]&1 != 0; !bottom {
		return kind, b[label:], nil
	}
	if len(b) == label {
		return 0, nil, ErrTruncated
	}
	switch b = b[label:]; b[0] >> 4 {
	case 4:
		return EtherTypeIPv4, b, nil
	case 6:
		return EtherTypeIPv6, b, nil
	}
	return 0, nil, nil
}

// behindPPPoE returns the type and the data behind the header of a PPPoE session; type 0 if the
// data is not IP.
func behindPPPoE(b []byte) (uint16, []byte, error) {
	if len(b) < pppoe {
		return 0, nil, ErrTruncated
	}
	const session = 0x1100 // version 1, type 1, code 0
	if binary.BigEndian.Uint16(b) == session {
		switch binary.BigEndian.Uint16(b[6:]) {
		case pppIPv4:
			return EtherTypeIPv4, b[pppoe:], nil
		case pppIPv6:
			return EtherTypeIPv6, b[pppoe:], nil
		}
	}
	return 0, nil, nil
}

// flowIPv6 parses the flow of an IPv6 packet, in a tunnel or not, behind its extension headers, and
// returns the data behind them, and whether the packet is a later fragment. Outside of tunnels, a
// fragment header right behind the fixed header does not count against the bound of extension
// headers.
func flowIPv6(k *flow.Key, b []byte, tunnel bool, l *limits) (rest []byte, later bool, err error) {
	if err := headerIPv6(k, b); err != nil {
		return nil, false, err
	}
	bound := &l.extensions
	if tunnel {
		bound = &l.carried
		if err := take(bound, 1); err != nil {
			return nil, false, err
		}
	} else if k.Proto == protocolFragment {
		l.extensions++
	}
	for b = b[ipv6:]; !later; {
		n, known := extension, 2 // bytes of the header, and bytes that a switch reads before it
		switch k.Proto {
		case protocolHopByHop, protocolRouting, protocolDestinations, protocolMobility, protocolHIP, protocolShim6:
			if len(b) >= known {
				n = 8 * (int(b[1]) + 1)
			}
		case protocolAH:
			if len(b) >= known {
				n = 4 * (int(b[1]) + 2)
			}
		case protocolFragment:
			known = 4
			later = len(b) >= extension && binary.BigEndian.Uint16(b[2:])&0xfff8 != 0
		default:
			return b, false, flowPorts(k, b, false)
		}
		if len(b) < known {
			return nil, false, ErrTruncated
		}
		if err := take(bound, 1); err != nil {
			return nil, false, err
		}
		switch {
		case len(b) < n:
			return nil, false, ErrTruncated
		case n > l.length:
			return nil, false, ErrDepth
		}
		k.Proto, b = b[0], b[n:]
	}
	return b, true, nil
}

// behindIP returns the EtherType of the packet that an IP packet carries, and the packet; 0 if it
// carries none.
func behindIP(k *flow.Key, b []byte, l *limits) (uint16, []byte, error) {
	if k.Proto == protocolGRE || k.Proto == ProtocolUDP && k.DstPort == vxlanPort {
		if err := take(&l.carried, 1); err != nil {
			return 0, nil, err
		}
	}
	switch k.Proto {
	case protocolIPv4:
		return EtherTypeIPv4, b, nil
	case protocolIPv6:
		return EtherTypeIPv6, b, nil
	case protocolMPLS:
		return etherTypeMPLS, b, nil
	case protocolGRE:
		if len(b) < gre {
			return 0, nil, ErrTruncated
		}
		const (
			options = 0xb000 // checksum, key, sequence number
			unread  = 0x4007 // source routes (RFC 1701), version
		)
		flags := binary.BigEndian.Uint16(b)
		if flags&unread != 0 {
			return 0, nil, nil
		}
		n := gre + 4*bits.OnesCount16(flags&options)
		if len(b) < n {
			return 0, nil, ErrTruncated
		}
		return binary.BigEndian.Uint16(b[2:]), b[n:], nil
	case ProtocolUDP:
		const valid = 8 // the flag of a network identifier
		switch {
		case k.DstPort != vxlanPort:
		case len(b) < udp+vxlan:
			return 0, nil, ErrTruncated
		case b[udp]&valid != 0:
			return etherTypeBridged, b[udp+vxlan:], nil
		}
	}
	return 0, nil, nil
}
