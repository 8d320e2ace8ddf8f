// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Bounds of an agent's description of itself.
const (
	maxNameBytes = 255
	maxRoles     = 64
	// maxAcks bounds the acknowledgments that wait for an agent that does not read its stream.
	maxAcks = 1024
)

// service serves the sessions of a component.
type service struct {
	hostv1.UnimplementedHostSessionsServer
	c *Component
}

// session is the stream of one agent. The stream's handler sends; another goroutine receives.
type session struct {
	c        *Component
	agent    *agent
	address  string
	instance string
	stream   hostv1.HostSessions_SessionServer
	reports  assembler

	wake   chan struct{}   // a message is to be sent
	done   <-chan struct{} // closed when the session ends
	cancel context.CancelCauseFunc

	heard   atomic.Uint64 // newest epoch that this agent has begun
	correct atomic.Bool   // send the newest epoch to an agent that has begun a later one
	claimed uint64        // newest epoch that the host's clock began; guarded by c.mu

	mu       sync.Mutex
	requests []*hostv1.ReportRequest
	acks     []*hostv1.ReportAck
	// settingsChanged is set if the settings in force may differ from the settings that were sent.
	settingsChanged bool

	// The following fields are used by the sender only.
	queue  []*hostv1.CollectorMessage
	length time.Duration // epoch length of the schedule that was sent
	zero   time.Time
	sent   map[string]uint64 // generation of settings by role
	ends   map[string][]byte // end of the settings by role, for an agent with Hello.tails; otherwise nil
	stated uint64            // newest epoch in a message to the agent
}

// Session implements hostv1.HostSessionsServer.
func (v service) Session(stream hostv1.HostSessions_SessionServer) error {
	c := v.c
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(status.Error(codes.Unavailable, "the collector stops")) })
	defer stop()
	address := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	messages, errs := receive(ctx, stream)
	hello, err := firstMessage(ctx, messages, errs)
	if err != nil {
		return c.refuse(address, err)
	}
	name, err := c.hostName(ctx, hello)
	if err != nil {
		return c.refuse(address, err)
	}
	defer func() { // runs even if the host moves to another collector during the session
		if at, ok := c.redirect(name); ok && at != "" {
			stream.SetTrailer(metadata.Pairs(hostv1.RedirectKey, at))
		}
	}()
	a := c.agent(name)
	if at, ok := c.redirect(name); a == nil && ok {
		return status.Errorf(codes.Unavailable, "another collector of the cluster serves host %q, at %q", name, at)
	}
	if a == nil {
		return c.refuse(address, status.Errorf(codes.PermissionDenied,
			"host %q is not configured with an agent: set agent: true in its entry of hosts", name))
	}
	s := &session{c: c, agent: a, address: address, instance: hello.GetInstance(), stream: stream,
		reports: assembler{limit: c.cfg.MaxReport}, wake: make(chan struct{}, 1), done: ctx.Done(), cancel: cancel,
		sent: map[string]uint64{}, settingsChanged: true}
	if hello.GetCheck() {
		return s.check()
	}
	if err := a.enter(s, hello); err != nil {
		c.log.Warn("a session of a host agent is refused", "host", name, "address", address, "error", err)
		c.deps.OnChange()
		return status.Error(codes.AlreadyExists, err.Error())
	}
	c.connections.connected(name)
	c.deps.OnChange()
	err = s.run(ctx, hello, messages, errs)
	if x := &s.reports; x.open && !x.skip {
		c.volume.remove(x.epoch, x.total) // the agent sends the report again
	}
	a.leave(s, plain(err))
	c.connections.ended(name, plain(err))
	c.deps.OnChange()
	return err
}

// check replies to an agent that asks whether it would be accepted.
func (s *session) check() error {
	if other, ok := s.agent.other(s.instance); ok {
		return status.Errorf(codes.AlreadyExists, "an agent of host %s has a session, from %s", s.agent.name, other)
	}
	return s.stream.Send(&hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Welcome{Welcome: &hostv1.Welcome{
		Instance: s.c.instance, MaxReportBytes: s.c.cfg.MaxReport}}})
}

// receive passes on the messages of a stream until the stream or ctx ends.
func receive(ctx context.Context, stream hostv1.HostSessions_SessionServer) (<-chan *hostv1.AgentMessage,
	<-chan error) {
	messages, errs := make(chan *hostv1.AgentMessage), make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				errs <- err
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	return messages, errs
}

