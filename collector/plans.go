// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// plans carries out what plugins plan, and keeps account of what each device measures under.
//
// A plan that is ahead of its epoch is written to all its devices at once, when the epoch that had the bank
// before has been handed over, and before the flip that begins its own. Any other waits at each device for the
// flip that begins its epoch. A device that is away gets what it missed when it is back.
type plans struct {
	log    *slog.Logger
	clock  epoch.Clock
	margin time.Duration                           // before the flip, in which nothing is written but what is taken back
	device func(name string) applier               // nil: no such device
	open   func() (number uint64, end time.Time)   // the open epoch, 0 before the first
	bankOf func(number uint64, device applier) int // the bank of an epoch
	after  func(f func())                          // runs f beside the caller, waited for at the end

	mu       sync.Mutex
	sealed   uint64                 // the newest epoch that was handed over
	early    []*aheadPlan           // their bank is not free yet
	waiting  map[string][]planned   // by device, for a flip or the device's return
	applying map[string]*sync.Mutex // by device, held while what waited is written
	accounts map[string]*account    // by plugin
	took     time.Duration          // that the newest plan that was ahead took to write
	hosts    bool                   // it was said that host settings go nowhere
}

// planned is a plan's writes for one device, in order.
type planned struct {
	plugin string
	id     uint64
	from   uint64
	bank   int // that they concern; allBanks
	writes []sdk.DeviceWrite
}

// maxWaiting bounds the bytes of plans that one plugin has waiting for one device, or for their banks.
const maxWaiting = 16 << 20

// bytes is about what a plan's writes take.
func (w planned) bytes() int {
	n := 256
	for _, x := range w.writes {
		n += 256 + len(x.Device) + len(x.Entry.Table) + len(x.Entry.Action)
		for _, m := range x.Entry.Matches {
			n += 64 + len(m.Field) + len(m.Value) + len(m.Mask) + len(m.High)
		}
		for _, a := range x.Entry.Params {
			n += 64 + len(a.Name) + len(a.Value)
		}
	}
	return n
}

// wait keeps a part of a plan for its flip, or until its device is back. When too much waits there, as for a device
// that does not come back, the plugin's oldest plans are given up. p.mu is held.
func (p *plans) wait(name string, part planned) {
	list := append(p.waiting[name], part)
	sum := 0
	for _, w := range list {
		if w.plugin == part.plugin {
			sum += w.bytes()
		}
	}
	for i := 0; sum > maxWaiting; {
		if list[i].plugin != part.plugin {
			i++
			continue
		}
		sum -= list[i].bytes()
		p.account(part.plugin).tell(list[i], name, sdk.PlanFailed, fmt.Sprintf("given up, because more than %d MiB of plans wait for the device", maxWaiting>>20))
		list = slices.Delete(list, i, i+1)
	}
	p.waiting[name] = list
}

// waitForBank keeps a plan until its bank is free, unless too much waits already. p.mu is held.
func (p *plans) waitForBank(a *aheadPlan) {
	sum := 0
	for _, e := range append(p.early, a) {
		for _, part := range e.parts {
			if e.plugin == a.plugin {
				sum += part.bytes()
			}
		}
	}
	if sum <= maxWaiting {
		p.early = append(p.early, a)
		return
	}
	for i, part := range a.parts {
		p.account(a.plugin).tell(part, a.names[i], sdk.PlanFailed, fmt.Sprintf("given up, because more than %d MiB of plans wait for their epochs", maxWaiting>>20))
	}
}

const (
	noDevice   = "there is no such device"
	maxUnknown = 8 // devices that are not there: a plan with more is for another network
)

// allBanks is the scope of a plan that is not ahead of its epoch.
const allBanks = -1

// planMargin is the most that plans keep away from the flip.
const planMargin = 2 * time.Millisecond

