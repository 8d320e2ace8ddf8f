// SPDX-License-Identifier: Apache-2.0

// Package inband reads In-band Network Telemetry (INT) of P4.org: the headers INT-MD and INT-MX of
// versions 1.0 and 2.1 in packets, which it also removes, and Telemetry Reports of versions 1.0
// and 2.x. It allocates no memory per packet.
//
// docs/sketchint.md describes the INT that is read and how each fault is counted.
package inband

import (
	"encoding/binary"
	"fmt"

	"github.com/netsketch/netsketch/hostagent/packet"
)

// Marks are the values by which a deployment marks packets with INT. Most marks have no assigned
// number, so the operator of the switches chooses them. A zero value disables the mark.
type Marks struct {
	// DSCP marks TCP and UDP packets whose DSCP, in the bits of dscp-mask, equals it, as compiled into
	// the switches' program.
	DSCP uint8 `json:"dscp,omitempty" yaml:"dscp" default:"0x17" range:"0..63"`
	// DSCPMask is the bits of the DSCP that are compared.
	DSCPMask uint8 `json:"dscpMask,omitempty" yaml:"dscp-mask" default:"0x3f" range:"0..63"`
	// Probe marks TCP and UDP packets whose payload begins with these 64 bits, before the shim header.
	Probe uint64 `json:"probe,omitempty" yaml:"probe"`
	// BeforeOptions is set if INT precedes the options of TCP instead of following them.
	BeforeOptions bool `json:"beforeOptions,omitempty" yaml:"before-options" default:"false"`
	// UDPPort is the destination port of INT over UDP.
	UDPPort uint16 `json:"udpPort,omitempty" yaml:"udp-port"`
	// GRE is the protocol type of INT in GRE.
	GRE uint16 `json:"gre,omitempty" yaml:"gre"`
	// VXLAN is the UDP port of VXLAN GPE; IANA's is 4790.
	VXLAN uint16 `json:"vxlan,omitempty" yaml:"vxlan"`
	// VXLANNext is the next protocol of INT in VXLAN GPE. If 0, the specifications' values 0x80 and
	// 0x08.
	VXLANNext uint8 `json:"vxlanNext,omitempty" yaml:"vxlan-next"`
	// Geneve is the UDP port of Geneve; IANA's is 6081.
	Geneve uint16 `json:"geneve,omitempty" yaml:"geneve"`
	// GeneveClass is the class of the INT-MD option.
	GeneveClass uint16 `json:"geneveClass,omitempty" yaml:"geneve-class"`
	// GeneveType is the type of the INT-MD option.
	GeneveType uint8 `json:"geneveType,omitempty" yaml:"geneve-type"`
	// SourceOnly is the metadata of INT domains that only the INT source inserts.
	SourceOnly []SourceOnly `json:"sourceOnly,omitempty" yaml:"source-only"`
}

// SourceOnly is domain-specific metadata that only the INT source inserts, behind its own metadata
// and not included in the length of a hop.
type SourceOnly struct {
	// Domain is the id of the domain.
	Domain uint16 `json:"domain" yaml:"domain"`
	// Instruction is one bit of the domain-specific instructions.
	Instruction uint16 `json:"instruction" yaml:"instruction"`
	// Words is the length of the metadata, in words of 4 bytes.
	Words int `json:"words" yaml:"words" range:"0..255"`
}

// Problem is the reason why the INT of a packet, or a telemetry report, was not read whole.
type Problem uint8

// The problems. From UnknownVersion on the extent of INT is known, so it can be removed.
const (
	None            Problem = iota // read whole
	Absent                         // the packet has no INT
	NotIP                          // neither IPv4 nor IPv6
	Malformed                      // a truncated or invalid header in front of INT
	Truncated                      // INT is cut short
	LengthMismatch                 // a length of INT or UDP disagrees with the length of IP
	Fragment                       // marked as INT, and a fragment
	UnknownType                    // a shim header of unknown type, or more than 8 shim headers
	UnknownVersion                 // a header of unknown version
	BadHopLength                   // the metadata of a hop is shorter than its instructions require
	BadStackLength                 // the stack is not a whole number of hops
	TooManyHops                    // the stack has more than MaxHops hops
	UnknownDomain                  // a domain whose source-only metadata has an unknown length
	NoNodeID                       // the instructions do not request node ids
	BadReportLength                // an individual report is longer than the datagram, or too short
	UnknownReport                  // a report of unknown type
	Problems
)

var problemNames = [Problems]string{"none", "absent", "not-ip", "malformed", "truncated", "length-mismatch", "fragment",
	"unknown-type", "unknown-version", "bad-hop-length", "bad-stack-length", "too-many-hops", "unknown-domain",
	"no-node-id", "bad-report-length", "unknown-report"}

// String returns the name of the problem, such as "unknown-version".
func (p Problem) String() string {
	if p < Problems {
		return problemNames[p]
	}
	return fmt.Sprintf("problem-%d", uint8(p))
}

