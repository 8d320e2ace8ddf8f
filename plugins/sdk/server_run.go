// SPDX-License-Identifier: Apache-2.0

// A Run stream receives epochs and sends results.

package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// errCanceled is the cause of a context that EpochCancel ended.
var errCanceled = errors.New("the collector canceled the epoch")

// run is one Run stream. The call's goroutine receives. A worker runs the tasks in order, and only
// it sends.
type run struct {
	server *Server
	stream grpc.BidiStreamingServer[pluginv1.RunRequest, pluginv1.RunResponse]
	tasks  chan func(context.Context)
	worker sync.WaitGroup
	cancel context.CancelFunc // ends the worker's context

	watched map[string]RowKey // owned by the worker

	mu      sync.Mutex
	current uint64             // epoch that is being analyzed
	abandon context.CancelFunc // ends the epoch's analysis; nil if none is in progress
	early   map[uint64]bool    // epochs canceled before their analysis began
}

func newRun(s *Server, stream grpc.BidiStreamingServer[pluginv1.RunRequest, pluginv1.RunResponse]) *run {
	ctx, cancel := context.WithCancel(stream.Context())
	r := &run{
		server: s, stream: stream, cancel: cancel, tasks: make(chan func(context.Context), 16),
		watched: make(map[string]RowKey), early: make(map[uint64]bool),
	}
	r.worker.Add(1)
	go func() { // not WaitGroup.Go, which would hide the place of a plugin's panic
		defer r.worker.Done()
		for task := range r.tasks {
			task(ctx)
		}
	}()
	return r
}

// stop cancels the current analysis and waits for the worker.
func (r *run) stop() {
	r.cancel()
	close(r.tasks)
	r.worker.Wait()
}

// receive reads the stream to its end.
func (r *run) receive() error {
	decoder := NewEpochDecoder(maxEpoch, func(epoch *Epoch, budget time.Duration) error {
		sealed := time.Now()
		r.tasks <- func(ctx context.Context) { r.analyze(ctx, epoch, budget, sealed) }
		return nil
	})
	for {
		request, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch m := request.GetMessage().(type) {
		case *pluginv1.RunRequest_Cancel:
			r.cancelEpoch(m.Cancel.GetEpoch())
		case *pluginv1.RunRequest_Watch:
			r.tasks <- func(context.Context) { r.watch(m.Watch) }
		case *pluginv1.RunRequest_Network:
			r.tasks <- func(ctx context.Context) { r.network(ctx, m.Network) }
		default:
			err = decoder.Take(request)
		}
		if err != nil {
			return err
		}
	}
}

func (r *run) cancelEpoch(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandon != nil && r.current == number {
		r.abandon()
		return
	}
	if r.abandon == nil || number > r.current {
		clear(r.early) // at most one epoch can be waiting
		r.early[number] = true
	}
}

// begin records the epoch that is being analyzed. It returns false if the epoch was canceled
// before.
func (r *run) begin(number uint64, abandon context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.early[number] {
		delete(r.early, number)
		return false
	}
	r.current, r.abandon = number, abandon
	return true
}

func (r *run) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandon = nil
}

// analyze analyzes one epoch and sends the results. It ignores failed sends: the stream has then
// ended, and receive returns the error.
func (r *run) analyze(ctx context.Context, epoch *Epoch, budget time.Duration, sealed time.Time) {
	r.server.mu.Lock()
	draining := r.server.draining
	r.server.mu.Unlock()
	if draining {
		r.done(epoch.Number, errors.New("the plugin is being stopped"), Stats{})
		return
	}
	ctx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	if budget > 0 {
		var release context.CancelFunc
		ctx, release = context.WithDeadline(ctx, sealed.Add(budget))
		defer release()
	}
	if !r.begin(epoch.Number, func() { abandon(errCanceled) }) {
		r.done(epoch.Number, errCanceled, Stats{})
		return
	}
	defer r.end()

	stats := Stats{InputBytes: epoch.Bytes()}
	epoch.Watched = r.watchedRows()
	number := epoch.Number
	results, err := r.call(ctx, epoch)
	stats.Duration = time.Since(sealed)
	if err == nil {
		err = r.send(ctx, number, results, &stats)
	}
	r.done(number, err, stats)
}

