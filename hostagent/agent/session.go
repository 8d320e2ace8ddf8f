// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/hostagent/hostv1"
)

const (
	// maxTasks bounds the settings and requests that wait for the data paths.
	maxTasks = 256
	// keepaliveTime is the interval of probes when the collector is silent.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// window is the flow-control window in bytes. With a fixed one, gRPC does not estimate the
	// bandwidth by a ping for each message.
	window = 512 << 10
)

// session is one stream to the collector. The caller of connect receives, one goroutine sends, and
// one works on settings and reports.
type session struct {
	a       *Agent
	address string
	stream  hostv1.HostSessions_SessionClient
	wake    chan struct{} // signals messages to send
	tasks   chan task
	// settingsOf are the settings by role that the session has brought; used by work only.
	settingsOf map[string][]byte
	udp        *datagrams // nil without UDP

	mu      sync.Mutex
	epoch   uint64                 // epoch to send; 0: no epoch is to be sent
	replies []*hostv1.AgentMessage // replies to send, before chunks
}

// task is work for the data paths: settings or a request.
type task struct {
	settings *hostv1.Settings
	request  *hostv1.ReportRequest
}

// connect runs one session and returns why it ended, and whether the collector had accepted it.
func (a *Agent) connect(ctx context.Context, address string) (accepted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o, err := a.open(ctx, address, a.hello())
	if err != nil {
		return false, err
	}
	defer o.conn.Close()
	s := &session{a: a, address: address, stream: o.stream, wake: make(chan struct{}, 1), tasks: make(chan task, maxTasks),
		settingsOf: map[string][]byte{}}
	return true, s.run(ctx, cancel, o.welcome, o.remote)
}

// Check returns why the collector would not accept the agent of a configuration with these roles.
// It needs no data path.
func Check(ctx context.Context, cfg Config, roles []string) error {
	a := &Agent{cfg: cfg, deps: Dependencies{}.withDefaults(), instance: randomID()}
	hello := a.hello()
	hello.Roles, hello.Check = roles, true
	address := cfg.Address
	for hop := 0; ; hop++ {
		o, err := a.open(ctx, address, hello)
		if redirect, ok := errors.AsType[*redirectError](err); ok && hop < maxHops {
			address = redirect.address
			continue
		}
		if err != nil {
			return err
		}
		return o.conn.Close()
	}
}

// redirectError is the reply of a collector that does not serve the host.
type redirectError struct {
	address string // address of the collector that serves the host
	err     error
}

func (e *redirectError) Error() string { return e.err.Error() }
func (e *redirectError) Unwrap() error { return e.err }

// redirected returns the error of a stream that has ended, with where the collector redirects to.
func redirected(stream hostv1.HostSessions_SessionClient, err error) error {
	if at := stream.Trailer().Get(hostv1.RedirectKey); len(at) == 1 {
		return &redirectError{at[0], err}
	}
	return err
}

// opened is a stream that the collector has accepted.
type opened struct {
	conn    *grpc.ClientConn
	stream  hostv1.HostSessions_SessionClient
	welcome *hostv1.Welcome
	remote  net.Addr
}

// open opens a stream.
func (a *Agent) open(ctx context.Context, address string, hello *hostv1.Hello) (o opened, err error) {
	secured := insecure.NewCredentials()
	if a.cfg.TLS != nil {
		c, err := a.cfg.TLS(address)
		if err != nil {
			return opened{}, err
		}
		secured = credentials.NewTLS(c)
	}
	var mu sync.Mutex
	var dialed error // more precise than the status of the stream
	o.conn, err = grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(secured),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := a.deps.Dial(ctx, address)
			mu.Lock()
			defer mu.Unlock()
			if dialed = err; err == nil {
				o.remote = c.RemoteAddr()
			}
			return c, err
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxSettings+1<<20)),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}))
	if err != nil {
		return opened{}, err
	}
	o.stream, err = hostv1.NewHostSessionsClient(o.conn).Session(ctx)
	if err == nil {
		err = o.stream.Send(&hostv1.AgentMessage{Message: &hostv1.AgentMessage_Hello{Hello: hello}})
	}
	mu.Lock()
	failed, remote := dialed, o.remote
	mu.Unlock()
	if err != nil {
		err = cmp.Or(failed, reason(o.stream, err))
		return opened{}, errors.Join(err, o.conn.Close())
	}
	first, err := o.stream.Recv()
	if err != nil {
		return opened{}, errors.Join(redirected(o.stream, plain(err)), o.conn.Close())
	}
	if first.GetWelcome() == nil {
		return opened{}, errors.Join(errors.New("the collector did not begin with Welcome; is it another service?"),
			o.conn.Close())
	}
	return opened{conn: o.conn, stream: o.stream, welcome: first.GetWelcome(), remote: remote}, nil
}

