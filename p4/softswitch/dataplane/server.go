// SPDX-License-Identifier: Apache-2.0

// Package dataplane moves packets in and out of a software switch over gRPC, without network
// interfaces and privileges: service p4.bm.DataplaneInterface, which BMv2's simple_switch_grpc has
// behind --dp-grpc-server-addr. [Server] serves it for a soft switch; [Client] is a client of
// either, so one test injects packets into both.
//
// Servers and clients may be used from any goroutine.
package dataplane

//go:generate go run ../../../internal/protogen -root proto -out ../../..

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane/bmpb"
)

// Options are the options of a Server. The zero value is usable.
type Options struct {
	DeviceID uint64       // 0 stands for 1
	Ports    []uint32     // ports to add to the switch; nil: every free number, as on BMv2
	Queue    int          // packets that wait for the client; 0: 4096
	Logger   *slog.Logger // nil: discards
}

// Server is the service of one switch. Create it with New.
type Server struct {
	bmpb.UnimplementedDataplaneInterfaceServer
	opt   Options
	sw    *softswitch.Switch
	ports []uint32 // ports that this server added

	mu     sync.Mutex
	stream *packetStream // the open stream; nil: no stream is open
	closed bool
	busy   sync.WaitGroup // streams

	dropped atomic.Uint64
}

