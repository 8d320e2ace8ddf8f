// SPDX-License-Identifier: Apache-2.0

// One live process and its Run stream.

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

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// session is a plugin process from its handshake to its end. When anything in it
// goes wrong the process is killed and the session is over; there is no repair.
type session struct {
	host        *Host
	name        string
	logs        *logSink
	client      *goplugin.Client
	proc        *process
	conn        *grpc.ClientConn
	api         pluginv1.PluginClient
	description sdk.Description

	// ctx ends with the session.
	ctx    context.Context
	cancel context.CancelFunc
	dead   chan struct{} // closed when the process is reaped and all is tidied up

	stream grpc.BidiStreamingClient[pluginv1.RunRequest, pluginv1.RunResponse]
	// busy holds a token while an epoch is out: from the call of analyse to the
	// plugin's last word on it, which may come after the call has returned.
	busy chan struct{}
	// send is held around the stream's Send.
	send sync.Mutex
	// what the plugin was told last; guarded by send.
	watched map[string]sdk.Watch
	network uint64

	mu     sync.Mutex
	cause  error // why the session ended; complete, and fixed, once dead is closed
	ended  bool
	call   *call // the epoch that is out
	buried bool  // no further tasks
	tasks  sync.WaitGroup
}

func newSession(h *Host, l launch, client *goplugin.Client, proc *process, conn *grpc.ClientConn) *session {
	s := &session{
		host: h, name: l.name, logs: l.logs, client: client, proc: proc, conn: conn,
		api: pluginv1.NewPluginClient(conn), dead: make(chan struct{}), busy: make(chan struct{}, 1),
		watched: make(map[string]sdk.Watch),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.bury()
	return s
}

// bury waits for the end of the process and tidies up.
func (s *session) bury() {
	<-s.proc.exited
	s.end(nil)
	s.client.Kill() // the process is gone: this closes connection and socket and waits for go-plugin's goroutines
	s.mu.Lock()
	s.buried = true
	s.mu.Unlock()
	s.tasks.Wait()
	if s.cause == nil { // nobody writes it any more
		s.cause = fmt.Errorf("%w: process %d %s", ErrCrashed, s.proc.pid(), s.proc.exit())
		if words := s.logs.lastWords(); words != "" {
			s.cause = fmt.Errorf("%w; it wrote: %s", s.cause, words)
		}
	}
	close(s.dead)
}

// spawn runs f, which ends when s.ctx does, beside the caller. It returns false
// when the session is over.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.buried {
		s.tasks.Go(f)
	}
	return !s.buried
}

// end notes the first reason for the end and wakes who waits for an answer.
func (s *session) end(cause error) {
	s.mu.Lock()
	if !s.ended {
		s.ended = true
		s.cause = cause
	}
	s.mu.Unlock()
	s.cancel()
}

// fail ends the session at once.
func (s *session) fail(cause error) {
	s.end(cause)
	s.proc.kill()
}

// obituary says why the session ended, once it is dead.
func (s *session) obituary() error { return s.cause }

// configure hands over configuration and network, and to a new process the state of the one before.
func (s *session) configure(ctx context.Context, config []byte, network sdk.Network, epoch time.Duration, state *sdk.State) (sdk.Settings, error) {
	ctx, cancel := context.WithTimeout(ctx, s.host.opts.CallTimeout)
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
	settings, err := sdk.SettingsFrom(m)
	var fields sdk.FieldErrors
	if errors.As(err, &fields) {
		return settings, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err != nil {
		return settings, fmt.Errorf("%w: Configure: %w", ErrProtocol, err)
	}
	s.send.Lock()
	s.network = network.Version
	s.send.Unlock()
	return settings, nil
}

// open opens the Run stream and begins to receive and to check the plugin's
// health.
func (s *session) open() error {
	stream, err := s.api.Run(s.ctx)
	if err != nil {
		return fmt.Errorf("%w: Run: %s", ErrProtocol, status.Convert(err).Message())
	}
	s.stream = stream
	s.spawn(s.receive)
	s.spawn(s.checkHealth)
	return nil
}

// receive reads the stream to its end. A stream that ends before the process does
// means that the plugin is of no more use.
func (s *session) receive() {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			select {
			case <-s.proc.exited: // which says more than the stream
			case <-s.ctx.Done():
			case <-time.After(exitGrace):
				s.fail(fmt.Errorf("%w: its stream ended: %s", ErrProtocol, status.Convert(err).Message()))
			}
			return
		}
		if err := s.take(m); err != nil {
			s.fail(fmt.Errorf("%w: %w", ErrProtocol, err))
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
		if call != nil {
			call.affords(m.Event)
		}
		s.event(call, sdk.EventFrom(m.Event))
		return nil
	case *pluginv1.RunResponse_Table:
		if call == nil || m.Table.GetEpoch() != call.epoch {
			return fmt.Errorf("a table for epoch %d, which nobody asked for", m.Table.GetEpoch())
		}
		call.table(m.Table)
	case *pluginv1.RunResponse_Plan:
		if call == nil {
			return errors.New("a plan outside of an epoch")
		}
		call.plan(m.Plan)
	case *pluginv1.RunResponse_State:
		if call == nil {
			return errors.New("a state outside of an epoch")
		}
		call.state(m.State)
	case *pluginv1.RunResponse_Done:
		if call == nil || m.Done.GetEpoch() != call.epoch {
			return fmt.Errorf("the end of epoch %d, which nobody asked for", m.Done.GetEpoch())
		}
		call.finish(m.Done)
		s.mu.Lock()
		s.call = nil
		s.mu.Unlock()
		<-s.busy
	}
	return nil
}

// event logs an event of the plugin, as long as there are not too many.
func (s *session) event(call *call, e sdk.Event) {
	if call != nil && !call.event(e) {
		s.logs.dropped.Add(1)
		return
	}
	if !s.logs.limiter.Allow() {
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

// checkHealth asks the plugin from time to time whether it is well.
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

// stop drains the plugin and ends it; ctx bounds all of it.
func (s *session) stop(ctx context.Context) {
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
