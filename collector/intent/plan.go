// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// How a plan is written: Add accepts it; Collected, Flipped and ApplyPending decide when its parts
// are written; write writes one part to its device.

// part is the part of a plan for one device, whose updates are in order.
type part struct {
	plugin  string
	plan    uint64
	device  string
	from    uint64 // the first epoch of the plan
	bank    int    // the bank of the plan's epochs, or allBanks
	updates []p4rt.Update

	number uint64 // position among the parts that were pending for the device
	stored bool   // the part is stored in Shared
}

// allBanks is the bank of a plan that is not pre-epoch.
const allBanks = -1

// preEpochPlan is a plan that is written before its epoch, on all devices or on none.
type preEpochPlan struct {
	plugin string
	plan   uint64
	from   uint64
	parts  []part // one for each device
}

// Add accepts a plugin's plan. A pre-epoch plan is written when Add returns, unless an earlier
// epoch still uses the bank; any other plan is pending until the flip that begins its epoch.
func (c *Component) Add(ctx context.Context, plugin string, plan sdk.Plan) {
	parts := split(plugin, plan)
	c.mu.Lock()
	c.addHosts(plugin, plan)
	if c.foreign(parts) {
		c.mu.Unlock()
		return
	}
	if !plan.PreEpoch {
		c.acceptPending(plan, parts)
		c.mu.Unlock()
		c.storeParts(ctx, parts, nil)
		return
	}
	a := &preEpochPlan{plugin: plugin, plan: plan.ID, from: plan.FromEpoch, parts: parts}
	if !c.bankFree(a) {
		c.addEarly(a)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.writePreEpoch(ctx, a)
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

// split sorts a plan's writes by device and converts them.
func split(plugin string, plan sdk.Plan) (parts []part) {
	at := map[string]int{}
	for _, w := range plan.Writes {
		i, ok := at[w.Device]
		if !ok {
			i = len(parts)
			at[w.Device] = i
			parts = append(parts, part{plugin: plugin, plan: plan.ID, device: w.Device, from: plan.FromEpoch,
				bank: allBanks})
		}
		parts[i].updates = append(parts[i].updates, update(w))
	}
	return parts
}

// Collected signals that the banks of an epoch have been read. It starts to write the plans for
// the epochs that use these banks next; wait returns when they are written.
func (c *Component) Collected(ctx context.Context, number uint64) (wait func()) {
	c.mu.Lock()
	c.collected = max(c.collected, number)
	var due, early []*preEpochPlan
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

// result is the outcome of writing a part to its device.
type result struct {
	undo func(context.Context) error
	away bool
	err  error
}

// writePreEpoch writes a pre-epoch plan to all devices in parallel. If a device that is ready
// refuses its part, the other parts are undone.
func (c *Component) writePreEpoch(ctx context.Context, a *preEpochPlan) {
	_, end := c.epochs.Current()
	begin := c.clock.Now() // on a virtual clock, writing takes no time
	limit, late := c.timeFor(a, begin)
	if late != "" {
		c.recordLate(a, late)
		return
	}
	writing, cancel := c.clock.WithTimeout(ctx, limit)
	defer cancel()
	results := make([]result, len(a.parts))
	var work sync.WaitGroup
	for i, p := range a.parts {
		work.Go(func() { results[i] = c.writePart(writing, p) })
	}
	work.Wait()
	wrote := c.clock.Now().Sub(begin)
	refused := slices.IndexFunc(results, func(r result) bool { return r.err != nil && !r.away })
	if refused >= 0 {
		c.undo(ctx, results, end)
		c.recordPreEpoch(a, results, a.parts[refused].device)
		return
	}
	c.mu.Lock()
	c.lastWrite = wrote
	c.mu.Unlock()
	c.storeParts(ctx, a.parts, results)
	c.recordPreEpoch(a, results, "")
}

// writePart writes a part of a pre-epoch plan to its device.
func (c *Component) writePart(ctx context.Context, p part) (r result) {
	d := c.settled(ctx, p.device)
	if d == nil {
		return result{err: errors.New(noDevice)}
	}
	if _, err := d.Ready(); err != nil {
		return result{away: true, err: err}
	}
	r.undo, r.err = d.apply(ctx, p.plugin, p.updates)
	r.away = d.elsewhere() != nil && errors.Is(r.err, p4rt.ErrNotReady)
	return r
}

// storeParts stores the entries of the parts' devices in Shared. Errors are written to results, if
// it is not nil.
func (c *Component) storeParts(ctx context.Context, parts []part, results []result) {
	if c.shared == nil {
		return
	}
	var work sync.WaitGroup
	for i, p := range parts {
		d := c.device(p.device)
		if d == nil || results != nil && results[i].err != nil {
			continue
		}
		work.Go(func() {
			if err := d.confirm(ctx); results != nil {
				results[i].err = err
			}
		})
	}
	work.Wait()
}

// confirm calls store after entries were written. It fails if another collector owns the device,
// because that collector may remove the entries. While storing fails, confirm leaves it to Sync,
// because it may take long.
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
	if d.dirty.Load() && d.shared != nil {
		c.work.Go(func() { _ = d.confirm(ctx) }) // the read-out does not wait; if storing fails, Sync tries again
	}
}

// ApplyPending applies the parts that are pending at a device for the open epoch, and returns when
// all of them are written. If ctx ends before, all parts stay pending.
func (c *Component) ApplyPending(ctx context.Context, name string) {
	d := c.device(name)
	if d == nil {
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
// otherwise it may have been open for some time. The caller holds d.writing.
func (c *Component) applyPending(ctx context.Context, d *deviceIntent, number uint64, atFlip bool) {
	for _, p := range c.due(d, number) {
		_, err := d.write(ctx, p.plugin, p.updates)
		if d.elsewhere() != nil && errors.Is(err, p4rt.ErrNotReady) {
			c.mu.Lock()
			c.addPending(d, p) // until the device's owner has a session
			c.mu.Unlock()
			continue
		}
		c.recordPending(p, number, atFlip, err)
	}
}

// apply calls write for a caller that does not hold d.writing.
func (d *deviceIntent) apply(ctx context.Context, plugin string, updates []p4rt.Update) (
	undo func(context.Context) error, err error,
) {
	if err := d.take(ctx); err != nil {
		return nil, fmt.Errorf("device %s: %w", d.Name(), err)
	}
	d.storing.Lock()
	defer d.storing.Unlock()
	d.writing.Lock()
	defer d.writing.Unlock()
	if err := d.announce(ctx, updates); err != nil {
		return nil, fmt.Errorf("device %s: %w", d.Name(), err)
	}
	return d.write(ctx, plugin, updates)
}

// ForeignError is the error of Write for a device of another collector. errors.Is matches it with
// p4rt.ErrNotReady.
type ForeignError struct{ Device, Owner string }

// Error names the device and its owner.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("collector %s owns device %s", e.Owner, e.Device)
}

// Is makes errors.Is work for p4rt.ErrNotReady.
func (e *ForeignError) Is(target error) bool { return target == p4rt.ErrNotReady }

// Write writes a part of a plan that another collector sends, either all updates or none; undo
// reverts them. The error is a ForeignError if another collector owns the device.
func (c *Component) Write(ctx context.Context, name string, updates []p4rt.Update) (
	undo func(context.Context) error, err error,
) {
	d := c.settled(ctx, name)
	if d == nil {
		return nil, errors.New(noDevice)
	}
	if e := d.elsewhere(); e != nil {
		return nil, &ForeignError{name, e.Owner()}
	}
	if _, err := d.Ready(); err != nil {
		return nil, fmt.Errorf("%w: device %s: %w", p4rt.ErrNotReady, name, err)
	}
	if undo, err = d.apply(ctx, "", updates); err != nil {
		return nil, err
	}
	return undo, d.confirm(ctx)
}

// ApplyElsewhere applies the parts that are pending for the open epoch at devices of other
// collectors. The epoch has begun before, so it is mixed.
func (c *Component) ApplyElsewhere(ctx context.Context) {
	c.mu.Lock()
	var due []string
	for name, d := range c.devices {
		if len(d.pending) > 0 && d.elsewhere() != nil {
			due = append(due, name)
		}
	}
	c.mu.Unlock()
	slices.Sort(due)
	for _, name := range due {
		if d := c.device(name); d != nil && ctx.Err() == nil {
			if _, err := d.Ready(); err == nil {
				c.ApplyPending(ctx, name)
			}
		}
	}
}

// write writes updates in order, all or none: if the device refuses an update, the others are
// undone, and if that fails, the error wraps ErrPartiallyApplied. Inserting an entry that exists
// modifies it, because a restarted plugin or collector plans from the beginning. undo reverts the
// updates later, as long as no other updates follow. The caller holds d.writing, and has announced
// or stored the updates if the device is shared.
func (d *deviceIntent) write(ctx context.Context, plugin string, updates []p4rt.Update) (
	undo func(context.Context) error, err error,
) {
	if e := d.elsewhere(); e != nil {
		if undo, err = e.Apply(ctx, plugin, updates); err != nil {
			return nil, fmt.Errorf("device %s: %w", d.Name(), err)
		}
		return undo, nil
	}
	changes, err := d.changes(updates)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", d.Name(), err)
	}
	done, err := send(ctx, d, changes)
	if err != nil {
		d.dirty.Store(true)
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.undoLimit) // ctx may have ended
		defer cancel()
		if undoErr := revert(clean, d, done); undoErr != nil || ctx.Err() != nil && len(done) > 0 {
			err = fmt.Errorf("%w: %w", ErrPartiallyApplied, err)
		}
		return nil, fmt.Errorf("device %s: %w", d.Name(), err)
	}
	for _, c := range changes {
		if isDelete(c.update) {
			d.dirty.Store(true) // Shared must drop the entry that was announced as absent
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
	if err := d.announce(ctx, updates); err != nil {
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
