// SPDX-License-Identifier: Apache-2.0

package epoch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a switch with banks that hold a number each.
type fake struct {
	name string

	mu      sync.Mutex
	life    epoch.Incarnation
	down    error
	current int
	banks   []int
	flipErr error
	readErr error
	errs    int   // how many reads fail with readErr; 0: all
	inexact error // comes with the next reading; the packets that it tells of are read by the one after
	flips   int
	reads   int
	// hold, when set, makes Read wait until it is closed.
	hold chan struct{}
	// holdFlip, when set, makes Flip wait until it is closed or its context ends.
	holdFlip chan struct{}
}

func newFake(name string) *fake {
	return &fake{name: name, life: epoch.Incarnation{ID: 1, Clean: true}, banks: make([]int, 2)}
}

func (f *fake) Name() string { return f.name }
func (f *fake) Banks() int   { return len(f.banks) }

func (f *fake) Ready() (epoch.Incarnation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.life, f.down
}

func (f *fake) Flip(ctx context.Context, bank int) error {
	f.mu.Lock()
	hold := f.holdFlip
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flips++
	if f.flipErr != nil {
		return f.flipErr
	}
	f.current = bank
	return nil
}

func (f *fake) Read(ctx context.Context, bank int, drained epoch.Drained) (int, error) {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.readErr != nil {
		err := f.readErr
		if f.errs--; f.errs == 0 {
			f.readErr = nil
		}
		return 0, err
	}
	n := f.banks[bank]
	f.banks[bank] = 0
	err := f.inexact
	if f.inexact = nil; err != nil {
		f.banks[bank] = 100
	}
	return n, err
}

func (f *fake) count(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.banks[f.current] += n
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// bench is an engine on virtual time with some fakes.
type bench struct {
	t     *testing.T
	clock *epoch.Virtual
	e     *epoch.Engine[int]
	log   *testkit.Log
	fakes []*fake
	end   time.Time
	each  func(*epoch.Epoch[int]) // sees every epoch
}

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newBench(t *testing.T, ioLimit time.Duration, names ...string) *bench {
	t.Helper()
	b := &bench{t: t, clock: epoch.NewVirtual(t0, ioLimit), log: &testkit.Log{}, end: t0}
	b.e = epoch.New[int](epoch.Config{Interval: time.Second, Guard: time.Millisecond, Deadline: 800 * time.Millisecond},
		epoch.Options{Clock: b.clock, Logger: b.log.Logger()})
	t.Cleanup(b.e.Shutdown)
	for _, n := range names {
		f := newFake(n)
		b.fakes = append(b.fakes, f)
		b.e.Add(f)
	}
	b.join()
	if err := b.e.Open(context.Background(), t0, b.wait); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) join() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if missing := b.e.WaitJoined(ctx); missing != nil {
		b.t.Fatalf("%v did not join", missing)
	}
}

func (b *bench) wait(_ context.Context, d time.Duration) error { b.clock.Advance(d); return nil }

// step counts n packets at every switch and closes the epoch; it returns the epoch in short.
func (b *bench) step(n int) string {
	b.t.Helper()
	for _, f := range b.fakes {
		f.count(n)
	}
	b.end = b.end.Add(time.Second)
	b.clock.AdvanceTo(b.end)
	ep, err := b.e.Close(context.Background(), b.end, b.wait)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.each != nil {
		b.each(ep)
	}
	return short(ep)
}

func short(ep *epoch.Epoch[int]) string {
	s := fmt.Sprintf("%d %s", ep.Number, ep.Status)
	for _, o := range ep.Switches {
		switch {
		case o.Err == nil:
			s += fmt.Sprintf(" %s=%d", o.Name, o.Reading)
		case errors.Is(o.Err, epoch.ErrLate):
			s += " " + o.Name + "=late"
		case errors.Is(o.Err, epoch.ErrUnread):
			s += " " + o.Name + "=unread"
		case errors.Is(o.Err, epoch.ErrMerged):
			s += " " + o.Name + "=merged"
		case errors.Is(o.Err, epoch.ErrJoining):
			s += " " + o.Name + "=joining"
		case errors.Is(o.Err, epoch.ErrFlipping):
			s += " " + o.Name + "=flipping"
		default:
			s += " " + o.Name + "=error"
		}
	}
	return s
}

// inStep checks that every fake writes into the bank of the open epoch.
func (b *bench) inStep() {
	b.t.Helper()
	number, _ := b.e.Current()
	for _, f := range b.fakes {
		f.mu.Lock()
		if want := int((number + b.e.BankShift()) % uint64(len(f.banks))); f.current != want {
			b.t.Errorf("%s writes into bank %d in epoch %d, want %d", f.name, f.current, number, want)
		}
		f.mu.Unlock()
	}
}

func (b *bench) expect(got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("epoch is %q, want %q", got, want)
	}
}

func TestEpochsCountExactlyTheirPackets(t *testing.T) {
	b := newBench(t, 0, "s2", "s1")
	for i := 1; i <= 5; i++ {
		b.expect(b.step(10*i), fmt.Sprintf("%d complete s1=%d s2=%d", i, 10*i, 10*i))
	}
}

