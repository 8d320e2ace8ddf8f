// SPDX-License-Identifier: Apache-2.0

package lldp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"unicode"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// EtherType is the EtherType of LLDP frames.
const EtherType = uint16(layers.EthernetTypeLinkLayerDiscovery)

// NearestBridge is the destination of frames: bridges do not forward it.
var NearestBridge = [6]byte{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}

// Capabilities of a system (IEEE 802.1AB-2016 table 8-4).
const (
	CapabilityBridge = 1 << 2
	CapabilityRouter = 1 << 4
)

// Frame is the content of one frame. Texts are in UTF-8.
type Frame struct {
	Source [6]byte // the sender's Ethernet address

	ChassisKind layers.LLDPChassisIDSubType
	ChassisID   []byte // 1 to 255 bytes
	PortKind    layers.LLDPPortIDSubType
	PortID      []byte // 1 to 255 bytes
	TTL         uint16 // seconds; 0 if the sender stops

	PortDescription, SystemName, SystemDescription string // up to 255 bytes
	Capabilities, Enabled                          uint16
	Management                                     netip.Addr // first management address

	// Unknown counts TLVs of reserved types, Discarded malformed optional TLVs. Only Parse sets
	// them.
	Unknown, Discarded int
}

var (
	// ErrNotLLDP is the error for a frame of another protocol.
	ErrNotLLDP = errors.New("not an LLDP frame")
	// ErrMalformed is wrapped by the error for a frame that violates the standard.
	ErrMalformed = errors.New("malformed LLDP frame")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// header is the length of an Ethernet header.
const header = 14

// Parse reads a frame that begins with its Ethernet header. The result does not refer to the frame.
// Errors: ErrNotLLDP, and ErrMalformed if a mandatory TLV is missing, out of order, repeated or of
// a wrong length, or a TLV exceeds the frame (section 9.2.7.7). Other malformed TLVs are dropped
// and counted.
func Parse(frame []byte) (*Frame, error) {
	if len(frame) < header || binary.BigEndian.Uint16(frame[12:]) != EtherType {
		return nil, ErrNotLLDP
	}
	if [5]byte(frame[:5]) != [5]byte(NearestBridge[:5]) || frame[5] != 0x0e && frame[5] != 0x03 && frame[5] != 0x00 {
		return nil, malformed("its destination is not a group address of LLDP")
	}
	if err := checkOrder(frame[header:]); err != nil {
		return nil, err
	}
	// The end TLV is optional since 2016, but not for the decoder: its copy of the frame has one.
	p := gopacket.NewPacket(append(frame[header:len(frame):len(frame)], 0, 0), layers.LayerTypeLinkLayerDiscovery,
		gopacket.NoCopy)
	tlvs, ok := p.Layer(layers.LayerTypeLinkLayerDiscovery).(*layers.LinkLayerDiscovery)
	if !ok {
		return nil, malformed("%v", p.ErrorLayer().Error())
	}
	if len(tlvs.ChassisID.ID) > 255 || len(tlvs.PortID.ID) > 255 {
		return nil, malformed("an identifier is longer than 255 bytes")
	}
	f := &Frame{
		Source: [6]byte(frame[6:12]), TTL: tlvs.TTL,
		ChassisKind: tlvs.ChassisID.Subtype, ChassisID: tlvs.ChassisID.ID, PortKind: tlvs.PortID.Subtype,
		PortID: tlvs.PortID.ID,
	}
	for _, v := range tlvs.Values {
		f.optional(v.Type, v.Value)
	}
	return f, nil
}

// checkOrder checks what gopacket's decoder does not: the mandatory TLVs come first, in order, and
// once.
func checkOrder(tlvs []byte) error {
	for n := 0; len(tlvs) >= 2; n++ {
		kind, length := layers.LLDPTLVType(tlvs[0]>>1), int(tlvs[0]&1)<<8|int(tlvs[1])
		switch {
		case n < 3 && int(kind) != n+1:
			return malformed("TLV %d is of type %d, not %d", n+1, kind, n+1)
		case n >= 3 && kind >= layers.LLDPTLVChassisID && kind <= layers.LLDPTLVTTL:
			return malformed("a TLV of type %d is repeated", kind)
		case kind == layers.LLDPTLVEnd && length > 0:
			return malformed("the end TLV is not empty")
		case kind == layers.LLDPTLVEnd:
			return nil
		}
		tlvs = tlvs[min(2+length, len(tlvs)):]
	}
	return nil
}

// optional reads a TLV that may be absent.
func (f *Frame) optional(kind layers.LLDPTLVType, v []byte) {
	switch kind {
	case layers.LLDPTLVPortDescription, layers.LLDPTLVSysName, layers.LLDPTLVSysDescription:
		if len(v) > 255 {
			f.Discarded++
			return
		}
		*f.text(kind) = clean(v)
	case layers.LLDPTLVSysCapabilities:
		if len(v) != 4 {
			f.Discarded++
			return
		}
		f.Capabilities, f.Enabled = binary.BigEndian.Uint16(v), binary.BigEndian.Uint16(v[2:])
	case layers.LLDPTLVMgmtAddress:
		f.management(v)
	case layers.LLDPTLVOrgSpecific:
	default:
		f.Unknown++
	}
}

func (f *Frame) text(kind layers.LLDPTLVType) *string {
	switch kind {
	case layers.LLDPTLVPortDescription:
		return &f.PortDescription
	case layers.LLDPTLVSysName:
		return &f.SystemName
	}
	return &f.SystemDescription
}

// management reads the address of section 8.5.9: its length and family, the address, then an
// interface number and an object, which are ignored.
func (f *Frame) management(v []byte) {
	if len(v) < 2 || v[0] < 2 || v[0] > 32 || len(v) < 1+int(v[0])+6 {
		f.Discarded++
		return
	}
	if a, ok := address(v[1 : 1+int(v[0])]); ok && !f.Management.IsValid() {
		f.Management = a
	}
}

// address reads an address that begins with its IANA family number.
func address(v []byte) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(v[1:])
	family := layers.IANAAddressFamily(v[0])
	return a, ok && (family == layers.IANAAddressFamilyIPV4 && a.Is4() || family == layers.IANAAddressFamilyIPV6 &&
		a.Is6())
}

