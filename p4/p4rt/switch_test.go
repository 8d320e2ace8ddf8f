// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// testSwitch is a soft switch behind a real gRPC server on loopback. Between both, a test can
// record and change messages.
type testSwitch struct {
	addr string
	sw   *softswitch.Switch
	srv  *p4rtserver.Server
	rpc  *grpc.Server
	opts []grpc.ServerOption
	*meddler
}

// compiler compiles each program once for all switches of the tests.
var compiler softswitch.Compiler

// startSwitch starts a soft switch with ports 1 to 4 and device id 1.
func startSwitch(t testing.TB, opts ...grpc.ServerOption) *testSwitch {
	t.Helper()
	s := &testSwitch{addr: "127.0.0.1:0", sw: softswitch.New(softswitch.Config{Name: t.Name()}), opts: opts}
	for id := uint32(1); id <= 4; id++ {
		if err := s.sw.AddPort(id, softswitch.Port{}); err != nil {
			t.Fatal(err)
		}
	}
	s.srv = p4rtserver.New(s.sw, p4rtserver.Options{DeviceID: 1, Compile: compiler.Compile})
	s.meddler = &meddler{P4RuntimeServer: s.srv}
	s.listen(t)
	t.Cleanup(func() {
		s.rpc.Stop()
		s.srv.Close()
		s.sw.Close()
	})
	return s
}

// listen starts the gRPC server, after a restart at the same address.
func (s *testSwitch) listen(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	s.rpc = grpc.NewServer(append(p4rtserver.ServerOptions(), s.opts...)...)
	p4v1.RegisterP4RuntimeServer(s.rpc, s.meddler)
	rpc := s.rpc
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rpc.Serve(l)
	}()
	t.Cleanup(func() {
		rpc.Stop()
		<-done
	})
}

// setter handles a SetForwardingPipelineConfig.
type setter = func(context.Context, *p4v1.SetForwardingPipelineConfigRequest) (
	*p4v1.SetForwardingPipelineConfigResponse, error)

// meddler sits between client and server. It records requests, and changes messages with the
// functions that a test sets.
type meddler struct {
	p4v1.P4RuntimeServer
	mu       sync.Mutex
	requests []proto.Message
	blind    bool // keeps no requests: for benchmarks

	capabilities func(context.Context) (*p4v1.CapabilitiesResponse, error)
	write        func(context.Context, *p4v1.WriteRequest) (*p4v1.WriteResponse, error)
	read         func(*p4v1.ReadResponse) *p4v1.ReadResponse // changes replies
	set          setter
	get          func(context.Context) (*p4v1.GetForwardingPipelineConfigResponse, error)
	// A nil message is dropped; an error ends the stream.
	up   func(*p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest, error)
	down func(*p4v1.StreamMessageResponse) *p4v1.StreamMessageResponse // a nil message is dropped
}

