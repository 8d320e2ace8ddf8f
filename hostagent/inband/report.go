// SPDX-License-Identifier: Apache-2.0

package inband

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/hostagent/packet"
)

// Report is one individual telemetry report: the metadata of the node that sent it, and the
// beginning of the packet that it is about.
type Report struct {
	Version  uint8
	Hardware uint8 // subsystem of the node
	// Sequence is the number of the datagram, of 32 bits in version 1.0 and of 22 bits in 2.x. It
	// counts the datagrams of one hardware subsystem of one node.
	Sequence uint32
	Node     uint32
	// Dropped, Congested and Tracked are why the node reports the packet.
	Dropped, Congested, Tracked bool
	// Intermediate: a transit node sent the report of INT-MD, in version 2.x.
	Intermediate bool
	// DropReason says why the packet was dropped, if HasReason.
	DropReason uint8
	HasReason  bool
	// Hop is the metadata of the node, which always has its id.
	Hop Hop
	// Problem is the reason why Packet is not valid; Absent: the packet is valid and has no INT.
	Problem Problem
	// Packet is the inner packet, with the metadata of earlier hops.
	Packet Packet
}

// SequenceBits returns the size of a sequence number.
func (r *Report) SequenceBits() int {
	if r.Version == 1 {
		return 32
	}
	return 22
}

// Reader reads the individual reports of datagrams, one datagram at a time.
type Reader struct {
	decoder *Decoder
	rest    []byte
	group   Report // fields of the whole datagram
}

// NewReader returns a reader whose inner packets have the given marks.
func NewReader(m Marks) *Reader { return &Reader{decoder: NewDecoder(m)} }

// Types of individual reports and of their inner contents.
const (
	innerOnly  = 0
	reportINT  = 1
	inTLV      = 1
	inEthernet = 3
	inIPv4     = 4
	inIPv6     = 5
	toTheEnd   = 0xff // length of a report that ends with its datagram

	reportHeader1 = 16
	groupHeader   = 8
	mainContents  = 8 // length of an INT report's fields without metadata
)

// Begin begins a datagram: the payload of a UDP packet. The reports are valid until the payload
// changes. After UnknownVersion, version is the version in the datagram.
func (r *Reader) Begin(datagram []byte) (version uint8, problem Problem) {
	r.rest = nil
	if len(datagram) == 0 {
		return 0, Truncated
	}
	version = datagram[0] >> 4
	switch version {
	case 1:
		if len(datagram) < reportHeader1 {
			return version, Truncated
		}
		flags := binary.BigEndian.Uint32(datagram)
		r.group = Report{Version: 1, Hardware: uint8(flags & 0x3f), Node: binary.BigEndian.Uint32(datagram[4:]),
			Sequence: binary.BigEndian.Uint32(datagram[8:])}
	case 2:
		if len(datagram) < groupHeader {
			return version, Truncated
		}
		head := binary.BigEndian.Uint32(datagram)
		r.group = Report{Version: 2, Hardware: uint8(head >> 22 & 0x3f), Sequence: head & (1<<22 - 1),
			Node: binary.BigEndian.Uint32(datagram[4:])}
		datagram = datagram[groupHeader:]
	default:
		return version, UnknownVersion
	}
	r.rest = datagram
	return version, None
}

// Group returns the fields of the datagram that all its reports have: Version, Hardware, Sequence
// and Node.
func (r *Reader) Group() *Report { return &r.group }

// Next reads the next report of the datagram. It returns false at the end. If problem is not None,
// only the fields of Group are set.
func (r *Reader) Next(out *Report) (problem Problem, ok bool) {
	if len(r.rest) == 0 {
		return None, false
	}
	out.Version, out.Hardware, out.Sequence, out.Node = r.group.Version, r.group.Hardware, r.group.Sequence, r.group.Node
	out.HasReason, out.DropReason, out.Intermediate = false, 0, false
	out.Packet.size, out.Packet.hops, out.Packet.Carrier = 0, 0, 0
	if r.group.Version == 1 {
		b := r.rest
		r.rest = nil
		return r.version1(b, out), true
	}
	b := r.rest
	r.rest = nil
	if len(b) < 4 {
		return Truncated, true
	}
	size := 4 + int(b[1])*4
	if b[1] == toTheEnd {
		size = len(b)
	}
	if size > len(b) {
		return BadReportLength, true
	}
	r.rest = b[size:]
	return r.version2(b[:size], out), true
}

