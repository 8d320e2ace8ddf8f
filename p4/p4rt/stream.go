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

// Stats count messages on the stream since the client was created.
type Stats struct {
	PacketIns      uint64 // packets from the switch, including read-out replies
	PacketsDropped uint64 // packets that are not read-out replies
	LateReplies    uint64 // read-out replies that came after their request was given up
	PacketOuts     uint64
	StreamErrors   uint64 // errors the switch reported on the stream
	SessionsLost   uint64
}

type counters struct {
	packetIns, packetsDropped, lateReplies, packetOuts, streamErrors, sessionsLost atomic.Uint64
}

// Stats returns the counts.
func (c *Client) Stats() Stats {
	n := &c.stats
	return Stats{
		PacketIns: n.packetIns.Load(), PacketsDropped: n.packetsDropped.Load(), LateReplies: n.lateReplies.Load(),
		PacketOuts: n.packetOuts.Load(), StreamErrors: n.streamErrors.Load(), SessionsLost: n.sessionsLost.Load(),
	}
}

// receive receives messages until the stream ends, and never blocks. packetIn must not keep a
// packet: the next message is received into the same memory.
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
			s.packetIn(u.Packet)
			continue
		case *p4v1.StreamMessageResponse_Arbitration:
			s.arbitrated(u.Arbitration)
		case *p4v1.StreamMessageResponse_Error:
			s.streamError(u.Error)
		}
		m = &p4v1.StreamMessageResponse{}
	}
}

// packetIn passes a read-out's reply to the job that waits for it.
func (s *session) packetIn(m *p4v1.PacketIn) {
	s.c.stats.packetIns.Add(1)
	if p := s.program(); p != nil && p.readout != nil {
		if r, ok := p.readout.parse(m); ok {
			if !s.readouts.reply(r) {
				s.c.stats.lateReplies.Add(1)
			}
			return
		}
	}
	s.c.stats.packetsDropped.Add(1)
}

// send sends a message on the stream. The session ends if the switch receives nothing for
// CallTimeout.
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
	if errors.Is(err, io.EOF) { // the receiver returns the reason
		<-s.ctx.Done()
		err = context.Cause(s.ctx)
	}
	if err != nil {
		return s.lost(err)
	}
	return nil
}

// streamError handles the switch's error about a message of the client. An error about a read-out
// request ends that read-out.
func (s *session) streamError(e *p4v1.StreamError) {
	s.c.stats.streamErrors.Add(1)
	err := fmt.Errorf("%s reports on the stream: %v: %s", s.c.cfg.Target, codes.Code(e.GetCanonicalCode()),
		e.GetMessage())
	s.log.Warn("stream error", "error", err)
	if p := s.program(); p != nil && p.readout != nil && e.GetPacketOut().GetPacketOut() != nil {
		s.readouts.refused(p.readout.seqOfRequest(e.GetPacketOut().GetPacketOut()), err)
	}
}
