// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"errors"

	"github.com/netsketch/netsketch/sketch/flow"
)

// ErrChecksum is the reason of an IPv4 header whose checksum differs.
var ErrChecksum = errors.New("wrong IPv4 header checksum")

// ports is the length of the ports of TCP and UDP.
const ports = 4

// Flow parses the 5-tuple of a frame into k and returns a reason for a frame without one. Unlike
// IP.Parse it accepts exactly the frames that the P4 programs of UnivMon count (docs/p4.md), and
// gives the reasons that they count: of TCP and UDP it needs the ports only, it checks the checksum
// of IPv4 headers last, and it ignores IP's total length. It is OuterFlow with the bounds of
// switches, which are at most 4 VLAN tags, 6 MPLS labels and 3 IPv6 extension headers of 48 bytes,
// and a fragment header before them.
func Flow(k *flow.Key, frame []byte) error {
	if link, err := ParseLink(frame); err == nil && link.Type == EtherTypeIPv4 { // the usual type of frame, parsed faster
		_, _, err := flowIPv4(k, frame[link.TypeAt+2:], false, nil)
		return err
	}
	return followHeaders(k, frame, switchLimits)
}

// InnerSwitchFlow is InnerFlow for the frames, and with the bounds, of switches that measure inner
// flows. Behind the first IP header and its extension headers it follows 8 headers.
func InnerSwitchFlow(k *flow.Key, frame []byte) error {
	return followHeaders(k, frame, inner(switchLimits))
}

// flowIPv4 parses the flow of an IPv4 packet, in a tunnel or not, and returns the bytes behind its
// header, and whether the packet is a later fragment.
func flowIPv4(k *flow.Key, b []byte, tunnel bool, l *limits) (rest []byte, later bool, err error) {
	header, err := headerIPv4(k, b)
	if err != nil {
		return nil, false, err
	}
	if tunnel {
		if err := take(&l.carried, 1+(header-ipv4)/4); err != nil {
			return nil, false, err
		}
	}
	if len(b) < header {
		return nil, false, ErrTruncated
	}
	later = binary.BigEndian.Uint16(b[6:])&0x1fff != 0
	if err := flowPorts(k, b[header:], later); err != nil {
		return nil, false, err
	}
	if !validChecksum(b[:header]) {
		return nil, false, ErrChecksum
	}
	return b[header:], later, nil
}

// headerIPv4 sets all of k except for the ports, and returns the length of the header, whose
// options may be cut.
func headerIPv4(k *flow.Key, b []byte) (int, error) {
	if len(b) < ipv4 {
		return 0, ErrTruncated
	}
	if b[0]>>4 != 4 {
		return 0, ErrVersion
	}
	header := int(b[0]&0xf) * 4
	if header < ipv4 {
		return 0, ErrLength
	}
	*k = flow.Key{Proto: b[9], Mask: flow.FiveTuple}
	k.SetIPv4(binary.LittleEndian.Uint64(b[12:]))
	return header, nil
}

// validChecksum reports whether an IPv4 header has the right checksum.
func validChecksum(header []byte) bool {
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return sum>>16+sum&0xffff == 0xffff
}

// headerIPv6 sets all of k except for the ports.
func headerIPv6(k *flow.Key, b []byte) error {
	if len(b) < ipv6 {
		return ErrTruncated
	}
	if b[0]>>4 != 6 {
		return ErrVersion
	}
	*k = flow.Key{Proto: b[6], Mask: flow.FiveTuple, V6: true}
	copy(k.Src[:], b[8:24])
	copy(k.Dst[:], b[24:40])
	return nil
}

// flowPorts parses the ports of TCP and UDP. A later fragment has none.
func flowPorts(k *flow.Key, b []byte, later bool) error {
	if later || k.Proto != ProtocolTCP && k.Proto != ProtocolUDP {
		return nil
	}
	if len(b) < ports {
		return ErrTruncated
	}
	k.SrcPort, k.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	return nil
}
