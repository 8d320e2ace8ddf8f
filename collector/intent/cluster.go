// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// In a cluster, every member follows the plans of all others, and writes the parts for the devices
// that it owns. It keeps the parts for devices of other members pending: when a device moves here,
// the record of its former owner says which parts are written.

// SharedPlan is a plan that is not concluded: the outcome at a device is missing.
type SharedPlan struct {
	// Number identifies the plan among the plans of the member that made it. Later plans have larger
	// numbers.
	Number uint64
	Plugin string
	// Undo withdraws the plan, because a device has refused it.
	Undo bool
	Plan sdk.Plan
}

// shared is the part of a plan that concerns the other members. Component.mu guards it.
type shared struct {
	maker   string             // the member that made the plan; "" for this one
	number  uint64             // SharedPlan.Number; 0 if no other member has the plan
	undo    bool               // the plan is withdrawn
	over    bool               // the plan is concluded
	open    map[string]bool    // devices whose outcome is missing
	answers map[string]Outcome // by device; nil unless the maker waits for all of them
	arrived chan struct{}      // an answer has arrived
	undos   map[string]func(context.Context) error
}

// planKey identifies a shared plan. The maker is "" for this member.
type planKey struct {
	maker  string
	number uint64
}

func (a *plan) key() planKey { return planKey{a.maker, a.number} }

var (
	errNoUndo    = errors.New("the device has moved since, and the plan cannot be undone")
	errWithdrawn = errors.New("the plan is withdrawn")
	errLeaving   = fmt.Errorf("%w: the session is about to end", p4rt.ErrNotReady)
)

// err returns the outcome as an error; nil if the plan is in force.
func (o Outcome) err() error {
	switch o.Result {
	case Applied:
		return nil
	case Partial:
		return fmt.Errorf("%w: %s", ErrPartiallyApplied, o.Reason)
	}
	return errors.New(o.Reason)
}

// track keeps a plan until all its outcomes are known. The caller holds c.mu.
func (c *Component) track(a *plan) {
	c.plans = append(c.plans, a)
	c.share()
}

// tracked returns a plan that is not concluded; nil if there is none. The caller holds c.mu.
func (c *Component) tracked(k planKey) *plan {
	i := slices.IndexFunc(c.plans, func(a *plan) bool { return a.key() == k })
	if i < 0 || k.number == 0 {
		return nil
	}
	return c.plans[i]
}

// share passes the plans of the plugins that are at home here to the other members. The caller
// holds c.mu.
func (c *Component) share() {
	if c.cluster == nil {
		return
	}
	var all []SharedPlan
	for _, a := range c.plans {
		if a.maker == "" && a.number == 0 && c.cluster.AtHome(a.plugin) {
			c.number = max(c.number+1, uint64(time.Now().UnixNano())) // a restarted member uses no number again
			a.number = c.number
		}
		if a.maker == "" && a.number != 0 {
			all = append(all, SharedPlan{a.number, a.plugin, a.undo, a.source})
		}
	}
	c.cluster.Share(all)
}

// Follow takes the plans of another member that are not concluded. It does not wait until they are
// written.
func (c *Component) Follow(ctx context.Context, maker string, plans []SharedPlan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	listed := map[uint64]bool{}
	for _, s := range plans {
		listed[s.Number] = true
		a := c.tracked(planKey{maker, s.Number})
		if a == nil {
			a = newPlan(s.Plugin, s.Plan)
			a.maker, a.number, c.seen[maker] = maker, s.Number, max(c.seen[maker], s.Number)
			c.plans = append(c.plans, a)
			c.begin(ctx, a)
		}
		if s.Undo && !a.undo {
			a.undo = true
			c.drop(a)
			c.work.Go(func() { c.undoHere(ctx, a) })
		}
	}
	c.forget(func(a *plan) bool { return a.maker == maker && !listed[a.number] })
}

// begin begins another member's plan. The caller holds c.mu.
func (c *Component) begin(ctx context.Context, a *plan) {
	switch {
	case !a.preEpoch:
		c.acceptPending(a.parts)
		c.work.Go(func() { c.storeParts(ctx, a.parts) })
	case !c.bankFree(a):
		c.addEarly(a)
	default:
		c.work.Go(func() { c.writePreEpoch(ctx, a) })
	}
}

// forget ends plans. The caller holds c.mu.
func (c *Component) forget(which func(*plan) bool) {
	c.plans = slices.DeleteFunc(c.plans, func(a *plan) bool {
		if which(a) {
			a.over = true
			c.drop(a)
		}
		return a.over
	})
}

