// SPDX-License-Identifier: Apache-2.0

// The frame: mandatory elements first and in order, then what a system likes to tell.

package lldp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"unicode"
)

// EtherType is that of LLDP frames.
const EtherType = 0x88cc

// NearestBridge is where frames are sent to: bridges do not pass it on.
var NearestBridge = [6]byte{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}

// Types of elements (TLVs), IEEE 802.1AB-2016 table 8-1.
const (
	typeEnd = iota
	typeChassisID
	typePortID
	typeTTL
	typePortDescription
	typeSystemName
	typeSystemDescription
	typeCapabilities
	typeManagementAddress

	typeOrganization = 127
)

// ChassisSubtype is the kind of a chassis identifier (table 8-2).
type ChassisSubtype uint8

// Kinds of chassis identifiers.
const (
	ChassisComponent ChassisSubtype = iota + 1
	ChassisInterfaceAlias
	ChassisPortComponent
	ChassisMAC
	ChassisNetworkAddress
	ChassisInterfaceName
	ChassisLocal
)

// PortSubtype is the kind of a port identifier (table 8-3).
type PortSubtype uint8

// Kinds of port identifiers.
const (
	PortInterfaceAlias PortSubtype = iota + 1
	PortComponent
	PortMAC
	PortNetworkAddress
	PortInterfaceName
	PortAgentCircuitID
	PortLocal
)

// Capabilities of a system (table 8-4).
const (
	CapabilityBridge = 1 << 2
	CapabilityRouter = 1 << 4
)

// Frame is what one frame says. Texts are in UTF-8.
type Frame struct {
	Source [6]byte // the sender's Ethernet address

	ChassisKind ChassisSubtype
	ChassisID   []byte // 1 to 255 bytes
	PortKind    PortSubtype
	PortID      []byte // 1 to 255 bytes
	TTL         uint16 // seconds; 0 when the sender is about to be silent

	PortDescription, SystemName, SystemDescription string // up to 255 bytes
	Capabilities, Enabled                          uint16
	Management                                     netip.Addr // the first one

	// Unknown counts elements of reserved types, Discarded those that were not well-formed
	// and not needed. Only Parse sets them.
	Unknown, Discarded int
}

// Error is a frame that is not LLDP as the standard has it.
type Error struct {
	Offset int // of the element in the frame
	Why    string
}

func (e *Error) Error() string { return fmt.Sprintf("LLDP frame, at byte %d: %s", e.Offset, e.Why) }

// ErrNotLLDP is returned for a frame of another kind.
var ErrNotLLDP = errors.New("not an LLDP frame")

// header is the length of an Ethernet header.
const header = 14

// Parse reads a frame from its Ethernet header on. What it returns does not refer to the
// frame. It is an error when the mandatory elements are missing, out of order, there twice
// or of a wrong length, or an element is longer than the frame (section 9.2.7.7); other
// elements that are not well-formed are left out and counted.
func Parse(frame []byte) (*Frame, error) {
	if len(frame) < header || binary.BigEndian.Uint16(frame[12:]) != EtherType {
		return nil, ErrNotLLDP
	}
	if [5]byte(frame[:5]) != [5]byte(NearestBridge[:5]) || frame[5] != 0x0e && frame[5] != 0x03 && frame[5] != 0x00 {
		return nil, &Error{0, "it is not sent to one of LLDP's group addresses"}
	}
	f := &Frame{Source: [6]byte(frame[6:12])}
	at := header
	for n := 0; ; n++ {
		if at == len(frame) && n >= 3 { // the end element is optional since 2016
			return f, nil
		}
		if len(frame)-at < 2 {
			return nil, &Error{at, "it ends within an element"}
		}
		head := binary.BigEndian.Uint16(frame[at:])
		kind, length := int(head>>9), int(head&0x1ff)
		if length > len(frame)-at-2 {
			return nil, &Error{at, fmt.Sprintf("element of type %d says it has %d bytes, %d are left", kind, length, len(frame)-at-2)}
		}
		v := frame[at+2 : at+2+length]
		if want := n + 1; n < 3 && kind != want {
			return nil, &Error{at, fmt.Sprintf("element %d is of type %d; it has to be of type %d", n+1, kind, want)}
		}
		if kind == typeEnd {
			if length != 0 {
				return nil, &Error{at, "the end element is not empty"}
			}
			return f, nil
		}
		if err := f.element(n, kind, v); err != "" {
			return nil, &Error{at, err}
		}
		at += 2 + length
	}
}

// element reads element number n, and returns what makes the frame useless.
func (f *Frame) element(n, kind int, v []byte) string {
	switch kind {
	case typeChassisID, typePortID:
		switch {
		case n >= 3:
			return "an identifier is there twice"
		case len(v) < 2 || len(v) > 256:
			return fmt.Sprintf("an identifier of %d bytes; it has 1 to 255 after its kind", len(v)-1)
		case kind == typeChassisID:
			f.ChassisKind, f.ChassisID = ChassisSubtype(v[0]), append([]byte(nil), v[1:]...)
		default:
			f.PortKind, f.PortID = PortSubtype(v[0]), append([]byte(nil), v[1:]...)
		}
	case typeTTL:
		if n >= 3 || len(v) < 2 {
			return "the time to live is there twice, or shorter than 2 bytes"
		}
		f.TTL = binary.BigEndian.Uint16(v)
	case typePortDescription, typeSystemName, typeSystemDescription:
		if len(v) > 255 {
			f.Discarded++
			return ""
		}
		*f.text(kind) = clean(v)
	case typeCapabilities:
		if len(v) != 4 {
			f.Discarded++
			return ""
		}
		f.Capabilities, f.Enabled = binary.BigEndian.Uint16(v), binary.BigEndian.Uint16(v[2:])
	case typeManagementAddress:
		f.management(v)
	case typeOrganization:
	default:
		f.Unknown++
	}
	return ""
}

