// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"fmt"
	"log/slog"
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
	force     force
	attention Attention // of force
	next      Attention
	state     State // of the network, as it is decided now
	settled   bool
	mixed     bool       // some switch counted packets of another epoch, or not all of this one's
	doubt     string     // why nothing that compares switches is exact, though decoded
	readings  []*reading // of the edges that delivered, in their order
	losses    *losses    // never nil
	previous  *previous
	problems  []problem
	alerts    alerts
	turns     turns
	began     time.Time
	response  time.Duration // until next was decided
	total     time.Duration // until almost all tables were made
}

// Analyse implements sdk.Plugin.
func (p *Plugin) Analyse(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	began := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &analysis{epoch: epoch, config: &p.config, b: p.binding, previous: p.previous, turns: p.turns, began: began}
	if len(a.b.edges) == 0 {
		a.losses = &losses{reason: "no edge switch runs ChameleMon"}
		a.problem(Network, notMeasured, a.losses.reason)
		return p.publish(a, &sdk.Results{})
	}
	a.inForce(p)
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	a.detect()
	a.undecoded()
	if a.losses.negative > 0 || a.losses.backward {
		p.straggled, a.mixed = epoch.Number, true
	}
	var reasons []string
	a.next, a.state = a.attention, a.attention.State
	if a.config.Control {
		m, err := a.measured()
		if err != nil {
			return nil, err
		}
		a.next, a.state, reasons = shift(a.attention, p.turns.State, m, &a.b.room)
	}
	a.response = p.now().Sub(began)
	if err := a.name(); err != nil {
		return nil, err
	}
	a.losses.rank()
	for _, r := range a.readings {
		r.totals(a.config.Iterations)
	}
	out := &sdk.Results{}
	p.plan(a, out)
	p.turn(a, out, reasons)
	if out, err := p.publish(a, out); err != nil {
		return out, err
	}
	p.previous = &previous{number: epoch.Number, edges: make(map[string]*sizer)}
	for _, r := range a.readings {
		if r.whole {
			p.previous.edges[r.edge.name] = &r.sizer
		}
	}
	return out, nil
}

// problem notes what is wrong.
func (a *analysis) problem(subject string, k kind, text string) {
	a.problems = append(a.problems, problem{subject, k, text})
}

// problemOf returns what is wrong with a switch.
func (a *analysis) problemOf(subject string) string {
	for _, p := range a.problems {
		if p.subject == subject && p.kind != badWatch {
			return p.text
		}
	}
	return ""
}

// inForce finds out what the epoch was measured under, and whether that is certain.
func (a *analysis) inForce(p *Plugin) {
	n := a.epoch.Number
	if p.settled == 0 {
		// Epochs from 1 on begin under this process's plan; in a later one it was written in the
		// midst of an epoch, and the one before that was another's.
		if p.settled = 1; n > 2 {
			p.settled = n + 2
		}
	}
	p.ledger.forget(n)
	a.force = p.ledger.inForce(a.epoch, a.b.edges)
	a.attention = a.force.attention
	a.settled = n >= p.settled
	if len(a.epoch.States) > 0 {
		a.settled = len(a.force.unsure) == 0 && a.force.divided == ""
	}
	for name, text := range a.force.unsure {
		a.problem(name, planFailed, text)
	}
	if a.force.divided != "" {
		a.problem(Network, planFailed, a.force.divided)
	}
	for _, o := range a.epoch.Plans {
		if o.Status != sdk.PlanApplied {
			a.problem(o.Device, planFailed, fmt.Sprintf("the configuration for epoch %d was not written (%s): %s", o.FromEpoch, o.Status, o.Reason))
		}
	}
	if p.straggled > 0 && p.straggled+2 == n {
		a.mixed = true
		a.problem(Network, outOfStep, fmt.Sprintf("in epoch %d, which had the same bank, more packets left than had entered: what was counted after it had been read is counted in this one", p.straggled))
	}
	for _, d := range a.epoch.Doubts {
		subject := d.Device
		if subject == "" {
			subject = Network
		}
		a.problem(subject, outOfStep, d.Reason)
	}
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
		name := a.b.edges[i].name
		switch {
		case r == nil && a.epoch.Device(name) == nil, r != nil && !r.whole:
			a.problem(name, switchMissing, problems[i])
		case r == nil:
			a.problem(name, badCells, problems[i])
		}
		if r == nil {
			continue
		}
		if r.torn != "" {
			a.problem(name, badCells, r.torn)
		}
		a.readings = append(a.readings, r)
	}
	return nil
}

