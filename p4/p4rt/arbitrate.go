// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"fmt"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// arbitrate sends the bid and waits for the switch's judgement.
func (s *session) arbitrate() (step, error) {
	s.enter(Arbitrating)
	if err := s.sendBid(); err != nil {
		return nil, err
	}
	return s.await, nil
}

// sendBid is the only place that makes a MasterArbitrationUpdate. A Backup leaves the election id unset, which is not {0,0}.
func (s *session) sendBid() error {
	m := &p4v1.MasterArbitrationUpdate{DeviceId: s.c.cfg.DeviceID}
	if s.c.cfg.Role != "" {
		m.Role = &p4v1.Role{Name: s.c.cfg.Role}
	}
	if s.c.cfg.Mode == Primary {
		m.ElectionId = s.bid.proto()
	}
	return s.send(s.ctx, &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{Arbitration: m}})
}

// await waits for the first news after a bid. A switch that accepts the stream and says nothing is given up.
func (s *session) await() (step, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.c.cfg.CallTimeout)
	defer cancel()
	select {
	case <-s.news:
		return s.judge, nil
	case <-ctx.Done():
		if s.ctx.Err() != nil {
			return nil, s.rejected(context.Cause(s.ctx))
		}
		return nil, fmt.Errorf("%s did not answer the bid %v within %v", s.c.cfg.Target, s.bid, s.c.cfg.CallTimeout)
	}
}

// rejected explains how a switch ended the stream instead of judging the bid. An election id in use makes the next session bid another.
func (s *session) rejected(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument:
		used := s.bid
		if s.c.cfg.Yield && !s.c.elected.Load() {
			return fmt.Errorf("%s: another controller uses election id %v; this one waits until it is gone, or needs a higher one to take over: %w",
				s.c.cfg.Target, used, err)
		}
		s.bid = s.bid.Next()
		return fmt.Errorf("%s refused election id %v, which another controller uses; the next bid is %v: %w", s.c.cfg.Target, used, s.bid, err)
	case codes.NotFound:
		return fmt.Errorf("%s has no device %d (role %q): %w", s.c.cfg.Target, s.c.cfg.DeviceID, s.c.cfg.Role, err)
	}
	return err
}

// judge looks at the newest arbitration and decides what the client is.
func (s *session) judge() (step, error) {
	s.mu.Lock()
	m, denied := s.arbitration, s.denied
	s.mu.Unlock()
	highest := electionOf(m.GetElectionId())
	s.c.setStatus(func(st *Status) { st.Highest = highest })
	if got := m.GetDeviceId(); got != s.c.cfg.DeviceID {
		return nil, fmt.Errorf("%s speaks for device %d and not for %d", s.c.cfg.Target, got, s.c.cfg.DeviceID)
	}
	if s.c.cfg.Mode == Backup {
		return s.observe, nil
	}
	switch code := codes.Code(m.GetStatus().GetCode()); {
	case denied != nil:
		return s.standby(fmt.Errorf("%w: %w", ErrNotPrimary, denied)), nil
	case code == codes.OK && highest.Compare(s.bid) > 0:
		// Some switches say OK to a bid below the highest: two controllers would both write.
		return s.standby(fmt.Errorf("%w: the switch accepts bid %v and reports %v as the highest", ErrNotPrimary, s.bid, highest)), nil
	case code == codes.OK:
		if s.isPrimary() {
			return s.ready, nil
		}
		s.setPrimary()
		return s.provision, nil
	case code == codes.NotFound:
		s.setDemoted()
		return s.bidAgain(highest)
	case code == codes.AlreadyExists:
		return s.standby(fmt.Errorf("%w: another controller was elected with %v", ErrNotPrimary, highest)), nil
	default:
		return nil, fmt.Errorf("%s answered the bid %v with %v: %s", s.c.cfg.Target, s.bid, code, m.GetStatus().GetMessage())
	}
}

// bidAgain bids when there is no primary, after a random part of the shortest backoff: several backups wake at the same moment.
func (s *session) bidAgain(highest ElectionID) (step, error) {
	if highest.Compare(s.bid) > 0 {
		s.bid = highest
	}
	s.log.Info("there is no primary; bidding", "election-id", s.bid)
	wait, stop := s.c.cfg.Clock.After(s.c.cfg.Backoff.delay(0, s.c.cfg.Rand) / 2)
	defer stop()
	select {
	case <-wait:
		return s.arbitrate, nil
	case <-s.news: // somebody was faster
		return s.judge, nil
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

// standby waits as a controller that bid and lost. Its writes ended when the news came.
func (s *session) standby(why error) step {
	s.setDemoted()
	return func() (step, error) {
		s.log.Info("standing by", "reason", why)
		if err := s.adopt(); err != nil {
			return nil, err
		}
		s.c.setStatus(func(st *Status) { st.Reason = why })
		return s.serve(Standby)
	}
}

// observe is what a Backup does: it learns the program and reads.
func (s *session) observe() (step, error) {
	if s.program() == nil {
		s.enter(Provisioning)
	}
	if err := s.adopt(); err != nil {
		return nil, err
	}
	return s.serve(ReadOnly)
}

// ready is the state of a primary whose switch is as desired.
func (s *session) ready() (step, error) { return s.serve(Ready) }

// arbitrated takes the switch's judgement from the receiver: on anything but OK writing stops here and now.
func (s *session) arbitrated(m *p4v1.MasterArbitrationUpdate) {
	s.mu.Lock()
	s.arbitration, s.denied = m, nil
	s.mu.Unlock()
	if codes.Code(m.GetStatus().GetCode()) != codes.OK {
		s.setDemoted()
	}
	s.wake()
}

// permissionDenied takes the news that a Write was refused for want of mastership.
func (s *session) permissionDenied(err error) {
	s.mu.Lock()
	s.denied = err
	s.mu.Unlock()
	s.setDemoted()
	s.wake()
}

func (s *session) wake() {
	select {
	case s.news <- struct{}{}:
	default: // it is awake
	}
}

func (s *session) setPrimary() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c.elected.Store(true)
	s.primary, s.demote = context.WithCancel(s.ctx)
}

func (s *session) setDemoted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.demote != nil {
		s.demote()
	}
}

func (s *session) isPrimary() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primary != nil && s.primary.Err() == nil
}