func (f *Frame) text(kind int) *string {
	switch kind {
	case typePortDescription:
		return &f.PortDescription
	case typeSystemName:
		return &f.SystemName
	}
	return &f.SystemDescription
}

// Families of addresses (IANA address family numbers).
const (
	familyIPv4 = 1
	familyIPv6 = 2
)

// management reads section 8.5.9: length and family of the address, the address, then
// where it is, which is not kept.
func (f *Frame) management(v []byte) {
	if len(v) < 2 || v[0] < 2 || v[0] > 32 || len(v) < 1+int(v[0])+6 {
		f.Discarded++
		return
	}
	a := v[2 : 1+int(v[0])]
	if f.Management.IsValid() {
		return
	}
	if addr, ok := netip.AddrFromSlice(a); ok && (v[1] == familyIPv4 && addr.Is4() || v[1] == familyIPv6 && addr.Is6()) {
		f.Management = addr
	}
}

// clean makes text of a stranger fit for leaves and logs.
func clean(v []byte) string {
	s := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(v), "\ufffd"))
	s = strings.TrimSpace(s)
	for len(s) > 255 { // replacing may have made it longer
		s = s[:strings.LastIndexFunc(s, func(rune) bool { return true })]
	}
	return strings.TrimSpace(s)
}

// minFrame is Ethernet's shortest frame without its checksum.
const minFrame = 60

// Append writes the frame, from its Ethernet header on, padded to Ethernet's least length.
func (f *Frame) Append(b []byte) ([]byte, error) {
	if l := len(f.ChassisID); l < 1 || l > 255 {
		return b, fmt.Errorf("LLDP: a chassis identifier of %d bytes; it has 1 to 255", l)
	}
	if l := len(f.PortID); l < 1 || l > 255 {
		return b, fmt.Errorf("LLDP: a port identifier of %d bytes; it has 1 to 255", l)
	}
	from := len(b)
	b = append(b, NearestBridge[:]...)
	b = append(b, f.Source[:]...)
	b = binary.BigEndian.AppendUint16(b, EtherType)
	b = appendElement(b, typeChassisID, append([]byte{byte(f.ChassisKind)}, f.ChassisID...))
	b = appendElement(b, typePortID, append([]byte{byte(f.PortKind)}, f.PortID...))
	b = appendElement(b, typeTTL, binary.BigEndian.AppendUint16(nil, f.TTL))
	for _, kind := range []int{typePortDescription, typeSystemName, typeSystemDescription} {
		text := *f.text(kind)
		if len(text) > 255 {
			return b[:from], fmt.Errorf("LLDP: a text of %d bytes; at most 255", len(text))
		}
		if text != "" {
			b = appendElement(b, kind, []byte(text))
		}
	}
	if f.Capabilities != 0 {
		b = appendElement(b, typeCapabilities, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, f.Capabilities), f.Enabled))
	}
	if f.Management.IsValid() {
		family, a := byte(familyIPv4), f.Management.AsSlice()
		if len(a) == 16 {
			family = familyIPv6
		}
		v := append([]byte{byte(len(a) + 1), family}, a...)
		b = appendElement(b, typeManagementAddress, append(v, 1, 0, 0, 0, 0, 0)) // interface numbering: unknown; no object
	}
	b = appendElement(b, typeEnd, nil)
	for len(b)-from < minFrame {
		b = append(b, 0)
	}
	return b, nil
}

func appendElement(b []byte, kind int, v []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(kind)<<9|uint16(len(v)))
	return append(b, v...)
}

// ChassisText is the chassis identifier as OpenConfig writes it.
func (f *Frame) ChassisText() string {
	switch f.ChassisKind {
	case ChassisMAC:
		return macText(f.ChassisID)
	case ChassisNetworkAddress:
		return addressText(f.ChassisID)
	}
	return clean(f.ChassisID)
}

// PortText is the port identifier as OpenConfig writes it.
func (f *Frame) PortText() string {
	switch f.PortKind {
	case PortMAC:
		return macText(f.PortID)
	case PortNetworkAddress:
		return addressText(f.PortID)
	}
	return clean(f.PortID)
}

func macText(v []byte) string {
	if len(v) == 6 {
		return net.HardwareAddr(v).String()
	}
	return fmt.Sprintf("%x", v)
}

func addressText(v []byte) string {
	if a, ok := netip.AddrFromSlice(v[1:]); ok && (v[0] == familyIPv4 && a.Is4() || v[0] == familyIPv6 && a.Is6()) {
		return a.String()
	}
	return fmt.Sprintf("%x", v)
}

// String is OpenConfig's name of the kind; empty for one that is reserved.
func (k ChassisSubtype) String() string {
	return name(int(k), "CHASSIS_COMPONENT", "INTERFACE_ALIAS", "PORT_COMPONENT", "MAC_ADDRESS", "NETWORK_ADDRESS", "INTERFACE_NAME", "LOCAL")
}

// String is OpenConfig's name of the kind; empty for one that is reserved.
func (k PortSubtype) String() string {
	return name(int(k), "INTERFACE_ALIAS", "PORT_COMPONENT", "MAC_ADDRESS", "NETWORK_ADDRESS", "INTERFACE_NAME", "AGENT_CIRCUIT_ID", "LOCAL")
}

func name(k int, names ...string) string {
	if k < 1 || k > len(names) {
		return ""
	}
	return names[k-1]
}
