// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"fmt"
	"math/rand/v2"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// arbitrate sends the bid.
func (s *session) arbitrate() (step, error) {
	s.enter(Arbitrating)
	if err := s.sendBid(); err != nil {
		return nil, err
	}
	return s.await, nil
}

// sendBid sends the MasterArbitrationUpdate. A Backup, and a session that yields, leave the
// election id unset, which differs from {0,0}.
func (s *session) sendBid() error {
	m := &p4v1.MasterArbitrationUpdate{DeviceId: s.c.cfg.DeviceID}
	if s.c.cfg.Role != "" {
		m.Role = &p4v1.Role{Name: s.c.cfg.Role}
	}
	if s.c.cfg.Mode == Primary && !s.yields {
		m.ElectionId = s.bid.proto()
	}
	return s.send(s.ctx, &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{Arbitration: m}})
}

// await waits for the switch's answer to a bid, at most for CallTimeout.
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

// rejected explains why a switch ended the stream instead of replying to the bid. If another
// controller uses the election id, the next session yields: it is a backup until there is no
// primary. Only a client that has the default election id and was the primary before bids a higher
// id, because the switch may not have noticed yet that the client's earlier session has ended.
func (s *session) rejected(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument:
		used := s.bid
		switch {
		case s.yields: // the switch accepts no stream without an election id
			s.yields = false
		case !s.c.cfg.claims && s.c.elected.Load():
			s.bid = s.bid.Next()
		default:
			s.bid, s.yields = s.c.cfg.ElectionID, true
		}
		return fmt.Errorf("%s refused election id %v, which another controller uses: %w", s.c.cfg.Target, used, err)
	case codes.NotFound:
		return fmt.Errorf("%s has no device %d (role %q): %w", s.c.cfg.Target, s.c.cfg.DeviceID, s.c.cfg.Role, err)
	}
	return err
}

// judge decides the state of the session by the newest arbitration.
func (s *session) judge() (step, error) {
	s.mu.Lock()
	m, denied := s.arbitration, s.denied
	select {
	case <-s.news: // signal for m; a later wait must be for a later message
	default:
	}
	s.mu.Unlock()
	highest := electionOf(m.GetElectionId())
	s.c.setStatus(func(st *Status) { st.Highest = highest })
	if got := m.GetDeviceId(); got != s.c.cfg.DeviceID {
		return nil, fmt.Errorf("%s answers for device %d instead of %d", s.c.cfg.Target, got, s.c.cfg.DeviceID)
	}
	if s.c.cfg.Mode == Backup {
		return s.observe, nil
	}
	switch code := codes.Code(m.GetStatus().GetCode()); {
	case denied != nil:
		return s.standby(fmt.Errorf("%w: %w", ErrNotPrimary, denied)), nil
	case code == codes.OK && highest.Compare(s.bid) > 0:
		// Some switches reply OK to a bid below the highest one: two controllers would then write.
		return s.standby(fmt.Errorf("%w: the switch accepts bid %v and reports %v as the highest",
			ErrNotPrimary, s.bid, highest)), nil
	case s.vacant(m):
		s.setDemoted()
		return s.bidAgain(highest)
	case code == codes.OK:
		if s.isPrimary() {
			return s.ready, nil
		}
		s.setPrimary()
		return s.provision, nil
	case code == codes.AlreadyExists && s.yields && s.c.cfg.Yields:
		return s.standby(fmt.Errorf("%w: this controller takes over when the controller with %v ends its session",
			ErrNotPrimary, highest)), nil
	case code == codes.AlreadyExists && s.yields:
		return s.standby(fmt.Errorf("%w: another controller uses election id %v, and this one remains a backup "+
			"until that disconnects; give each controller an election id of its own", ErrNotPrimary, s.bid)), nil
	case code == codes.AlreadyExists && s.outbids(highest):
		return s.arbitrate, nil
	case code == codes.AlreadyExists:
		return s.standby(fmt.Errorf("%w: another controller was elected with %v", ErrNotPrimary, highest)), nil
	default:
		return nil, fmt.Errorf("%s answered the bid %v with %v: %s", s.c.cfg.Target, s.bid, code,
			m.GetStatus().GetMessage())
	}
}

