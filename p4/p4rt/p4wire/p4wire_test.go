// SPDX-License-Identifier: Apache-2.0

package p4wire

import (
	"bytes"
	"testing"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// same decodes bytes as both message types with both codecs and compares the results, also when
// the message held a packet before. Both codecs encode each result again.
func same(tb testing.TB, b []byte) {
	tb.Helper()
	used, usedToo := &p4v1.StreamMessageResponse{}, &p4v1.StreamMessageRequest{}
	for _, m := range []proto.Message{used, usedToo} {
		if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded(tb, packet(40, 5)))}, m); err != nil {
			tb.Fatal(err)
		}
	}
	for _, pair := range [][2]proto.Message{
		{&p4v1.StreamMessageResponse{}, &p4v1.StreamMessageResponse{}},
		{&p4v1.StreamMessageRequest{}, &p4v1.StreamMessageRequest{}},
		{used, &p4v1.StreamMessageResponse{}},
		{usedToo, &p4v1.StreamMessageRequest{}},
	} {
		data := mem.BufferSlice{mem.SliceBuffer(b)}
		err, want := Codec{}.Unmarshal(data, pair[0]), generic.Unmarshal(data, pair[1])
		if (err == nil) != (want == nil) {
			tb.Fatalf("%x: error %v, want %v", b, err, want)
		}
		if want != nil {
			continue
		}
		if !proto.Equal(pair[0], pair[1]) {
			tb.Fatalf("%x:\ngot  %v\nwant %v", b, pair[0], pair[1])
		}
		got, err := Codec{}.Marshal(pair[0])
		if err != nil {
			tb.Fatal(err)
		}
		if want := encoded(tb, pair[1]); !bytes.Equal(got.Materialize(), want) {
			tb.Fatalf("encoded as %x, want %x", got.Materialize(), want)
		}
		got.Free()
	}
}

func encoded(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func packet(payload, fields int) *p4v1.StreamMessageResponse {
	p := &p4v1.PacketIn{Payload: bytes.Repeat([]byte{7}, payload)}
	for i := range fields {
		p.Metadata = append(p.Metadata, &p4v1.PacketMetadata{MetadataId: uint32(i + 1),
			Value: bytes.Repeat([]byte{byte(i)}, i%5)})
	}
	return &p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Packet{Packet: p}}
}

func seeds(tb testing.TB) (all [][]byte) {
	for _, m := range []proto.Message{
		packet(0, 0), packet(1024, 7), packet(3, 8), packet(3, 9), packet(70_000, 40), &p4v1.StreamMessageResponse{},
		&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Arbitration{
			Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: &p4v1.Uint128{Low: 5}}}},
		&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Error{Error: &p4v1.StreamError{Message: "no"}}},
	} {
		all = append(all, encoded(tb, m))
	}
	whole := encoded(tb, packet(20, 3))
	all = append(all, whole[:len(whole)-1], append(bytes.Clone(whole), whole...), append(bytes.Clone(whole), 0x32, 0),
		[]byte{0x12, 0x02, 0x18, 0x01})
	return all
}

func TestDecodesAsTheGenericCodec(t *testing.T) {
	for _, b := range seeds(t) {
		same(t, b)
	}
}

// A message that was decoded does not change when gRPC uses its buffer again.
func TestKeepsNothingOfTheBuffer(t *testing.T) {
	b := encoded(t, packet(1024, 7))
	m := &p4v1.StreamMessageResponse{}
	if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m); err != nil {
		t.Fatal(err)
	}
	clear(b)
	if !proto.Equal(m, packet(1024, 7)) {
		t.Error("it changed")
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { same(t, b) })
}

func BenchmarkUnmarshal(b *testing.B) {
	data := mem.BufferSlice{mem.SliceBuffer(encoded(b, packet(1024, 7)))}
	for name, decode := range map[string]func(any) error{
		"fast":    func(v any) error { return Codec{}.Unmarshal(data, v) },
		"generic": func(v any) error { return generic.Unmarshal(data, v) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(&p4v1.StreamMessageResponse{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		m := &p4v1.StreamMessageResponse{}
		for b.Loop() {
			if err := (Codec{}).Unmarshal(data, m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkMarshal(b *testing.B) {
	m := packet(1024, 7)
	for name, encode := range map[string]func(any) (mem.BufferSlice, error){"fast": Codec{}.Marshal,
		"generic": generic.Marshal} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out, err := encode(m)
				if err != nil {
					b.Fatal(err)
				}
				out.Free()
			}
		})
	}
}
