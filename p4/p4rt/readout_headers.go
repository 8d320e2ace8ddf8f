// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// readoutHeaders locates the fields of the read-out protocol in the program's controller headers.
type readoutHeaders struct {
	out                        *p4values.Header
	outOp, outObject, outBank  int
	outIndex, outSeq           int
	reason, object, bank, indx uint32 // metadata ids of packet_in
	seq                        uint32
}

// ReadsByPacket reports whether the headers of a program let a client read its registers by packet.
func ReadsByPacket(cat *p4values.Catalog) bool { return newReadoutHeaders(cat) != nil }

// newReadoutHeaders returns nil if the program's headers do not have all fields of the protocol.
func newReadoutHeaders(cat *p4values.Catalog) *readoutHeaders {
	in, out := cat.PacketIn, cat.PacketOut
	if in == nil || out == nil || len(cat.Readouts()) == 0 {
		return nil
	}
	h := &readoutHeaders{
		out: out, outOp: out.ByName("op"), outObject: out.ByName("object"), outBank: out.ByName("bank"),
		outIndex: out.ByName("index"), outSeq: out.ByName("seq"),
	}
	if slices.Contains([]int{h.outOp, h.outObject, h.outBank, h.outIndex, h.outSeq}, -1) {
		return nil
	}
	for _, f := range []struct {
		name string
		id   *uint32
	}{{"reason", &h.reason}, {"object", &h.object}, {"bank", &h.bank}, {"index", &h.indx}, {"seq", &h.seq}} {
		i := in.ByName(f.name)
		if i < 0 {
			return nil
		}
		*f.id = in.Fields[i].ID
	}
	return h
}

// newRequests prepares the requests for a bank of an object. Fields that the protocol does not use
// are zero.
func (h *readoutHeaders) newRequests(object, bank uint8) *readoutRequests {
	m := &readoutRequests{}
	fields := make([]*p4v1.PacketMetadata, len(h.out.Fields))
	for i, f := range h.out.Fields {
		var v uint64
		switch i {
		case h.outOp:
			v = opReadout
		case h.outObject:
			v = uint64(object)
		case h.outBank:
			v = uint64(bank)
		}
		fields[i] = &p4v1.PacketMetadata{MetadataId: f.ID, Value: p4values.Uint(v)}
	}
	m.index, m.seq = fields[h.outIndex], fields[h.outSeq]
	m.message.Update = &p4v1.StreamMessageRequest_Packet{Packet: &p4v1.PacketOut{Payload: readoutPadding[:],
		Metadata: fields}}
	return m
}

// seqOfRequest returns the number of the read-out request in a packet, or noSeq.
func (h *readoutHeaders) seqOfRequest(m *p4v1.PacketOut) int64 {
	op, seq := int64(noSeq), int64(noSeq)
	for _, f := range m.GetMetadata() {
		v, ok := uint32Of(f.GetValue())
		switch {
		case !ok:
		case f.GetMetadataId() == h.out.Fields[h.outOp].ID:
			op = int64(v)
		case f.GetMetadataId() == h.out.Fields[h.outSeq].ID:
			seq = int64(v)
		}
	}
	if op != opReadout {
		return noSeq
	}
	return seq
}

// readoutReply is a packet-in with the reply to a read-out request.
type readoutReply struct {
	reason, object, bank, index, seq uint32
	cells                            []byte
}

// parse decodes a reply. It returns false if the packet is not a reply.
func (h *readoutHeaders) parse(m *p4v1.PacketIn) (readoutReply, bool) {
	r := readoutReply{cells: m.GetPayload()}
	for _, f := range m.GetMetadata() {
		v, ok := uint32Of(f.GetValue())
		if !ok {
			return r, false
		}
		switch f.GetMetadataId() {
		case h.reason:
			r.reason = v
		case h.object:
			r.object = v
		case h.bank:
			r.bank = v
		case h.indx:
			r.index = v
		case h.seq:
			r.seq = v
		}
	}
	return r, r.reason == reasonReadout || r.reason == reasonRefused
}

// uint32Of decodes a number of up to 32 bits from any number of bytes.
func uint32Of(b []byte) (uint32, bool) {
	if len(b) == 0 {
		return 0, false
	}
	for len(b) > 4 {
		if b[0] != 0 {
			return 0, false
		}
		b = b[1:]
	}
	var v uint32
	for _, x := range b {
		v = v<<8 | uint32(x)
	}
	return v, true
}

func sortRanges(rs *[]CellRange) {
	slices.SortFunc(*rs, func(a, b CellRange) int { return a.First - b.First })
	merged := (*rs)[:0]
	for _, r := range *rs {
		if n := len(merged); n > 0 && merged[n-1].First+merged[n-1].Count == r.First {
			merged[n-1].Count += r.Count
			continue
		}
		merged = append(merged, r)
	}
	*rs = merged
}
