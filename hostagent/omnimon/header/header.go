// SPDX-License-Identifier: Apache-2.0

// Package header encodes and decodes the header that OmniMon's hosts insert (paper, section 3.2),
// bit for bit as the P4 programs omnimon*.p4 parse it:
//
//	bits  field
//	16    epoch, modulo 65,536
//	24    host index: the position of the flow in the source host's table
//	8     hops: the count of switches that the packet has passed; bit 0x80 marks a probe
//	16    slot, once per mapped slot
//	32    difference, once per configured maximum or minimum, two's complement
//
// A packet carries it in one of three ways. All integers are big-endian.
//
//	shim    behind the link layer and VLAN tags, with an EtherType of its own; the EtherType of the
//	        payload follows the header
//	option  as the first option of IPv4, type 158, padded by no-operations; or as the option 0x3e of
//	        a destination options header that follows the fixed header of IPv6
//	tunnel  as the first option of Geneve, class 0xff5e and type 1, in a UDP packet between the same
//	        addresses; the tunnel carries the IP packet
//
// No function here allocates memory.
package header

import (
	"errors"
	"fmt"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// Limits of a header.
const (
	// DefaultEtherType is the IEEE's local experimental EtherType 1.
	DefaultEtherType = 0x88b5
	// MaxSlots is the largest count of slots that a flow is mapped to.
	MaxSlots = 4
	// MaxDifferences is the largest count of maxima and minima.
	MaxDifferences = 4
	// MaxHostIndex is the largest host index.
	MaxHostIndex = 1<<24 - 1
	// Probe is the bit of Header.Hops that marks a probe, which nothing counts.
	Probe = 0x80
)

// Reasons why a frame has no valid header.
var (
	ErrNoHeader  = errors.New("no OmniMon header")
	ErrTruncated = errors.New("truncated OmniMon header")
)

// Layout is the form of all headers of a network.
type Layout struct {
	Carrier     wire.Carrier // carrier that Insert uses; empty: CarrierShim
	EtherType   uint16       // EtherType of CarrierShim
	Slots       int          // 1 to MaxSlots
	Differences int          // 0 to MaxDifferences
}

// Check returns an error that names the field if the layout is invalid.
func (l Layout) Check() error {
	switch {
	case l.Carrier != "" && l.Carrier != wire.CarrierShim && l.Carrier != wire.CarrierOption &&
		l.Carrier != wire.CarrierTunnel:
		return fmt.Errorf("carrier %q: %s, %s or %s", l.Carrier, wire.CarrierShim, wire.CarrierOption, wire.CarrierTunnel)
	case l.EtherType < 0x600:
		return fmt.Errorf("EtherType %#04x: an EtherType is at least 0x0600", l.EtherType)
	case l.EtherType == packet.EtherTypeIPv4, l.EtherType == packet.EtherTypeIPv6,
		l.EtherType == packet.EtherTypeVLAN, l.EtherType == packet.EtherTypeQinQ,
		l.EtherType == packet.EtherTypeQinQOld:
		return fmt.Errorf("EtherType %#04x: already used by IP or VLAN; the default is %#04x", l.EtherType,
			DefaultEtherType)
	case l.Slots < 1 || l.Slots > MaxSlots:
		return fmt.Errorf("%d slots per flow: 1 to %d are possible", l.Slots, MaxSlots)
	case l.Differences < 0 || l.Differences > MaxDifferences:
		return fmt.Errorf("%d maxima and minima: 0 to %d are possible", l.Differences, MaxDifferences)
	}
	return nil
}

// Size is the length of the shim in bytes: 12 with two slots and no differences.
func (l Layout) Size() int { return l.body() + 2 }

// body is the length of the fields of a header in bytes: 10 with two slots and no differences.
func (l Layout) body() int { return 6 + 2*l.Slots + 4*l.Differences }

// Overhead is by how many bytes Insert lengthens an IP packet, for the shim: a frame.
func (l Layout) Overhead(v6 bool) int {
	switch {
	case l.Carrier == wire.CarrierOption && v6:
		return l.option6()
	case l.Carrier == wire.CarrierOption:
		return l.option4()
	case l.Carrier == wire.CarrierTunnel && v6:
		return fixed6 + l.geneve()
	case l.Carrier == wire.CarrierTunnel:
		return fixed4 + l.geneve()
	}
	return l.Size()
}

// Header is one header. Fields beyond the counts of the layout are zero.
type Header struct {
	Epoch       uint16
	HostIndex   uint32
	Hops        uint8
	Slots       [MaxSlots]uint16
	Differences [MaxDifferences]int32
	Next        uint16 // EtherType of the packet
	Flow        uint16 // 14 bits of the hash of the flow, by which networks distribute tunnels to paths

	// carrier and size are the form and the length of the header as Peek found it; Strip removes
	// them.
	carrier wire.Carrier
	size    int
}

// Carrier returns how the packet that Peek read carried the header.
func (h *Header) Carrier() wire.Carrier { return h.carrier }