func firstMessage(ctx context.Context, messages <-chan *hostv1.AgentMessage, errs <-chan error) (*hostv1.Hello, error) {
	timer := time.NewTimer(helloTimeout)
	defer timer.Stop()
	select {
	case m := <-messages:
		hello := m.GetHello()
		if hello == nil {
			return nil, status.Error(codes.InvalidArgument, "the first message is not Hello")
		}
		return hello, checkHello(hello)
	case err := <-errs:
		return nil, err
	case <-timer.C:
		return nil, status.Errorf(codes.DeadlineExceeded, "no Hello within %v", helloTimeout)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// checkHello bounds the sizes of an agent's Hello.
func checkHello(h *hostv1.Hello) error {
	if len(h.GetRoles()) > maxRoles {
		return status.Errorf(codes.InvalidArgument, "Hello has %d roles; at most %d are possible", len(h.GetRoles()),
			maxRoles)
	}
	for _, text := range append([]string{h.GetVersion(), h.GetHost(), h.GetInstance(), h.GetBootId()}, h.GetRoles()...) {
		if len(text) > maxNameBytes {
			return status.Errorf(codes.InvalidArgument, "a field of Hello has %d bytes; at most %d are possible", len(text),
				maxNameBytes)
		}
	}
	if h.GetInstance() == "" {
		return status.Error(codes.InvalidArgument, "Hello has no instance")
	}
	return nil
}

// hostName returns the name of an agent's host: the configured host that is one of the
// certificate's DNS names, or its common name if the certificate has no DNS name.
func (c *Component) hostName(ctx context.Context, hello *hostv1.Hello) (string, error) {
	if c.cfg.TLS == nil {
		if hello.GetHost() == "" {
			return "", status.Error(codes.InvalidArgument, "Hello has no host, which a session without TLS needs")
		}
		return hello.GetHost(), nil
	}
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return "", status.Error(codes.Unauthenticated, "the agent has no certificate")
	}
	certificate := info.State.PeerCertificates[0]
	names := certificate.DNSNames
	if len(names) == 0 {
		names = []string{certificate.Subject.CommonName}
	}
	known := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !c.Has(name) })
	switch {
	case len(known) == 0:
		return "", status.Errorf(codes.PermissionDenied,
			"the agent's certificate names %q, which is not a host with an agent: its DNS name, or "+
				"its common name without one, must be the name of an entry of hosts with agent: true",
			strings.Join(names, ", "))
	case len(known) > 1:
		return "", status.Errorf(codes.PermissionDenied, "the agent's certificate names several hosts: %s",
			strings.Join(known, ", "))
	case hello.GetHost() != "" && hello.GetHost() != known[0]:
		return "", status.Errorf(codes.PermissionDenied, "the agent of host %q has the certificate of host %q",
			hello.GetHost(), known[0])
	}
	return known[0], nil
}

// refuse records a refused session that cannot be assigned to a host.
func (c *Component) refuse(address string, err error) error {
	c.mu.Lock()
	c.refused.Sessions++
	first := c.refused.LastError != plain(err).Error()
	c.refused.LastError = plain(err).Error()
	c.mu.Unlock()
	if first {
		c.log.Warn("a session of a host agent is refused", "address", address, "error", plain(err))
	}
	c.deps.OnChange()
	return err
}

// plain returns the message of a gRPC status.
func plain(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("the agent closed the connection")
	}
	if s, ok := status.FromError(err); ok && err != nil {
		if s.Code() == codes.Canceled {
			return plain(context.Canceled)
		}
		return errors.New(s.Message())
	}
	return err
}