// aheadPlan is a plan that is written before its epoch, on all devices or on none.
type aheadPlan struct {
	plugin string
	plan   sdk.Plan
	parts  []planned // by device, in the plan's order
	names  []string  // the devices
}

// applier is a device that writes can be applied to.
type applier interface {
	Name() string
	Banks() int
	Ready() (epoch.Incarnation, error)
	Apply(ctx context.Context, writes []sdk.DeviceWrite) (undo func(context.Context) error, err error)
}

func newPlans(c *Collector) *plans {
	return &plans{
		log: c.log, clock: c.clock, margin: min(c.cfg.Epoch.Guard, planMargin), waiting: map[string][]planned{}, applying: map[string]*sync.Mutex{}, accounts: map[string]*account{},
		device: func(name string) applier {
			if m := c.device(name); m != nil {
				return m
			}
			return nil
		},
		open: func() (uint64, time.Time) { return c.engine.Current() },
		bankOf: func(number uint64, d applier) int {
			return int((number + c.engine.BankShift()) % uint64(max(d.Banks(), 1)))
		},
		after: c.plugins.reports.work.Go,
	}
}

// split sorts a plan's writes by device.
func split(plugin string, plan sdk.Plan) (names []string, parts []planned) {
	at := map[string]int{}
	for _, w := range plan.Writes {
		i, ok := at[w.Device]
		if !ok {
			i = len(parts)
			at[w.Device] = i
			names = append(names, w.Device)
			parts = append(parts, planned{plugin: plugin, id: plan.ID, from: plan.FromEpoch, bank: allBanks})
		}
		parts[i].writes = append(parts[i].writes, w)
	}
	return names, parts
}

