// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
)

// Clock is the lab's time, counted from its start.
type Clock interface {
	// Now returns the time since the start.
	Now() time.Duration
	// Lag returns the longest time by which an event came after its time on the machine's clock. A
	// clock that does not follow the machine's has none: it returns 0.
	Lag() time.Duration
	// wait waits until the time at and returns true, or returns false as soon as wake is signaled. A
	// virtual clock jumps to at immediately.
	wait(ctx context.Context, at time.Duration, wake <-chan struct{}) (bool, error)
}

// WallClock returns a clock that follows the machine's from start on.
func WallClock(start time.Time) Clock { return &wallClock{start: start} }

// pace is how much before its time a packet may move on the wall clock, so that the
// network does not sleep between every two packets.
const pace = 200 * time.Microsecond

type wallClock struct {
	start time.Time
	timer *time.Timer
	lag   atomic.Int64
}

func (c *wallClock) Now() time.Duration { return time.Since(c.start) }

func (c *wallClock) Lag() time.Duration { return time.Duration(c.lag.Load()) }

func (c *wallClock) wait(ctx context.Context, at time.Duration, wake <-chan struct{}) (bool, error) {
	d := at - c.Now()
	if d <= pace {
		c.lag.Store(max(c.lag.Load(), int64(-d)))
		return true, ctx.Err()
	}
	if c.timer == nil {
		c.timer = time.NewTimer(d)
	} else {
		c.timer.Reset(d)
	}
	select {
	case <-c.timer.C:
		return true, nil
	case <-wake:
		c.timer.Stop()
		return false, nil
	case <-ctx.Done():
		c.timer.Stop()
		return false, ctx.Err()
	}
}

// VirtualClock returns the lab's view of a virtual clock, which Play moves.
func VirtualClock(v *epoch.Virtual) Clock { return &virtualClock{v, v.Now()} }

type virtualClock struct {
	v     *epoch.Virtual
	start time.Time
}

func (c *virtualClock) Now() time.Duration { return c.v.Now().Sub(c.start) }

func (c *virtualClock) Lag() time.Duration { return 0 }

func (c *virtualClock) wait(ctx context.Context, at time.Duration, _ <-chan struct{}) (bool, error) {
	c.v.AdvanceTo(c.start.Add(at))
	return true, ctx.Err()
}

// PacedClock returns the lab's view of a virtual clock, which Play moves, but never ahead of the
// machine's clock. When the machine cannot keep up, the virtual time falls behind, and later
// catches up as fast as it can be computed. So a slow machine does not change results.
func PacedClock(v *epoch.Virtual) Clock {
	now := v.Now()
	return &pacedClock{virtualClock{v, now}, WallClock(now).(*wallClock)}
}

// tick is the longest time for which a paced clock stands still while it waits for the next event.
const tick = 10 * time.Millisecond

type pacedClock struct {
	virtualClock
	wall *wallClock
}

func (c *pacedClock) Lag() time.Duration { return c.wall.Lag() }

func (c *pacedClock) wait(ctx context.Context, at time.Duration, wake <-chan struct{}) (bool, error) {
	for {
		next := min(at, c.Now()+tick)
		if reached, err := c.wall.wait(ctx, next, wake); err != nil || !reached {
			return false, err
		}
		c.v.AdvanceTo(c.start.Add(next))
		if next == at {
			return true, ctx.Err()
		}
	}
}
