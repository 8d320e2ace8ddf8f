// SPDX-License-Identifier: Apache-2.0

package plugin

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

	"github.com/netsketch/netsketch/plugins/chamelemon/sizes"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/estimate"
)

// analysis is the work on one epoch.
type analysis struct {
	omitted     uint64 // rows that lists leave out
	epoch       *sdk.Epoch
	config      *Configuration
	b           *binding
	applied     applied
	attention   Attention // attention of applied
	next        Attention
	state       State // state of the network that this epoch decides
	settled     bool
	mixed       bool       // a switch counted packets of another epoch, or missed packets of this one
	warning     string     // accuracy warning: why network-wide results are inexact although decoded
	readings    []*reading // readings of the edges that delivered, in their order
	losses      *losses    // never nil
	previous    *previous
	problems    []alert.Problem
	alerts      alert.List // alerts with a row
	transitions transitions
	began       time.Time
	response    time.Duration // until next was decided
	total       time.Duration // until all tables but the attention's were built
}

// Analyze implements sdk.Plugin.
func (p *Plugin) Analyze(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	began := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &analysis{epoch: epoch, config: &p.config, b: p.binding, previous: p.previous, transitions: p.transitions,
		began: began}
	if len(a.b.edges) == 0 {
		a.losses = &losses{reason: "no edge switch runs ChameleMon"}
		a.problem(Network, notMeasured, a.losses.reason)
		p.newest.Store(a.sizes())
		return p.publish(a, &sdk.Results{})
	}
	a.resolveAttention(p)
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	a.detect()
	a.undecoded()
	if a.losses.negative > 0 || a.losses.backward {
		p.straggled, a.mixed = epoch.Number, true
	}
	for _, r := range a.readings {
		r.sound = r.whole && r.torn == "" && a.settled && !a.mixed
	}
	var reasons []string
	a.next, a.state = a.attention, a.attention.State
	if a.config.Control {
		m, err := a.measured()
		if err != nil {
			return nil, err
		}
		p.expect(a, m)
		if a.config.Literal {
			a.next, reasons = literal(a.attention, m, &a.b.room)
			a.state = a.next.State
		} else {
			a.next, a.state, reasons = shift(a.attention, p.transitions.State, m, &a.b.room)
		}
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
	p.recordTransition(a, out, reasons)
	if out, err := p.publish(a, out); err != nil {
		return out, err
	}
	p.previous = &previous{number: epoch.Number, edges: make(map[string]*sizer)}
	for _, r := range a.readings {
		if r.whole {
			p.previous.edges[r.edge.name] = &r.sizer
		}
	}
	p.newest.Store(a.sizes())
	return out, nil
}

// problem records a problem of this epoch.
func (a *analysis) problem(subject string, k alert.Kind, text string) {
	a.problems = append(a.problems, alert.Problem{Location: subject, Kind: k, Text: text})
}

// problemOf returns the first problem of a switch, or "".
func (a *analysis) problemOf(subject string) string {
	for _, p := range a.problems {
		if p.Location == subject && p.Kind != badWatch {
			return p.Text
		}
	}
	return ""
}

// resolveAttention determines the attention that the epoch was measured under, and whether it is
// certain.
func (a *analysis) resolveAttention(p *Plugin) {
	n := a.epoch.Number
	if p.settled == 0 {
		// Epoch 1 begins under this process's plan. A process that starts later writes its plan
		// during an epoch, after one that belongs to another process.
		if p.settled = 1; n > 2 {
			p.settled = n + 2
		}
	}
	p.ledger.prune(n)
	a.applied = p.ledger.appliedTo(a.epoch, a.b.edges)
	a.attention = a.applied.attention
	a.settled = n >= p.settled
	if len(a.epoch.States) > 0 {
		a.settled = len(a.applied.uncertain) == 0 && a.applied.mismatch == ""
	}
	for name, text := range a.applied.uncertain {
		a.problem(name, planFailed, text)
	}
	if a.applied.mismatch != "" {
		a.problem(Network, planFailed, a.applied.mismatch)
	}
	for _, o := range a.epoch.Plans {
		if o.Status != sdk.PlanApplied {
			a.problem(o.Device, planFailed, fmt.Sprintf("the configuration for epoch %d was not written (%s): %s",
				o.FromEpoch, o.Status, o.Reason))
		}
	}
	if p.straggled > 0 && p.straggled+2 == n {
		a.mixed = true
		a.problem(Network, outOfStep, fmt.Sprintf("in epoch %d, which used the same bank, more packets left than entered: "+
			"packets counted after its read-out are included in this epoch", p.straggled))
	}
	for _, d := range a.epoch.AccuracyWarnings {
		subject := d.Device
		if subject == "" {
			subject = Network
		}
		a.problem(subject, outOfStep, d.Reason)
	}
}

// read decodes the cells of the edge switches in parallel.
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

// absent returns the names of the edge switches whose data is not whole.
func (a *analysis) absent() []string {
	return slices.DeleteFunc(a.b.names(), func(name string) bool {
		return slices.ContainsFunc(a.readings, func(r *reading) bool { return r.edge.name == name && r.whole })
	})
}

// detect decodes the lost packets. It requires all edge switches: packets that entered or left at
// a missing switch would add to the losses or hide them.
func (a *analysis) detect() {
	absent := a.absent()
	switch {
	case a.b.problem != "":
		a.losses = &losses{reason: a.b.problem}
		a.problem(Network, notMeasured, a.b.problem)
		return
	case len(absent) > 0:
		a.losses = &losses{reason: "no losses are computed without " + strings.Join(absent, ", ")}
		return
	case a.applied.mismatch != "":
		a.losses = &losses{reason: a.applied.mismatch}
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
	// Decoded losses are inexact if the switches' epochs may differ.
	for _, p := range a.problems {
		if p.Kind == outOfStep || p.Kind == badCells {
			a.warning = p.Text
		}
	}
}

// undecoded records a problem for each HH part that was not decoded.
func (a *analysis) undecoded() {
	for _, r := range a.readings {
		switch {
		case !r.hhCounted:
			a.problem(r.edge.name, notDecoded, fmt.Sprintf("the HH part of %s was not decoded", r.edge.name))
		case !r.decoded:
			a.problem(r.edge.name, notDecoded, "heavy hitters that share all buckets of the HH part are missing")
		}
	}
}

// measured returns the input of the control (§4.3). Flow sizes are computed on first use.
func (a *analysis) measured() (*measured, error) {
	a.estimateCrowded()
	m := &measured{edges: make(map[string]*edgeState), deltas: a.losses.deltas, hl: a.losses.hl, ll: a.losses.ll}
	if a.attention.State == Ill {
		if err := a.name(); err != nil {
			return nil, err
		}
		m.victims = a.losses.victimSizes(&a.attention)
	}
	for _, r := range a.readings {
		if !r.whole {
			continue
		}
		known := func() *sizes.Sizes {
			r.totals(a.config.Iterations)
			return r.guess()
		}
		e := &edgeState{hitters: r.count, counted: r.hhCounted, sizes: sync.OnceValue(func() *estimate.Tail {
			t := known().Tail()
			return &t
		}), candidates: r.classifier().Candidates(known), vague: r.vague()}
		for f := range families {
			if r.crowded[f] { // as many flows as the classifier counted
				e.hitters[f].flows = max(e.hitters[f].flows, e.candidates(r.th))
			}
		}
		m.edges[r.edge.name] = e
	}
	return m, nil
}

// expect keeps the share of the flows that are victims in a healthy epoch with decoded losses, and
// otherwise sets how many of an epoch's flows are expected to be victims.
func (p *Plugin) expect(a *analysis, m *measured) {
	flows := 0.0
	for _, r := range a.readings {
		n, ok := estimate.Cardinality(len(r.rows[0]), estimate.Zeros(r.rows[0]))
		if !ok {
			return // too many to count
		}
		flows += n
	}
	for f := range families {
		switch {
		case a.losses.known && a.attention.State == Healthy && flows > 0:
			p.share[f] = min(a.losses.hl[f].flows/flows, 1)
		case !a.losses.deltas:
			m.expected[f] = p.share[f] * flows
		}
	}
}

// name computes the list of victim flows.
func (a *analysis) name() error {
	for _, r := range a.readings {
		r.index()
	}
	if err := a.losses.name(a.b, &a.attention, a.readings); err != nil {
		return err
	}
	for _, v := range a.losses.victims {
		if !a.alike() {
			v.quality = sdk.Estimate
		}
	}
	return nil
}

// alike reports whether all edge switches counted the same epoch under the same attention.
// Otherwise losses have no bounds.
func (a *analysis) alike() bool { return a.settled && a.warning == "" }

// plan adds the plan with the next attention. It applies from epoch N + 2, the next epoch in the
// same bank. Unchanged entries are not written again. While the network is ill, each epoch gets a
// new sample of the light flows, also without control.
func (p *Plugin) plan(a *analysis, out *sdk.Results) {
	from := a.epoch.Number + 2
	switch {
	case a.next.State == Ill:
		a.next.Seed = seedOf(from)
	case !a.config.Control:
		return
	}
	bank := a.epoch.BankOf(from, 2)
	plan := sdk.Plan{FromEpoch: from, PreEpoch: true}
	for i := range a.b.edges {
		e := &a.b.edges[i]
		inForce := a.attention.writes(e, &a.b.room, uint64(bank))
		for _, w := range a.next.writes(e, &a.b.room, uint64(bank)) {
			same := func(x sdk.DeviceWrite) bool { return reflect.DeepEqual(w, x) }
			if !a.settled || !slices.ContainsFunc(inForce, same) {
				plan.Writes = append(plan.Writes, w)
			}
		}
	}
	if len(plan.Writes) > 0 {
		plan.ID = p.ledger.add(from, bank, a.next, p.id())
		out.Plans = append(out.Plans, plan)
	}
}

// recordTransition raises the alert NETWORK_ILL and logs a change of state.
func (p *Plugin) recordTransition(a *analysis, out *sdk.Results, reasons []string) {
	if a.state == Ill {
		why := strings.Join(reasons, "; ")
		a.problem(Network, networkIll, "more flows lose packets than the memory holds"+map[bool]string{true: ": " +
			why}[why != ""])
	}
	if a.state != p.transitions.State {
		p.transitions = transitions{State: a.state, From: a.epoch.Number + 2, At: a.epoch.End.UnixNano(),
			Count: p.transitions.Count + 1}
		out.Events = append(out.Events, p.transitionEvent(a, reasons))
	}
	a.transitions = p.transitions
}

func (p *Plugin) transitionEvent(a *analysis, reasons []string) sdk.Event {
	level, text := slog.LevelInfo, "the network is healthy again: all victim flows are published from epoch %d on"
	if p.transitions.State == Ill {
		level, text = slog.LevelWarn, "the network is ill: more flows lose packets than the memory holds; heavy victim "+
			"flows and a sample of the light ones are published from epoch %d on"
	}
	return sdk.Event{Level: level, Message: fmt.Sprintf(text, p.transitions.From),
		Attributes: map[string]string{"state": p.transitions.State.String(),
			"reasons": alert.Clip(strings.Join(reasons, "; "))}}
}
