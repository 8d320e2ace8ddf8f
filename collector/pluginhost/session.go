// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/settings"
)

// session is a plugin process from its handshake to its end, with its Run stream. After any error,
// the process is killed and the session ends.
type session struct {
	host        *Host
	name        string
	logs        *logSink
	close       func() // closes connection and socket, and waits for the goroutines that serve them
	proc        *process
	conn        *grpc.ClientConn
	api         pluginv1.PluginClient
	description sdk.Description
	callTimeout time.Duration // bounds Describe and Configure

	// ctx ends with the session.
	ctx    context.Context
	cancel context.CancelFunc
	dead   chan struct{} // closed when the process is reaped and its resources are released
	// exitErr says why the session ended. It is read after dead is closed.
	exitErr error

	stream grpc.BidiStreamingClient[pluginv1.RunRequest, pluginv1.RunResponse]
	// send is held while the stream sends.
	send sync.Mutex
	// watched and networkVersion were sent to the plugin last; guarded by send.
	watched map[string]sdk.RowKey
	network uint64

	mu     sync.Mutex
	ended  bool
	call   *call // the epoch that the plugin is analyzing
	closed bool  // no further calls begin
	tasks  sync.WaitGroup
}

func newSession(h *Host, l launch, disconnect func(), proc *process, conn *grpc.ClientConn) *session {
	s := &session{
		host: h, name: l.name, logs: l.logs, close: disconnect, proc: proc, conn: conn,
		api: pluginv1.NewPluginClient(conn), callTimeout: h.opts.CallTimeout, dead: make(chan struct{}),
		watched: make(map[string]sdk.RowKey),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.reap()
	return s
}

// reap waits for the end of the process and releases its resources.
func (s *session) reap() {
	<-s.proc.exited
	s.end(nil)
	s.close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.tasks.Wait()
	if s.exitErr == nil {
		s.exitErr = fmt.Errorf("%w: process %d %w", ErrCrashed, s.proc.pid(), s.proc.exitErr())
		if tail := s.logs.stderrTail(); tail != "" {
			s.exitErr = fmt.Errorf("%w; it wrote: %s", s.exitErr, tail)
		}
	}
	close(s.dead)
}

// spawn runs f in a goroutine. f must return when s.ctx ends. spawn returns false if the session
// has ended.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.tasks.Go(f)
	}
	return !s.closed
}

// end records the first reason for the end, and wakes the goroutines that wait for a reply.
func (s *session) end(cause error) {
	s.mu.Lock()
	if !s.ended {
		s.ended = true
		s.exitErr = cause
	}
	s.mu.Unlock()
	s.cancel()
}

// fail ends the session at once, with cause as the reason.
func (s *session) fail(cause error) {
	s.end(cause)
	s.proc.kill()
}

// configure sends configuration and network to the plugin and, if the process is new, the state
// that the previous process saved.
func (s *session) configure(ctx context.Context, config []byte, network sdk.Network, epoch time.Duration,
	state *sdk.State,
) (sdk.Settings, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	request := &pluginv1.ConfigureRequest{ConfigJson: config, Network: network.Proto(), EpochLengthNs: int64(epoch)}
	if state != nil {
		request.State = state.Proto()
	}
	m, err := s.api.Configure(ctx, request)
	if err != nil {
		return sdk.Settings{}, fmt.Errorf("%w: Configure: %s", ErrProtocol, status.Convert(err).Message())
	}
	wanted, err := sdk.SettingsFrom(m)
	var fields settings.KeyErrors
	if errors.As(err, &fields) {
		return wanted, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err != nil {
		return wanted, fmt.Errorf("%w: Configure: %w", ErrProtocol, err)
	}
	s.send.Lock()
	s.network = network.Version
	s.send.Unlock()
	return wanted, nil
}

// open opens the Run stream, and starts to receive and to check the plugin's health.
func (s *session) open() error {
	stream, err := s.api.Run(s.ctx)
	if err != nil {
		return fmt.Errorf("%w: Run: %s", ErrProtocol, status.Convert(err).Message())
	}
	s.stream = stream
	s.spawn(s.receive)
	if !s.proc.attached { // a call may wait at a breakpoint of the debugger
		s.spawn(s.checkHealth)
	}
	return nil
}

// followLog passes the log of an attached plugin to the collector's. It returns when the plugin has
// accepted the call, so that no later line is missed. A plugin in another language may not
// implement Log; it then logs to its terminal only.
func (s *session) followLog(ctx context.Context) error {
	waiting, cancel := context.WithCancel(s.ctx)
	defer context.AfterFunc(ctx, cancel)()
	stream, err := s.api.Log(waiting, &pluginv1.LogRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		cancel()
		return ctx.Err()
	}
	lines := s.logs.writer("stderr")
	s.spawn(func() {
		defer cancel()
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			_, _ = lines.Write([]byte(m.GetLine() + "\n"))
		}
	})
	return nil
}

