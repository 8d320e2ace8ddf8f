// SPDX-License-Identifier: Apache-2.0

// Package fakeswitch is a minimal P4Runtime server with faults on request: it refuses pipelines,
// loses mastership, drops the stream during a read-out, sends malformed replies, or hangs. Only
// tests use it; p4/softswitch is the real switch.
//
// Methods may be called from any goroutine.
package fakeswitch

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Faults are faults that the switch simulates. The zero value simulates none.
type Faults struct {
	// RefusePipeline is the error of every SetForwardingPipelineConfig; nil accepts pipelines.
	RefusePipeline error
	// RefuseWrite is the error of every Write; nil accepts writes.
	RefuseWrite error
	// HangWrite makes every Write block until its context ends.
	HangWrite bool
	// OnHang, if set, is called when a Write begins to hang.
	OnHang func()
	// RefuseTable is the alias of a table that is full.
	RefuseTable string
	// DropAfter ends the stream after this number of read-out requests; 0 never ends it.
	DropAfter int
	// LoseReplies drops the reply to every n-th read-out request; 0 drops none.
	LoseReplies int
	// Garbage truncates the payload of read-out replies.
	Garbage bool
}

// Switch is the server. Start returns one.
type Switch struct {
	p4v1.UnimplementedP4RuntimeServer
	// Address is the listen address, HOST:PORT.
	Address string

	catalog *p4values.Catalog

	mu       sync.Mutex
	faults   Faults
	config   *p4v1.ForwardingPipelineConfig
	bank     uint64
	cells    map[string][][]uint32 // cells by register and bank
	counts   map[uint32][]int64    // packets, by counter of the read-out annotation and bank
	entries  map[string]*p4v1.TableEntry
	requests int
	refusals int
	pushes   int
	streams  map[p4v1.P4Runtime_StreamChannelServer]chan error
	sending  sync.Mutex
	server   *grpc.Server
}

// Start serves a switch on a free port of the loopback until the test ends.
func Start(tb testing.TB, info *p4configv1.P4Info) *Switch {
	tb.Helper()
	cat, err := p4values.NewCatalog(info)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Switch{catalog: cat, streams: map[p4v1.P4Runtime_StreamChannelServer]chan error{}}
	s.clear()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s.Address = lis.Addr().String()
	s.serve(tb, lis)
	return s
}

func (s *Switch) serve(tb testing.TB, lis net.Listener) {
	server := grpc.NewServer()
	p4v1.RegisterP4RuntimeServer(server, s)
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(lis); err != nil {
			tb.Errorf("fake switch: %v", err)
		}
	}()
	tb.Cleanup(func() { server.Stop(); <-done })
}

// clear deletes all state. The caller holds s.mu, or is the only user of s.
func (s *Switch) clear() {
	s.bank, s.cells, s.entries, s.counts = 0, map[string][][]uint32{}, map[string]*p4v1.TableEntry{},
		map[uint32][]int64{}
	for _, r := range s.catalog.Readouts() {
		banks := make([][]uint32, r.Readout.Banks)
		for b := range banks {
			banks[b] = make([]uint32, r.Readout.Cells)
		}
		s.cells[r.Name] = banks
		if c := r.Readout.Counter; c != nil {
			s.counts[c.ID] = make([]int64, len(banks))
		}
	}
}

// SetFaults replaces the faults and restarts the count of read-out requests.
func (s *Switch) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.requests = f, 0
}

// Count adds to a cell of the current bank, as a packet does.
func (s *Switch) Count(register string, cell int, n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells[register][s.bank][cell] += n
	if r, err := s.catalog.Registers.Name(register); err == nil && r.Readout.Counter != nil {
		s.counts[r.Readout.Counter.ID][s.bank]++
	}
}

// Bank returns the bank that packets write.
func (s *Switch) Bank() uint64 { s.mu.Lock(); defer s.mu.Unlock(); return s.bank }

// Pushes returns the number of pipelines pushed.
func (s *Switch) Pushes() int { s.mu.Lock(); defer s.mu.Unlock(); return s.pushes }

// Entries returns the number of table entries.
func (s *Switch) Entries() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.entries) }

// Refusals returns the number of pipelines refused.
func (s *Switch) Refusals() int { s.mu.Lock(); defer s.mu.Unlock(); return s.refusals }

