// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
)

// external is BMv2's simple_switch_grpc in its own process. The node's P4Runtime server relays all
// messages to it, so the lab records the flips of its bank. Each packet enters after the packet
// before and its clones have left, because the lab cannot attribute late packets. An external
// switch has no gNMI and no LLDP.
type external struct {
	net     *Network
	nd      *node
	log     *slog.Logger
	sw      *bmv2.Switch
	control *grpc.ClientConn
	data    *grpc.ClientConn
	ctx     context.Context // until close
	cancel  context.CancelFunc
	clones  atomic.Bool // a controller has written a clone session

	// The following fields are for inject, which the node calls from one goroutine at a time.
	packets *dataplane.Client // nil before the first packet
	id      uint64
	gone    uint64 // packets that did not leave within swallowed
}

// swallowed is the real time after which a packet in BMv2 counts as lost.
const swallowed = 5 * time.Second

// maxMessage bounds messages of P4Runtime: pipelines and read-outs.
const maxMessage = 128 << 20

func (n *Network) newExternal(nd *node) (*external, error) {
	s := &external{net: n, nd: nd, log: n.log.With("switch", nd.spec.Name)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var err error
	if s.sw, err = bmv2.Start(s.ctx, bmv2.Config{DeviceID: nd.deviceID}); err == nil {
		s.control, err = toSwitch(s.sw.P4Runtime())
	}
	if err == nil {
		s.data, err = toSwitch(s.sw.DataPlane())
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func toSwitch(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
}

func (s *external) serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(maxMessage)}
}

func (s *external) services(rpc *grpc.Server) (bool, error) {
	p4v1.RegisterP4RuntimeServer(rpc, &relay{to: p4v1.NewP4RuntimeClient(s.control), wrote: s.wrote})
	return false, nil
}

func (s *external) inject(port uint32, frame []byte, at time.Duration) {
	if s.nd.stopped.Load() {
		return
	}
	first, err := s.pass(port, frame)
	out := []dataplane.Packet{first}
	if err == nil && s.clones.Load() {
		out, err = s.follow(first)
	}
	if err != nil {
		if s.gone++; s.gone == 1 {
			s.log.Warn("a packet did not leave BMv2; further losses are counted, not logged", "port", port, "error",
				err)
		}
		return
	}
	for _, p := range out {
		if w := s.nd.out[p.Port]; w != nil {
			s.net.leave(s.nd, w, p.Frame, at)
		}
	}
}

// wrote is called with what controllers write.
func (s *external) wrote(r *p4v1.WriteRequest) {
	for _, u := range r.GetUpdates() {
		if u.GetEntity().GetPacketReplicationEngineEntry().GetCloneSessionEntry() != nil {
			s.clones.Store(true)
		}
	}
}

var errSwallowed = fmt.Errorf("nothing for %v", swallowed)

// pass sends a packet through the switch and returns the first copy that leaves.
func (s *external) pass(port uint32, frame []byte) (dataplane.Packet, error) {
	s.id++
	for {
		fresh := s.packets == nil
		var err error
		if fresh {
			if s.packets, err = dataplane.Open(s.ctx, s.data, s.nd.deviceID); err != nil {
				s.packets = nil
				return dataplane.Packet{}, err
			}
		}
		var out dataplane.Packet
		if err = s.packets.Inject(port, frame, s.id); err == nil {
			out, err = s.await()
		}
		if err == nil || errors.Is(err, errSwallowed) {
			return out, err
		}
		s.packets.Close()
		s.packets = nil
		if !fresh || status.Code(err) != codes.Unavailable {
			return dataplane.Packet{}, err
		}
		// For a moment after BMv2 got its pipeline, it refuses streams, and then loses the packet.
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.sw.Ended():
			return dataplane.Packet{}, fmt.Errorf("BMv2 has ended: %s", s.sw.Log())
		case <-s.ctx.Done():
			return dataplane.Packet{}, s.ctx.Err()
		}
	}
}

// follow returns all copies of the newest packet, in the order of their ports; one copy has left
// already. When one copy leaves, every other copy is in the queue of its port or has left it, so it
// leaves before frames that are queued later.
func (s *external) follow(first dataplane.Packet) ([]dataplane.Packet, error) {
	out, id := []dataplane.Packet{first}, s.id
	for port := range s.nd.out {
		s.id++
		if err := s.packets.Inject(softswitch.DefaultCPUPort, sendOut(port), s.id); err != nil {
			return nil, err
		}
	}
	for behind := 0; behind < len(s.nd.out); {
		p, err := s.next()
		switch {
		case err != nil:
			return nil, err
		case p.ID == id:
			out = append(out, p)
		case p.ID > id:
			behind++
		}
	}
	slices.SortStableFunc(out, func(a, b dataplane.Packet) int { return cmp.Compare(a.Port, b.Port) })
	return out, nil
}

