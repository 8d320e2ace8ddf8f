// SPDX-License-Identifier: Apache-2.0

// The gRPC server of a plugin, which maps calls and streams to the methods of a Plugin.

package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/settings"
)

// maxEpoch bounds the cells and reports of one epoch, in bytes.
const maxEpoch = 4 << 30

// sdkName is the value of Description.SDK.
const sdkName = "netsketch-go/1"

// Server serves a Plugin over gRPC. Serve runs it as a process; package sdktest and the
// collector's tests run it in the test's process.
type Server struct {
	pluginv1.UnimplementedPluginServer
	plugin Plugin
	log    *logLines // nil if the collector reads the log from standard error

	// work serializes the calls of the plugin that must not run concurrently: Describe, Configure,
	// Analyze, NetworkChanged.
	work     sync.Mutex
	restored bool // RestoreState was called; guarded by work

	mu       sync.Mutex
	running  bool // a Run stream is open
	draining bool
	drained  chan struct{} // closed when the plugin is drained
}

// NewServer returns a server for p.
func NewServer(p Plugin) *Server { return &Server{plugin: p, drained: make(chan struct{})} }

// Register adds the server's service to r.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	pluginv1.RegisterPluginServer(r, s)
}

// Describe returns p's description with the fields that the SDK sets.
func Describe(p Plugin) Description {
	d := p.Describe()
	_, d.Capabilities.Query = p.(Querier)
	_, d.Capabilities.Merge = p.(Merger)
	_, d.Capabilities.Drain = p.(Drainer)
	_, d.Capabilities.NetworkUpdates = p.(NetworkUpdater)
	_, d.Capabilities.State = p.(Stateful)
	for _, l := range d.Lists {
		d.Capabilities.Watch = d.Capabilities.Watch || l.Watchable
	}
	d.SDK = sdkName
	return d
}

// Describe implements the contract.
func (s *Server) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	s.work.Lock()
	defer s.work.Unlock()
	return Describe(s.plugin).Proto(), nil
}

// Configure implements the contract.
func (s *Server) Configure(ctx context.Context, m *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	s.work.Lock()
	defer s.work.Unlock()
	s.restore(m.GetState())
	config := Config{JSON: m.GetConfigJson(), EpochLength: time.Duration(m.GetEpochLengthNs())}
	configured, err := s.plugin.Configure(ctx, config, NetworkFrom(m.GetNetwork()))
	if err == nil {
		return configured.Proto(), nil
	}
	var fields settings.KeyErrors
	var field settings.KeyError
	switch {
	case errors.As(err, &fields) && len(fields) > 0:
	case errors.As(err, &field):
		fields = settings.KeyErrors{field}
	default:
		fields = settings.KeyErrors{{Message: err.Error()}}
	}
	return &pluginv1.ConfigureResponse{
		Errors: toProto(fields, func(f settings.KeyError) *pluginv1.FieldError {
			return &pluginv1.FieldError{Field: f.Key, Message: f.Message}
		}),
	}, nil
}

// restore passes the state that an earlier process saved to the plugin. The caller holds s.work.
func (s *Server) restore(m *pluginv1.PluginState) {
	p, ok := s.plugin.(Stateful)
	if !ok || m == nil || s.restored {
		return
	}
	s.restored = true
	if err := p.RestoreState(StateFrom(m)); err != nil {
		slog.Warn("saved state not restored; the plugin starts without state", "epoch", m.GetEpoch(), "error", err)
	}
}

// Query implements the contract.
func (s *Server) Query(ctx context.Context, m *pluginv1.QueryRequest) (*pluginv1.QueryResponse, error) {
	q, ok := s.plugin.(Querier)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "this plugin does not answer queries")
	}
	tables, epoch, err := q.Query(ctx, RowKeyFrom(m.GetRow()))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	out := &pluginv1.QueryResponse{Epoch: epoch}
	for _, t := range tables {
		if err := t.Check(); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		for part := range (TableResult{Table: t}).Parts(0) {
			out.Tables = append(out.Tables, part)
		}
	}
	return out, nil
}

// Merge implements the contract.
func (s *Server) Merge(stream grpc.BidiStreamingServer[pluginv1.EpochPart, pluginv1.EpochPart]) error {
	m, ok := s.plugin.(Merger)
	if !ok {
		return status.Error(codes.Unimplemented, "this plugin does not merge epochs")
	}
	var part *Epoch
	decoder := NewEpochDecoder(maxEpoch, func(e *Epoch, _ time.Duration) error {
		part = e
		return nil
	})
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := decoder.Take(request); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
	if part == nil {
		return status.Error(codes.InvalidArgument, "no whole part to merge")
	}
	merged, err := m.Merge(stream.Context(), part)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return merged.Send(stream.Send, 0)
}

// Drain implements the contract: it waits for the epoch that is being analyzed, and then drains
// the plugin.
func (s *Server) Drain(ctx context.Context, m *pluginv1.DrainRequest) (*pluginv1.DrainResponse, error) {
	if m.GetBudgetNs() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(m.GetBudgetNs()))
		defer cancel()
	}
	if err := s.drain(ctx); err != nil {
		return nil, status.Error(codes.DeadlineExceeded, err.Error())
	}
	return &pluginv1.DrainResponse{}, nil
}

// drain refuses further epochs, waits for the current one and drains the plugin. Further calls
// wait for the first one.
func (s *Server) drain(ctx context.Context) error {
	s.mu.Lock()
	first := !s.draining
	s.draining = true
	s.mu.Unlock()
	if first {
		go func() { // ends after the current analysis and Drain
			defer close(s.drained)
			s.work.Lock()
			s.work.Unlock() //nolint:staticcheck // waits for the current call
			if d, ok := s.plugin.(Drainer); ok {
				if err := d.Drain(ctx); err != nil {
					slog.Error("drain", "error", err)
				}
			}
		}()
	}
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain: the plugin is still working: %w", ctx.Err())
	}
}

// Run implements the contract.
func (s *Server) Run(stream grpc.BidiStreamingServer[pluginv1.RunRequest, pluginv1.RunResponse]) error {
	s.mu.Lock()
	if s.running {
		s.mu.Unlock()
		return status.Error(codes.FailedPrecondition, "another Run stream is open")
	}
	s.running = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running = false
		s.mu.Unlock()
	}()
	run := newRun(s, stream)
	err := run.receive()
	run.stop()
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	slog.Error("invalid message from the collector", "error", err)
	return status.Error(codes.InvalidArgument, err.Error())
}
