// SPDX-License-Identifier: Apache-2.0

// Package header encodes and decodes the header that OmniMon's hosts insert between the link layer
// and the IP packet (paper, section 3.2), bit for bit as p4/programs/omnimon.p4 parses it:
//
//	bits  field
//	16    epoch, modulo 65,536
//	24    host index: the position of the flow in the source host's table
//	8     hops: the count of switches that the packet has passed
//	16    slot, once per mapped slot
//	32    difference, once per configured maximum or minimum, two's complement
//	16    EtherType of the payload
//
// The header has an EtherType of its own, behind VLAN tags if there are any. All integers are
// big-endian. Nothing here allocates memory.
package header

import (
	"encoding/binary"
	"errors"
	"fmt"

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
)

// Reasons why a frame has no valid header.
var (
	ErrNoHeader  = errors.New("no OmniMon header")
	ErrTruncated = errors.New("truncated OmniMon header")
)

// Layout is the form of all headers of a network.
type Layout struct {
	EtherType   uint16
	Slots       int // 1 to MaxSlots
	Differences int // 0 to MaxDifferences
}

// Check returns an error that names the field if the layout is invalid.
func (l Layout) Check() error {
	switch {
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

// Size is the length of a header in bytes: 12 with two slots and no differences.
func (l Layout) Size() int { return 8 + 2*l.Slots + 4*l.Differences }

// Header is one header. Fields beyond the counts of the layout are zero.
type Header struct {
	Epoch       uint16
	HostIndex   uint32
	Hops        uint8
	Slots       [MaxSlots]uint16
	Differences [MaxDifferences]int32
	Next        uint16 // EtherType of the payload
}

// put writes the header to b, which has Size bytes.
func (l Layout) put(b []byte, h *Header) {
	binary.BigEndian.PutUint16(b, h.Epoch)
	binary.BigEndian.PutUint32(b[2:], h.HostIndex<<8|uint32(h.Hops))
	at := 6
	for i := range l.Slots {
		binary.BigEndian.PutUint16(b[at:], h.Slots[i])
		at += 2
	}
	for i := range l.Differences {
		binary.BigEndian.PutUint32(b[at:], uint32(h.Differences[i]))
		at += 4
	}
	binary.BigEndian.PutUint16(b[at:], h.Next)
}

// parse reads a header from b, which has at least Size bytes.
func (l Layout) parse(b []byte, h *Header) {
	word := binary.BigEndian.Uint32(b[2:])
	*h = Header{Epoch: binary.BigEndian.Uint16(b), HostIndex: word >> 8, Hops: uint8(word)}
	at := 6
	for i := range l.Slots {
		h.Slots[i] = binary.BigEndian.Uint16(b[at:])
		at += 2
	}
	for i := range l.Differences {
		h.Differences[i] = int32(binary.BigEndian.Uint32(b[at:]))
		at += 4
	}
	h.Next = binary.BigEndian.Uint16(b[at:])
}

// Insert puts the header into a frame whose link layer is link. It sets h.Next.
func (l Layout) Insert(f *packet.Frame, link packet.Link, h *Header) {
	h.Next = link.Type
	room := f.Insert(link.TypeAt+2, l.Size())
	l.put(room, h)
	binary.BigEndian.PutUint16(f.Bytes()[link.TypeAt:], l.EtherType)
}

// Peek reads the header of a frame and leaves the frame as it is. The frame has the given link
// layer.
func (l Layout) Peek(frame []byte, link packet.Link, h *Header) error {
	if link.Type != l.EtherType {
		return ErrNoHeader
	}
	if len(frame) < link.TypeAt+2+l.Size() {
		return ErrTruncated
	}
	l.parse(frame[link.TypeAt+2:], h)
	return nil
}

// Strip removes the header h, which Peek read, from a frame.
func (l Layout) Strip(f *packet.Frame, link packet.Link, h *Header) {
	f.Remove(link.TypeAt+2, l.Size())
	binary.BigEndian.PutUint16(f.Bytes()[link.TypeAt:], h.Next)
}
