// SPDX-License-Identifier: Apache-2.0

// Running several outputs, and publishing how they are doing.

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

// Group runs outputs. An output that ends takes none of the others with it.
type Group struct {
	store    *store.Store
	logger   *slog.Logger
	interval time.Duration
	outputs  []Output

	mu    sync.Mutex
	ended map[string]error // by name

	said []State // what was published last; Run's
}

// NewGroup returns a group of outputs of distinct names. Their states are looked at
// every interval (1 s when it is 0) and when one ends, and published when they changed.
func NewGroup(s *store.Store, logger *slog.Logger, interval time.Duration, outs ...Output) (*Group, error) {
	if interval <= 0 {
		interval = time.Second
	}
	sorted := slices.SortedFunc(slices.Values(outs), func(a, b Output) int { return strings.Compare(a.Name(), b.Name()) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Name() == sorted[i-1].Name() {
			return nil, fmt.Errorf("outputs: two outputs are named %q", sorted[i].Name())
		}
	}
	return &Group{store: s, logger: logger, interval: interval, outputs: sorted, ended: map[string]error{}}, nil
}

// Start starts every output. When one cannot start, the error names it, those that
// have started are stopped again, and Run must not be called.
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

// Run runs the outputs until ctx ends and every one of them has stopped. An output
// that ends by itself is logged and published as stopped. The error joins those of
// the outputs that did not stop in order.
func (g *Group) Run(ctx context.Context) error {
	done := make(chan struct{}, len(g.outputs))
	for _, o := range g.outputs {
		go func() {
			err := o.Run(ctx)
			g.mu.Lock()
			g.ended[o.Name()] = err
			g.mu.Unlock()
			if err != nil {
				g.logger.Error("output has stopped", "output", o.Name(), "type", o.Type(), "error", err)
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

// publish puts the states into the store.
func (g *Group) publish() {
	if len(g.outputs) == 0 {
		return
	}
	states := g.states()
	if slices.Equal(states, g.said) {
		return
	}
	g.said = states
	t, err := g.table(states)
	if err == nil {
		err = g.store.Publish(store.Batch{Time: time.Now(), Tables: []store.Publication{{Table: t, Replace: true}}})
	}
	if err != nil && !errors.Is(err, store.ErrClosed) {
		g.logger.Warn("states of the outputs are not published", "error", err)
	}
}

// states returns the outputs' states, in their order.
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

// table returns the states of the outputs as rows of List.
func (g *Group) table(states []State) (*table.Table, error) {
	b := table.NewBuilder(List)
	name, kind, status, last := b.TextKey("name"), b.Text("state/type"), b.Text("state/status"), b.Text("state/last-error")
	sent, dropped, queued, spooled := b.Uint("state/sent"), b.Uint("state/dropped"), b.Uint("state/queued"), b.Uint("state/spooled")
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

// clean makes an error a YANG string: valid UTF-8, no control characters, not long.
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