// meddle calls f to change the meddler's behavior.
func (m *meddler) meddle(f func(*meddler)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

func (m *meddler) record(r proto.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.blind {
		m.requests = append(m.requests, proto.Clone(r))
	}
}

// seen returns the requests of one type so far, in order.
func seen[T proto.Message](m *meddler) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []T
	for _, r := range m.requests {
		if v, ok := r.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// dropRequests drops the recorded requests.
func (m *meddler) dropRequests() { m.meddle(func(m *meddler) { m.requests = nil }) }

func hook[T any](m *meddler, get func(*meddler) T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return get(m)
}

func (m *meddler) Capabilities(ctx context.Context, r *p4v1.CapabilitiesRequest) (*p4v1.CapabilitiesResponse, error) {
	m.record(r)
	if f := hook(m, func(m *meddler) func(context.Context) (*p4v1.CapabilitiesResponse,
		error) {
		return m.capabilities
	}); f != nil {
		return f(ctx)
	}
	return m.P4RuntimeServer.Capabilities(ctx, r)
}

func (m *meddler) Write(ctx context.Context, r *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	m.record(r)
	if f := hook(m, func(m *meddler) func(context.Context, *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
		return m.write
	}); f != nil {
		return f(ctx, r)
	}
	return m.P4RuntimeServer.Write(ctx, r)
}

func (m *meddler) SetForwardingPipelineConfig(ctx context.Context,
	r *p4v1.SetForwardingPipelineConfigRequest,
) (*p4v1.SetForwardingPipelineConfigResponse, error) {
	m.record(r)
	if f := hook(m, func(m *meddler) setter { return m.set }); f != nil {
		return f(ctx, r)
	}
	return m.P4RuntimeServer.SetForwardingPipelineConfig(ctx, r)
}

func (m *meddler) GetForwardingPipelineConfig(ctx context.Context,
	r *p4v1.GetForwardingPipelineConfigRequest,
) (*p4v1.GetForwardingPipelineConfigResponse, error) {
	m.record(r)
	if f := hook(m, func(m *meddler) func(context.Context) (*p4v1.GetForwardingPipelineConfigResponse, error) {
		return m.get
	}); f != nil {
		return f(ctx)
	}
	return m.P4RuntimeServer.GetForwardingPipelineConfig(ctx, r)
}

func (m *meddler) Read(r *p4v1.ReadRequest, s p4v1.P4Runtime_ReadServer) error {
	m.record(r)
	if f := hook(m, func(m *meddler) func(*p4v1.ReadResponse) *p4v1.ReadResponse { return m.read }); f != nil {
		s = &meddledRead{s, f}
	}
	return m.P4RuntimeServer.Read(r, s)
}

type meddledRead struct {
	p4v1.P4Runtime_ReadServer
	change func(*p4v1.ReadResponse) *p4v1.ReadResponse
}

func (r *meddledRead) Send(m *p4v1.ReadResponse) error {
	return r.P4Runtime_ReadServer.Send(r.change(proto.Clone(m).(*p4v1.ReadResponse)))
}

func (m *meddler) StreamChannel(s p4v1.P4Runtime_StreamChannelServer) error {
	ms := &meddledStream{P4Runtime_StreamChannelServer: s, m: m}
	err := m.P4RuntimeServer.StreamChannel(ms)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.ended != nil {
		return ms.ended
	}
	return err
}

type meddledStream struct {
	p4v1.P4Runtime_StreamChannelServer
	m     *meddler
	mu    sync.Mutex
	ended error
}

func (s *meddledStream) RecvMsg(m any) error {
	r, err := s.next()
	if err == nil {
		proto.Reset(m.(*p4v1.StreamMessageRequest))
		m.(*p4v1.StreamMessageRequest).Update = r.Update
	}
	return err
}

// next returns the next message that is not dropped.
func (s *meddledStream) next() (*p4v1.StreamMessageRequest, error) {
	for {
		r, err := s.P4Runtime_StreamChannelServer.Recv()
		if err != nil {
			return nil, err
		}
		s.m.record(r)
		f := hook(s.m, func(m *meddler) func(*p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest,
			error) {
			return m.up
		})
		if f == nil {
			return r, nil
		}
		r, err = f(r)
		if err != nil {
			s.mu.Lock()
			s.ended = err
			s.mu.Unlock()
			return nil, err
		}
		if r != nil {
			return r, nil
		}
	}
}

func (s *meddledStream) Send(r *p4v1.StreamMessageResponse) error {
	type changer = func(*p4v1.StreamMessageResponse) *p4v1.StreamMessageResponse
	if f := hook(s.m, func(m *meddler) changer { return m.down }); f != nil {
		if r = f(r); r == nil {
			return nil
		}
	}
	return s.P4Runtime_StreamChannelServer.Send(r)
}

// entities returns a program that has an object of every kind.
func entities(t testing.TB) *p4rt.Program {
	t.Helper()
	const base = "../softswitch/p4rtserver/testdata/entities"
	json, err := os.ReadFile(base + ".json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(base + ".p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	info := &p4configv1.P4Info{}
	if err := prototext.Unmarshal(text, info); err != nil {
		t.Fatal(err)
	}
	return &p4rt.Program{Name: "entities", DeviceConfig: json, P4Info: info}
}

// hang blocks a call until its client gives up.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

func unavailable() error { return status.Error(codes.Unavailable, "the switch is gone") }