// Reboot ends all streams and deletes pipeline and state.
func (s *Switch) Reboot() {
	s.mu.Lock()
	s.config = nil
	s.clear()
	s.mu.Unlock()
	s.Drop(status.Error(codes.Unavailable, "rebooting"))
}

// Drop ends all streams with an error.
func (s *Switch) Drop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.streams {
		select {
		case end <- err:
		default:
		}
	}
}

// Demote notifies the controller that a controller with a higher election ID is primary.
func (s *Switch) Demote() error { return s.arbitrate(codes.AlreadyExists, 1<<40) }

// Promote notifies the controller that it is primary again.
func (s *Switch) Promote() error { return s.arbitrate(codes.OK, 0) }

func (s *Switch) arbitrate(code codes.Code, low uint64) error {
	s.mu.Lock()
	streams := make([]p4v1.P4Runtime_StreamChannelServer, 0, len(s.streams))
	for st := range s.streams {
		streams = append(streams, st)
	}
	s.mu.Unlock()
	for _, st := range streams {
		if err := s.send(st, arbitration(1, code, &p4v1.Uint128{Low: max(low, 1)})); err != nil {
			return err
		}
	}
	return nil
}

func arbitration(device uint64, code codes.Code, id *p4v1.Uint128) *p4v1.StreamMessageResponse {
	m := &p4v1.MasterArbitrationUpdate{DeviceId: device, ElectionId: id, Status: &rpcstatus.Status{Code: int32(code)}}
	return &p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Arbitration{Arbitration: m}}
}

func (s *Switch) send(st p4v1.P4Runtime_StreamChannelServer, m *p4v1.StreamMessageResponse) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return st.Send(m)
}

// Capabilities implements P4Runtime.
func (s *Switch) Capabilities(context.Context, *p4v1.CapabilitiesRequest) (*p4v1.CapabilitiesResponse, error) {
	return &p4v1.CapabilitiesResponse{P4RuntimeApiVersion: "1.5.0"}, nil
}

// GetForwardingPipelineConfig implements P4Runtime.
func (s *Switch) GetForwardingPipelineConfig(context.Context,
	*p4v1.GetForwardingPipelineConfigRequest,
) (*p4v1.GetForwardingPipelineConfigResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &p4v1.GetForwardingPipelineConfigResponse{Config: s.config}, nil
}

// SetForwardingPipelineConfig implements P4Runtime.
func (s *Switch) SetForwardingPipelineConfig(_ context.Context,
	r *p4v1.SetForwardingPipelineConfigRequest,
) (*p4v1.SetForwardingPipelineConfigResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.RefusePipeline != nil {
		s.refusals++
		return nil, s.faults.RefusePipeline
	}
	s.config = r.GetConfig()
	s.pushes++
	s.clear()
	return &p4v1.SetForwardingPipelineConfigResponse{}, nil
}

// Write implements P4Runtime.
func (s *Switch) Write(ctx context.Context, r *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	s.mu.Lock()
	if s.faults.HangWrite {
		begun := s.faults.OnHang
		s.mu.Unlock()
		if begun != nil {
			begun()
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	defer s.mu.Unlock()
	if s.faults.RefuseWrite != nil {
		return nil, s.faults.RefuseWrite
	}
	details := make([]*p4v1.Error, len(r.GetUpdates()))
	refused := false
	for i, u := range r.GetUpdates() {
		e := u.GetEntity().GetTableEntry()
		key := fmt.Sprint(e.GetTableId(), e.GetMatch(), e.GetIsDefaultAction())
		t, ok := s.catalog.Tables.ID(e.GetTableId())
		code := codes.OK
		if _, there := s.entries[key]; !e.GetIsDefaultAction() {
			switch {
			case u.GetType() == p4v1.Update_INSERT && there:
				code = codes.AlreadyExists
			case u.GetType() == p4v1.Update_INSERT && s.faults.RefuseTable != "" && s.faults.RefuseTable == t.Alias:
				code = codes.ResourceExhausted
			case u.GetType() != p4v1.Update_INSERT && !there:
				code = codes.NotFound
			}
		}
		details[i] = &p4v1.Error{CanonicalCode: int32(code), Message: "fake"}
		refused = refused || code != codes.OK
		switch {
		case code != codes.OK:
		case !ok:
			return nil, status.Error(codes.NotFound, "no such table")
		case t.Name == s.catalog.Annotated(p4values.AnnotationBank)[0].Name:
			s.bank, _ = p4values.Uint64(e.GetAction().GetAction().GetParams()[0].GetValue())
		case u.GetType() == p4v1.Update_DELETE:
			delete(s.entries, key)
		case !e.GetIsDefaultAction():
			s.entries[key] = e
		}
	}
	if refused {
		st := status.New(codes.Unknown, "some updates were refused")
		for _, d := range details {
			st, _ = st.WithDetails(d)
		}
		return nil, st.Err()
	}
	return &p4v1.WriteResponse{}, nil
}

// Read implements P4Runtime for table entries and the counters of read-outs; registers are
// unimplemented.
func (s *Switch) Read(r *p4v1.ReadRequest, st p4v1.P4Runtime_ReadServer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &p4v1.ReadResponse{}
	for _, q := range r.GetEntities() {
		if q.GetRegisterEntry() != nil {
			return status.Error(codes.Unimplemented, "no registers here")
		}
		if c := q.GetCounterEntry(); c != nil {
			answer := &p4v1.CounterEntry{
				CounterId: c.GetCounterId(), Index: c.GetIndex(),
				Data: &p4v1.CounterData{PacketCount: s.counts[c.GetCounterId()][c.GetIndex().GetIndex()]},
			}
			out.Entities = append(out.Entities, &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: answer}})
			continue
		}
		for _, e := range s.entries {
			if id := q.GetTableEntry().GetTableId(); !q.GetTableEntry().GetIsDefaultAction() &&
				(id == 0 || id == e.GetTableId()) {
				out.Entities = append(out.Entities, &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: e}})
			}
		}
	}
	return st.Send(out)
}

