// SPDX-License-Identifier: Apache-2.0

package banks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a switch whose banks hold one number each.
type fake struct {
	name string

	mu      sync.Mutex
	life    banks.Incarnation
	down    error
	current int
	banks   []int
	flipErr error
	readErr error
	errs    int   // number of reads that fail with readErr; 0 means all
	inexact error // error of the next reading; its packets are in the reading after that
	flips   int
	reads   int
	// hold, if set, makes Read wait until it is closed.
	hold chan struct{}
	// holdFlip, if set, makes Flip wait until it is closed or its context ends.
	holdFlip chan struct{}
}

func newFake(name string) *fake {
	return &fake{name: name, life: banks.Incarnation{ID: 1, Clean: true}, banks: make([]int, 2)}
}

func (f *fake) Name() string { return f.name }
func (f *fake) Banks() int   { return len(f.banks) }

func (f *fake) Ready() (banks.Incarnation, error) {
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

func (f *fake) Read(ctx context.Context, bank int, drained epoch.Drained) (*epoch.Reading, error) {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
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
		return nil, err
	}
	n := f.banks[bank]
	f.banks[bank] = 0
	err := f.inexact
	if f.inexact = nil; err != nil {
		f.banks[bank] = 100
	}
	return reading(n), err
}

// reading returns a reading with one number per cell.
func reading(numbers ...int) *epoch.Reading {
	cells := make([]uint32, len(numbers))
	for i, n := range numbers {
		cells[i] = uint32(n)
	}
	return &epoch.Reading{Objects: []sdk.Cells{sdk.CellsOf("count", cells)}}
}

// count is the number in the first cell of a reading.
func count(r *epoch.Reading) int { return int(r.Objects[0].At(0)) }

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

// network is an engine with a group of switches.
type network struct {
	e        *epoch.Engine
	g        *banks.Group
	isolated *sync.Map // names of the switches that are isolated
}

func newNetwork(cfg epoch.Config, deps epoch.Dependencies) network {
	if deps.Clock == nil {
		deps.Clock = epoch.Wall{}
	}
	isolated := &sync.Map{}
	group := banks.New(banks.Config{Interval: cfg.Interval, Guard: cfg.Guard, Drain: cfg.Drain,
		Isolated: func(name string) bool { _, is := isolated.Load(name); return is }}, deps.Clock)
	return network{epoch.New(cfg, deps), group, isolated}
}

func (n network) add(switches ...banks.Switch) {
	for _, sw := range switches {
		n.e.Add(n.g.Add(sw))
	}
}

func (n network) join(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if missing := n.g.WaitJoined(ctx); missing != nil {
		t.Fatalf("%v did not join", missing)
	}
}

func (n network) run(ctx context.Context, deliver func(*epoch.Epoch)) error {
	n.g.Prepare(ctx)
	return n.e.Run(ctx, deliver)
}

func (n network) stop() {
	n.g.Stop()
	n.e.Shutdown()
}

// bench is a network on virtual time with some fakes.
type bench struct {
	network
	t     *testing.T
	clock *epoch.Virtual
	log   *testkit.Log
	fakes []*fake
	end   time.Time
	each  func(*epoch.Epoch) // called with every epoch
}

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newBench(t *testing.T, ioLimit time.Duration, names ...string) *bench {
	t.Helper()
	b := &bench{t: t, clock: epoch.NewVirtual(t0, ioLimit), log: &testkit.Log{}, end: t0}
	b.network = newNetwork(epoch.Config{Interval: time.Second, Guard: time.Millisecond,
		Deadline: 800 * time.Millisecond},
		epoch.Dependencies{Clock: b.clock, Logger: b.log.Logger()})
	t.Cleanup(b.stop)
	for _, n := range names {
		f := newFake(n)
		b.fakes = append(b.fakes, f)
		b.add(f)
	}
	b.join()
	if err := b.e.Open(context.Background(), t0, b.wait); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) join() { b.t.Helper(); b.network.join(b.t) }

func (b *bench) wait(_ context.Context, d time.Duration) error { b.clock.Advance(d); return nil }

