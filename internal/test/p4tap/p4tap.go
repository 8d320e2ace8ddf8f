// SPDX-License-Identifier: Apache-2.0

// Package p4tap gives a test access to the connection of a P4Runtime client: a [Tap] receives the
// packets and digests that the client does not use, and sends the test's packets and requests on
// the same connection.
//
// Methods may be called from any goroutine.
package p4tap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// errNoStream is returned before the client has opened its stream.
var errNoStream = errors.New("p4tap: the client has no stream yet")

// Tap is the test's side of a client's connection.
type Tap struct {
	Packets chan *p4v1.PacketIn   // packets other than read-out replies
	Digests chan *p4v1.DigestList // lists, to be acknowledged with Ack

	cat      *p4values.Catalog
	deviceID uint64
	dropped  atomic.Uint64

	mu     sync.Mutex // held while a message is sent
	conn   *grpc.ClientConn
	stream grpc.ClientStream
}

// New returns a tap for the client of a device that runs a program. Packets and digests beyond
// depth that the test has not received are dropped and counted.
func New(cat *p4values.Catalog, deviceID uint64, depth int) *Tap {
	return &Tap{Packets: make(chan *p4v1.PacketIn, depth), Digests: make(chan *p4v1.DigestList, depth), cat: cat,
		deviceID: deviceID}
}

// Dropped returns the number of messages that were dropped.
func (t *Tap) Dropped() uint64 { return t.dropped.Load() }

// DialOptions are the options of the client's connection; see p4rt.Config.
func (t *Tap) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc,
		cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil || !strings.HasSuffix(method, "/StreamChannel") {
			return s, err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.conn, t.stream = cc, s
		return tapped{s, t}, nil
	})}
}

// tapped is the stream as the client uses it.
type tapped struct {
	grpc.ClientStream
	t *Tap
}

func (s tapped) SendMsg(m any) error {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.ClientStream.SendMsg(m)
}

func (s tapped) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if r, ok := m.(*p4v1.StreamMessageResponse); ok && err == nil {
		s.t.receive(r)
	}
	return err
}

// receive copies a message, because the client reuses its memory.
func (t *Tap) receive(m *p4v1.StreamMessageResponse) {
	if p := m.GetPacket(); p != nil && !t.isReply(p) {
		offer(t, t.Packets, proto.CloneOf(p))
	}
	if d := m.GetDigest(); d != nil {
		offer(t, t.Digests, proto.CloneOf(d))
	}
}

func offer[T any](t *Tap, to chan T, v T) {
	select {
	case to <- v:
	default:
		t.dropped.Add(1)
	}
}

// isReply reports whether a packet answers a read-out request (docs/p4.md).
func (t *Tap) isReply(p *p4v1.PacketIn) bool {
	if t.cat.PacketIn == nil || t.cat.PacketIn.ByName("seq") < 0 {
		return false
	}
	reason, ok := t.Uint(p, "reason")
	return ok && (reason == 1 || reason == 255)
}

// Uint returns a field of a packet's metadata; false if there is no field with this name.
func (t *Tap) Uint(p *p4v1.PacketIn, name string) (uint64, bool) {
	i := t.cat.PacketIn.ByName(name)
	if i < 0 {
		return 0, false
	}
	for _, f := range p.GetMetadata() {
		if f.GetMetadataId() == t.cat.PacketIn.Fields[i].ID {
			v, err := p4values.Uint64(f.GetValue())
			return v, err == nil
		}
	}
	return 0, false
}

// Field is one field of a packet-out's metadata, a big-endian number of any length.
type Field struct {
	Name  string
	Value []byte
}

// PacketOut sends a packet with the program's packet_out metadata: each field once, in any order.
func (t *Tap) PacketOut(payload []byte, fields ...Field) error {
	p := &p4v1.PacketOut{Payload: payload}
	h := t.cat.PacketOut
	if h == nil || len(fields) != len(h.Fields) {
		return fmt.Errorf("p4tap: %d fields of metadata do not fit the program's packet_out header", len(fields))
	}
	for _, f := range fields {
		i := h.ByName(f.Name)
		if i < 0 {
			return fmt.Errorf("p4tap: the packet_out header has no field %q", f.Name)
		}
		v, err := p4values.Encode(f.Value, h.Fields[i].Width)
		if err != nil {
			return fmt.Errorf("p4tap: metadata %q: %w", f.Name, err)
		}
		p.Metadata = append(p.Metadata, &p4v1.PacketMetadata{MetadataId: h.Fields[i].ID, Value: v})
	}
	return t.send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Packet{Packet: p}})
}

// Ack acknowledges a list of digests.
func (t *Tap) Ack(l *p4v1.DigestList) error {
	return t.send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_DigestAck{
		DigestAck: &p4v1.DigestListAck{DigestId: l.GetDigestId(), ListId: l.GetListId()},
	}})
}

func (t *Tap) send(m *p4v1.StreamMessageRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stream == nil {
		return errNoStream
	}
	return t.stream.SendMsg(m)
}

// Write sends one request of updates of one type, as the primary with election id 1.
func (t *Tap) Write(ctx context.Context, kind p4v1.Update_Type, entities ...*p4v1.Entity) error {
	rpc, err := t.rpc()
	if err != nil || len(entities) == 0 {
		return err
	}
	r := &p4v1.WriteRequest{DeviceId: t.deviceID, ElectionId: &p4v1.Uint128{Low: 1}}
	for _, e := range entities {
		r.Updates = append(r.Updates, &p4v1.Update{Type: kind, Entity: e})
	}
	_, err = rpc.Write(ctx, r)
	return err
}

// Read returns the entities that match a query.
func (t *Tap) Read(ctx context.Context, query *p4v1.Entity) (out []*p4v1.Entity, err error) {
	rpc, err := t.rpc()
	if err != nil {
		return nil, err
	}
	stream, err := rpc.Read(ctx, &p4v1.ReadRequest{DeviceId: t.deviceID, Entities: []*p4v1.Entity{query}})
	if err != nil {
		return nil, err
	}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, answer.GetEntities()...)
	}
}

func (t *Tap) rpc() (p4v1.P4RuntimeClient, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return nil, errNoStream
	}
	return p4v1.NewP4RuntimeClient(t.conn), nil
}