// detect finds lost packets, unless a switch is missing: then packets that entered or
// left there would be taken for lost ones, or make up for lost ones.
func (a *analysis) detect() {
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
		a.problem(Network, notMeasured, a.b.problem)
		return
	case len(absent) > 0:
		a.losses = &losses{reason: "no losses can be told without " + strings.Join(absent, ", ")}
		return
	case a.force.divided != "":
		a.losses = &losses{reason: a.force.divided}
		return
	}
	l, err := decodeLosses(a.b, &a.attention, a.readings, a.previous)
	switch {
	case err != nil: // a count at its limit
		l = &losses{reason: err.Error()}
		a.problem(Network, badCells, l.reason)
	case l.negative > 0:
		a.problem(Network, outOfStep, l.reason)
	case l.backward:
		a.problem(Network, outOfStep, l.reason+", and more packets left than entered")
	case l.reason != "" && l.deltas:
		a.problem(Network, notDecoded, l.reason)
	}
	a.losses = l
	// What has been decoded is nevertheless not exact where the switches' epochs may differ.
	for _, p := range a.problems {
		if p.kind == outOfStep || p.kind == badCells {
			a.doubt = p.text
		}
	}
}

// undecoded tells of HH parts that were not decoded.
func (a *analysis) undecoded() {
	for _, r := range a.readings {
		switch {
		case !r.known:
			a.problem(r.edge.name, notDecoded, "the HH part was not decoded")
		case !r.decoded:
			a.problem(r.edge.name, notDecoded, "flows that share all buckets of the HH part are missing among the flows of many packets")
		}
	}
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
			m.edges[r.edge.name] = &edgeState{hitters: r.count, known: r.known, sizes: sync.OnceValue(func() *tail {
				r.totals(a.config.Iterations)
				t := r.sizes.tail()
				return &t
			}), shown: r.shown(a.config.Iterations)}
		}
	}
	return m, nil
}

// name lists the victims.
func (a *analysis) name() error {
	for _, r := range a.readings {
		r.index()
	}
	if err := a.losses.name(a.b, &a.attention, a.readings); err != nil {
		return err
	}
	for _, v := range a.losses.victims {
		v.exact = v.exact && a.settled && a.doubt == ""
	}
	return nil
}

// plan hands the next attention to the collector, for the epoch after the next: the one
// that has the same bank. What does not change is not written again.
func (p *Plugin) plan(a *analysis, out *sdk.Results) {
	if !a.config.Control {
		return
	}
	from := a.epoch.Number + 2
	bank := a.epoch.BankOf(from, 2)
	plan := sdk.Plan{FromEpoch: from, Ahead: true}
	for i := range a.b.edges {
		e := &a.b.edges[i]
		writes := a.next.writes(e, &a.b.room, uint64(bank))
		if a.settled && reflect.DeepEqual(writes, a.attention.writes(e, &a.b.room, uint64(bank))) {
			continue
		}
		plan.Writes = append(plan.Writes, writes...)
	}
	if len(plan.Writes) > 0 {
		plan.ID = p.ledger.add(from, bank, a.next, p.id())
		out.Plans = append(out.Plans, plan)
	}
}

// turn tells of a change of state.
func (p *Plugin) turn(a *analysis, out *sdk.Results, reasons []string) {
	if a.state == Ill {
		why := strings.Join(reasons, "; ")
		a.problem(Network, networkIll, "flows lose packets beyond the memory for all of them"+map[bool]string{true: ": " + why}[why != ""])
	}
	if a.state != p.turns.State {
		p.turns = turns{State: a.state, From: a.epoch.Number + 2, At: a.epoch.End.UnixNano(), Count: p.turns.Count + 1}
		out.Events = append(out.Events, p.turned(a, reasons))
	}
	a.turns = p.turns
}

func (p *Plugin) turned(a *analysis, reasons []string) sdk.Event {
	level, text := slog.LevelInfo, "the network is healthy again: every flow that loses packets is told from epoch %d on"
	if p.turns.State == Ill {
		level, text = slog.LevelWarn, "the network is ill: flows lose packets beyond the memory for all of them; heavy losers and a sample of the others are told from epoch %d on"
	}
	return sdk.Event{Level: level, Message: fmt.Sprintf(text, p.turns.From),
		Attributes: map[string]string{"state": p.turns.State.String(), "reasons": clip(strings.Join(reasons, "; "))}}
}

// clip keeps a message within an event's bounds.
func clip(s string) string {
	const most = 900
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