// run serves an accepted session until it ends, and returns the status for the agent.
func (s *session) run(ctx context.Context, hello *hostv1.Hello, messages <-chan *hostv1.AgentMessage,
	errs <-chan error) error {
	c := s.c
	if hello.GetTails() {
		s.ends = map[string][]byte{}
	}
	welcome := &hostv1.Welcome{Instance: c.instance, MaxReportBytes: c.cfg.MaxReport, Parts: true}
	if c.udp != nil && hello.GetUdp() {
		welcome.Udp = c.udp.open(s)
		defer c.udp.forget(s)
	}
	c.enter(s)
	defer c.leave(s)
	var work sync.WaitGroup
	defer work.Wait()
	defer s.cancel(nil)
	work.Go(func() {
		for {
			select {
			case m := <-messages:
				if err := s.take(m); err != nil {
					s.cancel(err)
					return
				}
			case err := <-errs:
				s.cancel(agentGone(err))
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return s.send(ctx, &hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Welcome{Welcome: welcome}})
}

// agentGone returns the status for an agent that ended its stream.
func agentGone(err error) error {
	if st, ok := status.FromError(err); ok {
		return status.Error(st.Code(), st.Message())
	}
	return status.Error(codes.Canceled, "the agent closed the connection") // io.EOF
}

// end ends the session.
func (s *session) end(reason error) { s.cancel(status.Error(codes.Aborted, reason.Error())) }

// changed wakes the sender, which sends the epoch, the schedule and the settings if they have
// changed.
func (s *session) changed() {
	s.mu.Lock()
	s.settingsChanged = true
	s.mu.Unlock()
	s.offer()
}

// offer wakes the sender to send the newest epoch and queued messages.
func (s *session) offer() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// setAside records that the host's clock is ahead, and sends the newest epoch to its agent, which
// follows the network from then on.
func (s *session) setAside(by uint64) {
	s.agent.aheadOf(by)
	s.correct.Store(true)
	s.offer()
}

// known records an epoch that the agent has.
func (s *session) known(number uint64) {
	for {
		old := s.heard.Load()
		if number <= old || s.heard.CompareAndSwap(old, number) {
			return
		}
	}
}

// request requests the reports of an epoch.
func (s *session) request(number uint64, roles []string) {
	s.mu.Lock()
	s.requests = append(s.requests, &hostv1.ReportRequest{Epoch: number, Roles: roles})
	s.mu.Unlock()
	s.offer()
}

// send sends the welcome and then further messages until the session ends, and returns the reason
// of the end.
func (s *session) send(ctx context.Context, welcome *hostv1.CollectorMessage) error {
	for m := welcome; ; m = s.next() {
		if m == nil {
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := s.stream.Send(m); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return agentGone(err)
		}
	}
}

// next returns the next message to send, or nil. The schedule and the newest epoch come before
// messages that are queued.
func (s *session) next() *hostv1.CollectorMessage {
	if m := s.epoch(); m != nil {
		return m
	}
	if len(s.queue) == 0 {
		s.fill()
	}
	if len(s.queue) == 0 {
		return nil
	}
	m := s.queue[0]
	s.queue = s.queue[1:]
	if r := m.GetRequest(); r != nil {
		s.stated = max(s.stated, r.GetEpoch()+1)
		s.agent.asked(r.GetEpoch())
	}
	return m
}

// fill queues messages to send: settings, then requests, then acknowledgments.
func (s *session) fill() {
	s.mu.Lock()
	changed := s.settingsChanged && s.length > 0 // settings follow the schedule
	if changed {
		s.settingsChanged = false
	}
	requests, acks := s.requests, s.acks
	s.requests, s.acks = nil, nil
	s.mu.Unlock()
	if changed {
		s.queue = s.settings()
	}
	for _, r := range requests {
		s.queue = append(s.queue, &hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Request{Request: r}})
	}
	for _, a := range acks {
		s.queue = append(s.queue, &hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Ack{Ack: a}})
	}
}

// epoch returns the schedule if it has changed, or the newest epoch if the agent does not have it,
// otherwise nil.
func (s *session) epoch() *hostv1.CollectorMessage {
	length, zero, open := s.c.deps.Epochs.Numbering()
	if open == 0 {
		return nil // epochs have not begun
	}
	newest := max(s.c.newest.Load(), open)
	if s.length != length || !s.zero.Equal(zero) {
		s.length, s.zero, s.stated = length, zero, newest
		s.known(newest)
		return &hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Schedule{Schedule: &hostv1.Schedule{
			LengthNs: length.Nanoseconds(), ZeroUnixNs: zero.UnixNano(), Epoch: newest}}}
	}
	// An agent also receives the epoch that its own clock began first, once, to compare its clock
	// with the others.
	if correct := s.correct.Swap(false); newest <= s.heard.Load() && newest <= s.stated && !correct {
		return nil
	}
	s.stated = newest
	s.known(newest)
	return &hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Epoch{Epoch: &hostv1.EpochBegan{Epoch: newest}}}
}

// settings returns messages for the settings that have changed.
func (s *session) settings() (out []*hostv1.CollectorMessage) {
	inForce := map[string]bool{}
	for _, x := range s.c.deps.Settings(s.agent.name) {
		inForce[x.Role] = true
		if s.sent[x.Role] == x.Generation {
			continue
		}
		s.sent[x.Role] = x.Generation
		m := &hostv1.Settings{Role: x.Role, Generation: x.Generation, Data: x.Data}
		if n := len(x.Tail); sdk.SameTail(s.ends[x.Role], x.Tail) {
			m.Tail = uint64(n)
		} else {
			m.Tail = uint64(sdk.CommonTail(s.ends[x.Role], x.Tail))
			m.Data = slices.Concat(x.Data, x.Tail[:n-int(m.GetTail())])
		}
		if s.ends != nil {
			s.ends[x.Role] = x.Tail
		}
		out = append(out, settingsMessage(m))
	}
	for role := range s.sent {
		if !inForce[role] {
			delete(s.sent, role)
			delete(s.ends, role)
			out = append(out, settingsMessage(&hostv1.Settings{Role: role, Remove: true}))
		}
	}
	return out
}

