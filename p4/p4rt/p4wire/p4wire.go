// SPDX-License-Identifier: Apache-2.0

// Package p4wire decodes the messages that P4Runtime's stream carries by the thousand, packet-ins and
// packet-outs, without the generic decoder's allocations: a bank of registers that is read by packet is one
// such message each way for every 256 cells. All else goes to the generic one, packets with fields that this
// package does not know among it.
//
// A Codec has no state and may be used by any number of goroutines.
package p4wire

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that it falls back on
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Codec is gRPC's codec for protobuf, faster for packets. A client gives it with grpc.ForceCodecV2, a server
// with grpc.ForceServerCodecV2.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// generic is gRPC's own.
var generic = encoding.GetCodecV2("proto")

// Name is "proto", for the bytes are the same.
func (Codec) Name() string { return generic.Name() }

// Marshal encodes a message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) { return generic.Marshal(v) }

// Unmarshal decodes into v, which must be a protobuf message.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *p4v1.StreamMessageResponse:
		if packetIn(bytesOf(data), m) {
			return nil
		}
	case *p4v1.StreamMessageRequest:
		if packetOut(bytesOf(data), m) {
			return nil
		}
	}
	return generic.Unmarshal(data, v)
}

// bytesOf copies a message out of gRPC's buffers, which are used again.
func bytesOf(data mem.BufferSlice) []byte {
	b := make([]byte, data.Len())
	data.CopyTo(b)
	return b
}

// Field numbers of p4.v1, the same for both directions.
const (
	fieldPacket   protowire.Number = 2 // StreamMessage….packet
	fieldPayload  protowire.Number = 1 // Packet….payload
	fieldMetadata protowire.Number = 2 // Packet….metadata
	fieldID       protowire.Number = 1 // PacketMetadata.metadata_id
	fieldValue    protowire.Number = 2 // PacketMetadata.value
)

// fewFields is how many metadata fields fit without a further allocation. netsketch's programs have seven and eight.
const fewFields = 8

// metadata has room for a packet's metadata.
type metadata struct {
	fields   [fewFields]p4v1.PacketMetadata
	pointers [fewFields]*p4v1.PacketMetadata
}

// received and sent are all that a packet needs, in one piece.
type received struct {
	metadata
	packet p4v1.PacketIn
	update p4v1.StreamMessageResponse_Packet
}

type sent struct {
	metadata
	packet p4v1.PacketOut
	update p4v1.StreamMessageRequest_Packet
}

// packetIn decodes a message that is a packet-in and nothing else; false leaves m as it was.
func packetIn(b []byte, m *p4v1.StreamMessageResponse) bool {
	b, ok := onlyPacket(b)
	if !ok {
		return false
	}
	r := &received{}
	if r.packet.Payload, r.packet.Metadata, ok = r.decode(b); !ok {
		return false
	}
	r.update.Packet = &r.packet
	m.Reset()
	m.Update = &r.update
	return true
}

// packetOut decodes a message that is a packet-out and nothing else; false leaves m as it was.
func packetOut(b []byte, m *p4v1.StreamMessageRequest) bool {
	b, ok := onlyPacket(b)
	if !ok {
		return false
	}
	s := &sent{}
	if s.packet.Payload, s.packet.Metadata, ok = s.decode(b); !ok {
		return false
	}
	s.update.Packet = &s.packet
	m.Reset()
	m.Update = &s.update
	return true
}

// onlyPacket returns the packet's encoding where that is all of the message.
func onlyPacket(b []byte) ([]byte, bool) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 || number != fieldPacket || kind != protowire.BytesType {
		return nil, false
	}
	packet, size := protowire.ConsumeBytes(b[n:])
	return packet, size == len(b)-n
}

// decode takes a packet apart. What it returns shares memory with b.
func (m *metadata) decode(b []byte) (payload []byte, fields []*p4v1.PacketMetadata, ok bool) {
	fields = m.pointers[:0]
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind != protowire.BytesType {
			return nil, nil, false
		}
		value, size := protowire.ConsumeBytes(b[n:])
		if size < 0 {
			return nil, nil, false
		}
		b = b[n+size:]
		switch number {
		case fieldPayload:
			payload = value[:len(value):len(value)]
		case fieldMetadata:
			var f *p4v1.PacketMetadata
			if len(fields) < fewFields {
				f = &m.fields[len(fields)]
			} else {
				f = &p4v1.PacketMetadata{}
			}
			if !decodeField(value, f) {
				return nil, nil, false
			}
			fields = append(fields, f)
		default:
			return nil, nil, false
		}
	}
	if len(fields) == 0 {
		fields = nil
	}
	return payload, fields, true
}

func decodeField(b []byte, f *p4v1.PacketMetadata) bool {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		switch {
		case n < 0:
			return false
		case number == fieldID && kind == protowire.VarintType:
			id, size := protowire.ConsumeVarint(b[n:])
			if size < 0 {
				return false
			}
			f.MetadataId = uint32(id)
			b = b[n+size:]
		case number == fieldValue && kind == protowire.BytesType:
			value, size := protowire.ConsumeBytes(b[n:])
			if size < 0 {
				return false
			}
			f.Value = value[:len(value):len(value)]
			b = b[n+size:]
		default:
			return false
		}
	}
	return true
}
