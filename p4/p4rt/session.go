// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4wire"
)

// Limits of the connection. A switch reports a Write's errors in the reply's metadata, about 100
// bytes and a text for each update; with gRPC's default limit of 8 KB, the client would receive
// only RESOURCE_EXHAUSTED.
const (
	maxBatchUpdates   = 4096 // updates in a Write request
	metadataPerUpdate = 512
	maxReceive        = 256 << 20
	window            = 4 << 20
)

// Keepalive returns the pings of a connection to a switch. A switch that vanishes without closing
// the connection is noticed after Time and Timeout. gRPC servers end connections that ping more
// often than every 5 minutes, unless they are configured otherwise.
func Keepalive() keepalive.ClientParameters {
	return keepalive.ClientParameters{Time: 5*time.Minute + 10*time.Second, Timeout: 20 * time.Second}
}

// session is one connection to a switch, from Connecting until it is lost. The goroutine of run
// writes the fields before other goroutines use them, except those under mu.
type session struct {
	c      *Client
	log    *slog.Logger
	number uint64
	bid    ElectionID
	// sends no bid while there is a primary, because of Config.Yields or because its election id is
	// in use
	yields  bool
	version string // P4Runtime version of the switch
	settled bool   // reached a state that lasts
	refused error  // the error that names desired entries that were refused

	ctx    context.Context // ends with the session; its cause is the reason
	fail   context.CancelCauseFunc
	rpc    p4v1.P4RuntimeClient
	stream p4v1.P4Runtime_StreamChannelClient
	sendMu chan struct{} // held while sending; a channel, so that waiting for it can be canceled
	stuck  *time.Timer   // ends the session if sending a message takes too long

	news chan struct{} // signals a new arbitration

	mu          sync.Mutex // guards the fields below
	arbitration *p4v1.MasterArbitrationUpdate
	denied      error              // the PERMISSION_DENIED error of a Write
	prog        *program           // nil until the program is read
	primary     context.Context    // context of writes; nil or ended if the client is not the primary
	demote      context.CancelFunc // ends primary

	readouts readouts
	emptied  emptied
}

// step does the work of one state of the session and returns the next one.
type step func() (step, error)

// run takes the session through its states until it is lost.
func (s *session) run(parent context.Context) error {
	s.ctx, s.fail = context.WithCancelCause(parent)
	defer s.fail(nil)
	s.sendMu, s.news = make(chan struct{}, 1), make(chan struct{}, 1)
	s.readouts.init()

	conn, err := grpc.NewClient(s.c.cfg.Target, s.dialOptions()...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.c.cfg.Target, err)
	}
	defer conn.Close()
	s.rpc = p4v1.NewP4RuntimeClient(conn)

	s.c.mu.Lock()
	s.c.current = s
	s.c.mu.Unlock()
	defer func() {
		s.c.mu.Lock()
		s.c.current = nil
		s.c.mu.Unlock()
	}()

	var receiver sync.WaitGroup
	defer receiver.Wait()
	defer s.end(ErrSessionLost) // ends the stream before waiting for its receiver

	for next := step(func() (step, error) { return s.connect(&receiver) }); next != nil; {
		if next, err = next(); err != nil {
			return s.explain(err)
		}
	}
	return s.explain(context.Cause(s.ctx))
}

// end ends the session with its writes, messages and read-outs. Only the first call's reason is
// used.
func (s *session) end(why error) {
	s.c.setStatus(func(st *Status) {
		if s.ctx.Err() != nil {
			return
		}
		s.fail(why)
		switch st.State {
		case Ready, Standby, ReadOnly:
			st.State, st.Reason = Down, why
		}
	})
	s.readouts.sessionOver()
}

// explain returns the reason why the session ended if that made the call fail, otherwise err.
func (s *session) explain(err error) error {
	cause := context.Cause(s.ctx)
	if cause == nil || errors.Is(err, cause) || errors.Is(cause, context.Canceled) || errors.Is(cause, ErrSessionLost) {
		return err
	}
	return cause
}

func (s *session) dialOptions() []grpc.DialOption {
	cfg := &s.c.cfg
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithNoProxy(), grpc.WithKeepaliveParams(Keepalive()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithMaxHeaderListSize(uint32(8192 + metadataPerUpdate*maxBatchUpdates)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithDisableServiceConfig(),
	}, cfg.DialOptions...)
}

// connect reads the capabilities, opens the stream and starts the receiver.
func (s *session) connect(receiver *sync.WaitGroup) (step, error) {
	s.enter(Connecting)
	if err := s.capabilities(); err != nil {
		return nil, err
	}
	stream, err := s.rpc.StreamChannel(s.ctx, grpc.ForceCodecV2(p4wire.Codec{}))
	if err != nil {
		return nil, fmt.Errorf("open the stream to %s: %w", s.c.cfg.Target, err)
	}
	s.stream = stream
	s.stuck = time.AfterFunc(s.c.cfg.CallTimeout, func() {
		s.end(fmt.Errorf("%s received nothing from the stream for %v", s.c.cfg.Target, s.c.cfg.CallTimeout))
	})
	s.stuck.Stop()
	receiver.Go(s.receive)
	return s.arbitrate, nil
}

// capabilities reads the version. A switch without the call has version 1.0.
func (s *session) capabilities() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.c.cfg.CallTimeout)
	defer cancel()
	answer, err := s.rpc.Capabilities(ctx, &p4v1.CapabilitiesRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		s.version = "1.0"
	case err != nil:
		return fmt.Errorf("reach the switch at %s: %w", s.c.cfg.Target, err)
	default:
		s.version = answer.GetP4RuntimeApiVersion()
	}
	s.c.setStatus(func(st *Status) { st.Version = s.version })
	return nil
}

// enter sets the state in the status.
func (s *session) enter(state State) {
	s.log.Debug("session", "state", state, "session", s.number)
	s.c.setStatus(func(st *Status) {
		if s.ctx.Err() != nil {
			return // the session has ended
		}
		if st.Session != s.number {
			st.Highest = ElectionID{}
		}
		st.State, st.Session, st.Bid = state, s.number, s.bid
		if state != Standby {
			st.Reason = s.refused
		}
	})
}

// serve stays in a state until an arbitration arrives or the session ends. While the client is not
// the primary, it checks periodically for a new pipeline, and whether it may bid.
func (s *session) serve(state State) (step, error) {
	s.settled = true
	s.enter(state)
	for {
		var look <-chan time.Time
		stop := func() {}
		if state != Ready {
			look, stop = s.c.cfg.Clock.After(s.c.cfg.PipelinePoll)
		}
		select {
		case <-s.news:
			stop()
			return s.judge, nil
		case <-look:
			if err := s.adopt(); err != nil {
				return nil, err
			}
			if state == Standby && s.mayBid() {
				return s.judge, nil
			}
		case <-s.ctx.Done():
			stop()
			return nil, context.Cause(s.ctx)
		}
	}
}
