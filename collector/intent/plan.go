// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// How a plan is written: Add or Follow accept it; Collected, Flipped and ApplyPending decide when
// its parts are written; write writes one part to its device.

// plan is a plan of a plugin.
type plan struct {
	plugin   string
	id       uint64 // id of the plan, from the plugin
	from     uint64 // the first epoch
	preEpoch bool   // written before its epoch, on all devices or on none
	parts    []*part
	source   sdk.Plan
	shared
}

// part is the part of a plan for one device, whose updates are in order.
type part struct {
	of      *plan
	device  string
	updates []p4rt.Update
	stored  bool // Cluster has it with the entries of the device; guarded by Component.mu
}

// allBanks is the bank of a plan that is not pre-epoch.
const allBanks = -1

// Add accepts a plugin's plan. A pre-epoch plan is written when Add returns, unless an earlier
// epoch still uses the bank; any other plan is pending until the flip that begins its epoch.
func (c *Component) Add(ctx context.Context, plugin string, source sdk.Plan) {
	a := newPlan(plugin, source)
	c.mu.Lock()
	c.addHosts(plugin, source)
	if c.cluster != nil && len(source.Hosts) > 0 {
		c.cluster.Settings(plugin, source)
	}
	switch {
	case len(a.parts) == 0, c.foreign(a):
		c.mu.Unlock()
	case !a.preEpoch:
		if open, _ := c.epochs.Current(); a.from != 0 && a.from <= open {
			c.log.Info("plan is late and applies from the next epoch", "plugin", plugin, "planned-from", a.from, "open", open)
		}
		c.track(a)
		c.acceptPending(a.parts)
		c.mu.Unlock()
		c.storeParts(ctx, a.parts)
	case !c.bankFree(a):
		c.addEarly(a)
		c.mu.Unlock()
	default:
		c.mu.Unlock()
		c.writePreEpoch(ctx, a)
	}
}

// update converts a plugin's write. A match takes the kind of its field, so the kind is decided
// when the entry is written, by the program on the device.
func update(w sdk.DeviceWrite) p4rt.Update {
	e := p4rt.Entry{
		Table: w.Entry.Table, Priority: w.Entry.Priority, Action: w.Entry.Action, Default: w.Op == sdk.SetDefault,
	}
	if e.Table == sdk.CloneSessions {
		e.Table = p4rt.CloneSessions
	}
	for _, p := range w.Entry.Params {
		e.Params = append(e.Params, p4rt.Param{Name: p.Name, Value: p.Value})
	}
	if !e.Default {
		for _, m := range w.Entry.Matches {
			e.Match = append(e.Match, p4rt.Match{
				Field: m.Field, Value: m.Value, Mask: m.Mask, High: m.High, PrefixLen: m.PrefixLen,
			})
		}
	}
	switch w.Op {
	case sdk.Insert:
		return p4rt.Insert(e)
	case sdk.Modify, sdk.SetDefault:
		return p4rt.Modify(e)
	case sdk.Delete:
		return p4rt.Delete(e)
	}
	return p4rt.Update{Entry: e} // without a type, the write fails
}

// newPlan sorts a plan's writes by device and converts them.
func newPlan(plugin string, source sdk.Plan) *plan {
	a := &plan{plugin: plugin, id: source.ID, from: source.FromEpoch, preEpoch: source.PreEpoch, source: source}
	a.open, a.undos = map[string]bool{}, map[string]func(context.Context) error{}
	at := map[string]*part{}
	for _, w := range source.Writes {
		p := at[w.Device]
		if p == nil {
			p = &part{of: a, device: w.Device}
			at[w.Device], a.open[w.Device] = p, true
			a.parts = append(a.parts, p)
		}
		p.updates = append(p.updates, update(w))
	}
	return a
}

// Collected signals that the banks of an epoch have been read. It starts to write the plans for
// the epochs that use these banks next; wait returns when they are written.
func (c *Component) Collected(ctx context.Context, number uint64) (wait func()) {
	c.mu.Lock()
	c.collected = max(c.collected, number)
	var due, early []*plan
	for _, a := range c.early {
		if c.bankFree(a) {
			due = append(due, a)
		} else {
			early = append(early, a)
		}
	}
	c.early = early
	c.mu.Unlock()
	if len(due) == 0 {
		return func() {}
	}
	done := make(chan struct{})
	c.work.Go(func() {
		defer close(done)
		for _, a := range due {
			c.writePreEpoch(ctx, a)
		}
	})
	return func() { <-done }
}