// drop removes the pending parts of a plan. The caller holds c.mu.
func (c *Component) drop(a *plan) {
	c.early = slices.DeleteFunc(c.early, func(b *plan) bool { return a == b })
	for _, p := range a.parts {
		if d := c.devices[p.device]; d != nil {
			d.pending = slices.DeleteFunc(d.pending, func(b *part) bool { return p == b })
		}
	}
}

// close records that the outcome at a device is known. The caller holds c.mu.
func (c *Component) close(a *plan, device string) {
	delete(a.open, device)
	if len(a.open) == 0 && !a.over {
		c.forget(func(b *plan) bool { return a == b })
		c.share()
	}
}

// reports reports whether this member reports the outcome of a part that is not written. The caller
// holds c.mu.
func (c *Component) reports(p *part) bool {
	d := c.devices[p.device]
	return p.of.maker == "" || d != nil && !d.foreign
}

// TakeOutcome takes an outcome that another member forwards to this one. It returns false for a
// setting that is not in force here yet.
func (c *Component) TakeOutcome(o Outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Device == "" {
		return c.takeHost(o)
	}
	if a := c.tracked(planKey{"", o.Number}); a != nil {
		c.take(a, o)
	}
	return true
}

// undoHere undoes a plan at the devices of this member.
func (c *Component) undoHere(ctx context.Context, a *plan) {
	ctx, cancel := c.clock.WithTimeout(ctx, undoTime)
	defer cancel()
	var work sync.WaitGroup
	for _, p := range a.parts {
		work.Go(func() { c.undoPart(ctx, p) })
	}
	work.Wait()
}

func (c *Component) undoPart(ctx context.Context, p *part) {
	d := c.device(p.device)
	if d == nil || d.foreign {
		return
	}
	d.writing.Lock() // waits until the part is written, if that has begun
	c.mu.Lock()
	undo := p.of.undos[p.device]
	o, done := d.done[p.of.key()]
	c.mu.Unlock()
	d.writing.Unlock()
	var err error
	if undo != nil {
		err = undo(ctx)
	} else if done && o.Result == Applied { // the device's former owner has written the part
		err = errNoUndo
	}
	o = Outcome{Result: Undone, From: p.of.from}
	if err != nil {
		o.Result, o.Reason = Partial, oneLine(fmt.Errorf("%w: %w", ErrPartiallyApplied, err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report(p, o)
}

// doneAfter returns the outcomes of the plans at a device, as they will be after parts are written
// at the next flip and the part now, if it is not nil, is written at once.
func (c *Component) doneAfter(d *deviceIntent, parts []*part, now *part) (all []Outcome) {
	open, _ := c.epochs.Current()
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(p *part, begin, from uint64) {
		if p.of.number != 0 {
			all = append(all, c.outcome(p, Outcome{Begin: begin, From: from}))
		}
	}
	for k, o := range d.done {
		if c.tracked(k) != nil || k.maker != "" && k.number > c.seen[k.maker] {
			all = append(all, o)
		}
	}
	for _, p := range parts {
		add(p, open+1, open+1)
	}
	if now != nil {
		add(now, 0, now.of.from)
	}
	for i := range all {
		all[i].Maker = cmp.Or(all[i].Maker, c.cluster.Member())
	}
	return all
}

// adopt takes over the outcomes of a device's former owner. A part that the former owner stored for
// the next flip counts as written in the open epoch.
func (c *Component) adopt(d *deviceIntent, done []Outcome) {
	open, _ := c.epochs.Current()
	c.mu.Lock()
	defer c.mu.Unlock()
	d.done = map[planKey]Outcome{}
	for _, o := range done {
		if o.Begin > open {
			o.Begin, o.From = open, open+1
		}
		if o.Maker == c.cluster.Member() {
			o.Maker = ""
		}
		d.done[planKey{o.Maker, o.Number}] = o
	}
}

// syncPlans shares the plans of plugins that have moved here, and forgets the plans of members that
// are gone. It reports the outcomes of written parts again: the former owner of a device may have
// reported them to a member that is gone. The caller holds c.mu.
func (c *Component) syncPlans() {
	if slices.ContainsFunc(c.plans, func(a *plan) bool { return a.number == 0 && c.cluster.AtHome(a.plugin) }) {
		c.share()
	}
	c.forget(func(a *plan) bool { return a.maker != "" && !c.cluster.Present(a.maker) })
	for _, d := range c.devices {
		for k, o := range d.done {
			switch a := c.tracked(k); {
			case a != nil:
				c.pass(a, o)
			case k.maker == "" || k.number <= c.seen[k.maker] || !c.cluster.Present(k.maker):
				delete(d.done, k)
			}
		}
	}
}