// clean makes text of an untrusted sender fit for leaves and logs.
func clean(v []byte) string {
	s := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(v), "\ufffd"))
	return strings.TrimSpace(cut(strings.TrimSpace(s))) // replacement characters may have made it longer
}

// cut limits a text to 255 bytes.
func cut(s string) string {
	for len(s) > 255 {
		s = s[:strings.LastIndexFunc(s, func(rune) bool { return true })]
	}
	return s
}

// Marshal encodes the frame with its Ethernet header, padded to the minimum length of Ethernet.
func (f *Frame) Marshal() ([]byte, error) {
	if l := len(f.ChassisID); l < 1 || l > 255 {
		return nil, fmt.Errorf("LLDP: a chassis identifier of %d bytes; it has 1 to 255", l)
	}
	if l := len(f.PortID); l < 1 || l > 255 {
		return nil, fmt.Errorf("LLDP: a port identifier of %d bytes; it has 1 to 255", l)
	}
	d := &layers.LinkLayerDiscovery{
		ChassisID: layers.LLDPChassisID{Subtype: f.ChassisKind, ID: f.ChassisID},
		PortID:    layers.LLDPPortID{Subtype: f.PortKind, ID: f.PortID},
		TTL:       f.TTL,
	}
	add := func(kind layers.LLDPTLVType, v []byte) {
		d.Values = append(d.Values, layers.LinkLayerDiscoveryValue{Type: kind, Length: uint16(len(v)), Value: v})
	}
	for _, kind := range []layers.LLDPTLVType{layers.LLDPTLVPortDescription, layers.LLDPTLVSysName,
		layers.LLDPTLVSysDescription} {
		text := *f.text(kind)
		if len(text) > 255 {
			return nil, fmt.Errorf("LLDP: a text of %d bytes; at most 255", len(text))
		}
		if text != "" {
			add(kind, []byte(text))
		}
	}
	if f.Capabilities != 0 {
		add(layers.LLDPTLVSysCapabilities, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil,
			f.Capabilities), f.Enabled))
	}
	if f.Management.IsValid() {
		family := layers.IANAAddressFamilyIPV4
		if f.Management.Is6() {
			family = layers.IANAAddressFamilyIPV6
		}
		a := f.Management.AsSlice()
		v := append([]byte{byte(len(a) + 1), byte(family)}, a...)
		// no interface, no object
		add(layers.LLDPTLVMgmtAddress, append(v, byte(layers.LLDPInterfaceSubtypeUnknown), 0, 0, 0, 0, 0))
	}
	buf := gopacket.NewSerializeBuffer()
	eth := &layers.Ethernet{SrcMAC: f.Source[:], DstMAC: NearestBridge[:],
		EthernetType: layers.EthernetTypeLinkLayerDiscovery}
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, eth, d); err != nil {
		return nil, fmt.Errorf("LLDP: encode a frame: %w", err)
	}
	return buf.Bytes(), nil
}

// ChassisText is the chassis identifier in OpenConfig's notation.
func (f *Frame) ChassisText() string {
	switch f.ChassisKind {
	case layers.LLDPChassisIDSubTypeMACAddr:
		return macText(f.ChassisID)
	case layers.LLDPChassisIDSubTypeNetworkAddr:
		return addressText(f.ChassisID)
	}
	return clean(f.ChassisID)
}

// PortText is the port identifier in OpenConfig's notation.
func (f *Frame) PortText() string {
	switch f.PortKind {
	case layers.LLDPPortIDSubtypeMACAddr:
		return macText(f.PortID)
	case layers.LLDPPortIDSubtypeNetworkAddr:
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
	if a, ok := address(v); ok {
		return a.String()
	}
	return fmt.Sprintf("%x", v)
}

// ChassisType is OpenConfig's name of the chassis identifier's kind; empty for a reserved kind.
func (f *Frame) ChassisType() string {
	return name(int(f.ChassisKind), "CHASSIS_COMPONENT", "INTERFACE_ALIAS", "PORT_COMPONENT", "MAC_ADDRESS",
		"NETWORK_ADDRESS", "INTERFACE_NAME", "LOCAL")
}

// PortType is OpenConfig's name of the port identifier's kind; empty for a reserved kind.
func (f *Frame) PortType() string {
	return name(int(f.PortKind), "INTERFACE_ALIAS", "PORT_COMPONENT", "MAC_ADDRESS", "NETWORK_ADDRESS",
		"INTERFACE_NAME", "AGENT_CIRCUIT_ID", "LOCAL")
}

func name(k int, names ...string) string {
	if k < 1 || k > len(names) {
		return ""
	}
	return names[k-1]
}
