// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// Shared is where the collectors of a cluster keep the entries of plans that a device holds, so
// that its next owner can repair them, and change them when plugins do.
//
//	new session ─▶ Take ─▶ applied ─▶ reconcile
//	plan ─▶ Store ─▶ switch ─▶ applied ─▶ outcome
//
// A plan's entries are stored before the switch receives them, so that the next owner of a device
// knows every entry that the device may hold, and completes the plan. If storing fails, the
// collector continues with the entries it has, and Sync tries again.
type Shared interface {
	// Take returns the entries of a device as the last owner stored them, and makes this collector
	// the owner, so that the previous owner can store no further entries. own reports whether this
	// collector was the last owner.
	Take(ctx context.Context, device string) (held p4rt.Desired, own bool, err error)
	// Store replaces the stored entries. The error wraps ErrDeposed if another collector has taken
	// them.
	Store(ctx context.Context, device string, held p4rt.Desired) error
}

// ErrDeposed is wrapped by Shared.Store if another collector owns the device.
var ErrDeposed = errors.New("another collector owns the device")

// sharedTime bounds a call of Shared, on the wall clock. A session becomes ready only after Take.
const sharedTime = time.Second

// sharedState says how a device's applied entries relate to the entries in Shared.
type sharedState struct {
	storing sync.Mutex   // held by calls of Shared; taken before desiredState.writing
	taken   bool         // applied includes the shared entries; guarded by writing
	failing bool         // the latest Store failed; guarded by writing
	absent  []p4rt.Entry // entries that the previous owner was about to delete; guarded by writing
	dirty   atomic.Bool  // applied and the shared entries differ
}

// usable reports whether applied is complete, so that plans can be written. The caller holds
// d.writing.
func (d *deviceIntent) usable() bool { return d.shared == nil || d.elsewhere() != nil || d.taken }

// take makes applied equal to the shared entries, unless this was done before. The error wraps
// p4rt.ErrNotReady.
func (d *deviceIntent) take(ctx context.Context) error {
	d.writing.Lock()
	usable := d.usable()
	d.writing.Unlock()
	if usable {
		return nil
	}
	d.storing.Lock()
	defer d.storing.Unlock()
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.adopt(ctx)
}

// adopt does the work of take for a new session, before which another collector may have had a
// session. The caller holds d.storing and d.writing.
func (d *deviceIntent) adopt(ctx context.Context) error {
	if d.shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sharedTime)
	defer cancel()
	held, own, err := d.shared.Take(ctx, d.Name())
	if err != nil {
		return fmt.Errorf("%w: reading the entries of plans from the cluster: %w", p4rt.ErrNotReady, err)
	}
	if own && d.taken {
		return nil
	}
	applied := map[string]p4rt.Entry{}
	for _, e := range held.Entries {
		switch key, err := d.Key(e); {
		case errors.Is(err, p4rt.ErrNotReady): // the session has ended meanwhile
			return fmt.Errorf("reading the entries of plans from the cluster: %w", err)
		case err != nil: // an entry of the device's previous pipeline
			d.dirty.Store(true)
		default:
			applied[key] = e
		}
	}
	d.applied, d.taken, d.absent = applied, true, nil
	for _, e := range held.Absent {
		if _, err := d.Key(e); err == nil {
			d.absent = append(d.absent, e)
		}
		d.dirty.Store(true)
	}
	return nil
}

// held returns the entries that the device holds after updates, and after the parts that are
// pending for the next epoch, are written. It also returns the numbers of these parts. The caller
// holds d.writing.
func (d *deviceIntent) held(updates ...p4rt.Update) (held p4rt.Desired, parts []uint64) {
	entries, absent := maps.Clone(d.applied), map[string]p4rt.Entry{}
	for _, e := range d.absent {
		updates = append([]p4rt.Update{p4rt.Delete(e)}, updates...)
	}
	for _, p := range d.c.expected(d) {
		updates, parts = append(updates, p.updates...), append(parts, p.number)
	}
	for _, u := range updates {
		switch key, err := d.Key(u.Entry); {
		case err != nil: // the write fails
		case isDelete(u):
			delete(entries, key)
			absent[key] = u.Entry
		default:
			delete(absent, key)
			entries[key] = u.Entry
		}
	}
	return p4rt.Desired{Entries: sorted(entries), Absent: sorted(absent)}, parts
}

