// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"context"
	"io"
	"testing"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// FuzzRequests gives the server requests made of any bytes. It must answer each, with a status that
// is no INTERNAL, and stay usable.
func FuzzRequests(f *testing.F) {
	r := newRig(f, p4rtserver.Options{})
	c := r.primary(1)
	r.ok(r.set(push, c.id, r.entities(1)))
	seeds := []proto.Message{
		insert(r.entity(`table_entry { table_id: $exact_t match { field_id: 1 exact { value: "\x01" } } action {
			action { action_id: $forward params { param_id: 1 value: "\x01" } } } metadata: "m" }`)),
		insert(r.entity(`table_entry { table_id: $ternary_t priority: 7 match { field_id: 1 ternary { value: "\x08\x00"
			mask: "\xff\x00" } } match { field_id: 2 range { low: "\x01" high: "\x01\x00" } } match { field_id: 3
			optional { value: "\x01" } } action { action { action_id: $learn } } }`)),
		insert(r.entity(`table_entry { table_id: $selected_t match { field_id: 1 exact { value: "\x08" } } action {
			action_profile_action_set { action_profile_actions { action { action_id: $drop } weight: 2
			watch_port: "\x01" } } } }`)),
		insert(r.entity(`table_entry { table_id: $lpm_t match { field_id: 1 lpm { value: "\x02\x00\x00\x00\x00\x00"
			prefix_len: 8 } } action { action { action_id: $drop } } meter_config { cir: 1 } }`)),
		modify(r.entity(`table_entry { table_id: $exact_t is_default_action: true action { action {
			action_id: $drop } } }`)),
		insert(r.entity(`action_profile_member { action_profile_id: $profile member_id: 5 action {
			action_id: $NoAction } }`)),
		insert(r.entity(`action_profile_group { action_profile_id: $spread group_id: 1 max_size: 4 members {
			member_id: 1 weight: 2 } }`)),
		insert(r.entity(`packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 9 replicas {
			port: "\x01" instance: 1 } } }`)),
		insert(r.entity(`packet_replication_engine_entry { clone_session_entry { session_id: 9 replicas {
			port: "\x01" } } }`)),
		modify(r.entity(`register_entry { register_id: $signed_words index { index: 1 } data { bitstring: "\xff" } }`)),
		modify(r.entity(`counter_entry { counter_id: $packets_in index { index: 1 } data { packet_count: 1 } }`)),
		modify(r.entity(`meter_entry { meter_id: $rates index { index: 1 } config { cir: 1 } }`)),
		modify(r.entity(`value_set_entry { value_set_id: $control_types members { match { field_id: 1 exact {
			value: "\x08" } } } }`)),
		insert(r.entity(`digest_entry { digest_id: $learned_t config { max_list_size: 1 } }`)),
		modify(r.entity(`direct_counter_entry { table_entry { table_id: $exact_t match { field_id: 1 exact {
			value: "\x01" } } } data { packet_count: 1 } }`)),
		packetOut(frame(1, 2, 3), []byte{1}, []byte{0}),
		&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
			Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: id128(7)}}},
	}
	for i, m := range seeds {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		for kind := range byte(3) {
			if i < len(seeds)-2 || kind == 2 {
				f.Add(kind, b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		var err error
		switch kind % 3 {
		case 0:
			u := &p4v1.Update{}
			if proto.Unmarshal(b, u) != nil {
				return
			}
			_, err = r.srv.Write(context.Background(),
				&p4v1.WriteRequest{DeviceId: 1, ElectionId: c.id, Updates: []*p4v1.Update{u}})
		case 1:
			u := &p4v1.Update{}
			if proto.Unmarshal(b, u) != nil {
				return
			}
			err = r.srv.Read(&p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{u.GetEntity()}},
				&sink[p4v1.ReadResponse]{ctx: context.Background()})
		case 2:
			m := &p4v1.StreamMessageRequest{}
			if proto.Unmarshal(b, m) != nil {
				return
			}
			if a := m.GetArbitration(); a != nil {
				a.Role = &p4v1.Role{Name: "fuzz"} // the default role's primary is needed for writing
			}
			err = r.srv.StreamChannel(&script{ctx: context.Background(), in: []*p4v1.StreamMessageRequest{m}})
		}
		for _, d := range status.Convert(err).Details() {
			if e, ok := d.(*p4v1.Error); ok && codes.Code(e.GetCanonicalCode()) == codes.Internal {
				t.Fatalf("INTERNAL: %v", e)
			}
		}
		if status.Code(err) == codes.Internal {
			t.Fatalf("%v", err)
		}
	})
}

// sink takes what a stream sends.
type sink[T any] struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *sink[T]) Send(*T) error               { return nil }
func (s *sink[T]) Context() context.Context    { return s.ctx }
func (s *sink[T]) SetHeader(metadata.MD) error { return nil }

// script is a stream that brings some messages and ends.
type script struct {
	grpc.ServerStream
	ctx context.Context
	in  []*p4v1.StreamMessageRequest
}

func (s *script) Send(*p4v1.StreamMessageResponse) error { return nil }
func (s *script) Context() context.Context               { return s.ctx }

func (s *script) RecvMsg(m any) error {
	if len(s.in) == 0 {
		return io.EOF
	}
	proto.Reset(m.(*p4v1.StreamMessageRequest))
	proto.Merge(m.(*p4v1.StreamMessageRequest), s.in[0])
	s.in = s.in[1:]
	return nil
}

// Recv is there for the interface: who serves the stream receives with RecvMsg.
func (s *script) Recv() (*p4v1.StreamMessageRequest, error) {
	m := &p4v1.StreamMessageRequest{}
	return m, s.RecvMsg(m)
}
