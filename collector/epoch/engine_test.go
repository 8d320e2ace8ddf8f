// SPDX-License-Identifier: Apache-2.0

package epoch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func reading(n int) *epoch.Reading {
	return &epoch.Reading{Objects: []sdk.Cells{sdk.CellsOf("count", []uint32{uint32(n)})}, Release: func() {}}
}

// reports returns the reading of a host whose only role has counted n packets.
func reports(host string, n int) *epoch.Reading {
	return &epoch.Reading{Hosts: []sdk.HostReport{{Host: host, Role: "role", Data: make([]byte, n)}}}
}

func count(r *epoch.Reading) int {
	if len(r.Hosts) > 0 {
		return len(r.Hosts[0].Data)
	}
	return int(r.Objects[0].At(0))
}

// trace records the order of events.
type trace struct {
	mu     sync.Mutex
	events []string
}

func (t *trace) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, fmt.Sprintf(format, args...))
}

func (t *trace) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.events
	t.events = nil
	return events
}

// flipped is a source that the collector seals. Its register is one variable.
type flipped struct {
	name  string
	trace *trace

	mu       sync.Mutex
	counter  int
	sealErr  error
	warnings []string
	collect  func() // called by Collect; nil does nothing
}

func (f *flipped) Name() string           { return f.name }
func (f *flipped) Sealing() epoch.Sealing { return epoch.SealedByCollector }

func (f *flipped) Begin(b epoch.Boundary) (epoch.Part, []string) {
	f.trace.add("%s begins %d", f.name, b.Number+1)
	return &flippedPart{flipped: f}, f.warnings
}

type flippedPart struct {
	*flipped
	sealed int
}

func (p *flippedPart) Seal(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trace.add("%s is sealed", p.name)
	p.sealed, p.counter = p.counter, 0
	return p.sealErr
}

func (p *flippedPart) Collect(context.Context, epoch.Drained) (epoch.Result, error) {
	p.trace.add("%s is collected", p.name)
	if p.collect != nil {
		p.collect()
	}
	return epoch.Result{Reading: reading(p.sealed)}, nil
}

// carried is a source sealed by packets: a packet's epoch selects one of four slots.
type carried struct {
	name  string
	trace *trace

	mu    sync.Mutex
	slots [4]int
}

func (c *carried) Name() string           { return c.name }
func (c *carried) Sealing() epoch.Sealing { return epoch.SealedByPackets }

func (c *carried) Begin(b epoch.Boundary) (epoch.Part, []string) {
	c.trace.add("%s begins %d", c.name, b.Number+1)
	return &carriedPart{c, b.Number}, nil
}

func (c *carried) packet(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots[number%4]++
}

type carriedPart struct {
	*carried
	number uint64
}

func (p *carriedPart) Seal(context.Context) error { panic("sealed by packets") }

