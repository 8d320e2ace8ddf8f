// SPDX-License-Identifier: Apache-2.0

// Package p4wire encodes and decodes the most frequent messages of P4Runtime's stream, packet-ins
// and packet-outs, without the work and allocations of the generic codec: reading a bank by packet
// takes one such message each way for every 256 cells. All other messages, and packets with unknown
// fields, go to the generic codec.
//
// A caller that receives into the same message again reuses the message's memory, so it must not
// keep any part of the previous message.
//
// A Codec has no state and may be used by any number of goroutines.
package p4wire

import (
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the generic codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Codec is gRPC's codec for protobuf, faster for packets. A client gives it with grpc.ForceCodecV2,
// a server with grpc.ForceServerCodecV2.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// generic is gRPC's codec.
var generic = encoding.GetCodecV2("proto")

// Name is "proto", since the encoding is the same.
func (Codec) Name() string { return generic.Name() }

// Marshal encodes a message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *p4v1.StreamMessageResponse:
		if u, ok := m.GetUpdate().(*p4v1.StreamMessageResponse_Packet); ok && u != nil && u.Packet != nil {
			return encode(m, u.Packet, u.Packet.GetPayload(), u.Packet.GetMetadata())
		}
	case *p4v1.StreamMessageRequest:
		if u, ok := m.GetUpdate().(*p4v1.StreamMessageRequest_Packet); ok && u != nil && u.Packet != nil {
			return encode(m, u.Packet, u.Packet.GetPayload(), u.Packet.GetMetadata())
		}
	}
	return generic.Marshal(v)
}

// encode encodes a message that contains a packet.
func encode(message, packet proto.Message, payload []byte, fields []*p4v1.PacketMetadata) (mem.BufferSlice, error) {
	if len(message.ProtoReflect().GetUnknown()) > 0 || len(packet.ProtoReflect().GetUnknown()) > 0 {
		return generic.Marshal(message)
	}
	inner := 0
	if len(payload) > 0 {
		inner += 1 + protowire.SizeBytes(len(payload))
	}
	for _, f := range fields {
		if f == nil || len(f.ProtoReflect().GetUnknown()) > 0 {
			return generic.Marshal(message)
		}
		inner += 1 + protowire.SizeBytes(sizeField(f))
	}
	room := buffers.Get(1 + protowire.SizeBytes(inner))
	b := protowire.AppendTag((*room)[:0], fieldPacket, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(inner))
	if len(payload) > 0 {
		b = protowire.AppendTag(b, fieldPayload, protowire.BytesType)
		b = protowire.AppendBytes(b, payload)
	}
	for _, f := range fields {
		b = protowire.AppendTag(b, fieldMetadata, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeField(f)))
		if f.MetadataId != 0 {
			b = protowire.AppendTag(b, fieldID, protowire.VarintType)
			b = protowire.AppendVarint(b, uint64(f.MetadataId))
		}
		if len(f.Value) > 0 {
			b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
			b = protowire.AppendBytes(b, f.Value)
		}
	}
	*room = b
	return mem.BufferSlice{mem.NewBuffer(room, buffers)}, nil
}

// buffers are reused without clearing: gRPC's pool would clear 4 KB for each packet.
var buffers = &pool{}

type pool struct{ sync.Pool }

// Get returns a buffer of the length with undefined contents.
func (p *pool) Get(length int) *[]byte {
	if b, ok := p.Pool.Get().(*[]byte); ok && cap(*b) >= length {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length)
	return &b
}

// Put takes a buffer back, unless it is larger than 64 KiB.
func (p *pool) Put(b *[]byte) {
	if cap(*b) <= 1<<16 {
		p.Pool.Put(b)
	}
}

// sizeField is the length of a metadata field's encoding. Tags of all fields here have one byte.
func sizeField(f *p4v1.PacketMetadata) (n int) {
	if f.MetadataId != 0 {
		n += 1 + protowire.SizeVarint(uint64(f.MetadataId))
	}
	if len(f.Value) > 0 {
		n += 1 + protowire.SizeBytes(len(f.Value))
	}
	return n
}

// Unmarshal decodes data into v, which must be a protobuf message.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	var ok bool
	switch m := v.(type) {
	case *p4v1.StreamMessageResponse:
		ok = packetIn(data, m)
	case *p4v1.StreamMessageRequest:
		ok = packetOut(data, m)
	}
	if ok {
		return nil
	}
	return generic.Unmarshal(data, v)
}

// onePiece calls f with the message as one slice, which is valid until f returns.
func onePiece(data mem.BufferSlice, f func(b []byte) bool) bool {
	b := data.MaterializeToBuffer(buffers)
	defer b.Free()
	return f(b.ReadOnlyData())
}