// writePreEpoch writes a pre-epoch plan to all devices of this collector in parallel. The collector
// that made the plan also waits for the others. If a device that is ready refuses its part, the
// other parts are undone.
func (c *Component) writePreEpoch(ctx context.Context, a *plan) {
	_, end := c.epochs.Current()
	begin := c.clock.Now() // on a virtual clock, writing takes no time
	limit, late := c.timeFor(a, begin)
	if late != "" {
		c.recordLate(a, late)
		return
	}
	c.mu.Lock()
	if a.maker == "" {
		a.answers, a.arrived = map[string]Outcome{}, make(chan struct{}, 1)
		c.track(a)
	}
	c.mu.Unlock()
	writing, cancel := c.clock.WithTimeout(ctx, limit)
	defer cancel()
	var work sync.WaitGroup
	for _, p := range a.parts {
		work.Go(func() { c.writePart(writing, p) })
	}
	work.Wait()
	if a.maker != "" {
		return
	}
	refused := c.await(writing, a)
	if refused == "" {
		c.mu.Lock()
		c.lastWrite = c.clock.Now().Sub(begin)
		c.mu.Unlock()
	} else {
		undoing, cancel := c.clock.WithTimeout(ctx, max(end.Sub(c.clock.Now()), time.Millisecond))
		defer cancel()
		c.mu.Lock()
		a.undo = true
		maps.DeleteFunc(a.answers, func(_ string, o Outcome) bool { return o.Result == Applied })
		c.drop(a)
		c.share()
		c.mu.Unlock()
		c.undoHere(undoing, a)
		c.await(undoing, a)
	}
	c.conclude(a, refused)
}