func (p *carriedPart) Collect(ctx context.Context, drained epoch.Drained) (epoch.Result, error) {
	p.trace.add("%s is collected", p.name)
	if err := drained(ctx); err != nil {
		return epoch.Result{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.slots[p.number%4]
	p.slots[p.number%4] = 0
	return epoch.Result{Reading: reading(n)}, nil
}

// host is a source that seals itself. Its reports arrive when the test sends them.
type host struct {
	r     *rig
	name  string
	trace *trace

	mu      sync.Mutex
	reports map[uint64]int // by epoch
	arrived chan struct{}  // closed and replaced at each report
}

func newHost(name string, r *rig) *host {
	return &host{r: r, name: name, trace: r.trace, reports: map[uint64]int{}, arrived: make(chan struct{})}
}

func (h *host) Name() string           { return h.name }
func (h *host) Sealing() epoch.Sealing { return epoch.SealedBySource }

func (h *host) Begin(b epoch.Boundary) (epoch.Part, []string) {
	h.trace.add("%s begins %d", h.name, b.Number+1)
	return &hostPart{h, b.Number}, nil
}

func (h *host) report(number uint64, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports[number] = n
	close(h.arrived)
	h.arrived = make(chan struct{})
}

type hostPart struct {
	*host
	number uint64
}

func (p *hostPart) Seal(context.Context) error { panic("sealed by itself") }

func (p *hostPart) Collect(ctx context.Context, _ epoch.Drained) (r epoch.Result, err error) {
	p.trace.add("%s is collected", p.name)
	for {
		p.mu.Lock()
		arrived := p.arrived
		for number, n := range p.reports {
			switch {
			case number == p.number:
				r.Reading = reports(p.name, n)
			case number < p.number:
				p.r.e.Late(sdk.LateReport{Epoch: number, HostReport: reports(p.name, n).Hosts[0]})
			default:
				continue
			}
			delete(p.reports, number)
		}
		p.mu.Unlock()
		if r.Reading != nil {
			return r, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// rig is an engine on virtual time.
type rig struct {
	t     *testing.T
	e     *epoch.Engine
	clock *epoch.Virtual
	trace *trace
	log   *testkit.Log
	end   time.Time
	play  func(d time.Duration) // called while the engine waits for d
}

const (
	guard = 2 * time.Millisecond
	drain = 30 * time.Millisecond
)

func newRig(t *testing.T, ioLimit time.Duration) *rig {
	t.Helper()
	return newRigWith(t, ioLimit, 0)
}

func newRigWith(t *testing.T, ioLimit time.Duration, lateEpochs uint64) *rig {
	t.Helper()
	r := &rig{t: t, clock: epoch.NewVirtual(t0, ioLimit), trace: &trace{}, log: &testkit.Log{}, end: t0}
	r.e = epoch.New(epoch.Config{Interval: time.Second, Guard: guard, Drain: drain, Deadline: 800 * time.Millisecond,
		LateEpochs: lateEpochs}, epoch.Dependencies{
		Clock: r.clock, Logger: r.log.Logger(),
	})
	r.e.AfterFlip(func(_ context.Context, source string, next uint64) { r.trace.add("%s counts in %d", source, next) })
	t.Cleanup(r.e.Shutdown)
	return r
}

func (r *rig) wait(_ context.Context, d time.Duration) error {
	r.trace.add("wait %v", d)
	if r.play != nil {
		r.play(d)
	}
	r.clock.Advance(d)
	return nil
}

func (r *rig) open() {
	r.t.Helper()
	if err := r.e.Open(context.Background(), t0, r.wait); err != nil {
		r.t.Fatal(err)
	}
	r.trace.take()
}

func (r *rig) step() *epoch.Epoch {
	r.t.Helper()
	r.end = r.end.Add(time.Second)
	r.clock.AdvanceTo(r.end)
	ep, err := r.e.Close(context.Background(), r.end, r.wait)
	if err != nil {
		r.t.Fatal(err)
	}
	return ep
}

// short formats an epoch in one line.
func short(ep *epoch.Epoch) string {
	s := fmt.Sprintf("%d %s", ep.Number, ep.Status)
	for _, o := range ep.Sources {
		switch {
		case o.Err == nil:
			s += fmt.Sprintf(" %s=%d", o.Name, count(o.Reading))
		case errors.Is(o.Err, epoch.ErrLate):
			s += " " + o.Name + "=late"
		default:
			s += fmt.Sprintf(" %s=(%v)", o.Name, o.Err)
		}
	}
	for _, l := range ep.Late {
		s += fmt.Sprintf(" late %s/%d=%d", l.Host, l.Epoch, len(l.Data))
	}
	if ep.Dropped > 0 {
		s += fmt.Sprintf(" dropped %d", ep.Dropped)
	}
	return s
}

func (r *rig) expect(ep *epoch.Epoch, want string) {
	r.t.Helper()
	if got := short(ep); got != want {
		r.t.Errorf("epoch is %q, want %q", got, want)
	}
}

// A source of each kind goes through the phases that it needs: the collector seals the switch,
// packets in flight still count in the slots of their epoch, and the host's report needs no guard.
func TestPhasesOfEachKindOfSource(t *testing.T) {
	r := newRig(t, 0)
	sw, slots, h := &flipped{name: "switch", trace: r.trace}, &carried{name: "carried", trace: r.trace},
		newHost("host", r)
	for _, s := range []epoch.Source{sw, slots, h} {
		r.e.Add(s)
	}
	r.open()
	r.play = func(time.Duration) { slots.packet(1) } // packets in flight during guard and drain
	sw.counter = 7
	slots.packet(1)
	slots.packet(2)
	h.report(1, 9)
	ep := r.step()
	r.expect(ep, "1 COMPLETE carried=3 host=9 switch=7")
	if len(ep.Warnings) > 0 || ep.Timings.Drain <= 0 {
		t.Errorf("warnings %v, timings %+v", ep.Warnings, ep.Timings)
	}
	events := r.trace.take()
	order := func(events []string, names ...string) {
		t.Helper()
		last := -1
		for _, n := range names {
			i := slices.Index(events, n)
			if i <= last {
				t.Errorf("%q is at %d in %q, want it after %d", n, i, events, last)
			}
			last = i
		}
	}
	order(events, "switch begins 2", "switch is sealed", "switch counts in 2", "switch is collected")
	order(events, "carried begins 2", "switch is sealed", "wait 2ms", "carried is collected", "wait 30ms")
	order(events, "host begins 2", "host is collected")
	if slices.Contains(events, "host counts in 2") || slices.Contains(events, "carried counts in 2") {
		t.Errorf("a source is flipped that the collector does not seal: %q", events)
	}

	r.play = nil
	h.report(2, 5)
	r.expect(r.step(), "2 COMPLETE carried=1 host=5 switch=0")
}

// At the opening, the engine does not wait for a source that seals itself: the source has no
// report yet.
func TestOpeningWaitsForNoReport(t *testing.T) {
	r := newRig(t, 0)
	for _, s := range []epoch.Source{&flipped{name: "switch", trace: r.trace},
		&carried{name: "carried", trace: r.trace}, newHost("host", r)} {
		r.e.Add(s)
	}
	if err := r.e.Open(context.Background(), t0, r.wait); err != nil {
		t.Fatal(err)
	}
	want := []string{"carried begins 1", "host begins 1", "switch begins 1", "switch is sealed", "switch counts in 1",
		"wait 2ms", "switch is collected", "wait 30ms", "carried is collected"}
	got := r.trace.take()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Epochs with hosts alone have neither guard nor drain.
func TestReportsNeedNoGuard(t *testing.T) {
	r := newRig(t, 0)
	h := newHost("host", r)
	r.e.Add(h)
	r.open()
	h.report(1, 1)
	r.expect(r.step(), "1 COMPLETE host=1")
	if diff := cmp.Diff([]string{"host begins 2", "host is collected"}, r.trace.take()); diff != "" {
		t.Error(diff)
	}
}

// A missing report makes the epoch partial, or lost without other sources, at the deadline. The
// report is delivered later with its epoch's number.
func TestMissingReport(t *testing.T) {
	r := newRig(t, 100*time.Millisecond)
	a, b := newHost("a", r), newHost("b", r)
	r.e.Add(a)
	r.e.Add(b)
	r.open()
	a.report(1, 1)
	r.expect(r.step(), "1 PARTIAL a=1 b=late")
	r.expect(r.step(), "2 LOST a=late b=late")
	b.report(1, 4)
	a.report(3, 3)
	b.report(3, 3)
	r.expect(r.step(), "3 COMPLETE a=3 b=3 late b/1=4")
	for i := uint64(4); i <= 5; i++ {
		a.report(i, 1)
		b.report(i, 1)
		r.step()
	}
	if n := strings.Count(r.log.String(), "hosts are missing"); n != 2 {
		t.Errorf("%d lines about missing sources, want one each:\n%s", n, r.log)
	}
	if n := strings.Count(r.log.String(), "hosts are measured"); n != 3 ||
		!strings.Contains(r.log.String(), `msg="hosts are measured again" count="1 of 2" hosts=a`) {
		t.Errorf("%d lines about sources with data, want 3:\n%s", n, r.log)
	}
}

// A source that keeps failing and recovering is logged as one problem, until it has been collected
// several epochs in a row.
func TestFlappingSourceIsLoggedOnce(t *testing.T) {
	r := newRig(t, 0)
	s := &flipped{name: "switch", trace: r.trace}
	r.e.Add(s)
	r.open()
	for i := range 10 {
		s.sealErr, s.warnings = nil, nil
		if i%2 == 1 {
			s.sealErr, s.warnings = errors.New("refused"), []string{"was out of step"}
		}
		r.step()
	}
	s.sealErr, s.warnings = nil, nil
	for range 5 {
		r.step()
	}
	for line, want := range map[string]int{
		`msg="device is measured" device=switch`: 1, `msg="device is missing from the epoch"`: 1,
		`msg="device is measured again" device=switch epochs-missed=5`: 1,
		`msg="epochs may be inexact"`:                                  1, `msg="epochs are exact again" epochs-inexact=5`: 1,
	} {
		if n := strings.Count(r.log.String(), line); n != want {
			t.Errorf("%d lines %s, want %d:\n%s", n, line, want, r.log)
		}
	}
}

// The log reports when a collection takes most of the deadline, before devices are missing, and
// when that ends.
func TestCollectionNearTheDeadlineIsLogged(t *testing.T) {
	r := newRig(t, 0)
	took := time.Duration(0)
	r.e.Add(&flipped{name: "switch", trace: r.trace, collect: func() { r.clock.Advance(took) }})
	r.open()
	const near, again = `msg="the collection takes most of epoch.deadline`, `msg="the collection ends well before`
	for _, c := range []struct {
		took        time.Duration
		near, again int // number of log lines with each message
	}{{600 * time.Millisecond, 0, 0}, {650 * time.Millisecond, 1, 0}, {700 * time.Millisecond, 1, 0}, {0, 1, 1}} {
		took = c.took
		for range 5 {
			if ep := r.step(); ep.Sources[0].Err != nil {
				t.Fatal(ep.Sources[0].Err)
			}
		}
		if a, b := strings.Count(r.log.String(), near), strings.Count(r.log.String(), again); a != c.near || b != c.again {
			t.Errorf("after %v: %d and %d lines, want %d and %d:\n%s", c.took, a, b, c.near, c.again, r.log)
		}
	}
}

// Late reports are delivered up to the bound. Reports beyond the bound and reports of epochs that
// have not ended are dropped and counted.
func TestLateReportsAreBounded(t *testing.T) {
	r := newRig(t, 0)
	h, extra := newHost("host", r), &flipped{name: "switch", trace: r.trace}
	r.e.Add(h)
	r.e.Add(extra)
	r.open()
	for i := uint64(1); i <= 5; i++ {
		h.report(i, 1)
		r.expect(r.step(), fmt.Sprintf("%d COMPLETE host=1 switch=0", i))
	}
	h.report(6-epoch.DefaultLateEpochs, 10) // exactly at the bound
	h.report(6-epoch.DefaultLateEpochs-1, 11)
	h.report(6, 1)
	r.expect(r.step(), fmt.Sprintf("6 COMPLETE host=1 switch=0 late host/%d=10 dropped 1", 6-epoch.DefaultLateEpochs))
	h.report(7, 1)
	r.expect(r.step(), "7 COMPLETE host=1 switch=0")
}

// A report on an epoch that is being collected without it is delivered with the next epoch. Reports
// of unknown hosts, and more bytes of one host than the bound, are dropped.
func TestLateReportsWhileTheEpochIsCollected(t *testing.T) {
	r := newRig(t, 0)
	h := newHost("host", r)
	r.e.Add(h)
	r.open()
	late := func(host string, n int) bool {
		return r.e.Late(sdk.LateReport{Epoch: 1, HostReport: reports(host, n).Hosts[0]})
	}
	r.play = func(time.Duration) {
		r.play = nil
		if !late("host", 3) || late("unknown", 4) {
			t.Error("a report of the host is dropped, or one of an unknown host is kept")
		}
	}
	h.report(1, 1)
	r.e.Add(&flipped{name: "switch", trace: r.trace}) // the engine waits for the guard
	r.expect(r.step(), "1 COMPLETE host=1 switch=0")
	if late("host", 256<<20) {
		t.Error("a report above the bound is kept")
	}
	h.report(2, 1)
	r.expect(r.step(), "2 COMPLETE host=1 switch=0 late host/1=3 dropped 1")
}

// slow is a source whose collection lasts until it is released.
type slow struct {
	flipped
	hold     chan struct{}
	released atomic.Int64 // readings that the engine released after the wait
}

func (s *slow) Begin(b epoch.Boundary) (epoch.Part, []string) {
	return &slowPart{flippedPart{flipped: &s.flipped}, s.hold, &s.released}, nil
}

type slowPart struct {
	flippedPart
	hold     chan struct{}
	released *atomic.Int64
}

func (p *slowPart) Collect(ctx context.Context, drained epoch.Drained) (epoch.Result, error) {
	if p.hold == nil {
		return p.flippedPart.Collect(ctx, drained)
	}
	<-p.hold
	r, err := p.flippedPart.Collect(ctx, drained)
	r.Reading.Release = func() { p.released.Add(1) }
	return r, err
}

// A collection that ends after the deadline delays no epoch, and its cells are released.
func TestLateCollectionIsReleased(t *testing.T) {
	r := newRigWith(t, 100*time.Millisecond, 1<<40)
	s := &slow{flipped: flipped{name: "slow", trace: r.trace}}
	r.e.Add(s)
	r.e.Add(&flipped{name: "switch", trace: r.trace})
	r.open()
	hold := make(chan struct{})
	s.hold = hold
	s.counter = 6
	r.expect(r.step(), "1 PARTIAL slow=late switch=0")
	s.hold = nil
	close(hold)
	testkit.Until(t, "the late cells are released", func() bool { return s.released.Load() == 1 })
	if ep := r.step(); len(ep.Late) > 0 {
		t.Errorf("late reports %+v", ep.Late)
	}
}

// A source that cannot be sealed is missing from the epoch with its reason; other sources are not
// delayed.
func TestSealFails(t *testing.T) {
	r := newRig(t, 0)
	good, bad := &flipped{name: "good", trace: r.trace},
		&flipped{name: "bad", trace: r.trace, sealErr: errors.New("refused")}
	r.e.Add(good)
	r.e.Add(bad)
	r.open()
	good.counter = 3
	r.expect(r.step(), "1 PARTIAL bad=(refused) good=3")
	if events := r.trace.take(); slices.Contains(events, "bad is collected") ||
		slices.Contains(events, "bad counts in 2") {
		t.Errorf("events %q", events)
	}
	if !strings.Contains(r.log.String(), `msg="device is missing from the epoch" device=bad reason=refused`) {
		t.Errorf("log:\n%s", r.log)
	}
	r.e.Remove("bad")
	r.expect(r.step(), "2 COMPLETE good=0")
}

// Warnings carry the name of their source. The log has one line when warnings begin and one when
// they end.
func TestWarningsAreLoggedOnce(t *testing.T) {
	r := newRig(t, 0)
	s := &flipped{name: "switch", trace: r.trace}
	r.e.Add(s)
	r.open()
	s.warnings = []string{"was out of step"}
	for range 3 {
		if diff := cmp.Diff([]epoch.AccuracyWarning{{Source: "switch", Reason: "was out of step"}},
			r.step().Warnings); diff != "" {
			t.Error(diff)
		}
	}
	s.warnings = nil
	for range 4 {
		r.step()
	}
	log := r.log.String()
	if strings.Count(log, `level=WARN msg="epochs may be inexact" device=switch reason="was out of step"`) != 1 ||
		strings.Count(log, "epochs are exact again") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

func TestCloseNeedsAnOpenEpoch(t *testing.T) {
	e := epoch.New(epoch.Config{Interval: time.Second, Deadline: time.Second},
		epoch.Dependencies{Clock: epoch.NewVirtual(t0, 0)})
	defer e.Shutdown()
	if _, err := e.Close(context.Background(), t0, nil); err == nil ||
		!strings.Contains(err.Error(), "nothing to close") {
		t.Errorf("error %v", err)
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