// Field numbers of p4.v1, the same for both directions.
const (
	fieldPacket   protowire.Number = 2 // StreamMessage….packet
	fieldPayload  protowire.Number = 1 // Packet….payload
	fieldMetadata protowire.Number = 2 // Packet….metadata
	fieldID       protowire.Number = 1 // PacketMetadata.metadata_id
	fieldValue    protowire.Number = 2 // PacketMetadata.value
)

// fewFields is the number of metadata fields that fit without a further allocation. netsketch's
// programs have seven and eight.
const fewFields = 8

// metadata is memory for a packet's metadata.
type metadata struct {
	fields   [fewFields]p4v1.PacketMetadata
	pointers [fewFields]*p4v1.PacketMetadata
	values   [fewFields][4]byte
}

// received and sent are the memory of a packet, in one allocation.
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

// packetIn decodes a message that contains only a packet-in. It returns false for any other
// message, which the generic codec decodes.
func packetIn(data mem.BufferSlice, m *p4v1.StreamMessageResponse) bool {
	return onePiece(data, func(b []byte) (ok bool) {
		if b, ok = onlyPacket(b); !ok {
			return false
		}
		u, again := m.Update.(*p4v1.StreamMessageResponse_Packet)
		if again && u != nil && u.Packet != nil &&
			len(m.ProtoReflect().GetUnknown())+len(u.Packet.ProtoReflect().GetUnknown()) == 0 {
			u.Packet.Payload, u.Packet.Metadata, ok = decode(b, u.Packet.Payload, u.Packet.Metadata)
			return ok
		}
		r := &received{}
		if r.packet.Payload, r.packet.Metadata, ok = decode(b, nil, r.fresh()); !ok {
			return false
		}
		r.update.Packet = &r.packet
		m.Reset()
		m.Update = &r.update
		return true
	})
}

// packetOut decodes a message that contains only a packet-out. It returns false for any other
// message, which the generic codec decodes.
func packetOut(data mem.BufferSlice, m *p4v1.StreamMessageRequest) bool {
	return onePiece(data, func(b []byte) (ok bool) {
		if b, ok = onlyPacket(b); !ok {
			return false
		}
		u, again := m.Update.(*p4v1.StreamMessageRequest_Packet)
		if again && u != nil && u.Packet != nil &&
			len(m.ProtoReflect().GetUnknown())+len(u.Packet.ProtoReflect().GetUnknown()) == 0 {
			u.Packet.Payload, u.Packet.Metadata, ok = decode(b, u.Packet.Payload, u.Packet.Metadata)
			return ok
		}
		s := &sent{}
		if s.packet.Payload, s.packet.Metadata, ok = decode(b, nil, s.fresh()); !ok {
			return false
		}
		s.update.Packet = &s.packet
		m.Reset()
		m.Update = &s.update
		return true
	})
}

// fresh returns the memory's fields, emptied.
func (m *metadata) fresh() []*p4v1.PacketMetadata {
	for i := range m.fields {
		m.pointers[i], m.fields[i].Value = &m.fields[i], m.values[i][:0]
	}
	return m.pointers[:0]
}

// onlyPacket returns the packet's encoding if the message has no other field.
func onlyPacket(b []byte) ([]byte, bool) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 || number != fieldPacket || kind != protowire.BytesType {
		return nil, false
	}
	packet, size := protowire.ConsumeBytes(b[n:])
	return packet, size == len(b)-n
}

// decode decodes a packet into the memory of payload and fields, including fields beyond their
// length. Their contents are undefined after a failure.
func decode(b, payload []byte, fields []*p4v1.PacketMetadata) ([]byte, []*p4v1.PacketMetadata, bool) {
	payload, fields = payload[:0], fields[:0]
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
			payload = append(payload[:0], value...)
		case fieldMetadata:
			if len(fields) < cap(fields) {
				fields = fields[:len(fields)+1]
			} else {
				fields = append(fields, nil)
			}
			f := &fields[len(fields)-1]
			if *f == nil || len((*f).ProtoReflect().GetUnknown()) > 0 {
				*f = &p4v1.PacketMetadata{}
			}
			if !decodeField(value, *f) {
				return nil, nil, false
			}
		default:
			return nil, nil, false
		}
	}
	return payload, fields, true
}

func decodeField(b []byte, f *p4v1.PacketMetadata) bool {
	f.MetadataId, f.Value = 0, f.Value[:0]
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
			f.Value = append(f.Value[:0], value...)
			b = b[n+size:]
		default:
			return false
		}
	}
	return true
}
