// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// compiled is the configuration of one of the project's programs.
func (r *rig) compiled(name string) *p4v1.ForwardingPipelineConfig {
	r.t.Helper()
	p, err := compiled.Load(name)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.cat, err = p4values.NewCatalog(p.P4Info); err != nil {
		r.t.Fatal(err)
	}
	return &p4v1.ForwardingPipelineConfig{P4Info: p.P4Info, P4DeviceConfig: p.JSON}
}

func packetOut(payload []byte, port, padding []byte) *p4v1.StreamMessageRequest {
	return &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Packet{Packet: &p4v1.PacketOut{
		Payload: payload, Metadata: []*p4v1.PacketMetadata{{MetadataId: 2, Value: padding},
			{MetadataId: 1, Value: port}},
	}}}
}

func TestPacketIO(t *testing.T) {
	r, c := pipelined(t)
	backup := r.join("")
	backup.advised(codes.AlreadyExists, 1)
	other := r.join("telemetry", 1) // the primary of another role gets packets too: no role is configured to go without
	other.advised(codes.OK, 1)

	c.send(packetOut(frame(1, 2, 3), []byte{255}, []byte{0}))
	for _, p := range []*controller{c, other} {
		m := p.next().GetPacket()
		if m == nil || string(m.GetPayload()) != string(frame(1, 2, 3)) || len(m.GetMetadata()) != 2 {
			t.Fatalf("got %v", m)
		}
		for _, f := range m.GetMetadata() {
			if want := map[uint32]string{1: "\xff", 2: "\x00"}[f.GetMetadataId()]; string(f.GetValue()) != want {
				t.Errorf("metadata %v", f)
			}
		}
	}
	if len(backup.in) != 0 {
		t.Error("a backup got a packet")
	}
}

func TestStreamErrors(t *testing.T) {
	r := newRig(t, p4rtserver.Options{})
	c := r.primary(1)
	bad := func(c *controller, m *p4v1.StreamMessageRequest, code codes.Code, says string) {
		t.Helper()
		c.send(m)
		e := c.next().GetError()
		if codes.Code(e.GetCanonicalCode()) != code || e.GetSpace() == "" || !strings.Contains(e.GetMessage(), says) {
			t.Errorf("got %v, want %v saying %q", e, code, says)
		}
		switch u := m.GetUpdate().(type) {
		case *p4v1.StreamMessageRequest_Packet:
			if string(e.GetPacketOut().GetPacketOut().GetPayload()) != string(u.Packet.GetPayload()) {
				t.Errorf("the error does not carry the packet: %v", e)
			}
		case *p4v1.StreamMessageRequest_DigestAck:
			if e.GetDigestListAck() == nil {
				t.Errorf("the error does not carry the acknowledgement: %v", e)
			}
		case *p4v1.StreamMessageRequest_Other:
			if e.GetOther() == nil {
				t.Errorf("the error does not carry the message: %v", e)
			}
		}
	}
	ack := func(id uint32) *p4v1.StreamMessageRequest {
		return &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_DigestAck{
			DigestAck: &p4v1.DigestListAck{DigestId: id}}}
	}
	bad(c, packetOut(frame(1, 2, 3), []byte{1}, []byte{0}), codes.FailedPrecondition, "no pipeline")
	bad(c, ack(1), codes.FailedPrecondition, "no pipeline")
	r.ok(r.set(push, c.id, r.entities(1)))
	stranger := r.open()
	bad(stranger, packetOut(frame(1, 2, 3), []byte{1}, []byte{0}), codes.PermissionDenied, "only the primary")
	bad(stranger, ack(1), codes.PermissionDenied, "only the primary")
	backup := r.join("")
	backup.advised(codes.AlreadyExists, 1)
	bad(backup, packetOut(frame(1, 2, 3), []byte{1}, []byte{0}), codes.PermissionDenied, "only the primary")

	bad(c, packetOut(frame(1, 2, 3), []byte{2, 0}, []byte{0}), codes.InvalidArgument, "out of range")
	bad(c, packetOut(frame(1, 2, 3), nil, []byte{0}), codes.InvalidArgument, "empty")
	missing := packetOut(frame(1, 2, 3), []byte{1}, []byte{0})
	missing.GetPacket().Metadata = missing.GetPacket().Metadata[:1]
	bad(c, missing, codes.InvalidArgument, `"egress_port" is missing`)
	twice := packetOut(frame(1, 2, 3), []byte{1}, []byte{0})
	twice.GetPacket().Metadata[1].MetadataId = 2
	bad(c, twice, codes.InvalidArgument, "twice")
	unknown := packetOut(frame(1, 2, 3), []byte{1}, []byte{0})
	unknown.GetPacket().Metadata[1].MetadataId = 9
	bad(c, unknown, codes.InvalidArgument, "id 9")
	bad(c, ack(5), codes.InvalidArgument, "no digest with id 0x5")
	bad(c, &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Other{Other: &anypb.Any{}}},
		codes.Unimplemented, "architecture-specific")
	if st := r.srv.Stats(); st.PacketOuts != 0 || st.PacketsRefused != 8 {
		t.Errorf("%+v", st)
	}
}