// vacant reports whether the switch has no primary. BMv2 treats an unset election id as {0,0}, and
// elects it if no other controller bids.
func (s *session) vacant(m *p4v1.MasterArbitrationUpdate) bool {
	code := codes.Code(m.GetStatus().GetCode())
	return code == codes.NotFound || code == codes.OK && s.yields && electionOf(m.GetElectionId()) == ElectionID{}
}

// nextBid returns the bid after the switch has reported the highest election id; false for no bid.
func (s *session) nextBid(highest ElectionID, vacant bool) (bid ElectionID, ok bool) {
	switch {
	case s.c.cfg.Bid != nil:
		return s.c.cfg.Bid(highest, vacant)
	case highest.Compare(s.bid) > 0:
		return highest, vacant
	}
	return s.bid, vacant
}

// outbids raises the next bid above the primary's, if Config.Bid allows it.
func (s *session) outbids(highest ElectionID) bool {
	bid, ok := s.nextBid(highest, false)
	if !ok || bid.Compare(highest) <= 0 {
		return false
	}
	s.bid = bid
	s.log.Info("the session outbids the primary", "election-id", bid, "of", highest)
	return true
}

// mayBid reports whether the switch has no primary and this session may bid now.
func (s *session) mayBid() bool {
	s.mu.Lock()
	m := s.arbitration
	s.mu.Unlock()
	if !s.vacant(m) {
		return false
	}
	_, ok := s.nextBid(electionOf(m.GetElectionId()), true)
	return ok
}

// bidAgain bids if the switch has no primary. It first waits for a random part of the shortest
// backoff, because all backups notice the vacancy at the same moment.
func (s *session) bidAgain(highest ElectionID) (step, error) {
	bid, ok := s.nextBid(highest, true)
	if !ok {
		return s.standby(fmt.Errorf("%w: there is no primary, and this controller may not bid above %v",
			ErrNotPrimary, highest)), nil
	}
	wait, stop := s.c.cfg.Clock.After(rand.N(max(s.c.cfg.Backoff.Min/2, 1)))
	defer stop()
	select {
	case <-wait:
		s.log.Info("there is no primary; sending a bid", "election-id", bid)
		s.bid, s.yields = bid, false
		return s.arbitrate, nil
	case <-s.news: // another controller was faster
		return s.judge, nil
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

// standby is the state of a controller that was outbid. Its writes ended with the arbitration
// message.
func (s *session) standby(why error) step {
	s.setDemoted()
	return func() (step, error) {
		s.log.Info("session is in standby", "reason", why)
		if err := s.adopt(); err != nil {
			return nil, err
		}
		s.c.setStatus(func(st *Status) { st.Reason = why })
		return s.serve(Standby)
	}
}

// observe is the state of a Backup, which reads the program on the switch and its registers.
func (s *session) observe() (step, error) {
	if s.program() == nil {
		s.enter(Provisioning)
	}
	if err := s.adopt(); err != nil {
		return nil, err
	}
	return s.serve(ReadOnly)
}

// ready is the state of a primary after reconciling.
func (s *session) ready() (step, error) { return s.serve(Ready) }

// arbitrated takes an arbitration message from the receiver. Unless it is OK, writes end at once.
func (s *session) arbitrated(m *p4v1.MasterArbitrationUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arbitration, s.denied = m, nil
	if codes.Code(m.GetStatus().GetCode()) != codes.OK {
		s.endWrites()
	}
	s.wake()
}

// permissionDenied records that the switch refused a Write because the client is not the primary.
func (s *session) permissionDenied(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = err
	s.endWrites()
	s.wake()
}

// wake signals a new arbitration. The caller holds s.mu.
func (s *session) wake() {
	select {
	case s.news <- struct{}{}:
	default: // the change is signaled already
	}
}

func (s *session) setPrimary() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c.elected.Store(true)
	s.primary, s.demote = context.WithCancel(s.ctx)
	s.c.setStatus(func(st *Status) { st.Term, st.Pushed = st.Term+1, false })
}

func (s *session) setDemoted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWrites()
}

// endWrites ends the session's role as primary, and its writes. The caller holds s.mu.
func (s *session) endWrites() {
	if s.demote != nil {
		s.demote()
	}
}

func (s *session) isPrimary() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.primary != nil && s.primary.Err() == nil
}
