// SPDX-License-Identifier: Apache-2.0

// Groups of outputs and their published state.

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

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/yang/table"
)

// List is the schema path of the list that a Group publishes.
const List = "/netsketch-collector:collector/outputs/output"

// Group runs outputs independently of each other.
type Group struct {
	store    *store.Store
	logger   *slog.Logger
	interval time.Duration
	outputs  []Output

	mu    sync.Mutex
	ended map[string]error // by name

	published []State // owned by Run
}

// NewGroup returns a group of outputs with distinct names. It publishes their states if they have
// changed, every interval (1 s if 0) and when one ends.
func NewGroup(s *store.Store, logger *slog.Logger, interval time.Duration, outs ...Output) (*Group, error) {
	if interval <= 0 {
		interval = time.Second
	}
	sorted := slices.SortedFunc(slices.Values(outs),
		func(a, b Output) int { return strings.Compare(a.Name(), b.Name()) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Name() == sorted[i-1].Name() {
			return nil, fmt.Errorf("outputs: two outputs are named %q", sorted[i].Name())
		}
	}
	return &Group{store: s, logger: logger, interval: interval, outputs: sorted, ended: map[string]error{}}, nil
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
// logged and published as stopped. The error joins the errors of the outputs.
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
	ticker := time.NewTicker(g.interval)
	defer ticker.Stop()
	g.publish()
	for running := len(g.outputs); running > 0; {
		select {
		case <-done:
			running--
			g.publish()
		case <-ticker.C:
			g.publish()
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

// publish publishes the states if they have changed.
func (g *Group) publish() {
	if len(g.outputs) == 0 {
		return
	}
	states := g.states()
	if slices.Equal(states, g.published) {
		return
	}
	g.published = states
	t, err := g.table(states)
	if err == nil {
		err = g.store.Publish(store.Batch{Time: time.Now(), Tables: []store.Publication{{Table: t, Replace: true}}})
	}
	if err != nil && !errors.Is(err, store.ErrClosed) {
		g.logger.Warn("cannot publish the state of outputs", "error", err)
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

// table returns the states as rows of List.
func (g *Group) table(states []State) (*table.Table, error) {
	b := table.NewBuilder(List)
	name, kind, status, last := b.TextKey("name"), b.Text("state/type"), b.Text("state/status"),
		b.Text("state/last-error")
	sent, dropped, queued, spooled := b.Uint("state/sent"), b.Uint("state/dropped"), b.Uint("state/queued"),
		b.Uint("state/spooled")
	for i, o := range g.outputs {
		s := states[i]
		name.Append(o.Name())
		kind.Append(o.Type())
		status.Append(string(s.Status))
		last.Append(clean(s.LastError))
		sent.Append(s.Sent)
		dropped.Append(s.Dropped)
		queued.Append(s.Queued)
		spooled.Append(s.Spooled)
	}
	return b.Table()
}

// clean returns an error as a YANG string: valid UTF-8 without control characters, at most 1,000
// bytes.
func clean(s string) string {
	if len(s) > 1000 {
		s = s[:1000] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