// A client that never reads costs the queue and gRPC's buffers, and no more: packets for it are
// dropped and counted, and others get theirs.
func TestClientThatNeverReads(t *testing.T) {
	r := newRig(t, p4rtserver.Options{StreamQueue: 8})
	c := r.primary(1)
	r.ok(r.set(push, c.id, r.entities(1)))
	s, err := r.rpc.StreamChannel(t.Context())
	r.ok(err)
	r.ok(s.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{
			DeviceId: 1, Role: &p4v1.Role{Name: "deaf"}, ElectionId: id128(1),
		}}}))
	m, err := s.Recv() // the last it reads
	if err != nil || m.GetArbitration().GetStatus().GetCode() != 0 {
		t.Fatal(m, err)
	}
	flood := make([]byte, 60000)
	copy(flood, frame(1, 2, 3))
	sent := 0
	for deadline := time.Now().Add(patience); r.srv.Stats().PacketIns < 400; sent++ {
		c.send(packetOut(flood, []byte{255}, []byte{0}))
		for r.srv.Stats().PacketIns <= uint64(sent) && time.Now().Before(deadline) {
			runtime.Gosched()
		}
		c.next() // the healthy client keeps up
	}
	r.sw.Inject(1, frame(1, 2, 3), 0) // the data plane does not wait for the client
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 400 {
		c.send(packetOut(flood, []byte{255}, []byte{0}))
		c.next()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+(10<<20) {
		t.Errorf("the heap grew from %d to %d", before.HeapAlloc, after.HeapAlloc)
	}
	if r.srv.Stats().PacketsMissed == 0 {
		t.Error("no packet was missed by the client that does not read")
	}
}

func (r *rig) digestEntry(cfg string) *p4v1.Entity {
	return r.entity(`digest_entry { digest_id: $learned_t config { ` + cfg + ` } }`)
}

