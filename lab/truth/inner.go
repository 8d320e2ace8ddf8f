// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/sketch/flow"
)

const (
	greLen   = 4
	vxlanLen = 16 // with UDP's header

	typeBridged = 0x6558 // an Ethernet frame

	protoIPv4 = 4
	protoIPv6 = 41
	protoGRE  = 47
	protoMPLS = 137

	portVXLAN = 4789

	// maxCarried is the number of headers that switches follow behind the first IP header.
	maxCarried = 8
)

// ParseInner is ParseEncapsulated for switches that measure inner flows: the key comes from the
// last IP header, in any nesting of IP, MPLS, GRE and VXLAN. Packets with something else in a
// tunnel have the flow of the tunnel. A frame with a damaged header in a tunnel, or with more than
// eight headers behind the first IP header, belongs to no flow.
func ParseInner(frame []byte) (flow.Key, bool) {
	k, rest, ok := parseEncapsulated(frame)
	c := carried{rest, maxCarried}
	for ok && c.rest != nil {
		var kind uint16
		for kind, ok = c.tunnel(k); ok && isLink(kind); {
			kind, ok = c.link(kind)
		}
		if !ok {
			break
		}
		switch kind {
		case typeIPv4:
			packet := c.rest
			if k, c.rest, ok = parseIPv4(packet); ok {
				ok = c.take(true, int(packet[0]&0xf)-4) // words of options are counted, too
			}
		case typeIPv6:
			headers := 0
			k, c.rest, headers, ok = parseIPv6(c.rest, maxCarried)
			ok = c.take(ok, 1+headers)
		default:
			return k, true
		}
	}
	if !ok {
		return flow.Key{}, false
	}
	return k, true
}

// carried is the part of an IP packet behind the headers that were taken.
type carried struct {
	rest []byte
	left int // number of headers that may follow
}

// take takes n headers; whole is false if the packet ends within them.
func (c *carried) take(whole bool, headers int) bool {
	c.left -= headers
	return whole && c.left >= 0
}

// tunnel reads the header behind an IP header. If it is the header of a tunnel, tunnel returns the
// EtherType of the packet in the tunnel, and otherwise 0.
func (c *carried) tunnel(k flow.Key) (kind uint16, ok bool) {
	switch {
	case k.Proto == protoIPv4:
		return typeIPv4, true
	case k.Proto == protoIPv6:
		return typeIPv6, true
	case k.Proto == protoMPLS:
		return typeMPLS, true
	case k.Proto == protoUDP && k.DstPort == portVXLAN:
		if !c.take(len(c.rest) >= vxlanLen, 1) {
			return 0, false
		}
		identified := c.rest[8]&0x08 != 0
		c.rest = c.rest[vxlanLen:]
		if !identified {
			return 0, true
		}
		return typeBridged, true
	case k.Proto != protoGRE:
		return 0, true
	case !c.take(len(c.rest) >= greLen, 1):
		return 0, false
	}
	flags, n := binary.BigEndian.Uint16(c.rest), greLen
	if flags&0x4007 != 0 { // source routes, or another version
		return 0, true
	}
	for _, option := range []uint16{0x8000, 0x2000, 0x1000} { // checksum, key, sequence number
		if flags&option != 0 {
			n += 4
		}
	}
	if len(c.rest) < n {
		return 0, false
	}
	kind, c.rest = binary.BigEndian.Uint16(c.rest[2:]), c.rest[n:]
	return kind, true
}

func isLink(kind uint16) bool {
	switch kind {
	case typeBridged, typeVLAN, typeQinQ, typeQinQ0, typeMPLS, typeMPLSMulticast, typePPPoE:
		return true
	}
	return false
}

// link takes a header of the link layer, and returns the EtherType of the payload.
func (c *carried) link(kind uint16) (next uint16, ok bool) {
	n := map[uint16]int{typeBridged: ethernetLen, typePPPoE: pppoeLen}[kind]
	if n == 0 {
		n = vlanLen // length of a VLAN tag, or of a label
	}
	if !c.take(len(c.rest) >= n, 1) {
		return 0, false
	}
	header := c.rest[:n]
	c.rest = c.rest[n:]
	switch kind {
	case typePPPoE:
		return pppoeType(header), true
	case typeMPLS, typeMPLSMulticast:
		if bottom := header[2]&1 == 1; !bottom {
			return kind, true
		}
		return labeledType(c.rest)
	}
	return binary.BigEndian.Uint16(header[n-2:]), true
}
