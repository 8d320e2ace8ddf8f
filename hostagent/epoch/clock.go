// SPDX-License-Identifier: Apache-2.0

// Package epoch is a host's half of OmniMon's epoch synchronization (paper, Algorithm 1): a host
// advances by its own clock, by a packet of a newer epoch, or by a message that the collector
// relays. An epoch never decreases. Packets move it within a bound that does not depend on packets.
package epoch

import (
	"sync/atomic"
	"time"
)

// Clock is the epoch of one host. It is safe for concurrent use.
type Clock struct {
	length  time.Duration
	current atomic.Uint64
	given   atomic.Uint64 // newest epoch that Advance brought
	ahead   atomic.Uint64 // largest number of epochs by which the epoch in a packet may exceed given
	notify  atomic.Pointer[func(epoch uint64)]
}

// NewClock returns a clock in the given epoch. By the local clock, epoch e lasts from e*length to
// (e+1)*length after the Unix epoch. A clock with length 0 has no Tick: only Advance moves it.
func NewClock(length time.Duration, current uint64) *Clock {
	c := &Clock{length: length}
	c.current.Store(current)
	c.given.Store(current)
	c.ahead.Store(unscheduled)
	return c
}

// Numbers of epochs that packets may be ahead of the host's clock and the collector.
const (
	scheduled   = 1 // the clock advances by itself
	unscheduled = 4 // used while only the collector advances the epoch
)

// Scheduled states that the host's own clock calls Advance at each boundary. Packets then move the
// epoch by one at most.
func (c *Clock) Scheduled() { c.ahead.Store(scheduled) }

// Follow advances to an epoch that a packet carries. It returns false, and changes nothing, if the
// epoch is too far ahead of the newest epoch of Advance. Epochs of earlier packets do not count, so
// that packets alone do not move a host for long.
func (c *Clock) Follow(epoch uint64) bool {
	if epoch > c.given.Load()+c.ahead.Load() {
		return false
	}
	c.move(epoch)
	return true
}

// Current is the current epoch.
func (c *Clock) Current() uint64 { return c.current.Load() }

// Tick advances by the local clock. If notify is true, the host sends the epoch to the collector:
// at most one message per host and epoch.
func (c *Clock) Tick(now time.Time) (epoch uint64, notify bool) {
	epoch = uint64(max(now.UnixNano(), 0)) / uint64(c.length)
	return epoch, c.Advance(epoch)
}

// OnAdvance makes Advance call f with each epoch that it begins from now on, in the goroutine of
// the caller of Advance.
func (c *Clock) OnAdvance(f func(epoch uint64)) { c.notify.Store(&f) }

// Advance advances to a newer epoch that the host's clock or the collector brings. It returns false
// if the epoch is not newer.
func (c *Clock) Advance(epoch uint64) bool {
	for old := c.given.Load(); epoch > old && !c.given.CompareAndSwap(old, epoch); {
		old = c.given.Load()
	}
	return c.move(epoch)
}

func (c *Clock) move(epoch uint64) bool {
	for {
		old := c.current.Load()
		if epoch <= old {
			return false
		}
		if c.current.CompareAndSwap(old, epoch) {
			if f := c.notify.Load(); f != nil {
				(*f)(epoch)
			}
			return true
		}
	}
}