// version1 reads a report of version 1.0.
func (r *Reader) version1(b []byte, out *Report) Problem {
	head := binary.BigEndian.Uint32(b)
	size := int(head>>24&0xf) * 4
	next, bits := head>>21&7, head>>15&0x3f
	out.Dropped, out.Congested, out.Tracked = head>>8&1 != 0, head>>7&1 != 0, head>>6&1 != 0
	need := reportHeader1
	for v := bits; v != 0; v &= v - 1 {
		need += 4
	}
	if size < need || size > len(b) {
		return BadReportLength
	}
	h := &out.Hop
	*h = Hop{NodeID: out.Node, Has: 1 << NodeID}
	if v := binary.BigEndian.Uint32(b[12:]); v != invalid {
		h.IngressTime, h.Has = uint64(v), h.Has|1<<IngressTime
	}
	at := reportHeader1
	word := func(bit int) (uint32, bool) {
		if bits>>(5-bit)&1 == 0 {
			return 0, false
		}
		v := binary.BigEndian.Uint32(b[at:])
		at += 4
		return v, v != invalid
	}
	if v, ok := word(0); ok {
		h.IngressPort, h.EgressPort, h.Has = uint16(v>>16), uint16(v), h.Has|1<<Ports
	}
	if v, ok := word(1); ok {
		h.Latency, h.Has = v, h.Has|1<<Latency
	}
	if v, ok := word(2); ok {
		h.QueueID, h.QueueOccupancy, h.Has = uint8(v>>24), v&0xffffff, h.Has|1<<Queue
	}
	if v, ok := word(3); ok {
		h.EgressTime, h.Has = uint64(v), h.Has|1<<EgressTime
		latency := v - uint32(h.IngressTime)
		if !h.Has.Contains(Latency) && h.Has.Contains(IngressTime) && latency < 1<<31 {
			h.Latency, h.Has = latency, h.Has|1<<Latency
		}
	}
	if v, ok := word(4); ok {
		out.HasReason, out.DropReason = true, uint8(v>>16)
		if !h.Has.Contains(Queue) {
			h.QueueID = uint8(v >> 24)
		}
	}
	if v, ok := word(5); ok {
		h.Utilization, h.Has = v, h.Has|1<<Utilization
	}
	switch next {
	case 0:
		r.inner(inEthernet, b[size:], out)
	case 1:
		r.inner(inIPv4, b[size:], out)
	case 2:
		r.inner(inIPv6, b[size:], out)
	default:
		out.Problem = UnknownType
	}
	return None
}

// version2 reads an individual report of version 2.x.
func (r *Reader) version2(b []byte, out *Report) Problem {
	kind, inside, metadata := b[0]>>4, b[0]&0xf, int(b[2])*4
	out.Dropped, out.Congested, out.Tracked = b[3]&0x80 != 0, b[3]&0x40 != 0, b[3]&0x20 != 0
	out.Intermediate = b[3]&0x10 != 0
	out.Hop = Hop{}
	b = b[4:]
	switch kind {
	case innerOnly:
	case reportINT:
		if len(b) < mainContents+metadata {
			return BadReportLength
		}
		bitmap := binary.BigEndian.Uint16(b)
		l := r.decoder.layout(2, bitmap)
		if l.words*4 > metadata {
			return BadHopLength
		}
		l.read(b[mainContents:], &out.Hop)
		if bitmap&1 != 0 { // queue id, drop reason
			v := binary.BigEndian.Uint32(b[mainContents+(l.words-1)*4:])
			out.HasReason, out.DropReason = v != invalid, uint8(v>>16)
			if !out.Hop.Has.Contains(Queue) {
				out.Hop.QueueID = uint8(v >> 24)
			}
		}
		b = b[mainContents+metadata:]
	default:
		return UnknownReport
	}
	out.Hop.NodeID, out.Hop.Has = out.Node, out.Hop.Has|1<<NodeID
	if inside == inTLV {
		inside, b = truncatedPacket(b)
	}
	r.inner(inside, b, out)
	return None
}

// truncatedPacket returns the first packet among type-length-values, as its inner type.
func truncatedPacket(b []byte) (uint8, []byte) {
	for len(b) >= 4 {
		size := 4 + int(b[1])*4
		if size > len(b) {
			break
		}
		if kind := b[0] >> 4; kind >= 1 && kind <= 3 {
			return inEthernet + kind - 1, b[4:size]
		}
		b = b[size:]
	}
	return 0, nil
}

// inner reads the beginning of a packet.
func (r *Reader) inner(kind uint8, b []byte, out *Report) {
	etherType := uint16(packet.EtherTypeIPv4)
	switch kind {
	case inEthernet:
		link, err := packet.ParseLink(b)
		if err != nil {
			out.Problem = Truncated
			return
		}
		etherType, b = link.Type, b[link.TypeAt+2:]
	case inIPv4:
	case inIPv6:
		etherType = packet.EtherTypeIPv6
	default: // no packet
		out.Problem = NotIP
		return
	}
	out.Problem = r.decoder.decode(etherType, b, true, &out.Packet)
}
