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
)

// Shared is where the collectors of a cluster keep the entries of plans that a device holds, so
// that its next owner has them: it repairs them, and changes them when plugins do.
//
//	new session ─▶ Take ─▶ applied ─▶ reconcile
//	plan written ─▶ applied ─▶ Store ─▶ outcome
//
// A plan is reported as applied when its entries are stored. If that fails, the collector goes on
// with what it has, and Sync tries again.
type Shared interface {
	// Take returns the entries of a device, as its last owner stored them, and makes this collector
	// the owner, so that the one before can store no others. own reports that it was this one.
	Take(ctx context.Context, device string) (entries []p4rt.Entry, own bool, err error)
	// Store replaces the entries. The error wraps ErrDeposed if another collector has taken them.
	Store(ctx context.Context, device string, entries []p4rt.Entry) error
}

// ErrDeposed is wrapped by Shared.Store if another collector owns the device.
var ErrDeposed = errors.New("another collector owns the device")

// sharedTime bounds a call of Shared, on the wall clock. A session is not ready before Take.
const sharedTime = time.Second

// sharedState is how the applied entries of a device compare with the shared ones.
type sharedState struct {
	storing sync.Mutex // held by calls of Shared; taken before desiredState.writing
	taken   bool       // applied has the shared entries; guarded by writing
	dirty   bool       // applied has changed since; guarded by writing
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
	entries, own, err := d.shared.Take(ctx, d.Name())
	if err != nil {
		return fmt.Errorf("%w: the entries of plans in the cluster: %w", p4rt.ErrNotReady, err)
	}
	if own && d.taken {
		return nil
	}
	d.taken, d.dirty = true, false
	clear(d.applied)
	for _, e := range entries {
		key, err := d.Key(e)
		if err != nil { // of a pipeline that the device had before
			d.dirty = true
			continue
		}
		d.applied[key] = e
	}
	return nil
}

// store shares the applied entries if they have changed. The error wraps ErrDeposed if another
// collector owns the device. After any other error, Sync stores them.
func (d *deviceIntent) store(ctx context.Context) error {
	if d.shared == nil {
		return nil
	}
	d.storing.Lock()
	defer d.storing.Unlock()
	d.writing.Lock()
	dirty, entries := d.dirty, d.plans()
	d.dirty = false
	d.writing.Unlock()
	if !dirty {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedTime) // what is written is written
	defer cancel()
	err := d.shared.Store(ctx, d.Name(), entries)
	if err == nil {
		return nil
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	if errors.Is(err, ErrDeposed) {
		d.taken = false
	} else {
		d.dirty = true
	}
	return err
}

// plans returns the entries of plans, sorted by their keys. d.writing is held.
func (d *deviceIntent) plans() (entries []p4rt.Entry) {
	for _, key := range slices.Sorted(maps.Keys(d.applied)) {
		entries = append(entries, d.applied[key])
	}
	return entries
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
		err := d.Reconcile(ctx, d.desired()...)
		d.writing.Unlock()
		if err != nil {
			return err
		}
	}
	return d.store(ctx)
}