// await waits until the outcomes of a pre-epoch plan at all devices are known. It returns the first
// device that has refused the plan; "" if there is none.
func (c *Component) await(ctx context.Context, a *plan) (refused string) {
	for {
		c.mu.Lock()
		missing := a.number != 0 && len(a.answers) < len(a.parts)
		c.mu.Unlock()
		if !missing {
			break
		}
		select {
		case <-a.arrived:
			continue
		case <-ctx.Done():
		}
		break
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range a.parts {
		if o := a.answers[p.device]; o.Result != Applied && o.Result != Away {
			return p.device
		}
	}
	return ""
}

// writePart writes a part of a pre-epoch plan to its device. The part stays pending if the device
// is away, or if another collector has it.
func (c *Component) writePart(ctx context.Context, p *part) {
	d := c.device(p.device)
	var err error
	switch {
	case d == nil:
		err = errors.New(noDevice)
	case d.foreign:
		err = p4rt.ErrNotReady
	default:
		if _, err = d.Ready(); err != nil {
			err = fmt.Errorf("%w: %w", p4rt.ErrNotReady, err)
		} else {
			err = d.apply(ctx, p)
		}
	}
	o := result(err)
	o.From = p.of.from
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Result == Away {
		c.addPending(p)
	}
	if c.reports(p) && (d == nil || !d.foreign && !errors.Is(err, errLeaving)) {
		c.report(p, o) // the owner of a foreign device reports the outcome
	}
}

// storeParts stores the entries of the parts' devices in Cluster.
func (c *Component) storeParts(ctx context.Context, parts []*part) {
	if c.cluster == nil {
		return
	}
	var work sync.WaitGroup
	for _, p := range parts {
		if d := c.device(p.device); d != nil {
			work.Go(func() { _ = d.confirm(ctx) }) // Sync tries again if storing fails
		}
	}
	work.Wait()
}

// confirm calls store after entries were written. It fails if another collector owns the device,
// because that collector may remove the entries. After a failure, confirm leaves storing to Sync,
// because each attempt may take long.
func (d *deviceIntent) confirm(ctx context.Context) error {
	d.writing.Lock()
	failing := d.failing
	d.writing.Unlock()
	if failing {
		return nil
	}
	if err := d.store(ctx); errors.Is(err, ErrDeposed) {
		return fmt.Errorf("%w: device %s: %w", ErrPartiallyApplied, d.Name(), err)
	}
	return nil
}

// Flipped applies the parts that are pending at a device for the epoch that begins with this flip.
// If entries are being written to the device, it returns at once, because the read-out that
// follows the flip must not wait; the parts are then applied at the next flip. Parts that are not
// shared yet wait, too.
func (c *Component) Flipped(ctx context.Context, name string, next uint64) {
	d := c.device(name)
	if d == nil || !d.writing.TryLock() {
		return
	}
	defer d.writing.Unlock()
	if !d.usable() {
		return
	}
	c.applyPending(ctx, d, next, true)
	if d.dirty.Load() && c.cluster != nil {
		c.work.Go(func() { _ = d.confirm(ctx) }) // the read-out does not wait; if storing fails, Sync tries again
	}
}

// ApplyPending applies the parts that are pending at a device for the open epoch, and returns when
// all of them are written. If ctx ends before, all parts stay pending.
func (c *Component) ApplyPending(ctx context.Context, name string) {
	d := c.device(name)
	if d == nil || d.foreign {
		return
	}
	d.writing.Lock() // waits until parts that another call took from d.pending are written
	c.mu.Lock()
	none := len(d.pending) == 0
	c.mu.Unlock()
	d.writing.Unlock()
	if none || ctx.Err() != nil || d.take(ctx) != nil || errors.Is(d.confirm(ctx), ErrDeposed) {
		return // the parts stay pending
	}
	d.writing.Lock()
	open, _ := c.epochs.Current()
	c.applyPending(ctx, d, open, false)
	d.writing.Unlock()
	_ = d.confirm(ctx) // if storing fails, Sync tries again
}

// applyPending writes the parts that are due in an epoch. With atFlip, the epoch begins now;
// otherwise it may have been open for some time. Parts for a device whose session has just ended
// stay pending. The caller holds d.writing.
func (c *Component) applyPending(ctx context.Context, d *deviceIntent, number uint64, atFlip bool) {
	for _, p := range c.due(d, number) {
		err := d.writePart(ctx, p)
		if errors.Is(err, p4rt.ErrNotReady) {
			c.mu.Lock()
			c.addPending(p)
			c.mu.Unlock()
			continue
		}
		c.recordPending(p, number, atFlip, err)
	}
}

// apply writes a part for a caller that does not hold d.writing.
func (d *deviceIntent) apply(ctx context.Context, p *part) error {
	err := d.take(ctx)
	if err == nil {
		err = d.announceAndWrite(ctx, p)
	}
	if err != nil {
		return err
	}
	return d.confirm(ctx)
}

func (d *deviceIntent) announceAndWrite(ctx context.Context, p *part) error {
	d.storing.Lock()
	defer d.storing.Unlock()
	d.writing.Lock()
	defer d.writing.Unlock()
	d.c.mu.Lock()
	o, done := d.done[p.of.key()]
	d.c.mu.Unlock()
	switch {
	case done: // the former owner has written the entries
		return o.err()
	case d.leaving.Load():
		return errLeaving
	}
	if err := d.announce(ctx, p.updates, p); err != nil {
		return fmt.Errorf("device %s: %w", d.Name(), err)
	}
	return d.writePart(ctx, p)
}

// writePart writes a part, unless its plan is withdrawn or the session is about to end, and keeps
// what undoes a part of a pre-epoch plan. The caller holds d.writing.
func (d *deviceIntent) writePart(ctx context.Context, p *part) error {
	d.c.mu.Lock()
	withdrawn := p.of.undo
	d.c.mu.Unlock()
	switch {
	case withdrawn:
		return errWithdrawn
	case d.leaving.Load():
		return errLeaving
	}
	undo, err := d.write(ctx, p.updates)
	if p.of.preEpoch && err == nil {
		d.c.mu.Lock()
		p.of.undos[p.device] = undo
		d.c.mu.Unlock()
	}
	return err
}

// write writes updates in order, all or none: if the device refuses an update, the others are
// undone, and if that fails, the error wraps ErrPartiallyApplied. If the session ends meanwhile,
// the error wraps p4rt.ErrNotReady, and the next session begins without these updates. Inserting an
// entry that exists modifies it, because a restarted plugin or collector plans from the beginning.
// undo reverts the updates later, as long as no other updates follow. The caller holds d.writing,
// and has announced or stored the updates if the device is shared.
func (d *deviceIntent) write(ctx context.Context, updates []p4rt.Update) (undo func(context.Context) error,
	err error,
) {
	changes, err := d.changes(updates)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", d.Name(), err)
	}
	done, err := send(ctx, d, changes)
	if err != nil {
		d.dirty.Store(true)
		if ctx.Err() == nil && (errors.Is(err, p4rt.ErrSessionLost) || errors.Is(err, p4rt.ErrNotPrimary)) {
			for _, c := range done { // a new session deletes the entries that applied lacks
				if c.upsert && c.before == nil {
					d.absent = append(d.absent, c.update.Entry)
				}
			}
			return nil, fmt.Errorf("device %s: %w: %w", d.Name(), p4rt.ErrNotReady, err)
		}
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.undoLimit) // ctx may have ended
		defer cancel()
		if undoErr := revert(clean, d, done); undoErr != nil || ctx.Err() != nil && len(done) > 0 {
			err = fmt.Errorf("%w: %w", ErrPartiallyApplied, err)
		}
		return nil, fmt.Errorf("device %s: %w", d.Name(), err)
	}
	for _, c := range changes {
		if isDelete(c.update) {
			d.dirty.Store(true) // the stored entries still list this one as possibly left over
			delete(d.applied, c.key)
		} else {
			d.applied[c.key] = c.update.Entry
		}
	}
	if d.failing {
		d.dirty.Store(true)
	}
	return func(ctx context.Context) error {
		return errors.Join(d.unapply(ctx, changes), d.confirm(ctx))
	}, nil
}

// unapply undoes changes that were written.
func (d *deviceIntent) unapply(ctx context.Context, changes []change) error {
	d.storing.Lock()
	defer d.storing.Unlock()
	d.writing.Lock()
	defer d.writing.Unlock()
	var updates []p4rt.Update
	for _, c := range slices.Backward(changes) {
		if c.before == nil {
			updates = append(updates, p4rt.Delete(c.update.Entry))
		} else {
			updates = append(updates, p4rt.Modify(*c.before))
		}
	}
	if err := d.announce(ctx, updates, nil); err != nil {
		return fmt.Errorf("device %s: undo: %w", d.Name(), err)
	}
	d.dirty.Store(true)
	for _, c := range slices.Backward(changes) {
		if c.before == nil {
			delete(d.applied, c.key)
		} else {
			d.applied[c.key] = *c.before
		}
	}
	if err := revert(ctx, d, changes); err != nil {
		return fmt.Errorf("device %s: undo: %w", d.Name(), err)
	}
	return nil
}