func settingsMessage(m *hostv1.Settings) *hostv1.CollectorMessage {
	return &hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Settings{Settings: m}}
}

// take handles a message of the agent. An error ends the session.
func (s *session) take(m *hostv1.AgentMessage) error {
	switch m := m.GetMessage().(type) {
	case *hostv1.AgentMessage_Epoch:
		s.epochBegan(m.Epoch.GetEpoch())
	case *hostv1.AgentMessage_Settings:
		r := m.Settings
		if r.GetGeneration() != 0 { // generation 0 means that settings were removed
			s.agent.settled(r.GetRole(), r.GetError())
			s.c.deps.Applied(s.agent.name, r.GetRole(), r.GetGeneration(), r.GetError())
			s.c.deps.OnChange()
		}
	case *hostv1.AgentMessage_Chunk:
		return s.chunk(m.Chunk)
	case *hostv1.AgentMessage_Missing:
		r := m.Missing
		reason := errors.New(r.GetReason())
		if r.GetJoined() {
			reason = fmt.Errorf("the agent %w: %s", epoch.ErrJoining, r.GetReason())
		}
		// the report may no longer be awaited
		_ = s.agent.report(r.GetEpoch(), r.GetRole(), nil, reason)
	case *hostv1.AgentMessage_Leases:
		s.agent.leases(m.Leases)
		s.c.deps.OnChange()
	case *hostv1.AgentMessage_Hello:
		return status.Error(codes.InvalidArgument, "a second Hello")
	}
	return nil // a message type that this version does not know
}

func (s *session) epochBegan(number uint64) {
	s.agent.began()
	s.c.relay(s, number)
}

// chunk handles a piece of a report.
func (s *session) chunk(m *hostv1.ReportChunk) error {
	if m.GetOffset() == 0 {
		s.agent.answered(m)
	}
	done, refusal, err := s.reports.add(m, s.admit)
	switch {
	case err != nil:
		s.agent.refused(err.Error())
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(refusal, errAgain):
		s.ack(m, nil)
	case refusal != nil && m.GetPart() > 0:
		s.agent.refused(refusal.Error())
		s.ack(m, refusal)
		s.c.deps.OnChange()
	case done != nil && m.GetPart() > 0:
		s.agent.part(m, done)
		s.ack(m, nil)
	case refusal != nil:
		s.agent.refused(refusal.Error())
		// the report may no longer be awaited
		_ = s.agent.report(m.GetEpoch(), m.GetRole(), nil, refusal)
		s.ack(m, refusal)
		s.c.deps.OnChange()
	case done != nil:
		refusal = s.agent.report(m.GetEpoch(), m.GetRole(), done, nil)
		if refusal != nil {
			s.agent.refused(refusal.Error())
		}
		s.ack(m, refusal)
	}
	return nil
}

// admit returns why a report that begins is refused: nobody awaits it, or the reports of its epoch
// are too large together.
func (s *session) admit(m *hostv1.ReportChunk) error {
	awaited := s.agent.awaited
	if m.GetPart() > 0 {
		awaited = s.agent.expected
	}
	if err := awaited(m); err != nil {
		return err
	}
	if !s.c.volume.add(m.GetEpoch(), m.GetTotalBytes()) {
		return fmt.Errorf("%s has %d bytes; with it, the reports of all hosts in the epoch have more than the %d that "+
			"agents.max-epoch allows", name(m), m.GetTotalBytes(), s.c.cfg.MaxEpoch)
	}
	return nil
}

// ack acknowledges the end of a report's transfer.
func (s *session) ack(m *hostv1.ReportChunk, refusal error) {
	a := &hostv1.ReportAck{Epoch: m.GetEpoch(), Role: m.GetRole(), Part: m.GetPart()}
	if refusal != nil {
		a.Error = refusal.Error()
	}
	s.mu.Lock()
	s.acks = append(s.acks, a)
	over := len(s.acks) > maxAcks
	s.mu.Unlock()
	if over {
		s.end(fmt.Errorf("the agent sends reports but has not read %d acknowledgments", maxAcks))
	}
	s.offer()
}