// MaxHops is the largest count of hops that is read.
const MaxHops = 64

// Kind is the type of an INT header.
type Kind uint8

// The types, by their number in the shim header.
const (
	MD          Kind = 1 // instructions and metadata of each hop
	Destination Kind = 2 // metadata for the sink alone; its contents are not specified
	MX          Kind = 3 // instructions alone; each hop sends its own reports
)

// Carrier is the protocol that carries INT.
type Carrier uint8

// The carriers.
const (
	TCP        Carrier = iota + 1
	UDP                // behind the UDP header, with the original destination port
	UDPPort            // behind the UDP header, whose destination port is Marks.UDPPort
	UDPEncap           // behind a UDP header that was inserted in front of the original header
	GRE                // behind the GRE header
	GREEncap           // behind outer IP and GRE headers that were inserted
	VXLAN              // behind the VXLAN GPE header
	VXLANEncap         // behind a VXLAN GPE header that was VXLAN
	Geneve             // an option of Geneve
)

// Packet is one packet with its INT. The metadata refers to the frame, and is invalid after Strip.
type Packet struct {
	// IP is the packet as the sender wrote it if it has no problem: its key has no trace of INT.
	IP packet.IP

	Carrier Carrier // 0: no INT
	Kind    Kind
	Version uint8
	// Copy: a replica, which the sink must discard.
	Copy bool
	// HopLimit: a hop added nothing because the remaining hop count was 0; MTU: because of the MTU.
	HopLimit, MTU bool
	// Remaining is the remaining hop count.
	Remaining uint8
	// Instructions is the bitmap; its first bit is the most significant one.
	Instructions uint16
	// Domain-specific fields, version 2 only.
	Domain, DomainInstructions, DomainFlags uint16

	hops   int
	stack  []byte
	hop    int // bytes of a hop in the stack
	layout *layout

	l4, at, size int // offsets from the IP header: transport header, INT; bytes of INT
	shim         int // offset of the last shim header
}

// Hops returns the count of hops in the stack.
func (p *Packet) Hops() int { return p.hops }

// HasINT reports whether the packet has INT whose extent is known, so that Strip removes it.
func (p *Packet) HasINT() bool { return p.size > 0 }

// Size returns the bytes that Strip removes.
func (p *Packet) Size() int { return p.size }

// Unknown reports whether the instructions have reserved bits. Their metadata is skipped.
func (p *Packet) Unknown() bool {
	if p.Version == 1 {
		return p.Instructions&reserved1 != 0
	}
	return p.Instructions&reserved2 != 0
}

// The instructions that are reserved in versions 1.0 and 2.1.
const (
	reserved1 = 0x00fe
	reserved2 = 0x007e
)

// Field is one kind of metadata of a hop, by its position in the instruction bitmap.
type Field uint8

// The fields, in the order of their bits in the instruction bitmap.
const (
	NodeID Field = iota
	Ports        // level 1: ingress and egress, 16 bits each
	Latency
	Queue        // id of 8 bits, occupancy of 24
	IngressTime  // 32 bits in version 1.0, 64 in 2.1
	EgressTime   // 32 bits in version 1.0, 64 in 2.1
	LogicalPorts // level 2: ingress and egress, 32 bits each
	Utilization  // utilization of the egress port
	Buffer       // id of 8 bits, occupancy of 24; version 2.1
	fields       // count
	checksum     = 15
)

// Hop is the metadata of one hop.
type Hop struct {
	Has Fields // the fields that are valid; a hop writes all ones for a value that it does not have

	NodeID                                uint32
	IngressPort, EgressPort               uint16
	Latency                               uint32
	QueueID, BufferID                     uint8
	QueueOccupancy, BufferOccupancy       uint32
	IngressTime, EgressTime               uint64
	LogicalIngressPort, LogicalEgressPort uint32
	Utilization                           uint32
}

// Fields is a set of fields.
type Fields uint16

// Contains reports whether the set has a field.
func (s Fields) Contains(f Field) bool { return s>>f&1 != 0 }

// layout holds the offsets of metadata within a hop, which follow from the instructions.
type layout struct {
	version uint8
	bitmap  uint16
	words   int // without domain-specific metadata
	at      [fields]int8
	has     Fields
	timed   bool // node ids and latencies, no queues and no reserved instructions: what Take reads
}

// words returns the words of an instruction.
func words(version uint8, bit int) int {
	switch {
	case bit == int(LogicalPorts), version != 1 && (bit == int(IngressTime) || bit == int(EgressTime)):
		return 2
	}
	return 1
}

func (l *layout) set(version uint8, bitmap uint16) {
	*l = layout{version: version, bitmap: bitmap}
	for bit := range 16 {
		if bitmap>>(15-bit)&1 == 0 {
			continue
		}
		if bit < int(fields) && (version != 1 || bit != int(Buffer)) {
			l.at[bit] = int8(l.words * 4)
			l.has |= 1 << bit
		}
		l.words += words(version, bit)
	}
	l.timed = l.has&(1<<NodeID|1<<Latency|1<<Queue) == 1<<NodeID|1<<Latency && bitmap&reserved2 == 0
}