// reason returns the status of a stream whose Send failed.
func reason(stream hostv1.HostSessions_SessionClient, err error) error {
	if stream != nil {
		if _, recvErr := stream.Recv(); recvErr != nil {
			err = recvErr
		}
	}
	return plain(err)
}

// plain returns the message of a status without gRPC's decoration.
func plain(err error) error {
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return fmt.Errorf("%s: %w", s.Message(), errStatus{s.Code()})
	}
	return err
}

// errStatus is the code of a gRPC status.
type errStatus struct{ code codes.Code }

func (e errStatus) Error() string { return e.code.String() }

// IsRunning reports whether an error of Check says that another agent of the host has a session.
func IsRunning(err error) bool {
	s, ok := errors.AsType[errStatus](err)
	return ok && s.code == codes.AlreadyExists
}

func (a *Agent) hello() *hostv1.Hello {
	return &hostv1.Hello{Version: a.cfg.Version, Host: a.cfg.Host, Instance: a.instance, BootId: a.cfg.BootID,
		Roles: a.roles(), Udp: a.cfg.UDP, Tails: true}
}

// run runs an accepted session.
func (s *session) run(ctx context.Context, cancel func(), w *hostv1.Welcome, remote net.Addr) error {
	a := s.a
	a.outbox.restart(w.GetMaxReportBytes())
	if offer := w.GetUdp(); offer != nil && a.cfg.UDP {
		var err error
		if s.udp, err = openDatagrams(offer, remote); err != nil {
			a.log.Warn("epochs are sent over TCP: UDP is not available", "error", err)
		}
	}
	a.mu.Lock()
	a.session = s
	a.status.Connected, a.status.LastError = true, ""
	a.status.Sessions++
	a.mu.Unlock()
	a.log.Info("session with the collector", "address", s.address)
	a.changed()
	for _, l := range a.leases {
		l.online(true)
	}
	var work sync.WaitGroup
	work.Go(func() { s.send(ctx, cancel) })
	work.Go(func() { s.work(ctx) })
	if s.udp != nil {
		work.Go(func() { s.udp.receive(a.collectorEpoch) })
		work.Go(func() { s.udp.announce(ctx) })
	}
	if w.GetParts() && a.streams() {
		a.armParts(s)
		work.Go(func() { s.sendFull(ctx) })
	}
	s.wakeUp()
	err := s.receive()
	a.mu.Lock()
	a.session = nil
	a.mu.Unlock()
	for _, l := range a.leases {
		l.online(false)
	}
	cancel()
	if s.udp != nil {
		s.udp.close()
	}
	work.Wait()
	return err
}

// receive takes messages until the stream ends, and returns why it ended.
func (s *session) receive() error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return redirected(s.stream, plain(err))
		}
		if err := s.take(m); err != nil {
			return err
		}
	}
}

func (s *session) take(m *hostv1.CollectorMessage) error {
	a := s.a
	switch m := m.GetMessage().(type) {
	case *hostv1.CollectorMessage_Schedule:
		x := m.Schedule
		if x.GetLengthNs() <= 0 {
			return fmt.Errorf("the collector sent an epoch length of %d ns; expected more than 0", x.GetLengthNs())
		}
		return a.setSchedule(schedule{length: time.Duration(x.GetLengthNs()), zero: time.Unix(0, x.GetZeroUnixNs())},
			x.GetEpoch())
	case *hostv1.CollectorMessage_Epoch:
		a.collectorEpoch(m.Epoch.GetEpoch())
	case *hostv1.CollectorMessage_Settings:
		return s.queue(task{settings: m.Settings})
	case *hostv1.CollectorMessage_Request:
		return s.queue(task{request: m.Request})
	case *hostv1.CollectorMessage_Ack:
		a.acknowledged(m.Ack)
	}
	return nil // a message of a later version
}

