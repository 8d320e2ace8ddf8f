// SPDX-License-Identifier: Apache-2.0

package epoch_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// settable is a clock whose time of day can be set. It advances when a goroutine sleeps.
type settable struct {
	epoch.Wall
	off func(mono time.Duration) time.Duration // offset of the time of day at a monotonic time

	mu      sync.Mutex
	mono    time.Duration
	sleeps  func(mono, d time.Duration) time.Duration // how long a sleep of d lasts; if nil, it lasts d
	longest time.Duration                             // timeout
}

func (c *settable) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

func (c *settable) Now() time.Time {
	mono := c.Monotonic()
	return t0.Add(mono + c.off(mono))
}

func (c *settable) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sleeps != nil {
		d = c.sleeps(c.mono, d)
	}
	c.mono += max(0, d)
	return ctx.Err()
}

func (c *settable) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c.mu.Lock()
	c.longest = max(c.longest, d)
	c.mu.Unlock()
	return c.Wall.WithTimeout(ctx, 2*time.Minute)
}

// closed is an epoch and the time of its delivery.
type closed struct {
	*epoch.Epoch
	mono time.Duration
	now  time.Time
}

// drive runs n epochs of one second with one source.
func drive(t *testing.T, c *settable, n int) ([]closed, string) {
	t.Helper()
	log := &testkit.Log{}
	e := epoch.New(epoch.Config{Interval: time.Second, Guard: time.Millisecond, Deadline: 800 * time.Millisecond,
		Origin: time.Unix(0, 0)},
		epoch.Dependencies{Clock: c, Logger: log.Logger()})
	defer e.Shutdown()
	e.Add(&flipped{name: "switch", trace: &trace{}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all []closed
	if err := e.Run(ctx, func(ep *epoch.Epoch) {
		if all = append(all, closed{ep, c.Monotonic(), c.Now()}); len(all) == n {
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if c.longest > 800*time.Millisecond {
		t.Errorf("a timeout of %v, longer than the deadline", c.longest)
	}
	for i, ep := range all {
		if ep.Status != epoch.Complete {
			t.Errorf("epoch %d is %v", ep.Number, ep.Status)
		}
		if i > 0 && (ep.Number != all[i-1].Number+1+ep.Skipped || ep.Start.Before(all[i-1].End) &&
			len(ep.Warnings) == 0) {
			t.Errorf("epoch %d from %v follows %d until %v", ep.Number, ep.Start, all[i-1].Number, all[i-1].End)
		}
	}
	return all, log.String()
}

// aligned reports whether an epoch begins and ends at multiples of the interval.
func aligned(ep closed) bool {
	return ep.End.Sub(ep.Start) == time.Second && ep.End.Nanosecond() == 0
}

// When the time of day is set, no epoch is longer than one and a half intervals. The first two
// epochs after the change have an accuracy warning; the next one is aligned to the new time.
func TestTimeOfDayIsSet(t *testing.T) {
	for name, step := range map[string]time.Duration{
		"back": -6 * time.Second, "back by a fraction": -6300 * time.Millisecond, "forward": 6 * time.Second,
		"forward by a fraction": 200 * time.Millisecond, "back a day": -24 * time.Hour,
		"forward a day": 24*time.Hour + 700*time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			set := 3400 * time.Millisecond
			c := &settable{off: func(mono time.Duration) time.Duration {
				if mono < set {
					return 0
				}
				return step
			}}
			all, log := drive(t, c, 9)
			before := all[0].mono - time.Second
			warned := 0
			for i, ep := range all {
				if took := ep.mono - before; took < 450*time.Millisecond || took > 1550*time.Millisecond {
					t.Errorf("epoch %d took %v", ep.Number, took)
				}
				before = ep.mono
				if late := ep.now.Sub(ep.End); late < 0 || late > 5*time.Millisecond {
					t.Errorf("epoch %d ends at %v and was delivered at %v", ep.Number, ep.End, ep.now)
				}
				switch after := ep.mono > set; {
				case len(ep.Warnings) > 0:
					warned++
					if !after || i > 0 && warned > 1 && len(all[i-1].Warnings) == 0 {
						t.Errorf("epoch %d has warnings %v", ep.Number, ep.Warnings)
					}
				case !aligned(ep):
					t.Errorf("epoch %d from %v to %v has no warning", ep.Number, ep.Start, ep.End)
				}
			}
			if warned < 1 || warned > 2 || !strings.Contains(log, "the time of day was set") ||
				strings.Count(log, "epochs follow it") != 1 {
				t.Errorf("%d epochs with warnings, log:\n%s", warned, log)
			}
		})
	}
}

// Boundaries follow a clock that is slewed, without a warning.
func TestTimeOfDayIsSlewed(t *testing.T) {
	for name, slower := range map[string]time.Duration{"faster": 20, "slower": -20, "a bit faster": 2000} {
		t.Run(name, func(t *testing.T) {
			c := &settable{off: func(mono time.Duration) time.Duration { return mono / slower }}
			all, log := drive(t, c, 100)
			for _, ep := range all {
				if late := ep.now.Sub(ep.End); !aligned(ep) || late < 0 || late > 60*time.Millisecond ||
					len(ep.Warnings) > 0 {
					t.Errorf("epoch %d from %v to %v was delivered at %v with warnings %v", ep.Number, ep.Start, ep.End,
						ep.now, ep.Warnings)
				}
			}
			if strings.Contains(log, "WARN") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

// Boundaries that pass while the collector does not run are skipped and counted.
func TestCollectorDoesNotRun(t *testing.T) {
	stopped := false
	c := &settable{off: func(time.Duration) time.Duration { return 0 }}
	c.sleeps = func(mono, d time.Duration) time.Duration {
		if mono > 2*time.Second && !stopped {
			stopped = true
			return d + 3200*time.Millisecond
		}
		return d
	}
	all, log := drive(t, c, 6)
	skipped := uint64(0)
	for _, ep := range all {
		skipped += ep.Skipped
		if late := ep.now.Sub(ep.End); !aligned(ep) || late > 250*time.Millisecond {
			t.Errorf("epoch %d from %v to %v was delivered at %v", ep.Number, ep.Start, ep.End, ep.now)
		}
		if want := uint64(ep.End.Unix()); ep.Number != want {
			t.Errorf("number %d, want %d", ep.Number, want)
		}
	}
	if skipped != 3 || strings.Count(log, "did not run") != 1 {
		t.Errorf("%d epochs are skipped, log:\n%s", skipped, log)
	}
}

// When the time of day is set, the time left in the open epoch does not change.
func TestCurrentIsMonotonic(t *testing.T) {
	step := time.Duration(0)
	c := &settable{off: func(time.Duration) time.Duration { return step }}
	e := epoch.New(epoch.Config{Interval: time.Second, Deadline: time.Second}, epoch.Dependencies{Clock: c})
	defer e.Shutdown()
	if number, _ := e.Current(); number != 0 {
		t.Errorf("epoch %d before the first", number)
	}
	if err := e.Open(context.Background(), c.Now(), nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Sleep(context.Background(), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	step = -6 * time.Second
	if number, end := e.Current(); number != 1 || end.Sub(c.Now()) != 700*time.Millisecond {
		t.Errorf("epoch %d ends in %v, want 1 in 700ms", number, end.Sub(c.Now()))
	}
}
