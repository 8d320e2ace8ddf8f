// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// program loads a compiled program.
func program(t testing.TB, name string) *p4rt.Program {
	t.Helper()
	p, err := compiled.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return &p4rt.Program{Name: name, DeviceConfig: p.JSON, P4Info: p.P4Info}
}

// dial starts a client that is closed with the test. Unless the test sets one, the backoff is short.
func dial(t testing.TB, cfg p4rt.Config) *p4rt.Client {
	t.Helper()
	if cfg.Backoff == (p4rt.Backoff{}) {
		cfg.Backoff = p4rt.Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}
	}
	c, err := p4rt.Dial(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func waitReady(t testing.TB, c *p4rt.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// waitState waits until the session is in a state, and returns its status.
func waitState(t testing.TB, c *p4rt.Client, want p4rt.State) p4rt.Status {
	t.Helper()
	return waitStatus(t, c, want.String(), func(st p4rt.Status) bool { return st.State == want })
}

func waitStatus(t testing.TB, c *p4rt.Client, what string, ok func(p4rt.Status) bool) p4rt.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for st := range c.Watch(ctx) {
		if ok(st) {
			return st
		}
	}
	t.Fatalf("the session never was %s; it is %+v", what, c.Status())
	return p4rt.Status{}
}

func mustPrefix(t testing.TB, s string) netip.Prefix {
	t.Helper()
	p, err := netip.ParsePrefix(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fakeClock is a clock that moves when a test says so.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	waits  []fakeWait
	waited chan time.Duration // one value for each wait that begins
}

type fakeWait struct {
	at time.Time
	c  chan time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Unix(1_000_000, 0), waited: make(chan time.Duration, 1000)}
}

func (f *fakeClock) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fakeClock) After(d time.Duration) (<-chan time.Time, func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := fakeWait{at: f.now.Add(d), c: make(chan time.Time, 1)}
	f.waits = append(f.waits, w)
	f.waited <- d
	return w.c, func() {}
}

// advance moves the clock and ends the waits that are over.
func (f *fakeClock) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
	var left []fakeWait
	for _, w := range f.waits {
		if w.at.After(f.now) {
			left = append(left, w)
			continue
		}
		w.c <- f.now
	}
	f.waits = left
}