func (s *session) queue(t task) error {
	select {
	case s.tasks <- t:
		return nil
	default:
		return fmt.Errorf("the collector sent more than %d settings and requests that are not done", maxTasks)
	}
}

// acknowledged drops a report that the collector has, or does not use.
func (a *Agent) acknowledged(ack *hostv1.ReportAck) {
	if !a.outbox.remove(ack.GetEpoch(), ack.GetRole(), ack.GetPart()) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if ack.GetError() == "" {
		if ack.GetPart() == 0 {
			a.status.ReportsAcknowledged++
		}
		return
	}
	a.status.ReportsRefused++
	if ack.GetPart() > 0 { // the report of the epoch is refused as well, or has the count of its parts
		return
	}
	a.log.Warn("the collector does not use a report", "role", ack.GetRole(), "epoch", ack.GetEpoch(), "reason",
		ack.GetError())
}

// work carries out tasks in order.
func (s *session) work(ctx context.Context) {
	for {
		select {
		case t := <-s.tasks:
			if t.settings != nil {
				s.settings(t.settings)
			} else {
				s.report(t.request)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *session) settings(m *hostv1.Settings) {
	data, before := m.GetData(), s.settingsOf[m.GetRole()]
	result := &hostv1.SettingsResult{Role: m.GetRole(), Generation: m.GetGeneration()}
	var err error
	switch tail := m.GetTail(); {
	case m.GetRemove():
		data = nil
	case tail > uint64(len(before)):
		err = fmt.Errorf("they end with %d bytes of the settings before, which have %d", tail, len(before))
	case data == nil && tail == 0:
		data = []byte{}
	case tail > 0:
		data = slices.Concat(data, before[uint64(len(before))-tail:])
	}
	s.settingsOf[m.GetRole()] = data
	if err == nil {
		err = s.a.apply(m.GetRole(), data)
	}
	if err != nil {
		result.Error = err.Error()
		s.a.log.Warn("settings are refused", "role", m.GetRole(), "error", err)
	}
	s.reply(&hostv1.AgentMessage{Message: &hostv1.AgentMessage_Settings{Settings: result}})
}

// report seals an epoch and queues the reports.
func (s *session) report(m *hostv1.ReportRequest) {
	a := s.a
	a.mu.Lock()
	a.newest = max(a.newest, m.GetEpoch()+1) // the collector does not send an epoch that this host has
	a.mu.Unlock()
	a.advance(m.GetEpoch() + 1) // the epoch is over
	requested, _ := a.begins.since(m.GetEpoch()+1, a.deps.Clock.Now())
	for _, role := range m.GetRoles() {
		reason, joined := s.seal(m.GetEpoch(), role, requested)
		if reason != "" {
			s.reply(&hostv1.AgentMessage{Message: &hostv1.AgentMessage_Missing{Missing: &hostv1.ReportMissing{
				Epoch: m.GetEpoch(), Role: role, Reason: reason, Joined: joined}}})
		}
	}
	s.wakeUp()
}

// seal queues the report of an epoch, or returns why the epoch has no report.
func (s *session) seal(epoch uint64, role string, requested time.Duration) (reason string, joined bool) {
	a := s.a
	p := a.paths[role]
	if p == nil {
		return "the agent has no such role", false
	}
	if a.outbox.again(epoch, role) {
		return "", false
	}
	since, ok := p.Since()
	switch {
	case !ok:
		return "no settings are in force", false
	case epoch < since:
		return "the role did not measure from the start of the epoch", true
	}
	a.taking.Lock()
	defer a.taking.Unlock()
	r, err := p.Seal(epoch)
	if err != nil {
		return err.Error(), false
	}
	if r == nil {
		return "no data: the epoch was reported before, or is too old", false
	}
	data := r.Append(nil)
	r.Release()
	if limit, over := a.outbox.tooLarge(len(data)); over {
		return fmt.Sprintf("the report has %d bytes, and the collector takes %d; raise agents.max-report", len(data),
			limit), false
	}
	a.outbox.put(epoch, role, 0, data, requested)
	return "", false
}

// streams reports whether a data path reports parts of epochs.
func (a *Agent) streams() bool {
	for _, p := range a.paths {
		if s, ok := p.(Streamer); ok && s.Streams() {
			return true
		}
	}
	return false
}

// armParts starts the timer of the next parts. It ends with the session.
func (a *Agent) armParts(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != s || a.ended {
		return
	}
	a.partTimer = a.deps.Clock.AfterFunc(partInterval, func() {
		a.takeParts(s, false)
		a.armParts(s)
	})
}

// sendFull sends messages that are full until the session ends.
func (s *session) sendFull(ctx context.Context) {
	for {
		select {
		case <-s.a.filled:
			s.a.takeParts(s, true)
		case <-ctx.Done():
			return
		}
	}
}

// takeParts sends the results of the open epoch so far, or with full only full messages of them.
// Epochs that are not longer than partInterval have no parts.
func (a *Agent) takeParts(s *session, full bool) {
	a.mu.Lock()
	current := a.session == s && a.schedule.length > partInterval
	a.mu.Unlock()
	if !current {
		return
	}
	a.taking.Lock()
	defer a.taking.Unlock()
	for name, p := range a.paths {
		streamer, ok := p.(Streamer)
		if !ok {
			continue
		}
		for {
			epoch, r := streamer.Part(full)
			if r == nil {
				break
			}
			data := r.Append(nil)
			r.Release()
			a.parts++
			a.outbox.put(epoch, name, a.parts, data, 0)
			s.wakeUp()
		}
	}
}

// reply queues a message.
func (s *session) reply(m *hostv1.AgentMessage) {
	s.mu.Lock()
	s.replies = append(s.replies, m)
	s.mu.Unlock()
	s.wakeUp()
}

// sendEpoch sends an epoch that the host's clock began.
func (s *session) sendEpoch(epoch uint64) {
	if s.udp != nil && s.udp.reached.Load() && s.udp.send(epoch) == nil {
		return
	}
	s.mu.Lock()
	s.epoch = max(s.epoch, epoch)
	s.mu.Unlock()
	s.wakeUp()
}

func (s *session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// send sends queued messages until the session ends: epochs first, then replies, then one chunk.
func (s *session) send(ctx context.Context, cancel func()) {
	for {
		m, held := s.next()
		if m == nil {
			var later <-chan time.Time
			if held {
				later = time.After(busyWait)
			}
			select {
			case <-s.wake:
				continue
			case <-later:
				continue
			case <-ctx.Done():
				_ = s.stream.CloseSend()
				return
			}
		}
		if err := s.stream.Send(m); err != nil {
			if !errors.Is(err, io.EOF) { // after io.EOF, receive returns the reason
				s.a.log.Error("a message to the collector cannot be sent; the session ends", "error", err)
				cancel()
			}
			return
		}
	}
}

// next returns the next message to send, or nil; held states that a chunk waits for a lower load.
func (s *session) next() (m *hostv1.AgentMessage, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.epoch; e != 0 {
		s.epoch = 0
		return &hostv1.AgentMessage{Message: &hostv1.AgentMessage_Epoch{Epoch: &hostv1.EpochBegan{Epoch: e}}}, false
	}
	if len(s.replies) > 0 {
		m := s.replies[0]
		s.replies = s.replies[1:]
		return m, false
	}
	if s.a.busy() {
		return nil, true
	}
	if c := s.a.outbox.next(); c != nil {
		if since, ok := s.a.begins.since(c.GetEpoch()+1, s.a.deps.Clock.Now()); ok && c.GetBeginToRequestNs() > 0 {
			c.BeginToChunkNs = int64(since)
		}
		return &hostv1.AgentMessage{Message: &hostv1.AgentMessage_Chunk{Chunk: c}}, false
	}
	return nil, false
}