// StreamChannel implements P4Runtime.
func (s *Switch) StreamChannel(st p4v1.P4Runtime_StreamChannelServer) error {
	end := make(chan error, 1)
	s.mu.Lock()
	s.streams[st] = end
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, st)
		s.mu.Unlock()
	}()
	go func() {
		for {
			m, err := st.Recv()
			if err == nil {
				err = s.receive(st, m)
			}
			if err != nil {
				select {
				case end <- err:
				default:
				}
				return
			}
		}
	}()
	return <-end
}

func (s *Switch) receive(st p4v1.P4Runtime_StreamChannelServer, m *p4v1.StreamMessageRequest) error {
	if a := m.GetArbitration(); a != nil {
		return s.send(st, arbitration(a.GetDeviceId(), codes.OK, a.GetElectionId()))
	}
	p := m.GetPacket()
	if p == nil {
		return nil
	}
	answer, err := s.readOut(p)
	if err != nil || answer == nil {
		return err
	}
	return s.send(st, &p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Packet{Packet: answer}})
}

// readOut replies to a read-out request as specified in docs/p4.md.
func (s *Switch) readOut(p *p4v1.PacketOut) (*p4v1.PacketIn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value := map[string]uint64{}
	for _, f := range s.catalog.PacketOut.Fields {
		for _, m := range p.GetMetadata() {
			if m.GetMetadataId() == f.ID {
				value[f.Name], _ = p4values.Uint64(m.GetValue())
			}
		}
	}
	s.requests++
	if s.faults.DropAfter > 0 && s.requests > s.faults.DropAfter {
		return nil, status.Error(codes.Unavailable, "stream dropped")
	}
	i := slices.IndexFunc(s.catalog.Readouts(), func(r *p4values.Register) bool {
		return uint64(r.Readout.Object) == value["object"]
	})
	if i < 0 {
		return nil, status.Error(codes.InvalidArgument, "no such object")
	}
	cells := s.cells[s.catalog.Readouts()[i].Name][value["bank"]]
	payload := make([]byte, 1024)
	for c := range 256 {
		if at := int(value["index"]) + c; at < len(cells) {
			binary.BigEndian.PutUint32(payload[4*c:], cells[at])
			cells[at] = 0
		}
	}
	if s.faults.LoseReplies > 0 && s.requests%s.faults.LoseReplies == 0 {
		return nil, nil
	}
	in := &p4v1.PacketIn{Payload: payload}
	for _, f := range s.catalog.PacketIn.Fields {
		v := value[f.Name]
		if f.Name == "reason" {
			v = 1
		}
		in.Metadata = append(in.Metadata, &p4v1.PacketMetadata{MetadataId: f.ID, Value: p4values.Uint(v)})
	}
	if s.faults.Garbage {
		in.Payload = payload[:17]
	}
	return in, nil
}
