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

// ErrDepth is the reason of a frame whose headers are longer than MaxHeaders.
var ErrDepth = errors.New("more headers than the first 256 bytes have")

// EtherTypes of encapsulations. etherTypeBridged is that of an Ethernet frame in GRE (RFC 7637) and
// stands for one in VXLAN.
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
	label     = 4 // of MPLS
	pppoe     = 8 // with the protocol of PPP
	extension = 8 // at least
	gre       = 4
	vxlan     = 8
	vxlanPort = 4789
)

// OuterFlow parses the 5-tuple of a frame's first IP header into k and returns a reason for a frame
// without one. Unlike Flow it follows any VLAN tags, MPLS labels (RFC 3032; the payload is IP by
// its version, RFC 4928) and PPPoE sessions (RFC 2516) to that header, and IPv6 extension headers
// to the ports.
func OuterFlow(k *flow.Key, frame []byte) error { return follow(k, frame, false) }

// InnerFlow is OuterFlow for the last IP header: it also follows IP, MPLS (RFC 4023), GRE (RFC 2784
// and 2890) and VXLAN (RFC 7348, UDP port 4789) in IP. A packet with anything else in these, or
// that is a later fragment, has the flow of the header before. All IP headers must be valid.
func InnerFlow(k *flow.Key, frame []byte) error { return follow(k, frame, true) }

func follow(k *flow.Key, frame []byte, inner bool) error {
	err := followHeaders(k, frame[:min(len(frame), MaxHeaders)], inner)
	if len(frame) > MaxHeaders && errors.Is(err, ErrTruncated) {
		return ErrDepth
	}
	return err
}

// followHeaders follows one header after the other. b is what is not parsed, and kind the EtherType
// of its first header.
func followHeaders(k *flow.Key, b []byte, inner bool) (err error) {
	kind, found := uint16(etherTypeBridged), false
	for {
		switch kind {
		case etherTypeBridged:
			kind, b, err = next(b, macs, 2)
		case EtherTypeVLAN, EtherTypeQinQ, EtherTypeQinQOld:
			kind, b, err = next(b, 2, 2)
		case etherTypeMPLS, etherTypeMPLSMulticast:
			kind, b, err = behindLabel(kind, b)
		case etherTypePPPoE:
			kind, b, err = behindPPPoE(b)
		case EtherTypeIPv4, EtherTypeIPv6:
			later := false
			if b, later, err = header(k, kind, b); err != nil {
				return err
			}
			if err := flowPorts(k, b, later); err != nil || !inner || later {
				return err
			}
			found = true
			kind, b, err = behindIP(k, b)
		case 0:
			if found {
				return nil
			}
			return ErrNotIP
		default:
			kind = 0
		}
		if err != nil {
			return err
		}
	}
}

// next returns the EtherType at an offset and what follows it.
func next(b []byte, at, n int) (uint16, []byte, error) {
	if len(b) < at+n {
		return 0, nil, ErrTruncated
	}
	return binary.BigEndian.Uint16(b[at:]), b[at+n:], nil
}

// behindLabel returns what is behind an MPLS label, 0 if it is not IP.
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

// behindPPPoE returns what is behind the header of a PPPoE session, 0 if it is not IP.
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

// header parses an IP header with its extension headers, and sets all of k except for the ports. It
// returns what follows, and whether it is a later fragment.
func header(k *flow.Key, kind uint16, b []byte) (rest []byte, later bool, err error) {
	if kind == EtherTypeIPv4 {
		n, err := headerIPv4(k, b)
		if err == nil && !validChecksum(b[:n]) {
			err = ErrChecksum
		}
		if err != nil {
			return nil, false, err
		}
		return b[n:], binary.BigEndian.Uint16(b[6:])&0x1fff != 0, nil
	}
	if err := headerIPv6(k, b); err != nil {
		return nil, false, err
	}
	for b = b[ipv6:]; !later; {
		n := extension
		switch k.Proto {
		case protocolHopByHop, protocolRouting, protocolDestinations, protocolMobility, protocolHIP, protocolShim6:
			if len(b) >= extension {
				n = 8 * (int(b[1]) + 1)
			}
		case protocolAH:
			if len(b) >= extension {
				n = 4 * (int(b[1]) + 2)
			}
		case protocolFragment:
			later = len(b) >= extension && binary.BigEndian.Uint16(b[2:])&0xfff8 != 0
		default:
			return b, false, nil
		}
		if len(b) < n {
			return nil, false, ErrTruncated
		}
		k.Proto, b = b[0], b[n:]
	}
	return b, true, nil
}

// behindIP returns the EtherType of the packet that an IP packet carries, and the packet; 0 if it
// carries none.
func behindIP(k *flow.Key, b []byte) (uint16, []byte, error) {
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