// step counts n packets at every switch and closes the epoch; it returns the epoch in one line.
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

func short(ep *epoch.Epoch) string {
	s := fmt.Sprintf("%d %s", ep.Number, ep.Status)
	for _, o := range ep.Sources {
		switch {
		case o.Err == nil:
			s += fmt.Sprintf(" %s=%d", o.Name, count(o.Reading))
		case errors.Is(o.Err, epoch.ErrLate):
			s += " " + o.Name + "=late"
		case errors.Is(o.Err, banks.ErrUnread):
			s += " " + o.Name + "=unread"
		case errors.Is(o.Err, banks.ErrMerged):
			s += " " + o.Name + "=merged"
		case errors.Is(o.Err, epoch.ErrJoining):
			s += " " + o.Name + "=joining"
		case errors.Is(o.Err, banks.ErrFlipping):
			s += " " + o.Name + "=flipping"
		default:
			s += " " + o.Name + "=error"
		}
	}
	return s
}

// inStep checks that every fake counts in the bank of the open epoch.
func (b *bench) inStep() {
	b.t.Helper()
	number, _ := b.e.Current()
	for _, f := range b.fakes {
		f.mu.Lock()
		if want := int((number + b.g.Shift()) % uint64(len(f.banks))); f.current != want {
			b.t.Errorf("%s counts in bank %d in epoch %d, want %d", f.name, f.current, number, want)
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
		b.expect(b.step(10*i), fmt.Sprintf("%d COMPLETE s1=%d s2=%d", i, 10*i, 10*i))
	}
}

func TestDeviceDownMakesEpochsPartialThenLostThenRejoins(t *testing.T) {
	b := newBench(t, 0, "s1", "s2")
	b.expect(b.step(1), "1 COMPLETE s1=1 s2=1")
	down := errors.New("session is down")
	b.fakes[1].set(func(f *fake) { f.down = down })
	b.expect(b.step(2), "2 PARTIAL s1=2 s2=error")
	b.fakes[0].set(func(f *fake) { f.down = down })
	b.expect(b.step(3), "3 LOST s1=error s2=error")
	b.expect(b.step(3), "4 LOST s1=error s2=error")
	// s1 returns from a reboot, and the push has cleared its registers. s2 returns with old contents.
	b.fakes[0].set(func(f *fake) {
		f.down = nil
		f.life = banks.Incarnation{ID: 2, Clean: true}
		f.banks = []int{0,
			0}
	})
	b.fakes[1].set(func(f *fake) { f.down = nil; f.life = banks.Incarnation{ID: 2}; f.banks = []int{77, 88} })
	b.g.Check("s1")
	b.g.Check("s2")
	b.join()
	// Both switches joined when the epoch began, s2 with a bank that was not clean.
	b.expect(b.step(5), "5 PARTIAL s1=5 s2=joining")
	b.expect(b.step(6), "6 COMPLETE s1=6 s2=6")
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
	b.add(f)
	b.join()
	b.expect(b.step(4), "1 PARTIAL s1=4 s2=joining")
	b.expect(b.step(4), "2 COMPLETE s1=4 s2=4")
	b.e.Remove("s2")
	b.g.Remove("s2")
	b.expect(b.step(4), "3 COMPLETE s1=4")
}

func TestFailedReadOutLeavesNothingBehind(t *testing.T) {
	b := newBench(t, 0, "s1")
	b.expect(b.step(1), "1 COMPLETE s1=1")
	b.fakes[0].set(func(f *fake) { f.readErr = errors.New("a range was lost") })
	b.expect(b.step(2), "2 LOST s1=error")
	b.join() // the switch is read once more, which fails
	b.fakes[0].set(func(f *fake) { f.readErr = nil })
	b.expect(b.step(3), "3 COMPLETE s1=3")
	b.expect(b.step(4), "4 LOST s1=unread") // the bank also holds epoch 2
	b.expect(b.step(5), "5 COMPLETE s1=5")
	b.inStep()
}

// A failed read-out is repeated during the next epoch, so that only one epoch is lost.
func TestFailedReadOutIsRepeatedAtOnce(t *testing.T) {
	b := newBench(t, 0, "s1")
	b.fakes[0].set(func(f *fake) { f.readErr, f.errs = errors.New("a range was lost"), 1 })
	b.expect(b.step(2), "1 LOST s1=error")
	b.join()
	b.expect(b.step(3), "2 COMPLETE s1=3")
	b.expect(b.step(4), "3 COMPLETE s1=4")
}

func TestFailedFlipStartsOver(t *testing.T) {
	b := newBench(t, 0, "s1")
	b.fakes[0].set(func(f *fake) { f.flipErr = errors.New("refused") })
	b.expect(b.step(1), "1 LOST s1=error")
	b.fakes[0].set(func(f *fake) { f.flipErr = nil })
	b.join()
	b.expect(b.step(2), "2 LOST s1=joining")
	b.expect(b.step(3), "3 COMPLETE s1=3")
	b.inStep()
}

func TestOneHangingDeviceOf64DelaysNoOther(t *testing.T) {
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

// More read-outs block than can run in parallel; the other switches are read nevertheless.
func TestHangingReadOutsReleaseTheirPlaces(t *testing.T) {
	clock := epoch.NewVirtual(t0, 3*time.Second)
	n := newNetwork(epoch.Config{Interval: time.Second, Deadline: 40 * time.Millisecond, Parallel: 2},
		epoch.Dependencies{Clock: clock})
	t.Cleanup(n.stop)
	b := &bench{network: n, t: t, clock: clock, log: &testkit.Log{}, end: t0}
	for i := range 6 {
		f := newFake(fmt.Sprintf("s%d", i))
		b.fakes = append(b.fakes, f)
		b.add(f)
	}
	b.join()
	if err := b.e.Open(context.Background(), t0, b.wait); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	defer close(hold)
	for _, f := range b.fakes[:3] {
		f.set(func(f *fake) { f.hold = hold })
	}
	b.expect(b.step(1), "1 PARTIAL s0=late s1=late s2=late s3=1 s4=1 s5=1")
}

func TestSkippedBoundaries(t *testing.T) {
	b := newBench(t, 0, "s1")
	b.fakes[0].count(9)
	b.end = b.end.Add(2 * time.Second)
	b.expect(b.step(1), "3 LOST s1=merged")
	b.expect(b.step(1), "4 COMPLETE s1=1")
	b.inStep()
	// An epoch that would use the bank already in use is lost, too, because banks follow the
	// epochs' numbers.
	b.end = b.end.Add(time.Second)
	b.expect(b.step(1), "6 LOST s1=merged")
	b.expect(b.step(1), "7 LOST s1=merged")
	b.expect(b.step(5), "8 COMPLETE s1=5")
	b.inStep()
}

func TestCancelledEpochLogsNoMissingDevice(t *testing.T) {
	b := newBench(t, 0, "s1")
	hold := make(chan struct{})
	b.fakes[0].set(func(f *fake) { f.hold = hold })
	ctx, cancel := context.WithCancel(context.Background())
	_, err := b.e.Close(ctx, t0.Add(time.Second), func(context.Context, time.Duration) error {
		cancel()
		return ctx.Err()
	})
	close(hold)
	if !errors.Is(err, context.Canceled) || strings.Contains(b.log.String(), "missing") {
		t.Errorf("error %v, log %q", err, b.log)
	}
}

// On the wall clock, short epochs are aligned and numbered without gaps.
func TestRunOnTheWallClock(t *testing.T) {
	f := newFake("s1")
	const interval = 20 * time.Millisecond
	var after []uint64
	n := newNetwork(epoch.Config{Interval: interval, Guard: time.Millisecond, Deadline: interval,
		Origin: time.Unix(0, 0)}, epoch.Dependencies{})
	n.e.AfterFlip(func(_ context.Context, _ string, next uint64) { after = append(after, next) })
	defer n.stop()
	n.add(f)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var got []*epoch.Epoch
	if err := n.run(ctx, func(ep *epoch.Epoch) {
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
