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
// that its next owner has them: it repairs them, and changes them when plugins do.
//
//	new session ─▶ Take ─▶ applied ─▶ reconcile
//	plan ─▶ Store ─▶ switch ─▶ applied ─▶ outcome
//
// What a plan writes is stored before the switch has it, so that a device that loses its owner
// holds nothing which the next one does not know: that one completes the plan. If storing fails,
// the collector goes on with what it has, and Sync tries again.
type Shared interface {
	// Take returns the entries of a device, as its last owner stored them, and makes this collector
	// the owner, so that the one before can store no others. own reports that it was this one.
	Take(ctx context.Context, device string) (held p4rt.Desired, own bool, err error)
	// Store replaces the entries. The error wraps ErrDeposed if another collector has taken them.
	Store(ctx context.Context, device string, held p4rt.Desired) error
}

// ErrDeposed is wrapped by Shared.Store if another collector owns the device.
var ErrDeposed = errors.New("another collector owns the device")

// sharedTime bounds a call of Shared, on the wall clock. A session is not ready before Take.
const sharedTime = time.Second

// sharedState is how the applied entries of a device compare with the shared ones.
type sharedState struct {
	storing sync.Mutex   // held by calls of Shared; taken before desiredState.writing
	taken   bool         // applied has the shared entries; guarded by writing
	failing bool         // the latest Store failed; guarded by writing
	absent  []p4rt.Entry // that the owner before was about to delete; guarded by writing
	dirty   atomic.Bool  // the shared entries are others
}

// usable reports whether applied is what the device holds: plans can be written. d.writing is held.
func (d *deviceIntent) usable() bool { return d.shared == nil || d.elsewhere() != nil || d.taken }

// take makes the shared entries those that are applied, unless they are already. The error wraps
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

// adopt is take for a new session, which may follow one of another collector. d.storing and
// d.writing are held.
func (d *deviceIntent) adopt(ctx context.Context) error {
	if d.shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sharedTime)
	defer cancel()
	held, own, err := d.shared.Take(ctx, d.Name())
	if err != nil {
		return fmt.Errorf("%w: the entries of plans in the cluster: %w", p4rt.ErrNotReady, err)
	}
	if own && d.taken {
		return nil
	}
	applied := map[string]p4rt.Entry{}
	for _, e := range held.Entries {
		switch key, err := d.Key(e); {
		case errors.Is(err, p4rt.ErrNotReady): // the session has ended meanwhile
			return fmt.Errorf("the entries of plans in the cluster: %w", err)
		case err != nil: // of a pipeline that the device had before
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

// held returns what the device holds when updates and the parts that are pending for the next epoch
// are written, and the numbers of these parts. d.writing is held.
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

// announce stores what the device holds when updates are written. The error wraps p4rt.ErrNotReady:
// another collector owns the device. After any other failure they are written, and Sync stores what
// the device holds. d.storing and d.writing are held.
func (d *deviceIntent) announce(ctx context.Context, updates []p4rt.Update) error {
	if d.shared == nil || d.elsewhere() != nil {
		return nil
	}
	if d.failing { // the plan would be late
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

// stored notes the result of Shared.Store, with parts that are pending, and returns it. d.writing
// is held.
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

// store shares what the device holds if that has changed, or a part is pending for the next epoch.
// The error wraps ErrDeposed if another collector owns the device. After any other error, Sync
// stores it.
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit) // what is written is written
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

// Sync shares the entries of plans at devices where that has failed before: Shared logs why. Call
// it once in each epoch.
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

// sync takes and stores the entries of a device. Those that the switch has lost since its session
// began are repaired.
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