// announce stores the entries that the device will hold after updates. The error wraps
// p4rt.ErrNotReady if another collector owns the device. After any other failure, announce returns
// nil: the updates are written, and Sync stores the entries. The caller holds d.storing and
// d.writing.
func (d *deviceIntent) announce(ctx context.Context, updates []p4rt.Update) error {
	if d.shared == nil || d.elsewhere() != nil {
		return nil
	}
	if d.failing { // waiting for another attempt would make the plan late
		d.dirty.Store(true)
		return nil
	}
	limit := sharedTime
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	held, parts := d.held(updates...)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d.dirty.Store(false)
	if err := d.shared.Store(ctx, d.Name(), held); d.stored(parts, err) != nil && errors.Is(err, ErrDeposed) {
		return fmt.Errorf("%w: %w", p4rt.ErrNotReady, err)
	}
	return nil
}

// stored records the result of Shared.Store, which included some pending parts, and returns it.
// The caller holds d.writing.
func (d *deviceIntent) stored(parts []uint64, err error) error {
	switch {
	case err == nil:
		d.c.stored(d, parts)
	case errors.Is(err, ErrDeposed):
		d.taken = false
	default:
		d.dirty.Store(true)
	}
	d.failing = err != nil && !errors.Is(err, ErrDeposed)
	return err
}

// store shares the device's entries if they have changed, or if a part is pending for the next
// epoch. The error wraps ErrDeposed if another collector owns the device. After any other error,
// Sync tries again.
func (d *deviceIntent) store(ctx context.Context) error {
	if d.shared == nil || d.elsewhere() != nil {
		return nil
	}
	d.storing.Lock()
	defer d.storing.Unlock()
	d.writing.Lock()
	if !d.usable() || !d.dirty.Swap(false) && d.c.allStored(d) {
		d.writing.Unlock()
		return nil
	}
	held, parts := d.held()
	d.writing.Unlock()
	limit := sharedTime
	if end, ok := ctx.Deadline(); ok {
		limit = max(min(limit, time.Until(end)), sharedTime/4)
	}
	// the entries are already written, so they are stored even if ctx has ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := d.shared.Store(ctx, d.Name(), held)
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.stored(parts, err)
}

// sorted returns entries in the order of their keys.
func sorted(entries map[string]p4rt.Entry) (out []p4rt.Entry) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		out = append(out, entries[key])
	}
	return out
}

// Sync shares the entries of devices for which sharing has failed before; Shared logs why. Call it
// once in each epoch.
func (c *Component) Sync(ctx context.Context) {
	if c.shared == nil {
		return
	}
	c.mu.Lock()
	devices := slices.Collect(maps.Values(c.devices))
	c.mu.Unlock()
	for _, d := range devices {
		if _, err := d.Ready(); err != nil || d.elsewhere() != nil {
			continue
		}
		if err := d.sync(ctx); err != nil && !errors.Is(err, ErrDeposed) {
			return // each attempt may take sharedTime
		}
	}
}

// sync takes and stores the entries of a device. It repairs entries that the switch has lost since
// its session began.
func (d *deviceIntent) sync(ctx context.Context) error {
	d.writing.Lock()
	usable := d.usable()
	d.writing.Unlock()
	if !usable {
		if err := d.take(ctx); err != nil {
			return err
		}
		d.writing.Lock()
		err := d.reconcile(ctx, d)
		d.writing.Unlock()
		if err != nil {
			return err
		}
	}
	return d.store(ctx)
}