func TestDeviceDownMakesEpochsPartialThenLostThenRejoins(t *testing.T) {
	b := newBench(t, 0, "s1", "s2")
	b.expect(b.step(1), "1 complete s1=1 s2=1")
	down := errors.New("session is down")
	b.fakes[1].set(func(f *fake) { f.down = down })
	b.expect(b.step(2), "2 partial s1=2 s2=error")
	b.fakes[0].set(func(f *fake) { f.down = down })
	b.expect(b.step(3), "3 lost s1=error s2=error")
	b.expect(b.step(3), "4 lost s1=error s2=error")
	// s1 comes back from a reboot with its registers cleared by the push, s2 with whatever it held.
	b.fakes[0].set(func(f *fake) { f.down = nil; f.life = epoch.Incarnation{ID: 2, Clean: true}; f.banks = []int{0, 0} })
	b.fakes[1].set(func(f *fake) { f.down = nil; f.life = epoch.Incarnation{ID: 2}; f.banks = []int{77, 88} })
	b.e.Check("s1")
	b.e.Check("s2")
	b.join()
	b.expect(b.step(5), "5 partial s1=5 s2=joining") // both were there at the start of the epoch, s2 with a bank that was not empty
	b.expect(b.step(6), "6 complete s1=6 s2=6")
	if n := strings.Count(b.log.String(), "missing from the epoch"); n != 2 {
		t.Errorf("%d lines about missing devices, want one for each:\n%s", n, b.log)
	}
}

func TestDeviceThatJoinsDuringAnEpochCountsFromTheNext(t *testing.T) {
	b := newBench(t, 0, "s1")
	b.clock.Advance(300 * time.Millisecond)
	f := newFake("s2")
	f.banks = []int{5, 6}
	f.life.Clean = false
	b.fakes = append(b.fakes, f)
	b.e.Add(f)
	b.join()
	b.expect(b.step(4), "1 partial s1=4 s2=joining")
	b.expect(b.step(4), "2 complete s1=4 s2=4")
	b.e.Remove("s2")
	b.expect(b.step(4), "3 complete s1=4")
}

func TestFailedReadOutLeavesNothingBehind(t *testing.T) {
	b := newBench(t, 0, "s1")
	b.expect(b.step(1), "1 complete s1=1")
	b.fakes[0].set(func(f *fake) { f.readErr = errors.New("a range was lost") })
	b.expect(b.step(2), "2 lost s1=error")
	b.join() // it is read again, in vain
	b.fakes[0].set(func(f *fake) { f.readErr = nil })
	b.expect(b.step(3), "3 complete s1=3")
	b.expect(b.step(4), "4 lost s1=unread") // the bank of epoch 2
	b.expect(b.step(5), "5 complete s1=5")
	b.inStep()
}

// A read-out that failed is done again while the next epoch counts, so that only one is lost.
func TestFailedReadOutIsDoneAgainAtOnce(t *testing.T) {
	b := newBench(t, 0, "s1")
	b.fakes[0].set(func(f *fake) { f.readErr, f.errs = errors.New("a range was lost"), 1 })
	b.expect(b.step(2), "1 lost s1=error")
	b.join()
	b.expect(b.step(3), "2 complete s1=3")
	b.expect(b.step(4), "3 complete s1=4")
}

func TestFailedFlipStartsOver(t *testing.T) {
	b := newBench(t, 0, "s1")
	b.fakes[0].set(func(f *fake) { f.flipErr = errors.New("refused") })
	b.expect(b.step(1), "1 lost s1=error")
	b.fakes[0].set(func(f *fake) { f.flipErr = nil })
	b.join()
	b.expect(b.step(2), "2 lost s1=joining")
	b.expect(b.step(3), "3 complete s1=3")
	b.inStep()
}

func TestOneHangingDeviceOf64HoldsUpNobody(t *testing.T) {
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprintf("s%02d", i))
	}
	b := newBench(t, 2*time.Second, names...)
	hang := make(chan struct{})
	defer close(hang)
	b.fakes[7].set(func(f *fake) { f.holdFlip = hang })
	for e := 1; e <= 3; e++ {
		got := b.step(e)
		if n := strings.Count(got, fmt.Sprintf("=%d", e)); n != 63 {
			t.Errorf("epoch %d has %d devices, want 63: %s", e, n, got)
		}
	}
}

// As many switches hang in their read-out as may be read at once, and the others are read all the same.
func TestHangingReadOutsGiveTheirPlacesUp(t *testing.T) {
	clock := epoch.NewVirtual(t0, 3*time.Second)
	e := epoch.New[int](epoch.Config{Interval: time.Second, Deadline: 40 * time.Millisecond, Parallel: 2}, epoch.Options{Clock: clock})
	t.Cleanup(e.Shutdown)
	b := &bench{t: t, clock: clock, e: e, log: &testkit.Log{}, end: t0}
	for i := range 6 {
		f := newFake(fmt.Sprintf("s%d", i))
		b.fakes = append(b.fakes, f)
		e.Add(f)
	}
	b.join()
	if err := e.Open(context.Background(), t0, b.wait); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	defer close(hold)
	for _, f := range b.fakes[:3] {
		f.set(func(f *fake) { f.hold = hold })
	}
	b.expect(b.step(1), "1 partial s0=late s1=late s2=late s3=1 s4=1 s5=1")
}

