// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// MetadataValue is one field of a packet-out's controller header, by name.
type MetadataValue struct {
	Name  string
	Value []byte // big-endian, any length
}

// PacketOut sends a packet with the program's packet_out metadata: each field exactly once, in any order.
func (c *Client) PacketOut(ctx context.Context, payload []byte, metadata ...MetadataValue) error {
	s, err := c.use(Ready)
	if err != nil {
		return err
	}
	m, err := packetOut(s.program().catalog.PacketOut, payload, metadata)
	if err != nil {
		return fmt.Errorf("p4rt %s: packet-out: %w", c.cfg.Target, err)
	}
	c.stats.packetOuts.Add(1)
	if err := s.send(ctx, m); err != nil {
		return fmt.Errorf("p4rt %s: packet-out: %w", c.cfg.Target, err)
	}
	return nil
}

// packetOut makes the message, with exactly the metadata of the header.
func packetOut(h *p4values.Header, payload []byte, metadata []MetadataValue) (*p4v1.StreamMessageRequest, error) {
	if h == nil {
		if len(metadata) > 0 {
			return nil, fmt.Errorf("%w: the program has no packet_out header, yet metadata %q is given", ErrUnsupported, metadata[0].Name)
		}
		return packetOutMessage(payload, nil), nil
	}
	fields := make([]*p4v1.PacketMetadata, len(h.Fields))
	for _, m := range metadata {
		i := h.ByName(m.Name)
		if i < 0 {
			return nil, fmt.Errorf("the packet_out header has no metadata %q", m.Name)
		}
		if fields[i] != nil {
			return nil, fmt.Errorf("metadata %q is given twice", m.Name)
		}
		v, err := encode(m.Value, h.Fields[i].Width, h.Fields[i].String)
		if err != nil {
			return nil, fmt.Errorf("metadata %q: %w", m.Name, err)
		}
		fields[i] = &p4v1.PacketMetadata{MetadataId: h.Fields[i].ID, Value: v}
	}
	for i, f := range fields {
		if f == nil {
			return nil, fmt.Errorf("metadata %q is missing", h.Fields[i].Name)
		}
	}
	return packetOutMessage(payload, fields), nil
}

func packetOutMessage(payload []byte, fields []*p4v1.PacketMetadata) *p4v1.StreamMessageRequest {
	return &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Packet{Packet: &p4v1.PacketOut{Payload: payload, Metadata: fields}}}
}

// encode brings a value in the form it travels in.
func encode(v []byte, width int, str bool) ([]byte, error) {
	if str {
		return v, nil
	}
	return p4values.Encode(v, width)
}

// PacketIn is a packet a switch sent to its controller.
type PacketIn struct {
	Payload []byte
	fields  []*p4v1.PacketMetadata
	header  *p4values.Header
}

// Value returns a field of the packet's metadata in canonical form; false where there is none of that name.
func (p *PacketIn) Value(name string) ([]byte, bool) {
	if p.header == nil {
		return nil, false
	}
	i := p.header.ByName(name)
	if i < 0 {
		return nil, false
	}
	for _, f := range p.fields {
		if f.GetMetadataId() == p.header.Fields[i].ID {
			return p4values.Canonical(f.GetValue()), true
		}
	}
	return nil, false
}

// Uint is Value as a number; false also where it does not fit.
func (p *PacketIn) Uint(name string) (uint64, bool) {
	v, ok := p.Value(name)
	if !ok {
		return 0, false
	}
	n, err := p4values.Uint64(v)
	return n, err == nil
}

// Queue is a bounded queue of what a switch sends. What finds it full is dropped and counted.
type Queue[T any] struct {
	C       <-chan T // closed when the context it was made with ends, or the client is closed
	c       chan T
	dropped atomic.Uint64
	accept  func(T) bool
}

// Dropped returns how many the queue had no room for.
func (q *Queue[T]) Dropped() uint64 { return q.dropped.Load() }

// PacketIns returns a queue of the packets that accept says yes to (nil: all), read-out replies not among them. accept runs in the
// goroutine that receives and must not wait. The queue outlives sessions.
func (c *Client) PacketIns(ctx context.Context, depth int, accept func(*PacketIn) bool) *Queue[*PacketIn] {
	return subscribe(ctx, &c.subs.packets, depth, accept)
}

// IdleTimeout is a switch's notice that entries were not used for as long as they said.
type IdleTimeout struct {
	Entries []*p4v1.TableEntry
	At      time.Time // on the switch's clock
}

// IdleTimeouts returns a queue of idle timeout notices. It outlives sessions.
func (c *Client) IdleTimeouts(ctx context.Context, depth int) *Queue[*IdleTimeout] {
	return subscribe(ctx, &c.subs.idle, depth, nil)
}

// subscriptions are the queues of a client.
type subscriptions struct {
	packets topic[*PacketIn]
	idle    topic[*IdleTimeout]
	digests topic[*DigestList]
}

func (s *subscriptions) closeAll() {
	s.packets.close()
	s.idle.close()
	s.digests.close()
}

// topic is the queues for one kind of message.
type topic[T any] struct {
	mu     sync.Mutex
	queues map[*Queue[T]]func() bool // each with what stops its context from closing it
	closed bool
}

func subscribe[T any](ctx context.Context, t *topic[T], depth int, accept func(T) bool) *Queue[T] {
	ch := make(chan T, max(depth, 1))
	q := &Queue[T]{C: ch, c: ch, accept: accept}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		close(ch)
		return q
	}
	if t.queues == nil {
		t.queues = map[*Queue[T]]func() bool{}
	}
	t.queues[q] = context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if _, there := t.queues[q]; there {
			delete(t.queues, q)
			close(ch)
		}
	})
	return q
}

// publish offers v to all queues: how many took it, and how many had no room.
func (t *topic[T]) publish(v T) (taken, dropped uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for q := range t.queues {
		if q.accept != nil && !q.accept(v) {
			continue
		}
		select {
		case q.c <- v:
			taken++
		default:
			q.dropped.Add(1)
			dropped++
		}
	}
	return taken, dropped
}

func (t *topic[T]) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for q, stop := range t.queues {
		stop()
		close(q.c)
	}
	t.queues, t.closed = nil, true
}

// packetIn takes a packet from the receiver: a read-out's reply to who waits for it, anything else to the queues. It
// tells whether the receiver may use the packet again.
func (s *session) packetIn(m *p4v1.PacketIn) (done bool) {
	s.c.stats.packetIns.Add(1)
	p := s.program()
	if p == nil {
		s.c.stats.packetsIgnored.Add(1)
		return true
	}
	if p.readout != nil {
		if r, ok := p.readout.parse(m); ok {
			if !s.readouts.reply(r) {
				s.c.stats.lateReplies.Add(1)
			}
			return true
		}
	}
	taken, dropped := s.c.subs.packets.publish(&PacketIn{Payload: m.GetPayload(), fields: m.GetMetadata(), header: p.catalog.PacketIn})
	s.c.stats.packetsDropped.Add(dropped)
	if taken+dropped == 0 {
		s.c.stats.packetsIgnored.Add(1)
	}
	return false
}

func (s *session) idleTimeout(m *p4v1.IdleTimeoutNotification) {
	s.c.stats.idleTimeouts.Add(1)
	_, dropped := s.c.subs.idle.publish(&IdleTimeout{Entries: m.GetTableEntry(), At: time.Unix(0, m.GetTimestamp())})
	s.c.stats.idleDropped.Add(dropped)
}