func TestDigests(t *testing.T) {
	r, c := pipelined(t)
	learn := r.entity(`table_entry { table_id: $ternary_t priority: 1 action { action { action_id: $learn } } }`)
	r.must(c, insert(learn))
	r.sw.Inject(1, frame(1, 1, 3), 0) // no request yet
	r.must(c, insert(r.digestEntry(`max_list_size: 2 max_timeout_ns: 3600000000000 ack_timeout_ns: 3600000000000`)))

	next := func() *p4v1.DigestList {
		t.Helper()
		d := c.next().GetDigest()
		if d == nil || d.GetTimestamp() == 0 || d.GetListId() == 0 {
			t.Fatalf("got %v", d)
		}
		return d
	}
	sources := func(d *p4v1.DigestList) []byte {
		var out []byte
		for _, m := range d.GetData() {
			v := m.GetStruct().GetMembers()[0].GetBitstring()
			out = append(out, v[len(v)-1])
		}
		slices.Sort(out)
		return out
	}
	// A list is sent when it has two distinct messages.
	for _, src := range []byte{2, 2, 2, 3} {
		r.sw.Inject(1, frame(1, src, 3), 0)
	}
	first := next()
	if got := sources(first); !slices.Equal(got, []byte{2, 3}) {
		t.Errorf("the first list is of %v", got)
	}
	// A digest that is not acknowledged is not sent again.
	for _, src := range []byte{2, 3, 4, 2, 5} {
		r.sw.Inject(1, frame(1, src, 3), 0)
	}
	if got := sources(next()); !slices.Equal(got, []byte{4, 5}) {
		t.Errorf("the second list is of %v", got)
	}
	c.send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_DigestAck{
		DigestAck: &p4v1.DigestListAck{DigestId: first.GetDigestId(), ListId: first.GetListId()}}})
	c.send(packetOut(frame(1, 9, 3), []byte{255}, []byte{0})) // the packet comes back after the acknowledgement was taken
	if c.next().GetPacket() == nil {
		t.Error("no packet came back")
	}
	for _, src := range []byte{2, 4, 3} {
		r.sw.Inject(1, frame(1, src, 3), 0)
	}
	if got := sources(next()); !slices.Equal(got, []byte{2, 3}) {
		t.Errorf("after the acknowledgement the list is of %v", got)
	}
	// A short timeout sends a list before it is full; ack_timeout 0 keeps no record of sent messages.
	r.must(c, modify(r.digestEntry(`max_list_size: 100 max_timeout_ns: 1000000`)))
	r.sw.Inject(1, frame(1, 6, 3), 0)
	if got := sources(next()); !slices.Equal(got, []byte{6}) {
		t.Errorf("after the time-out the list is of %v", got)
	}
	r.sw.Inject(1, frame(1, 6, 3), 0)
	if got := sources(next()); !slices.Equal(got, []byte{6}) {
		t.Errorf("without ack time-out the list is of %v", got)
	}
	// The ack timeout drops the list.
	r.must(c, modify(r.digestEntry(`max_list_size: 1 ack_timeout_ns: 1000000`)))
	for range 2 {
		r.sw.Inject(1, frame(1, 7, 3), 0)
		if got := sources(next()); !slices.Equal(got, []byte{7}) {
			t.Errorf("the list is of %v", got)
		}
		time.Sleep(5 * time.Millisecond) // longer than the ack time-out, on the server's clock
	}
	r.must(c, remove(r.digestEntry(``)))
	r.sw.Inject(1, frame(1, 8, 3), 0)
	c.send(packetOut(frame(1, 9, 3), []byte{255}, []byte{0}))
	if m := c.next(); m.GetPacket() == nil {
		t.Errorf("after DELETE came %v", m)
	}
}

func TestIdleTimeoutNotification(t *testing.T) {
	r, c := pipelined(t)
	r.must(c, insert(r.entity(`table_entry { table_id: $idle_t match { field_id: 1 exact { value: "\x01" } } action {
		action { action_id: $NoAction } } idle_timeout_ns: 1000000 metadata: "m" controller_metadata: 5 }`)))
	r.must(c, insert(r.entity(`table_entry { table_id: $idle_t match { field_id: 1 exact { value: "\x02" } } action {
		action { action_id: $NoAction } } }`)))
	for range 2 { // the notification comes again after each further time-out
		n := c.next().GetIdleTimeoutNotification()
		if len(n.GetTableEntry()) != 1 || n.GetTimestamp() == 0 {
			t.Fatalf("got %v", n)
		}
		e := n.GetTableEntry()[0]
		if e.GetTableId() == 0 || len(e.GetMatch()) != 1 || string(e.GetMatch()[0].GetExact().GetValue()) != "\x01" ||
			string(e.GetMetadata()) != "m" ||
			!strings.Contains(e.String(), "controller_metadata:5") || e.GetIdleTimeoutNs() != 1000000 {
			t.Errorf("entry %v", e)
		}
	}
	got := r.read(r.entity(`table_entry { table_id: $idle_t time_since_last_hit { } }`))
	for _, e := range got {
		if e.GetTableEntry().GetTimeSinceLastHit() == nil {
			t.Errorf("no time since the last hit: %v", e)
		}
	}
	if len(got) != 2 {
		t.Errorf("%d entries", len(got))
	}
	_, err := r.tryRead(&p4v1.ReadRequest{DeviceId: 1,
		Entities: []*p4v1.Entity{r.entity(`table_entry { table_id: $exact_t time_since_last_hit { } }`)}})
	r.refused(err, codes.Unknown, "1 of 1")
}