func TestAnEpochThatStretched(t *testing.T) {
	b := newBench(t, 0, "s1")
	b.fakes[0].count(9)
	b.end = b.end.Add(2 * time.Second)
	b.expect(b.step(1), "3 lost s1=merged")
	b.expect(b.step(1), "4 complete s1=1")
	b.inStep()
	// Where the bank of the next epoch is the one that has run on, that epoch is lost too, and the banks stay those
	// of the epochs' numbers.
	b.end = b.end.Add(time.Second)
	b.expect(b.step(1), "6 lost s1=merged")
	b.expect(b.step(1), "7 lost s1=merged")
	b.expect(b.step(5), "8 complete s1=5")
	b.inStep()
}

func TestGivenUpEpochBlamesNobody(t *testing.T) {
	b := newBench(t, 0, "s1")
	hold := make(chan struct{})
	b.fakes[0].set(func(f *fake) { f.hold = hold })
	ctx, cancel := context.WithCancel(context.Background())
	_, err := b.e.Close(ctx, t0.Add(time.Second), func(context.Context, time.Duration) error { cancel(); return ctx.Err() })
	close(hold)
	if !errors.Is(err, context.Canceled) || strings.Contains(b.log.String(), "missing") {
		t.Errorf("error %v, log %q", err, b.log)
	}
}

func TestCloseNeedsAnOpenEpoch(t *testing.T) {
	e := epoch.New[int](epoch.Config{Interval: time.Second, Deadline: time.Second}, epoch.Options{Clock: epoch.NewVirtual(t0, 0)})
	defer e.Shutdown()
	if _, err := e.Close(context.Background(), t0, nil); err == nil || !strings.Contains(err.Error(), "nothing to close") {
		t.Errorf("error %v", err)
	}
}

// Run on the wall clock: a few short epochs, aligned, numbered without gaps.
func TestRunOnTheWallClock(t *testing.T) {
	f := newFake("s1")
	const interval = 20 * time.Millisecond
	var after []uint64
	e := epoch.New[int](epoch.Config{Interval: interval, Guard: time.Millisecond, Deadline: interval, Origin: time.Unix(0, 0)},
		epoch.Options{AfterFlip: func(_ context.Context, _ string, next uint64) { after = append(after, next) }})
	defer e.Shutdown()
	e.Add(f)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var got []*epoch.Epoch[int]
	if err := e.Run(ctx, func(ep *epoch.Epoch[int]) {
		if got = append(got, ep); len(got) == 5 {
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i, ep := range got {
		if ep.End.Sub(ep.Start) != interval || ep.End.UnixNano()%int64(interval) != 0 {
			t.Errorf("epoch from %s to %s is not aligned", ep.Start, ep.End)
		}
		if want := uint64(ep.Start.UnixNano()/int64(interval)) + 1; ep.Number != want {
			t.Errorf("number %d, want %d", ep.Number, want)
		}
		if i > 0 && ep.Number != got[i-1].Number+1+ep.Skipped {
			t.Errorf("epoch %d follows %d with %d skipped", ep.Number, got[i-1].Number, ep.Skipped)
		}
	}
	if len(after) == 0 {
		t.Error("AfterFlip was never called")
	}
}

func TestVirtualClock(t *testing.T) {
	v := epoch.NewVirtual(t0, 0)
	var mu sync.Mutex
	var order []string
	done := make(chan struct{}, 3)
	for _, d := range []time.Duration{3, 1} {
		v.AfterFunc(d*time.Second, func() {
			mu.Lock()
			order = append(order, fmt.Sprint(int(d)))
			mu.Unlock()
			done <- struct{}{}
		})
	}
	stop := v.AfterFunc(2*time.Second, func() { t.Error("fired though stopped") })
	if !stop() || stop() {
		t.Error("stop is true once")
	}
	v.Advance(time.Second)
	<-done
	v.Advance(5 * time.Second)
	<-done
	if diff := cmp.Diff([]string{"1", "3"}, order); diff != "" {
		t.Error(diff)
	}
	if got, want := v.Now(), t0.Add(6*time.Second); !got.Equal(want) {
		t.Errorf("now %s, want %s", got, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	slept := make(chan error)
	go func() { slept <- v.Sleep(ctx, time.Second) }()
	testkit.Until(t, "one waits", func() bool { return v.Waiting() == 1 })
	v.Advance(time.Second)
	if err := <-slept; err != nil {
		t.Error(err)
	}
	go func() { slept <- v.Sleep(ctx, time.Second) }()
	testkit.Until(t, "one waits", func() bool { return v.Waiting() == 1 })
	cancel()
	if err := <-slept; !errors.Is(err, context.Canceled) || v.Waiting() != 0 {
		t.Errorf("error %v, %d still wait", err, v.Waiting())
	}
}