// sendOut returns a packet-out that sends 60 bytes of zeros by a port: the header of the data plane
// programs (docs/p4.md), with op 0, and the port in the second and third byte.
func sendOut(port uint32) []byte {
	const header, frame = 13, 60
	b := make([]byte, header+frame)
	binary.BigEndian.PutUint16(b[1:], uint16(port))
	return b
}

// await returns the first copy of the newest packet that leaves.
func (s *external) await() (dataplane.Packet, error) {
	for {
		if p, err := s.next(); err != nil || p.ID == s.id {
			return p, err
		}
	}
}

// next returns the next packet that leaves.
func (s *external) next() (dataplane.Packet, error) {
	limit := time.NewTimer(swallowed)
	defer limit.Stop()
	select {
	case p, ok := <-s.packets.Packets():
		if !ok {
			return p, errors.Join(s.packets.Err(), s.ctx.Err())
		}
		return p, nil
	case <-limit.C:
		return dataplane.Packet{}, errSwallowed
	}
}

// drops returns nothing: BMv2 does not count drops by reason.
func (s *external) drops() dropCounts { return dropCounts{} }

func (s *external) neighbor(uint32, []byte, time.Duration) {}

func (s *external) speak(context.Context) {}

func (s *external) watch(uint32, func(bool)) {}

func (s *external) disabled(uint32) (bool, error) { return false, nil }

// setPortUp does nothing: the lab itself drops packets on a link that is down.
func (s *external) setPortUp(uint32, bool) error { return nil }

func (s *external) portUp(uint32) bool { return true }

func (s *external) close() error {
	s.cancel()
	var errs []error
	if s.packets != nil {
		s.packets.Close()
	}
	for _, conn := range []*grpc.ClientConn{s.control, s.data} {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	if s.sw != nil {
		select {
		case <-s.sw.Ended():
			errs = append(errs, fmt.Errorf("BMv2 had ended: %s", s.sw.Log()))
		default:
		}
		s.sw.Close()
	}
	return errors.Join(errs...)
}

// relay passes P4Runtime on to another server. relay returns the other server's errors unchanged.
type relay struct {
	p4v1.UnimplementedP4RuntimeServer
	to    p4v1.P4RuntimeClient
	wrote func(*p4v1.WriteRequest) // is called before a write
}

func (r *relay) Write(ctx context.Context, req *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	r.wrote(req)
	return r.to.Write(ctx, req)
}

func (r *relay) SetForwardingPipelineConfig(ctx context.Context,
	req *p4v1.SetForwardingPipelineConfigRequest,
) (*p4v1.SetForwardingPipelineConfigResponse, error) {
	return r.to.SetForwardingPipelineConfig(ctx, req)
}

func (r *relay) GetForwardingPipelineConfig(ctx context.Context,
	req *p4v1.GetForwardingPipelineConfigRequest,
) (*p4v1.GetForwardingPipelineConfigResponse, error) {
	return r.to.GetForwardingPipelineConfig(ctx, req)
}

func (r *relay) Capabilities(ctx context.Context, req *p4v1.CapabilitiesRequest) (*p4v1.CapabilitiesResponse, error) {
	return r.to.Capabilities(ctx, req)
}

func (r *relay) Read(req *p4v1.ReadRequest, down p4v1.P4Runtime_ReadServer) error {
	up, err := r.to.Read(down.Context(), req)
	if err != nil {
		return err
	}
	return pump(up.Recv, down.Send)
}

func (r *relay) StreamChannel(down p4v1.P4Runtime_StreamChannelServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	up, err := r.to.StreamChannel(ctx)
	defer cancel()
	if err != nil {
		return err
	}
	go func() { // ends with the stream from the controller, which ends when this method returns
		_ = pump(down.Recv, up.Send) // the switch's reply has the reason
		_ = up.CloseSend()
	}()
	return pump(up.Recv, down.Send)
}

// pump forwards messages until the stream ends.
func pump[M any](from func() (M, error), to func(M) error) error {
	for {
		m, err := from()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = to(m)
		}
		if err != nil {
			return err
		}
	}
}