func (r *run) call(ctx context.Context, epoch *Epoch) (*Results, error) {
	r.server.work.Lock()
	defer r.server.work.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	number := epoch.Number
	results, err := r.server.plugin.Analyze(ctx, epoch)
	if err != nil {
		return nil, err
	}
	if results == nil {
		results = &Results{}
	}
	results.State = r.server.save(number)
	return results, nil
}

// save returns the plugin's state after an epoch. The caller holds s.work.
func (s *Server) save(epoch uint64) *State {
	p, ok := s.plugin.(Stateful)
	if !ok {
		return nil
	}
	state, err := p.SaveState()
	if err == nil && len(state.Data) > MaxState {
		err = fmt.Errorf("%d bytes; the limit is %d", len(state.Data), MaxState)
	}
	if err != nil {
		slog.Warn("state not saved", "epoch", epoch, "error", err)
		return nil
	}
	if len(state.Data) == 0 {
		return nil
	}
	state.Epoch = epoch
	return &state
}

// send sends results, until ctx ends. It checks all tables before it sends the first one, so that
// an error leaves no partial results.
func (r *run) send(ctx context.Context, epoch uint64, results *Results, stats *Stats) error {
	for _, result := range results.Tables {
		if result.Table == nil {
			return errors.New("a result without a table")
		}
		if err := result.Table.Check(); err != nil {
			return fmt.Errorf("result: %w", err)
		}
		stats.Tables++
		stats.Rows += result.Table.Rows()
	}
	for _, event := range results.Events {
		if err := r.stream.Send(
			&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Event{Event: event.Proto()}}); err != nil {
			return err
		}
	}
	for _, result := range results.Tables {
		for part := range result.Parts(epoch) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := r.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Table{Table: part}}); err != nil {
				return err
			}
		}
	}
	for _, plan := range results.Plans {
		if err := r.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Plan{Plan: plan.Proto()}}); err != nil {
			return err
		}
	}
	if results.State == nil {
		return nil
	}
	return r.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_State{State: results.State.Proto()}})
}

func (r *run) done(epoch uint64, err error, stats Stats) {
	m := &pluginv1.EpochDone{Epoch: epoch, Stats: stats.Proto()}
	if err != nil {
		m.Error = cmp.Or(strings.ToValidUTF8(err.Error(), "?"), "an error without a text")
	}
	_ = r.stream.Send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Done{Done: m}})
}

// watch updates the set of watched rows.
func (r *run) watch(m *pluginv1.WatchUpdate) {
	for _, row := range m.GetRemove() {
		delete(r.watched, RowKeyFrom(row).ID())
	}
	for _, row := range m.GetAdd() {
		w := RowKeyFrom(row)
		r.watched[w.ID()] = w
	}
}

func (r *run) watchedRows() []RowKey {
	if len(r.watched) == 0 {
		return nil
	}
	rows := make([]RowKey, 0, len(r.watched))
	for _, id := range slices.Sorted(maps.Keys(r.watched)) {
		rows = append(rows, r.watched[id])
	}
	return rows
}

// ID returns a text that identifies the row and sorts rows by list, target and keys.
func (k RowKey) ID() string {
	b := append([]byte(k.List), 0)
	b = append(append(b, k.Target...), 0)
	for _, key := range slices.Sorted(maps.Keys(k.Keys)) {
		b = append(append(b, key...), 0)
		b = append(append(b, k.Keys[key]...), 0)
	}
	return string(b)
}

// network passes a changed network to the plugin.
func (r *run) network(ctx context.Context, m *pluginv1.Network) {
	if updater, ok := r.server.plugin.(NetworkUpdater); ok {
		r.server.work.Lock()
		defer r.server.work.Unlock()
		updater.NetworkChanged(ctx, NetworkFrom(m))
	}
}
