// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Clock is where time comes from. All methods may be called from any goroutine.
type Clock interface {
	// Now is the time of day.
	Now() time.Time
	// Sleep waits for d, or until ctx ends, and then returns ctx's error.
	Sleep(ctx context.Context, d time.Duration) error
	// AfterFunc calls f in a goroutine of its own after d. stop prevents that and reports whether
	// it was in time to.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
	// WithTimeout bounds input and output that belongs to the time d from now. On the wall clock it
	// is context.WithTimeout. A virtual clock stands still while a device works, so there the bound
	// is one of real time, generous enough never to decide a result.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// Wall is the machine's clock.
type Wall struct{}

// Now is time.Now.
func (Wall) Now() time.Time { return time.Now() }

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

// Virtual is a clock that moves only when it is told to. Timers fire inside the call that moves
// the clock past them, in order of their time and then of their making.
type Virtual struct {
	// IOLimit is how long real input and output may take, whatever the virtual time says.
	ioLimit time.Duration

	mu     sync.Mutex
	now    time.Time
	made   uint64
	timers []*virtualTimer // sorted by time, then by number
}

type virtualTimer struct {
	at     time.Time
	number uint64
	fire   func()
}

// DefaultIOLimit bounds real input and output under a virtual clock.
const DefaultIOLimit = 30 * time.Second

// NewVirtual returns a clock that stands at start. ioLimit bounds real input and output
// (WithTimeout); zero means DefaultIOLimit.
func NewVirtual(start time.Time, ioLimit time.Duration) *Virtual {
	if ioLimit <= 0 {
		ioLimit = DefaultIOLimit
	}
	return &Virtual{now: start, ioLimit: ioLimit}
}

// Now is the virtual time.
func (v *Virtual) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// Advance moves the clock forward by d.
func (v *Virtual) Advance(d time.Duration) { v.AdvanceTo(v.Now().Add(d)) }

// AdvanceTo moves the clock forward to t; a t that has passed changes nothing. Timers due on the
// way have fired when it returns: functions of AfterFunc have been started, sleepers woken.
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

// Waiting is the number of timers and sleepers that wait for the clock to move.
func (v *Virtual) Waiting() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.timers)
}

func (v *Virtual) add(d time.Duration, fire func()) *virtualTimer {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.made++
	t := &virtualTimer{at: v.now.Add(d), number: v.made, fire: fire}
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

// Sleep waits until the clock has been moved by d.
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

// AfterFunc calls f when the clock has been moved by d.
func (v *Virtual) AfterFunc(d time.Duration, f func()) func() bool {
	t := v.add(d, func() { go f() })
	return func() bool { return v.remove(t) }
}

// WithTimeout bounds real time by the clock's limit for input and output.
func (v *Virtual) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, v.ioLimit, fmt.Errorf("no answer within %s of real time: %w", v.ioLimit, context.DeadlineExceeded))
}