// receive reads the stream to its end. If the stream ends before the process does, the session
// fails.
func (s *session) receive() {
	for {
		m, err := s.stream.Recv()
		if err != nil && s.proc.attached {
			s.fail(fmt.Errorf("%w: it ended the connection: %s", ErrCrashed, status.Convert(err).Message()))
			return
		}
		if err != nil {
			select {
			case <-s.proc.ended: // the exit status is the better reason
			case <-s.ctx.Done():
			case <-time.After(exitGrace):
				s.fail(fmt.Errorf("%w: its stream ended: %s", ErrProtocol, status.Convert(err).Message()))
			}
			return
		}
		if err := s.take(m); err != nil {
			if !errors.Is(err, ErrInvalidResults) {
				err = fmt.Errorf("%w: %w", ErrProtocol, err)
			}
			s.fail(err)
			return
		}
	}
}

// take handles one message of the plugin.
func (s *session) take(m *pluginv1.RunResponse) error {
	s.mu.Lock()
	call := s.call
	s.mu.Unlock()
	switch m := m.GetMessage().(type) {
	case *pluginv1.RunResponse_Event:
		s.event(call, sdk.EventFrom(m.Event))
		if call != nil {
			return s.give(call, m.Event, func() { call.withinBounds(m.Event) })
		}
	case *pluginv1.RunResponse_Table:
		if call == nil || m.Table.GetEpoch() != call.epoch {
			return fmt.Errorf("a table for epoch %d, which was not requested", m.Table.GetEpoch())
		}
		return s.give(call, m.Table, func() { call.table(m.Table) })
	case *pluginv1.RunResponse_Plan:
		if call == nil {
			return errors.New("a plan outside of an epoch")
		}
		return s.give(call, m.Plan, func() { call.plan(m.Plan) })
	case *pluginv1.RunResponse_State:
		if call == nil {
			return errors.New("a state outside of an epoch")
		}
		return s.give(call, m.State, func() { call.state(m.State) })
	case *pluginv1.RunResponse_Done:
		if call == nil || m.Done.GetEpoch() != call.epoch {
			return fmt.Errorf("the end of epoch %d, which was not requested", m.Done.GetEpoch())
		}
		s.mu.Lock()
		s.call = nil
		s.mu.Unlock()
		call.finish(m.Done)
	}
	return nil
}

// give adds a part of an epoch's results. When the results can no longer be used, it cancels the
// epoch, so that the plugin does not send the rest. It returns an error if the plugin goes on
// sending.
func (s *session) give(c *call, part proto.Message, add func()) error {
	if c.err != nil {
		if c.discarded += messageOverhead + proto.Size(part); c.discarded > maxDiscarded {
			return fmt.Errorf("%w; it did not stop sending when the epoch was canceled", c.err)
		}
		return nil
	}
	if add(); c.err != nil {
		s.cancelEpoch(c, c.err)
	}
	return nil
}

// event logs an event of the plugin within the limits of the epoch and of the log rate.
func (s *session) event(call *call, e sdk.Event) {
	if call != nil && !call.event(e) || !s.logs.limiter.Allow() {
		s.logs.dropped.Add(1)
		return
	}
	args := []any{}
	for key, value := range e.Attributes {
		if len(args) == 2*maxLogAttrs {
			break
		}
		args = append(args, clean(key), clean(value))
	}
	s.logs.logger.Log(context.Background(), e.Level, clean(e.Message), args...)
}

// checkHealth calls the plugin's health service periodically.
func (s *session) checkHealth() {
	opts := s.host.opts
	health := grpc_health_v1.NewHealthClient(s.conn)
	ticker := time.NewTicker(opts.HealthInterval)
	defer ticker.Stop()
	failures := 0
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, opts.HealthTimeout)
		answer, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
		cancel()
		switch {
		case s.ctx.Err() != nil:
			return
		case err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING:
			failures = 0
			continue
		}
		if failures++; failures >= opts.HealthFailures {
			s.fail(fmt.Errorf("%w: %d in a row", ErrUnhealthy, failures))
			return
		}
	}
}

// stop drains the plugin and ends its process, before ctx ends. An attached plugin runs on, for the
// next collector.
func (s *session) stop(ctx context.Context) {
	if s.proc.attached {
		s.fail(ErrStopped)
		<-s.dead
		return
	}
	drainCtx, cancel := context.WithTimeout(ctx, s.host.opts.StopGrace)
	defer cancel()
	deadline, _ := drainCtx.Deadline()
	_, err := s.api.Drain(drainCtx, &pluginv1.DrainRequest{BudgetNs: int64(time.Until(deadline))})
	if err != nil && s.ctx.Err() == nil {
		s.logs.logger.Warn("plugin did not drain", "error", status.Convert(err).Message())
	}
	s.end(ErrStopped)
	s.proc.terminate()
	select {
	case <-s.proc.exited:
	case <-drainCtx.Done():
		s.proc.kill()
	}
	<-s.dead
}
