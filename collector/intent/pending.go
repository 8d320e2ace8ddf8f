// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"slices"
	"time"
)

// Pending plans wait for the flip that begins their epoch, for their bank, or for a device that is
// away.

// maxPending bounds the bytes of one plugin's plans that are pending for one device, or for the
// banks of their epochs.
const maxPending = 16 << 20

const (
	noDevice   = "no such device"
	maxUnknown = 8 // unknown devices in a plan; with more, the plan is for another network
)

// foreign reports whether a plan is for another network: more than maxUnknown of its devices are
// unknown. It then records one outcome and one log line for all of them. The caller holds c.mu.
func (c *Component) foreign(a *plan) bool {
	unknown := 0
	for _, p := range a.parts {
		if c.devices[p.device] != nil {
			continue
		}
		if unknown++; unknown > maxUnknown {
			c.fail(Outcome{Plugin: a.plugin, Plan: a.id, Device: p.device, From: a.from}, noDevice+", like others of the plan")
			return true
		}
	}
	return false
}

// acceptPending makes parts of a plan pending at their devices. The caller holds c.mu.
func (c *Component) acceptPending(parts []*part) {
	for _, p := range parts {
		switch d := c.devices[p.device]; {
		case d != nil:
			c.addPending(p)
		case c.reports(p):
			c.report(p, Outcome{Result: Refused, From: p.of.from, Reason: noDevice})
		}
	}
}

// addPending keeps a part for its flip, or until its device returns. Above maxPending, it drops
// the plugin's oldest plans. The caller holds c.mu.
func (c *Component) addPending(p *part) {
	d := c.devices[p.device]
	if d == nil || p.of.over || p.of.undo {
		return
	}
	p.stored = false
	d.pending = append(d.pending, p)
	sum := 0
	for _, other := range d.pending {
		if other.of.plugin == p.of.plugin {
			sum += other.bytes()
		}
	}
	for i := 0; sum > maxPending; {
		oldest := d.pending[i]
		if oldest.of.plugin != p.of.plugin {
			i++
			continue
		}
		sum -= oldest.bytes()
		d.pending = slices.Delete(d.pending, i, i+1)
		d.dirty.Store(true)
		if c.reports(oldest) {
			c.report(oldest, Outcome{Result: Undone, From: oldest.of.from,
				Reason: fmt.Sprintf("dropped: more than %d MiB of plans are pending for the device", maxPending>>20)})
		}
	}
}

// addEarly keeps a plan until the bank of its epoch is free, unless the plugin's kept plans
// already have maxPending bytes. The caller holds c.mu.
func (c *Component) addEarly(a *plan) {
	sum := 0
	for _, other := range append(c.early, a) {
		for _, p := range other.parts {
			if other.plugin == a.plugin {
				sum += p.bytes()
			}
		}
	}
	if sum <= maxPending {
		c.early = append(c.early, a)
		return
	}
	for _, p := range a.parts {
		if c.reports(p) {
			c.report(p, Outcome{Result: Undone, From: a.from,
				Reason: fmt.Sprintf("dropped: more than %d MiB of plans are pending for their epochs", maxPending>>20)})
		}
	}
}

// bytes estimates the memory of a part.
func (p *part) bytes() int {
	n := 256
	for _, u := range p.updates {
		n += 256 + len(u.Entry.Table) + len(u.Entry.Action)
		for _, m := range u.Entry.Match {
			n += 64 + len(m.Field) + len(m.Value) + len(m.Mask) + len(m.High)
		}
		for _, a := range u.Entry.Params {
			n += 64 + len(a.Name) + len(a.Value)
		}
	}
	return n
}

// bankFree reports whether the bank of a plan's epoch has been read since an epoch last used it.
// The caller holds c.mu.
func (c *Component) bankFree(a *plan) bool {
	return !slices.ContainsFunc(a.parts, func(p *part) bool {
		d := c.devices[p.device]
		return d != nil && a.from > c.collected+uint64(d.Banks())
	})
}

// timeFor returns how long writing a plan may take from now on, or why the plan is late.
func (c *Component) timeFor(a *plan, now time.Time) (limit time.Duration, late string) {
	open, end := c.epochs.Current()
	limit = end.Sub(now) - c.margin
	c.mu.Lock()
	defer c.mu.Unlock()
	need := max(c.lastWrite, time.Millisecond)
	switch {
	case open >= a.from:
		return 0, fmt.Sprintf("epoch %d is already open", open)
	case open+1 < a.from: // at least one full epoch is left
		return max(limit, time.Second), ""
	case limit < need:
		c.lastWrite /= 2 // the latest write may have been unusually slow, and late plans yield no new measurement
		return 0, fmt.Sprintf("epoch %d begins in %v; writing takes %v and has to end %v before the flip",
			a.from, (limit + c.margin).Round(time.Microsecond), need.Round(time.Microsecond), c.margin)
	}
	return limit, ""
}

// isDue reports whether a pending part must be written to its device in an epoch. The caller holds
// c.mu.
func (d *deviceIntent) isDue(p *part, number uint64) bool {
	return p.of.from <= number || p.of.preEpoch && p.of.from <= d.c.collected+uint64(d.Banks())
}

// due removes the parts for an epoch from a device's pending list and returns them. Parts that
// must be stored first (Cluster) stay, and so do all later parts. Parts that the former owner of
// the device has written are dropped.
func (c *Component) due(d *deviceIntent, number uint64) (due []*part) {
	shares := c.cluster != nil && !d.failing
	c.mu.Lock()
	defer c.mu.Unlock()
	waits := false
	d.pending = slices.DeleteFunc(d.pending, func(p *part) bool {
		if _, done := d.done[p.of.key()]; done || p.of.over {
			return true
		}
		now := d.isDue(p, number) && (p.of.maker == "" || c.cluster.Present(p.of.maker))
		waits = waits || now && shares && !p.stored
		if now && !waits {
			due = append(due, p)
		}
		return now && !waits
	})
	return due
}

// expected returns the parts that are pending at a device for the open epoch and the next one.
func (c *Component) expected(d *deviceIntent) (parts []*part) {
	open, _ := c.epochs.Current()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range d.pending {
		if _, done := d.done[p.of.key()]; !done && d.isDue(p, open+1) {
			parts = append(parts, p)
		}
	}
	return parts
}

// allStored reports whether the expected parts are stored.
func (c *Component) allStored(d *deviceIntent) bool {
	return !slices.ContainsFunc(c.expected(d), func(p *part) bool { return !p.stored })
}