// Decoder reads packets and reports. One goroutine may use it at a time.
type Decoder struct {
	marks   Marks
	layouts [8]layout // layouts by a hash of version and bitmap
}

// NewDecoder returns a decoder of packets with the given marks.
func NewDecoder(m Marks) *Decoder { return &Decoder{marks: m} }

func (d *Decoder) layout(version uint8, bitmap uint16) *layout {
	l := &d.layouts[(uint32(bitmap)*0x9e3779b1>>16+uint32(version))%uint32(len(d.layouts))]
	if l.bitmap != bitmap || l.version != version {
		l.set(version, bitmap)
	}
	return l
}

// Node returns the node id of a hop, which is invalid if it is all ones. Hop 0 is the latest one:
// hops are in the reverse order of the path. The packet has node ids.
func (p *Packet) Node(hop int) uint32 {
	return binary.BigEndian.Uint32(p.stack[hop*p.hop:])
}

// Step is a switch on the path of a packet, and the latency that it states.
type Step struct{ Node, Latency uint32 }

// Path copies the node ids and the latencies of all hops, the latest hop first. A latency is the
// hop's stated latency, or else the difference of its timestamps, or NoLatency if the hop has
// neither.
func (p *Packet) Path(path []Step) {
	path = path[:p.hops]
	l, b := p.layout, p.stack
	for i := range path {
		latency, ok := l.latency(b)
		if !ok {
			latency = NoLatency
		}
		path[i] = Step{binary.BigEndian.Uint32(b), latency}
		b = b[p.hop:]
	}
}

// NoLatency is the latency of a hop that does not have one.
const NoLatency = invalid

const invalid = 1<<32 - 1

func (l *layout) latency(b []byte) (uint32, bool) {
	if l.has.Contains(Latency) {
		if v := binary.BigEndian.Uint32(b[l.at[Latency]:]); v != invalid {
			return v, true
		}
	}
	if !l.has.Contains(IngressTime) || !l.has.Contains(EgressTime) {
		return 0, false
	}
	if l.version == 1 {
		in, out := binary.BigEndian.Uint32(b[l.at[IngressTime]:]), binary.BigEndian.Uint32(b[l.at[EgressTime]:])
		return out - in, in != invalid && out != invalid && out-in < 1<<31
	}
	in, out := binary.BigEndian.Uint64(b[l.at[IngressTime]:]), binary.BigEndian.Uint64(b[l.at[EgressTime]:])
	return uint32(out - in), in+1 != 0 && out+1 != 0 && out-in < invalid
}

// Hop reads the metadata of a hop. Hop 0 is the latest one.
func (p *Packet) Hop(hop int, h *Hop) { p.layout.read(p.stack[hop*p.hop:], h) }

func (l *layout) read(b []byte, h *Hop) {
	*h = Hop{}
	word := func(f Field) (uint32, bool) {
		if !l.has.Contains(f) {
			return 0, false
		}
		v := binary.BigEndian.Uint32(b[l.at[f]:])
		if v == invalid {
			return 0, false
		}
		h.Has |= 1 << f
		return v, true
	}
	h.NodeID, _ = word(NodeID)
	if v, ok := word(Ports); ok {
		h.IngressPort, h.EgressPort = uint16(v>>16), uint16(v)
	}
	if v, ok := l.latency(b); ok {
		h.Latency, h.Has = v, h.Has|1<<Latency
	}
	if v, ok := word(Queue); ok {
		h.QueueID, h.QueueOccupancy = uint8(v>>24), v&0xffffff
	}
	h.IngressTime = l.time(b, IngressTime, h)
	h.EgressTime = l.time(b, EgressTime, h)
	if l.has.Contains(LogicalPorts) {
		if v := binary.BigEndian.Uint64(b[l.at[LogicalPorts]:]); v+1 != 0 {
			h.LogicalIngressPort, h.LogicalEgressPort = uint32(v>>32), uint32(v)
			h.Has |= 1 << LogicalPorts
		}
	}
	h.Utilization, _ = word(Utilization)
	if v, ok := word(Buffer); ok {
		h.BufferID, h.BufferOccupancy = uint8(v>>24), v&0xffffff
	}
}

func (l *layout) time(b []byte, f Field, h *Hop) uint64 {
	if !l.has.Contains(f) {
		return 0
	}
	b = b[l.at[f]:]
	v, missing := uint64(binary.BigEndian.Uint32(b)), uint64(invalid)
	if l.version != 1 {
		v, missing = binary.BigEndian.Uint64(b), 1<<64-1
	}
	if v == missing {
		return 0
	}
	h.Has |= 1 << f
	return v
}
