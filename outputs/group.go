// SPDX-License-Identifier: Apache-2.0

// Groups of outputs and their state.

package outputs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openconfig/ygot/ygot"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang/bindings"
)

// Group runs outputs independently of each other.
type Group struct {
	store   *store.Store
	logger  *slog.Logger
	changed func()
	outputs []Output

	mu    sync.Mutex
	ended map[string]error // errors of ended outputs by name

	reported []State // owned by Run
}

// reportInterval is the time between checks for changed states.
const reportInterval = time.Second

// NewGroup returns a group of outputs with distinct names. It calls changed, which must not block,
// within a second after a state has changed.
func NewGroup(s *store.Store, logger *slog.Logger, changed func(), outs ...Output) (*Group, error) {
	sorted := slices.SortedFunc(slices.Values(outs),
		func(a, b Output) int { return strings.Compare(a.Name(), b.Name()) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Name() == sorted[i-1].Name() {
			return nil, fmt.Errorf("outputs: two outputs are named %q", sorted[i].Name())
		}
	}
	return &Group{store: s, logger: logger, changed: changed, outputs: sorted, ended: map[string]error{}}, nil
}

// Start starts every output. If one fails, the error names it, the started ones are stopped again,
// and Run must not be called.
func (g *Group) Start() error {
	for i, o := range g.outputs {
		err := o.Start(g.store)
		if err == nil {
			continue
		}
		err = fmt.Errorf("output %s: %w", o.Name(), err)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for _, started := range g.outputs[:i] {
			if e := started.Run(ended); e != nil {
				err = errors.Join(err, fmt.Errorf("output %s: %w", started.Name(), e))
			}
		}
		return err
	}
	return nil
}

// Run runs the outputs until ctx ends and all of them have stopped. An output that ends early is
// logged, and its state is Stopped. The error joins the errors of the outputs.
func (g *Group) Run(ctx context.Context) error {
	done := make(chan struct{}, len(g.outputs))
	for _, o := range g.outputs {
		go func() {
			err := o.Run(ctx)
			g.mu.Lock()
			g.ended[o.Name()] = err
			g.mu.Unlock()
			if err != nil {
				g.logger.Error("output stopped", "output", o.Name(), "type", o.Type(), "error", err)
			}
			done <- struct{}{}
		}()
	}
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	g.report()
	for running := len(g.outputs); running > 0; g.report() {
		select {
		case <-done:
			running--
		case <-ticker.C:
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, o := range g.outputs {
		if err := g.ended[o.Name()]; err != nil {
			errs = append(errs, fmt.Errorf("output %s: %w", o.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// report calls changed if a state has changed.
func (g *Group) report() {
	if states := g.states(); !slices.Equal(states, g.reported) {
		g.reported = states
		g.changed()
	}
}

// states returns the states in the order of the outputs.
func (g *Group) states() []State {
	out := make([]State, len(g.outputs))
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, o := range g.outputs {
		out[i] = o.State()
		if err, over := g.ended[o.Name()]; over {
			out[i].Status = Stopped
			if err != nil {
				out[i].LastError = err.Error()
			}
		}
	}
	return out
}

// Declare returns the states as entries of /collector/outputs/output, by name.
func (g *Group) Declare() map[string]*bindings.Collector_Output {
	out := map[string]*bindings.Collector_Output{}
	for i, s := range g.states() {
		o := g.outputs[i]
		out[o.Name()] = &bindings.Collector_Output{
			Name: ygot.String(o.Name()), Type: ygot.String(o.Type()), Status: s.Status, LastError: &s.LastError,
			Sent: &s.Sent, Dropped: &s.Dropped, Queued: &s.Queued, Spooled: &s.Spooled,
		}
		if s.Serves {
			out[o.Name()].Clients = s.Clients.declare()
		}
	}
	return out
}

func (c Clients) declare() *bindings.Collector_Output_Clients {
	return &bindings.Collector_Output_Clients{
		Connections: ygot.Uint32(uint32(c.Connections)), Streams: ygot.Uint32(uint32(c.Streams)),
		StreamsWaiting: ygot.Uint32(uint32(c.StreamsWaiting)), Gets: ygot.Uint32(uint32(c.Gets)),
		ConnectionsRefused: &c.ConnectionsRefused, LoginsRefused: &c.LoginsRefused, StreamsRefused: &c.StreamsRefused,
		GetsRefused: &c.GetsRefused, PathsRefused: &c.PathsRefused, RequestsRefused: &c.RequestsRefused,
	}
}
