// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// analysis is the work on one epoch.
type analysis struct {
	epoch     *sdk.Epoch
	config    *Configuration
	b         *binding
	attention Attention
	next      Attention
	settled   bool
	readings  []*reading // of the edges that delivered, in their order
	losses    *losses    // never nil
	previous  *previous
	problems  map[string]string // by subject
	response  time.Duration     // until next was decided
}

// Analyse implements sdk.Plugin.
func (p *Plugin) Analyse(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	began := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &analysis{epoch: epoch, config: &p.config, b: p.binding, previous: p.previous, problems: make(map[string]string)}
	if len(a.b.edges) == 0 {
		a.losses = &losses{reason: "no edge switch runs ChameleMon"}
		return a.publish()
	}
	if p.settled == 0 {
		// Epochs from 1 on begin under this process's plan; in a later one it was written in the
		// midst of an epoch, and the one before that was another's.
		if p.settled = 1; epoch.Number > 2 {
			p.settled = epoch.Number + 2
		}
	}
	a.settled = epoch.Number >= p.settled
	a.attention = p.inForce(epoch.Number)
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	if err := a.detect(); err != nil {
		return nil, err
	}
	var reasons []string
	a.next = a.attention
	if a.config.Control {
		m, err := a.measured()
		if err != nil {
			return nil, err
		}
		a.next, reasons = shift(a.attention, m, &a.b.room)
	}
	a.response = time.Since(began)
	if err := a.name(); err != nil {
		return nil, err
	}
	out, err := a.publish()
	if err != nil {
		return nil, err
	}
	p.plan(a, out)
	p.alert(a, out, reasons)
	out.Events = append(out.Events, p.tell(a.problems)...)
	p.previous = &previous{number: epoch.Number, readings: make(map[string]*reading)}
	for _, r := range a.readings {
		if r.whole {
			p.previous.readings[r.edge.name] = r
		}
	}
	return out, nil
}

// read takes apart what each edge delivered, several at a time.
func (a *analysis) read(ctx context.Context) error {
	why := make(map[string]string)
	for _, m := range a.epoch.Missing {
		why[m.Name] = m.Reason
	}
	found := make([]*reading, len(a.b.edges))
	problems := make([]string, len(a.b.edges))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range a.b.edges {
		e := &a.b.edges[i]
		d := a.epoch.Device(e.name)
		if d == nil {
			problems[i] = "nothing was delivered: " + why[e.name]
			continue
		}
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("epoch %d: %w", a.epoch.Number, err)
			}
			r, err := e.read(d, &a.attention, &a.b.room)
			if err != nil {
				problems[i] = "no results: " + err.Error()
				return nil
			}
			if reason, missing := why[e.name]; missing {
				r.whole = false
				problems[i] = "not everything was delivered: " + reason
			}
			found[i] = r
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, r := range found {
		if r != nil {
			r.problem = problems[i]
			if !r.decoded && r.problem == "" {
				r.problem = "the HH part was not decoded"
			}
			a.readings = append(a.readings, r)
		}
		if problems[i] != "" {
			a.problems["switch "+a.b.edges[i].name] = problems[i]
		}
	}
	return nil
}

// detect finds lost packets, unless a switch is missing: then packets that entered or
// left there would be taken for lost ones, or make up for lost ones.
func (a *analysis) detect() error {
	var absent []string
	for i := range a.b.edges {
		name := a.b.edges[i].name
		if !slices.ContainsFunc(a.readings, func(r *reading) bool { return r.edge.name == name && r.whole }) {
			absent = append(absent, name)
		}
	}
	switch {
	case a.b.problem != "":
		a.losses = &losses{reason: a.b.problem}
	case len(absent) > 0:
		a.losses = &losses{reason: "no losses can be told without " + strings.Join(absent, ", ")}
	default:
		l, err := decodeLosses(a.b, &a.attention, a.readings)
		if err != nil { // a count at its limit
			l = &losses{reason: err.Error()}
		}
		a.losses = l
	}
	if a.losses.reason != "" {
		a.problems["lost packets"] = a.losses.reason
	}
	return nil
}

// measured is what the control goes by. Sizes of flows are worked out where they matter.
func (a *analysis) measured() (*measured, error) {
	m := &measured{edges: make(map[string]*edgeState), deltas: a.losses.deltas, hl: a.losses.hl, ll: a.losses.ll}
	if a.attention.State == Ill {
		if err := a.name(); err != nil {
			return nil, err
		}
		m.victims = a.losses.victimSizes(&a.attention)
	}
	for _, r := range a.readings {
		if r.whole {
			m.edges[r.edge.name] = &edgeState{hitters: r.count, sizes: sync.OnceValue(func() *tail {
				r.totals(a.config.Iterations)
				t := r.sizes.tail()
				return &t
			})}
		}
	}
	return m, nil
}

// name lists the victims.
func (a *analysis) name() error {
	for _, r := range a.readings {
		r.totals(a.config.Iterations)
	}
	if err := a.losses.name(a.b, &a.attention, a.readings); err != nil {
		return err
	}
	for _, v := range a.losses.victims {
		v.exact = v.exact && a.settled
	}
	return nil
}

// plan hands the next attention to the collector, for the epoch after the next: the one
// that has the same time bit. What does not change is not written again.
func (p *Plugin) plan(a *analysis, out *sdk.Results) {
	if !a.config.Control {
		return
	}
	from, bit := a.epoch.Number+2, bitOf(a.epoch.Number)
	plan := sdk.Plan{FromEpoch: from}
	before := a.attention
	for i := range a.b.edges {
		e := &a.b.edges[i]
		writes := a.next.writes(e, &a.b.room, bit)
		if a.settled && reflect.DeepEqual(writes, before.writes(e, &a.b.room, bit)) {
			continue
		}
		plan.Writes = append(plan.Writes, writes...)
	}
	held := p.held[bit]
	for len(held) > 1 && held[len(held)-1].from >= from {
		held = held[:len(held)-1]
	}
	p.held[bit] = append(held, heldFrom{from, a.next})
	if len(plan.Writes) > 0 {
		out.Plans = append(out.Plans, plan)
	}
}

// alert tells of a change of state.
func (p *Plugin) alert(a *analysis, out *sdk.Results, reasons []string) {
	if a.next.State == p.state {
		return
	}
	p.state = a.next.State
	level, text := slog.LevelInfo, "the network is healthy again: every flow that loses packets is told from epoch %d on"
	if a.next.State == Ill {
		level, text = slog.LevelWarn, "the network is ill: flows lose packets beyond the memory for all of them; heavy losers and a sample of the others are told from epoch %d on"
	}
	out.Events = append(out.Events, sdk.Event{Level: level, Message: fmt.Sprintf(text, a.epoch.Number+2),
		Attributes: map[string]string{"state": a.next.State.String(), "reasons": clip(strings.Join(reasons, "; "))}})
}

// tell makes events of problems that are new, and of those that are over.
func (p *Plugin) tell(problems map[string]string) []sdk.Event {
	var events []sdk.Event
	for _, subject := range slices.Sorted(maps.Keys(problems)) {
		if _, old := p.told[subject]; !old {
			events = append(events, sdk.Event{Level: slog.LevelWarn, Message: clip(subject + ": " + problems[subject])})
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(p.told)) {
		if _, still := problems[subject]; !still {
			events = append(events, sdk.Event{Level: slog.LevelInfo, Message: clip(subject + ": all is well again")})
		}
	}
	p.told = problems
	return events
}

// clip keeps a message within an event's bounds.
func clip(s string) string {
	const most = 900
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
