// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Clock is the engine's source of time. All methods may be called from any goroutine.
type Clock interface {
	// Now returns the time of day, which may be set forward or back at any time.
	Now() time.Time
	// Monotonic returns the time since a fixed instant. It never steps; all waits are computed from
	// it.
	Monotonic() time.Duration
	// Sleep waits for d. If ctx ends first, it returns ctx's error.
	Sleep(ctx context.Context, d time.Duration) error
	// AfterFunc calls f in a goroutine of its own after d. stop cancels the call and reports whether
	// f had not been called yet.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
	// WithTimeout bounds input and output that may take d. On the wall clock it is
	// context.WithTimeout. A virtual clock stands still while a device works, so it uses its own
	// limit in real time, which is long enough never to decide a result.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// IOLimit is the real time to wait for a peer that is expected to reply within d. On the wall
	// clock it is d. On a virtual clock it is at least the clock's limit for input and output, so
	// that the load of the machine does not decide a result. Sessions with switches and plugins take
	// their limits from IOLimit.
	IOLimit(d time.Duration) time.Duration
}

// Wall is the machine's clock.
type Wall struct{}

// processStart is the instant that Wall.Monotonic counts from.
var processStart = time.Now()

// Now is time.Now.
func (Wall) Now() time.Time { return time.Now() }

// Monotonic is the time since the start of the process.
func (Wall) Monotonic() time.Duration { return time.Since(processStart) }

// Sleep waits for d or until ctx ends.
func (Wall) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AfterFunc is time.AfterFunc.
func (Wall) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// WithTimeout is context.WithTimeout.
func (Wall) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// IOLimit is d.
func (Wall) IOLimit(d time.Duration) time.Duration { return d }

// Virtual is a clock that moves only through Advance and AdvanceTo. Timers fire inside the call
// that moves the clock past them, in order of their time and then of their creation.
type Virtual struct {
	start   time.Time
	ioLimit time.Duration // bounds input and output, in real time

	mu     sync.Mutex
	now    time.Time
	count  uint64          // timers created so far
	timers []*virtualTimer // sorted by time, then by number
}

type virtualTimer struct {
	at     time.Time
	number uint64
	fire   func()
}

// DefaultIOLimit bounds real input and output under a virtual clock.
const DefaultIOLimit = 30 * time.Second

// NewVirtual returns a clock at start. ioLimit bounds real input and output
// (WithTimeout, IOLimit); zero means DefaultIOLimit.
func NewVirtual(start time.Time, ioLimit time.Duration) *Virtual {
	if ioLimit <= 0 {
		ioLimit = DefaultIOLimit
	}
	return &Virtual{start: start, now: start, ioLimit: ioLimit}
}

// Now is the virtual time.
func (v *Virtual) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// Monotonic is the virtual time since the clock's start.
func (v *Virtual) Monotonic() time.Duration { return v.Now().Sub(v.start) }

// Advance moves the clock forward by d.
func (v *Virtual) Advance(d time.Duration) { v.AdvanceTo(v.Now().Add(d)) }

// AdvanceTo moves the clock forward to t; a t in the past changes nothing. When it returns, all
// timers up to t have fired: functions of AfterFunc have been started, and sleepers are awake.
func (v *Virtual) AdvanceTo(t time.Time) {
	for {
		v.mu.Lock()
		if len(v.timers) == 0 || v.timers[0].at.After(t) {
			if t.After(v.now) {
				v.now = t
			}
			v.mu.Unlock()
			return
		}
		next := v.timers[0]
		v.timers = v.timers[1:]
		if next.at.After(v.now) {
			v.now = next.at
		}
		v.mu.Unlock()
		next.fire()
	}
}

// Waiting is the number of timers and sleepers that wait for the clock.
func (v *Virtual) Waiting() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.timers)
}

func (v *Virtual) add(d time.Duration, fire func()) *virtualTimer {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count++
	t := &virtualTimer{at: v.now.Add(d), number: v.count, fire: fire}
	i, _ := slices.BinarySearchFunc(v.timers, t, func(a, b *virtualTimer) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return int(int64(a.number) - int64(b.number))
	})
	v.timers = slices.Insert(v.timers, i, t)
	return t
}

func (v *Virtual) remove(t *virtualTimer) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.Index(v.timers, t)
	if i < 0 {
		return false
	}
	v.timers = slices.Delete(v.timers, i, i+1)
	return true
}

// Sleep waits until the clock has advanced by d.
func (v *Virtual) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	woken := make(chan struct{})
	t := v.add(d, func() { close(woken) })
	select {
	case <-woken:
		return nil
	case <-ctx.Done():
		v.remove(t)
		return ctx.Err()
	}
}

// AfterFunc calls f when the clock has advanced by d.
func (v *Virtual) AfterFunc(d time.Duration, f func()) func() bool {
	t := v.add(d, func() { go f() })
	return func() bool { return v.remove(t) }
}

// WithTimeout bounds real time by the clock's limit for input and output.
func (v *Virtual) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	cause := fmt.Errorf("no reply within %s of real time: %w", v.ioLimit, context.DeadlineExceeded)
	return context.WithTimeoutCause(ctx, v.ioLimit, cause)
}

// IOLimit is d, or the clock's limit for input and output if that is longer.
func (v *Virtual) IOLimit(d time.Duration) time.Duration { return max(d, v.ioLimit) }
