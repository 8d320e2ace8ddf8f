// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4wire"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver/entities"
)

// Version is the version of the specification that the server implements.
const Version = "1.5.0"

// Options are the options of a server. The zero value is usable.
type Options struct {
	DeviceID    uint64        // 0 stands for 1
	NoDeviceID  bool          // no id, and no controller, until SetDeviceID
	MaxStreams  int           // open StreamChannels of all roles; 0: 128
	StreamQueue int           // messages that may wait for one client; 0: 1024
	IdleScan    time.Duration // interval of idle scans; 0: 50 ms
	Logger      *slog.Logger  // nil: discards

	// Compile compiles a p4_device_config; nil: softswitch.Compile. Servers of switches with the
	// same program can share a cache, since programs are immutable.
	Compile func(json []byte) (*softswitch.Program, error)
}

// Server is the P4Runtime service of one switch. Create it with New.
type Server struct {
	p4v1.UnimplementedP4RuntimeServer
	opt Options
	sw  *softswitch.Switch
	log *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	bg     sync.WaitGroup // goroutines of the server

	arb    sync.Mutex // guards the fields below; never held while waiting
	roles  map[string]*role
	open   int // streams
	closed bool

	mu      sync.RWMutex     // writes and pipeline changes take it, reads share it
	live    *entities.Device // device that packets run on; nil: no pipeline is committed
	digests *digester        // digests of the live pipeline
	shadow  *entities.Device // saved, not committed: target of reads and writes; nil: no pipeline is saved
	packets atomic.Pointer[packetPath]

	deviceID atomic.Uint64 // device id; 0: the switch has no device id

	stats counters
}

// New returns the service of a switch. The server receives the packets that leave by the switch's
// CPU port.
func New(sw *softswitch.Switch, opt Options) *Server {
	if opt.DeviceID == 0 {
		opt.DeviceID = 1
	}
	if opt.MaxStreams <= 0 {
		opt.MaxStreams = 128
	}
	if opt.StreamQueue <= 0 {
		opt.StreamQueue = 1024
	}
	if opt.IdleScan <= 0 {
		opt.IdleScan = 50 * time.Millisecond
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Compile == nil {
		opt.Compile = softswitch.Compile
	}
	s := &Server{opt: opt, sw: sw, log: opt.Logger, roles: map[string]*role{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if !opt.NoDeviceID {
		s.deviceID.Store(opt.DeviceID)
	}
	sw.SetPacketIn(s.packetIn)
	return s
}

// Register adds the service to a gRPC server created with [ServerOptions].
func (s *Server) Register(r grpc.ServiceRegistrar) { p4v1.RegisterP4RuntimeServer(r, s) }

// ServerOptions are the options of a gRPC server with this service: pipelines exceed gRPC's default
// of 4 MB.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(128 << 20), grpc.MaxConcurrentStreams(1024),
		grpc.InitialWindowSize(4 << 20), grpc.InitialConnWindowSize(4 << 20),
		grpc.ForceServerCodecV2(p4wire.Codec{}),
	}
}

// startBackground registers goroutines that Close waits for; false if the server is closed.
func (s *Server) startBackground(n int) bool {
	s.arb.Lock()
	defer s.arb.Unlock()
	if !s.closed {
		s.bg.Add(n)
	}
	return !s.closed
}

// Close ends the server's streams and goroutines and waits for the goroutines. It does not change
// the switch.
func (s *Server) Close() {
	s.sw.SetPacketIn(nil)
	s.arb.Lock()
	s.closed = true
	s.arb.Unlock()
	s.cancel()
	s.bg.Wait()
}

// Stats counts events on the streams.
type Stats struct {
	Streams        int    // open now
	StreamsRefused uint64 // beyond MaxStreams
	PacketIns      uint64 // packets the switch sent to its controllers
	PacketsDropped uint64 // packets that no controller received: no primary, or all queues full
	PacketsMissed  uint64 // times a controller missed a packet because its queue was full
	PacketOuts     uint64 // packets from controllers
	PacketsRefused uint64 // packets from controllers with wrong metadata or without permission
	DigestsDropped uint64 // digest messages for which there was no room
	IdleDropped    uint64 // idle notifications for which there was no room
}

type counters struct {
	streamsRefused, packetIns, packetsDropped, packetsMissed, packetOuts, packetsRefused, digestsDropped,
	idleDropped atomic.Uint64
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	s.arb.Lock()
	open := s.open
	s.arb.Unlock()
	c := &s.stats
	return Stats{
		Streams: open, StreamsRefused: c.streamsRefused.Load(), PacketIns: c.packetIns.Load(),
		PacketsDropped: c.packetsDropped.Load(), PacketsMissed: c.packetsMissed.Load(),
		PacketOuts: c.packetOuts.Load(), PacketsRefused: c.packetsRefused.Load(),
		DigestsDropped: c.digestsDropped.Load(), IdleDropped: c.idleDropped.Load(),
	}
}

// Capabilities answers with the version of the specification.
func (s *Server) Capabilities(_ context.Context, r *p4v1.CapabilitiesRequest) (*p4v1.CapabilitiesResponse, error) {
	if r.GetDeviceId() != 0 {
		if err := s.checkDevice(r.GetDeviceId()); err != nil {
			return nil, err
		}
	}
	return &p4v1.CapabilitiesResponse{P4RuntimeApiVersion: Version}, nil
}

func (s *Server) checkDevice(id uint64) error {
	switch own := s.deviceID.Load(); own {
	case id:
		return nil
	case 0:
		return status.Error(codes.FailedPrecondition, "the switch does not have a device id; set the node-id of its "+
			"integrated circuit over gNMI")
	default:
		return status.Errorf(codes.NotFound, "there is no device %d here; this is device %d", id, own)
	}
}

// SetDeviceID changes the id of the device; 0 is none. It fails while a controller is connected.
func (s *Server) SetDeviceID(id uint64) error {
	s.arb.Lock()
	defer s.arb.Unlock()
	if s.open > 0 {
		return fmt.Errorf("the device id cannot be changed while %d P4Runtime controllers are connected", s.open)
	}
	s.deviceID.Store(id)
	return nil
}
