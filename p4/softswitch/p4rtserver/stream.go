// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"context"
	"errors"
	"io"
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver/entities"
)

// maxAdvisories bounds the queued advisories of a client; newer ones replace older ones.
const maxAdvisories = 64

// stream is one StreamChannel.
type stream struct {
	role     *role     // nil before arbitration; written by the receiver with Server.arb held
	election *election // guarded by Server.arb
	gone     bool      // guarded by Server.arb: left the arbitration

	out  chan outgoing // packets, digests, idle notices, errors: dropped when full
	wake chan struct{} // signals advisories

	pkt []byte // the receiver's buffer for a packet

	mu         sync.Mutex
	advisories []*p4v1.StreamMessageResponse
}

// outgoing is a message that waits to be sent.
type outgoing struct {
	m    *p4v1.StreamMessageResponse
	sent func() // called after the message is sent; may be nil
}

// notify queues an advisory. It never waits.
func (st *stream) notify(m *p4v1.StreamMessageResponse) {
	st.mu.Lock()
	if len(st.advisories) == maxAdvisories {
		st.advisories = st.advisories[1:]
	}
	st.advisories = append(st.advisories, m)
	st.mu.Unlock()
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

func (st *stream) takeAdvisories() []*p4v1.StreamMessageResponse {
	st.mu.Lock()
	defer st.mu.Unlock()
	out := st.advisories
	st.advisories = nil
	return out
}

// offer queues a message; false if the queue is full.
func (st *stream) offer(m *p4v1.StreamMessageResponse) bool { return st.offerAnd(m, nil) }

// offerAnd queues a message whose memory is reusable after sent is called; sent is called only for
// a queued message.
func (st *stream) offerAnd(m *p4v1.StreamMessageResponse, sent func()) bool {
	select {
	case st.out <- outgoing{m, sent}:
		return true
	default:
		return false
	}
}

// StreamChannel serves one controller until its stream ends.
func (s *Server) StreamChannel(rpc p4v1.P4Runtime_StreamChannelServer) error {
	st := &stream{out: make(chan outgoing, s.opt.StreamQueue), wake: make(chan struct{}, 1)}
	if err := s.admit(); err != nil {
		return err
	}
	defer s.leave(st)
	ctx, stop := context.WithCancel(rpc.Context())
	defer stop()
	end := make(chan error, 2) // results of the receiver and the sender
	// The goroutines are not awaited here: a sender that is blocked by its client ends after this
	// function returns and gRPC ends the stream. Close waits for them.
	go func() {
		defer s.bg.Done()
		end <- s.sendLoop(ctx, rpc, st)
	}()
	go func() {
		defer s.bg.Done()
		end <- s.receiveLoop(rpc, st)
	}()
	select {
	case err := <-end:
		return err
	case <-s.ctx.Done():
		return status.Error(codes.Unavailable, "the switch is closing")
	}
}

// admit registers a stream and its two goroutines.
func (s *Server) admit() error {
	s.arb.Lock()
	defer s.arb.Unlock()
	if s.closed {
		return status.Error(codes.Unavailable, "the switch is closing")
	}
	if s.open >= s.opt.MaxStreams {
		s.stats.streamsRefused.Add(1)
		return status.Errorf(codes.ResourceExhausted, "%d streams are open, which is the limit", s.open)
	}
	s.open++
	s.bg.Add(2)
	return nil
}

// sendLoop sends queued messages, advisories first.
func (s *Server) sendLoop(ctx context.Context, rpc p4v1.P4Runtime_StreamChannelServer, st *stream) error {
	for {
		for _, m := range st.takeAdvisories() {
			if err := rpc.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-st.wake:
		case o := <-st.out:
			if err := rpc.Send(o.m); err != nil {
				return err
			}
			if o.sent != nil {
				o.sent()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// receiveLoop handles the controller's messages. Its error ends the stream.
func (s *Server) receiveLoop(rpc p4v1.P4Runtime_StreamChannelServer, st *stream) error {
	m := &p4v1.StreamMessageRequest{}
	for {
		err := rpc.RecvMsg(m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		kept, err := s.handle(st, m)
		if err != nil {
			return err
		}
		if kept {
			m = &p4v1.StreamMessageRequest{}
		}
	}
}

// handle handles one message of a stream. It reports whether it keeps a reference to the message,
// which it does not for an accepted packet.
func (s *Server) handle(st *stream, m *p4v1.StreamMessageRequest) (kept bool, err error) {
	switch u := m.GetUpdate().(type) {
	case *p4v1.StreamMessageRequest_Arbitration:
		return true, s.arbitrate(st, u.Arbitration)
	case *p4v1.StreamMessageRequest_Packet:
		err := s.packetOut(st, u.Packet)
		if err == nil {
			return false, nil
		}
		s.stats.packetsRefused.Add(1)
		st.offer(streamError(err,
			&p4v1.StreamError{Details: &p4v1.StreamError_PacketOut{
				PacketOut: &p4v1.PacketOutError{PacketOut: u.Packet}}}))
	case *p4v1.StreamMessageRequest_DigestAck:
		if err := s.digestAck(st, u.DigestAck); err != nil {
			st.offer(streamError(err,
				&p4v1.StreamError{Details: &p4v1.StreamError_DigestListAck{
					DigestListAck: &p4v1.DigestListAckError{DigestListAck: u.DigestAck}}}))
		}
	case *p4v1.StreamMessageRequest_Other:
		err := status.Error(codes.Unimplemented, "this switch has no architecture-specific messages")
		st.offer(streamError(err,
			&p4v1.StreamError{Details: &p4v1.StreamError_Other{Other: &p4v1.StreamOtherError{Other: u.Other}}}))
	default:
		return true, status.Error(codes.InvalidArgument, "a stream message without an update")
	}
	return true, nil
}

// streamError completes a StreamError with the code and text of err.
func streamError(err error, e *p4v1.StreamError) *p4v1.StreamMessageResponse {
	st := status.Convert(err)
	e.CanonicalCode, e.Message, e.Space = int32(st.Code()), st.Message(), entities.ErrorSpace
	return &p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Error{Error: e}}
}