// add takes a plugin's plan. A plan ahead of its epoch is carried out when add returns, unless its bank is not
// free yet; any other waits for its flip.
func (p *plans) add(ctx context.Context, plugin string, plan sdk.Plan) {
	names, parts := split(plugin, plan)
	p.mu.Lock()
	if len(plan.Hosts) > 0 && !p.hosts {
		p.hosts = true
		p.log.Warn("plugin plans settings for host agents, and there are none", "plugin", plugin)
	}
	unknown := 0
	for i, name := range names {
		if p.device(name) != nil {
			continue
		}
		if unknown++; unknown > maxUnknown { // a plan for another network: one word is enough
			p.account(plugin).tell(parts[i], name, sdk.PlanFailed, noDevice+", as with others of the plan")
			p.log.Error("plan was not carried out", "plugin", plugin, "plan", plan.ID, "device", name, "error", noDevice+", as with others of the plan")
			p.mu.Unlock()
			return
		}
	}
	if !plan.Ahead {
		if open, _ := p.open(); plan.FromEpoch != 0 && plan.FromEpoch <= open && len(parts) > 0 {
			p.log.Info("plan came late and holds from the next epoch", "plugin", plugin, "planned-from", plan.FromEpoch, "open", open)
		}
		for i, name := range names {
			if p.device(name) == nil {
				p.account(plugin).tell(parts[i], name, sdk.PlanFailed, noDevice)
				p.log.Error("plan was not carried out", "plugin", plugin, "plan", plan.ID, "device", name, "error", noDevice)
				continue
			}
			p.wait(name, parts[i])
		}
		p.mu.Unlock()
		return
	}
	a := &aheadPlan{plugin, plan, parts, names}
	if !p.free(a) {
		p.waitForBank(a)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.carryOut(ctx, a)
}

// free reports whether the bank of a plan's epoch has been read since the epoch that had it before. p.mu is held.
func (p *plans) free(a *aheadPlan) bool {
	for _, name := range a.names {
		if d := p.device(name); d != nil && a.plan.FromEpoch > p.sealed+uint64(d.Banks()) {
			return false
		}
	}
	return true
}

// handedOver says that an epoch has been read as far as it was in time: plans for the epoch that has its bank
// next can be carried out. wait waits for that.
func (p *plans) handedOver(ctx context.Context, number uint64) (wait func()) {
	p.mu.Lock()
	p.sealed = max(p.sealed, number)
	var due []*aheadPlan
	kept := p.early[:0]
	for _, a := range p.early {
		if p.free(a) {
			due = append(due, a)
		} else {
			kept = append(kept, a)
		}
	}
	p.early = kept
	p.mu.Unlock()
	if len(due) == 0 {
		return func() {}
	}
	done := make(chan struct{})
	p.after(func() {
		defer close(done)
		for _, a := range due {
			p.carryOut(ctx, a)
		}
	})
	return func() { <-done }
}

// result is what became of a plan on one of its devices.
type result struct {
	undo func(context.Context) error
	away bool
	err  error
}

// carryOut writes a plan that is ahead of its epoch to all devices side by side. Where one that is there refuses
// it, the others take it back.
func (p *plans) carryOut(ctx context.Context, a *aheadPlan) {
	open, end := p.open()
	begin := p.clock.Now() // whose time is what counts: a virtual one stands still meanwhile
	left := end.Sub(begin) - p.margin
	p.mu.Lock()
	need := max(p.took, time.Millisecond)
	p.mu.Unlock()
	switch {
	case open >= a.plan.FromEpoch:
		p.late(a, fmt.Sprintf("epoch %d is open already", open))
		return
	case open+1 == a.plan.FromEpoch && left < need:
		p.mu.Lock()
		p.took /= 2 // it may have been slow by chance, and is not measured again otherwise
		p.mu.Unlock()
		p.late(a, fmt.Sprintf("epoch %d begins in %v; writing takes %v, and nothing is written in the last %v before it",
			a.plan.FromEpoch, (left+p.margin).Round(time.Microsecond), need.Round(time.Microsecond), p.margin))
		return
	}
	if open+1 < a.plan.FromEpoch { // more than one epoch is left
		left = max(left, time.Second)
	}
	writing, cancel := p.clock.WithTimeout(ctx, left)
	defer cancel()
	results := make([]result, len(a.parts))
	var work sync.WaitGroup
	for i, part := range a.parts {
		d := p.device(a.names[i])
		if d == nil {
			results[i].err = errors.New(noDevice)
			continue
		}
		if _, err := d.Ready(); err != nil {
			results[i] = result{away: true, err: err}
			continue
		}
		work.Go(func() { results[i].undo, results[i].err = d.Apply(writing, part.writes) })
	}
	work.Wait()
	var refused string
	for i, r := range results {
		if r.err != nil && !r.away && refused == "" {
			refused = a.names[i]
		}
	}
	if refused != "" {
		p.takeBack(ctx, results, end)
	} else {
		p.mu.Lock()
		p.took = p.clock.Now().Sub(begin)
		p.mu.Unlock()
	}
	p.settle(a, results, refused)
}

// takeBack undoes what was written of a plan.
func (p *plans) takeBack(ctx context.Context, results []result, end time.Time) {
	ctx, cancel := p.clock.WithTimeout(ctx, max(end.Sub(p.clock.Now()), time.Millisecond))
	defer cancel()
	var work sync.WaitGroup
	for i := range results {
		if undo := results[i].undo; undo != nil {
			work.Go(func() {
				if err := undo(ctx); err != nil {
					results[i].err = fmt.Errorf("%w, %w", err, device.ErrHalfDone)
				}
			})
		}
	}
	work.Wait()
}

// settle enters into the account what became of a plan that was ahead.
func (p *plans) settle(a *aheadPlan, results []result, refused string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range results {
		name := a.names[i]
		part := a.parts[i]
		if d := p.device(name); d != nil {
			part.bank = p.bankOf(part.from, d)
		}
		acc := p.account(a.plugin)
		switch {
		case errors.Is(r.err, device.ErrHalfDone):
			acc.hold(name, holding{from: part.from, bank: part.bank, mixed: true})
			acc.tell(part, name, sdk.PlanFailed, oneLine(r.err.Error()))
		case r.away && refused == "":
			p.wait(name, part)
			acc.tell(part, name, sdk.PlanFailed, "the device is away; it gets the plan when it is back: "+oneLine(r.err.Error()))
		case r.err != nil:
			acc.tell(part, name, sdk.PlanFailed, oneLine(r.err.Error()))
		case refused != "":
			acc.tell(part, name, sdk.PlanFailed, fmt.Sprintf("taken back, because %s did not take the plan", refused))
		default:
			if part.id != 0 {
				acc.hold(name, holding{from: part.from, bank: part.bank, id: part.id})
			}
			acc.tell(part, name, sdk.PlanApplied, "")
		}
		if r.err != nil && !r.away {
			p.log.Error("plan was not carried out", "plugin", a.plugin, "plan", a.plan.ID, "device", name, "epoch", part.from, "error", r.err)
		}
	}
}

// late gives a plan up.
func (p *plans) late(a *aheadPlan, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	acc := p.account(a.plugin)
	for i, part := range a.parts {
		acc.tell(part, a.names[i], sdk.PlanLate, reason)
	}
	if len(a.parts) > 0 {
		p.log.Warn("plan came too late and is not carried out", "plugin", a.plugin, "plan", a.plan.ID, "epoch", a.plan.FromEpoch, "reason", reason)
	}
}

// due takes the plans for a device that hold in epoch next.
func (p *plans) due(device string, next uint64) []planned {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due, later []planned
	for _, w := range p.waiting[device] {
		if w.from <= next || w.bank != allBanks {
			due = append(due, w)
		} else {
			later = append(later, w)
		}
	}
	if later == nil {
		delete(p.waiting, device)
	} else {
		p.waiting[device] = later
	}
	return due
}

// turn returns what a device's plans are written one after another under.
func (p *plans) turn(device string) *sync.Mutex {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.applying[device] == nil {
		p.applying[device] = &sync.Mutex{}
	}
	return p.applying[device]
}

// apply writes what is due at a device. atFlip says that epoch next begins this moment; otherwise it has been open for
// some time, and apply returns when what another call had taken up is written, too.
func (p *plans) apply(ctx context.Context, d applier, next uint64, atFlip bool) {
	turn := p.turn(d.Name())
	if !atFlip {
		turn.Lock()
	} else if !turn.TryLock() {
		return // nobody is kept from reading the switch; what is due besides waits for the next flip
	}
	defer turn.Unlock()
	for _, w := range p.due(d.Name(), next) {
		_, err := d.Apply(ctx, w.writes)
		h, last := holding{from: next, bank: w.bank, id: w.id}, next
		if open, _ := p.open(); open > next || !atFlip && next > 0 { // part of the epochs up to the open one was counted before
			last = max(open, next)
			h.from = last + 1
		}
		w.from = h.from
		p.mu.Lock()
		acc := p.account(w.plugin)
		if err == nil && w.id != 0 || errors.Is(err, device.ErrHalfDone) {
			if h.from > next {
				acc.hold(d.Name(), holding{from: next, bank: allBanks, mixed: true, until: last})
			}
			h.mixed = err != nil
			acc.hold(d.Name(), h)
		}
		if err == nil {
			acc.tell(w, d.Name(), sdk.PlanApplied, "")
		} else {
			acc.tell(w, d.Name(), sdk.PlanFailed, oneLine(err.Error()))
		}
		p.mu.Unlock()
		if err != nil {
			p.log.Error("plan was not carried out", "plugin", w.plugin, "plan", w.id, "device", d.Name(), "epoch", next, "error", err)
		}
	}
}

// forget drops what waits for a device that has left.
func (p *plans) forget(device string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, device)
	for _, acc := range p.accounts {
		delete(acc.held, device)
	}
}

// drop forgets a plugin that was taken out.
func (p *plans) drop(plugin string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.accounts, plugin)
}
