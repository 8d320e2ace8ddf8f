// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
)

// Stats count what came over the stream, since the client was made.
type Stats struct {
	PacketIns      uint64 // packets from the switch, read-out replies among them
	PacketsDropped uint64 // packets for which a queue had no room
	PacketsIgnored uint64 // packets that no queue asked for
	LateReplies    uint64 // read-out replies that nobody waited for any more
	PacketOuts     uint64
	DigestLists    uint64
	DigestsDropped uint64 // lists for which a queue had no room, or that nobody asked for
	IdleTimeouts   uint64 // notifications
	IdleDropped    uint64
	StreamErrors   uint64 // errors the switch reported on the stream
	SessionsLost   uint64
}

type counters struct {
	packetIns, packetsDropped, packetsIgnored, lateReplies, packetOuts   atomic.Uint64
	digestLists, digestsDropped, idleTimeouts, idleDropped, streamErrors atomic.Uint64
	sessionsLost                                                         atomic.Uint64
}

// Stats returns the counts.
func (c *Client) Stats() Stats {
	n := &c.stats
	return Stats{
		PacketIns: n.packetIns.Load(), PacketsDropped: n.packetsDropped.Load(), PacketsIgnored: n.packetsIgnored.Load(),
		LateReplies: n.lateReplies.Load(), PacketOuts: n.packetOuts.Load(), DigestLists: n.digestLists.Load(),
		DigestsDropped: n.digestsDropped.Load(), IdleTimeouts: n.idleTimeouts.Load(), IdleDropped: n.idleDropped.Load(),
		StreamErrors: n.streamErrors.Load(), SessionsLost: n.sessionsLost.Load(),
	}
}

// receive takes messages from the stream until it ends. It hands them on without waiting for anybody. The message of a
// read-out's reply, which nobody keeps, is received into again.
func (s *session) receive() {
	m := &p4v1.StreamMessageResponse{}
	for {
		if err := s.stream.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the switch closed the stream")
			}
			s.end(fmt.Errorf("stream of %s: %w", s.c.cfg.Target, err))
			return
		}
		switch u := m.GetUpdate().(type) {
		case *p4v1.StreamMessageResponse_Packet:
			if s.packetIn(u.Packet) {
				continue
			}
		case *p4v1.StreamMessageResponse_Arbitration:
			s.arbitrated(u.Arbitration)
		case *p4v1.StreamMessageResponse_Digest:
			s.digestList(u.Digest)
		case *p4v1.StreamMessageResponse_IdleTimeoutNotification:
			s.idleTimeout(u.IdleTimeoutNotification)
		case *p4v1.StreamMessageResponse_Error:
			s.streamError(u.Error)
		}
		m = &p4v1.StreamMessageResponse{}
	}
}

// send puts a message on the stream. A switch that takes nothing for the length of a call's deadline loses the session.
func (s *session) send(ctx context.Context, m *p4v1.StreamMessageRequest) error {
	select {
	case s.sendMu <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ctx.Done():
		return s.lost(context.Cause(s.ctx))
	}
	s.stuck.Reset(s.c.cfg.CallTimeout)
	err := s.stream.Send(m)
	s.stuck.Stop()
	<-s.sendMu
	if errors.Is(err, io.EOF) { // the receiver learns why
		<-s.ctx.Done()
		err = context.Cause(s.ctx)
	}
	if err != nil {
		return s.lost(err)
	}
	return nil
}

// streamError takes the switch's complaint about a message of ours. One about a read-out's packet ends that read-out.
func (s *session) streamError(e *p4v1.StreamError) {
	s.c.stats.streamErrors.Add(1)
	err := fmt.Errorf("%s reports on the stream: %v: %s", s.c.cfg.Target, codes.Code(e.GetCanonicalCode()), e.GetMessage())
	s.log.Warn("stream error", "error", err)
	if p := s.program(); p != nil && p.readout != nil && e.GetPacketOut().GetPacketOut() != nil {
		s.readouts.refused(p.readout.seqOfRequest(e.GetPacketOut().GetPacketOut()), err)
	}
}