// New returns the service and adds its ports to the switch. The caller closes it.
func New(sw *softswitch.Switch, opt Options) (*Server, error) {
	if opt.DeviceID == 0 {
		opt.DeviceID = 1
	}
	if opt.Queue <= 0 {
		opt.Queue = 4096
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opt: opt, sw: sw}
	every := opt.Ports == nil
	if every {
		for n := range uint32(softswitch.DropPort) {
			opt.Ports = append(opt.Ports, n)
		}
	}
	for _, n := range opt.Ports {
		err := sw.AddPort(n, softswitch.Port{Name: fmt.Sprintf("port %d", n),
			Tx: func(frame []byte, at time.Duration) { s.leave(n, frame, at) }})
		switch {
		case err == nil:
			s.ports = append(s.ports, n)
		// a port of another owner, or the CPU port
		case every && (errors.Is(err, softswitch.ErrExists) || errors.Is(err, softswitch.ErrInvalid)):
		default:
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { bmpb.RegisterDataplaneInterfaceServer(r, s) }

// Dropped returns the number of packets that left without a client, or with a client that did not
// read.
func (s *Server) Dropped() uint64 { return s.dropped.Load() }

// EndStream ends the stream, if there is one, and refuses others, so that a gRPC server can stop
// gracefully.
func (s *Server) EndStream() {
	s.mu.Lock()
	s.closed = true
	if s.stream != nil {
		s.stream.cancel()
	}
	s.mu.Unlock()
	s.busy.Wait()
}

// Close ends the stream and removes the server's ports from the switch.
func (s *Server) Close() (err error) {
	s.EndStream()
	for _, n := range s.ports {
		if e := s.sw.RemovePort(n); e != nil && !errors.Is(e, softswitch.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	s.ports = nil
	return err
}

// packetStream is a client's stream.
type packetStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	out    chan *bmpb.PacketStreamResponse

	mu sync.Mutex
	at time.Duration // arrival of the packet in the switch, unique in the stream
	id uint64        // id of the client's request
}

// arrive records the next packet for the switch, and returns its time.
func (p *packetStream) arrive(now time.Duration, id uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.id = max(now, p.at+1), id
	return p.at
}

// of returns the id of the request whose packet arrived at a time; ours is false if it did not come
// by this stream.
func (p *packetStream) of(at time.Duration) (id uint64, ours bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at != p.at {
		return 0, false
	}
	return p.id, true
}

// leave handles a packet that leaves the switch. If the client does not read, a packet that the
// client itself has sent waits for room, which blocks only this client. Other packets, such as
// those of a controller, are dropped then.
func (s *Server) leave(port uint32, frame []byte, at time.Duration) {
	s.mu.Lock()
	p := s.stream
	s.mu.Unlock()
	if p == nil {
		s.dropped.Add(1)
		return
	}
	id, ours := p.of(at)
	m := &bmpb.PacketStreamResponse{Id: id, DeviceId: s.opt.DeviceID, Port: port, Packet: append([]byte(nil), frame...)}
	if ours {
		select {
		case p.out <- m:
		case <-p.ctx.Done():
			s.dropped.Add(1)
		}
		return
	}
	select {
	case p.out <- m:
	default:
		s.dropped.Add(1)
	}
}

// begin makes a stream the current one.
func (s *Server) begin(ctx context.Context) (*packetStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, status.Error(codes.Unavailable, "the switch stops")
	case s.sw.Program() == nil:
		return nil, status.Error(codes.Unavailable, "the switch has no pipeline yet")
	case s.stream != nil:
		return nil, status.Error(codes.ResourceExhausted, "another client has a stream, and one at a time may")
	}
	p := &packetStream{out: make(chan *bmpb.PacketStreamResponse, s.opt.Queue), at: -1}
	p.ctx, p.cancel = context.WithCancel(ctx)
	s.stream = p
	s.busy.Add(1)
	return p, nil
}

func (s *Server) end(p *packetStream) {
	p.cancel()
	s.mu.Lock()
	s.stream = nil
	s.mu.Unlock()
	s.busy.Done()
}

// PacketStream injects the client's packets in order and sends it the packets that leave. After the
// client's last packet it sends the remaining packets and ends the stream.
func (s *Server) PacketStream(stream grpc.BidiStreamingServer[bmpb.PacketStreamRequest,
	bmpb.PacketStreamResponse]) error {
	p, err := s.begin(stream.Context())
	if err != nil {
		return err
	}
	defer s.end(p)
	requests, received := make(chan *bmpb.PacketStreamRequest), make(chan error, 1)
	go func() { // ends with the stream, which ends when this method returns
		for {
			r, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			select {
			case requests <- r:
			case <-p.ctx.Done():
				return
			}
		}
	}()
	injected := make(chan error, 1)
	var injector sync.WaitGroup
	injector.Go(func() { injected <- s.inject(p, requests, received) })
	defer injector.Wait()
	defer p.cancel() // before the wait above
	for {
		select {
		case m := <-p.out:
			if err := stream.Send(m); err != nil {
				return err
			}
		case err := <-injected:
			for err == nil && len(p.out) > 0 {
				err = stream.Send(<-p.out)
			}
			return err
		case <-p.ctx.Done():
			return status.FromContextError(p.ctx.Err()).Err()
		}
	}
}

// inject injects the client's packets until the last.
func (s *Server) inject(p *packetStream, requests <-chan *bmpb.PacketStreamRequest, received <-chan error) error {
	for {
		select {
		case <-p.ctx.Done():
			return status.FromContextError(p.ctx.Err()).Err()
		case err := <-received:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case r := <-requests:
			if err := s.check(r.GetDeviceId(), r.GetPort()); err != nil {
				return err
			}
			s.sw.Inject(r.GetPort(), r.GetPacket(), p.arrive(s.sw.Now(), r.GetId()))
		}
	}
}

func (s *Server) check(device uint64, port uint32) error {
	if device != s.opt.DeviceID {
		return status.Errorf(codes.InvalidArgument, "there is no device %d here; this is device %d", device,
			s.opt.DeviceID)
	}
	if _, err := s.sw.PortStatus(port); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// SetPortOperStatus takes a port up or down.
func (s *Server) SetPortOperStatus(_ context.Context,
	r *bmpb.SetPortOperStatusRequest,
) (*bmpb.SetPortOperStatusResponse, error) {
	if err := s.check(r.GetDeviceId(), r.GetPort()); err != nil {
		return nil, err
	}
	var up bool
	switch r.GetOperStatus() {
	case bmpb.PortOperStatus_OPER_STATUS_UP:
		up = true
	case bmpb.PortOperStatus_OPER_STATUS_DOWN:
	default:
		return nil, status.Errorf(codes.InvalidArgument, "port %d cannot be %v: up or down", r.GetPort(),
			r.GetOperStatus())
	}
	if err := s.sw.SetPortUp(r.GetPort(), up); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &bmpb.SetPortOperStatusResponse{}, nil
}
