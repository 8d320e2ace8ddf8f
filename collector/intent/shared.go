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
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Cluster shares plans among the members of a cluster. It also stores, for each device, the entries
// of plans that the device holds, so that the device's next owner can restore lost entries and
// carry out further plans.
//
//	plugin -> Add -> Share -> Follow -> pending      at the owner of a device:
//	                                                   new session -> Take -> applied -> reconcile
//	plugin <- TakeOutcome <------------- Forward <--   plan -> Store -> switch -> applied -> outcome
//
// A plan's entries are stored before the switch receives them, so that the next owner of a device
// knows every entry that the device may hold, completes the plan, and does not write it again. If
// storing fails, the collector continues with the entries it has, and Sync tries again.
type Cluster interface {
	// Member returns the name of this member.
	Member() string
	// AtHome reports whether this member holds a lease and is the home of a plugin.
	AtHome(plugin string) bool
	// Present reports whether a member is in the cluster.
	Present(member string) bool
	// Share replaces the plans of this member that are not concluded. The other members receive them
	// (Follow). It does not block.
	Share(plans []SharedPlan)
	// Settings shares the settings of hosts of a plan. It does not block.
	Settings(plugin string, plan sdk.Plan)
	// Forward sends the outcome of a plan to the member that made the plan, or the outcome of a
	// setting to the home of the plugin, which receives it at least once (TakeOutcome). It returns
	// false if this member is the receiver. It does not block.
	Forward(Outcome) bool
	// Take returns what the last owner of a device stored, and makes this collector the owner, so that
	// the previous owner can store no more. own reports whether this collector was the last owner.
	Take(ctx context.Context, device string) (held Held, own bool, err error)
	// Store replaces what is stored of a device. The error wraps ErrDeposed if another collector has
	// taken the device.
	Store(ctx context.Context, device string, held Held) error
}

// Held are the entries of plans that a device holds, and the outcomes of the plans that are not
// concluded.
type Held struct {
	p4rt.Desired
	Done []Outcome
}

// ErrDeposed is wrapped by Cluster.Store if another collector owns the device.
var ErrDeposed = errors.New("another collector owns the device")

// sharedTime bounds a call of Cluster, on the wall clock. The bound is short because a session
// becomes ready only after Take.
const sharedTime = time.Second

// sharedState says how a device's applied entries relate to what is stored in Cluster.
type sharedState struct {
	storing sync.Mutex   // held by calls of Cluster; taken before desiredState.writing
	taken   bool         // applied includes the shared entries; guarded by writing
	failing bool         // the latest Store failed; guarded by writing
	absent  []p4rt.Entry // entries that a new session deletes: they may be left over; guarded by writing
	dirty   atomic.Bool  // applied and the shared entries differ
	// done holds the outcomes of plans that are not concluded; guarded by Component.mu.
	done map[planKey]Outcome
}

// usable reports whether applied is complete, so that plans can be written. The caller holds
// d.writing.
func (d *deviceIntent) usable() bool { return d.c.cluster == nil || d.taken }

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
	if d.c.cluster == nil || d.foreign {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sharedTime)
	defer cancel()
	held, own, err := d.c.cluster.Take(ctx, d.Name())
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
		case err != nil: // an entry may not fit the device's new pipeline
			d.dirty.Store(true)
		default:
			applied[key] = e
		}
	}
	d.applied, d.taken, d.absent = applied, true, nil
	d.c.adopt(d, held.Done)
	for _, e := range held.Absent {
		if _, err := d.Key(e); err == nil {
			d.absent = append(d.absent, e)
		}
		d.dirty.Store(true)
	}
	return nil
}

// held returns the entries that the device will hold once updates, which may belong to a part, and
// the parts that are pending for the next epoch are written. It also returns these pending parts.
// The caller holds d.writing.
func (d *deviceIntent) held(updates []p4rt.Update, of *part) (held Held, parts []*part) {
	entries, absent := maps.Clone(d.applied), map[string]p4rt.Entry{}
	for _, e := range d.absent {
		updates = append([]p4rt.Update{p4rt.Delete(e)}, updates...)
	}
	parts = d.c.expected(d)
	for _, p := range parts {
		updates = append(updates, p.updates...)
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
	return Held{p4rt.Desired{Entries: sorted(entries), Absent: sorted(absent)}, d.c.doneAfter(d, parts, of)}, parts
}

// announce stores the entries that the device will hold after updates. of is the part of a plan
// that the updates belong to, or nil. The error wraps p4rt.ErrNotReady if another collector owns
// the device. After any other failure, announce returns nil: the updates are written, and Sync
// stores the entries. The caller holds d.storing and d.writing.
func (d *deviceIntent) announce(ctx context.Context, updates []p4rt.Update, of *part) error {
	if d.c.cluster == nil {
		return nil
	}
	if d.failing { // another attempt could make the plan late
		d.dirty.Store(true)
		return nil
	}
	limit := sharedTime
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	held, parts := d.held(updates, of)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d.dirty.Store(false)
	if err := d.c.cluster.Store(ctx, d.Name(), held); d.stored(parts, err) != nil && errors.Is(err, ErrDeposed) {
		return fmt.Errorf("%w: %w", p4rt.ErrNotReady, err)
	}
	return nil
}

// stored records the result of Cluster.Store, which included some pending parts, and returns it.
// The caller holds d.writing.
func (d *deviceIntent) stored(parts []*part, err error) error {
	switch {
	case err == nil:
		d.c.mu.Lock()
		for _, p := range parts {
			p.stored = true
		}
		d.c.mu.Unlock()
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
	if d.c.cluster == nil || d.foreign {
		return nil
	}
	d.storing.Lock()
	defer d.storing.Unlock()
	d.writing.Lock()
	if !d.usable() || !d.dirty.Swap(false) && d.c.allStored(d) {
		d.writing.Unlock()
		return nil
	}
	held, parts := d.held(nil, nil)
	d.writing.Unlock()
	limit := sharedTime
	if end, ok := ctx.Deadline(); ok {
		limit = max(min(limit, time.Until(end)), sharedTime/4)
	}
	// the entries are already written, so they are stored even if ctx has ended
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := d.c.cluster.Store(ctx, d.Name(), held)
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

// Sync repeats failed attempts to share plans, outcomes and the entries of devices; Cluster logs
// the reasons. Call it once in each epoch.
func (c *Component) Sync(ctx context.Context) {
	if c.cluster == nil {
		return
	}
	c.mu.Lock()
	c.syncPlans()
	devices := slices.Collect(maps.Values(c.devices))
	c.mu.Unlock()
	for _, d := range devices {
		if _, err := d.Ready(); err != nil || d.foreign {
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
