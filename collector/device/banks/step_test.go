// SPDX-License-Identifier: Apache-2.0

package banks_test

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

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
)

// mesh is a network of fakes. A fake counts a packet where it enters, and again where it leaves,
// in the bank that the packet carries. Packets are in flight for some time.
type mesh struct {
	mu     sync.Mutex
	edges  []*edge
	flying []packet
	// read-locked while packets are in flight in real time, so that a slow machine does not change
	// the result
	way sync.RWMutex
}

// edge is a switch of a mesh, with counts by bank of the packets that entered and left.
type edge struct {
	fake
	m       *mesh
	entered []int
	left    []int
	traffic bool // packets are in flight during each flip and read-out of the edge
}

// packet is a packet in flight to a switch.
type packet struct {
	bank int
	to   *edge
}

// pair is the count of an edge.
type pair struct{ entered, left int }

func newEdge(m *mesh, name string) *edge {
	e := &edge{m: m, entered: make([]int, 2), left: make([]int, 2)}
	e.name, e.life, e.banks = name, banks.Incarnation{ID: 1, Clean: true}, make([]int, 2)
	m.edges = append(m.edges, e)
	return e
}

// send makes n packets enter at each edge for every other edge.
func (m *mesh) send(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, from := range m.edges {
		from.mu.Lock()
		bank := from.current
		from.mu.Unlock()
		for _, to := range m.edges {
			for range n {
				from.entered[bank]++
				m.flying = append(m.flying, packet{bank, to})
			}
		}
	}
}

// deliver makes all packets arrive.
func (m *mesh) deliver() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.flying {
		p.to.left[p.bank]++
	}
	m.flying = nil
}

// Flip flips the edge between two packets.
func (e *edge) Flip(ctx context.Context, bank int) error {
	if !e.traffic {
		return e.fake.Flip(ctx, bank)
	}
	e.m.way.RLock()
	defer e.m.way.RUnlock()
	defer e.m.deliver()
	e.m.send(1)
	defer e.m.send(1)
	return e.fake.Flip(ctx, bank)
}

// Read reads the count of entered packets at once, and the count of packets that left when the
// network has drained.
func (e *edge) Read(ctx context.Context, bank int, drained epoch.Drained) (*epoch.Reading, error) {
	if e.traffic {
		e.m.way.RLock()
		e.m.send(1)
		e.m.deliver()
		e.m.way.RUnlock()
	}
	if _, err := e.fake.Read(ctx, bank, drained); err != nil {
		return nil, err
	}
	e.m.mu.Lock()
	p := pair{entered: e.entered[bank]}
	e.entered[bank] = 0
	e.m.mu.Unlock()
	if err := drained(ctx); err != nil {
		return nil, err
	}
	e.m.way.Lock()
	defer e.m.way.Unlock()
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	p.left, e.left[bank] = e.left[bank], 0
	return reading(p.entered, p.left), nil
}

func pairOf(r *epoch.Reading) pair {
	return pair{int(r.Objects[0].At(0)), int(r.Objects[0].At(1))}
}

// meshBench drives a mesh on virtual time.
type meshBench struct {
	network
	*testing.T
	m     *mesh
	clock *epoch.Virtual
	end   time.Time
	waits []time.Duration
}

var meshConfig = epoch.Config{Interval: time.Second, Guard: 2 * time.Millisecond, Drain: 30 * time.Millisecond,
	Deadline: 800 * time.Millisecond}

func newMesh(t *testing.T, names ...string) *meshBench {
	t.Helper()
	b := &meshBench{T: t, m: &mesh{}, clock: epoch.NewVirtual(t0, 2*time.Second), end: t0}
	b.network = newNetwork(meshConfig, epoch.Dependencies{Clock: b.clock})
	t.Cleanup(b.stop)
	for _, n := range names {
		b.add(newEdge(b.m, n))
	}
	b.join()
	if err := b.e.Open(context.Background(), t0, b.wait); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *meshBench) join() { b.Helper(); b.network.join(b.T) }

// wait emulates the network: during the drain all packets arrive.
func (b *meshBench) wait(_ context.Context, d time.Duration) error {
	b.waits = append(b.waits, d)
	if d == meshConfig.Drain {
		b.m.deliver()
	}
	b.clock.Advance(d)
	return nil
}

// step sends packets, some of which are in flight when the epoch ends, and closes the epoch.
func (b *meshBench) step(n int) *epoch.Epoch {
	b.Helper()
	b.m.send(n)
	b.m.deliver()
	b.m.send(1)
	b.end = b.end.Add(time.Second)
	b.clock.AdvanceTo(b.end)
	ep, err := b.e.Close(context.Background(), b.end, b.wait)
	if err != nil {
		b.Fatal(err)
	}
	return ep
}

// exact checks that an epoch without warnings counted exactly the packets that were sent.
func (b *meshBench) exact(ep *epoch.Epoch, n int) bool {
	b.Helper()
	if ep.Status != epoch.Complete || len(ep.Warnings) > 0 {
		return false
	}
	edges := len(b.m.edges)
	for _, o := range ep.Sources {
		if want := (pair{(n + 1) * edges, (n + 1) * edges}); pairOf(o.Reading) != want {
			b.Errorf("epoch %d: %s has %v, want %v", ep.Number, o.Name, pairOf(o.Reading), want)
		}
	}
	return true
}

func TestExitsAreReadWhenTheNetworkHasDrained(t *testing.T) {
	b := newMesh(t, "s1", "s2", "s3")
	for i := 1; i <= 4; i++ {
		b.waits = nil
		ep := b.step(i)
		if !b.exact(ep, i) {
			t.Errorf("epoch %d is %v, warnings %v", i, ep.Status, ep.Warnings)
		}
		if diff := cmp.Diff([]time.Duration{meshConfig.Guard, meshConfig.Drain}, b.waits); diff != "" {
			t.Error(diff)
		}
		if ep.Timings.Drain <= 0 {
			t.Errorf("drain %v", ep.Timings.Drain)
		}
	}
}

// An edge gets out of step in several ways. Each epoch that packets with a wrong bank reach has a
// warning, and later epochs are exact again.
func TestInexactEpochsHaveWarnings(t *testing.T) {
	faults := map[string]func(b *meshBench, bad *edge){
		"a read-out fails twice": func(b *meshBench, bad *edge) {
			bad.set(func(f *fake) { f.readErr, f.errs = errors.New("a range was lost"), 2 })
			b.step(2)
		},
		"a flip fails": func(b *meshBench, bad *edge) {
			bad.set(func(f *fake) { f.flipErr = errors.New("refused") })
			b.step(2)
			bad.set(func(f *fake) { f.flipErr = nil })
		},
		"the session is away": func(b *meshBench, bad *edge) {
			bad.set(func(f *fake) { f.down = errors.New("away") })
			b.step(2)
			b.step(2)
			bad.set(func(f *fake) { f.down = nil })
		},
		"a reboot": func(b *meshBench, bad *edge) {
			b.m.send(3)
			b.m.mu.Lock()
			bad.entered, bad.left = make([]int, 2), make([]int, 2)
			b.m.mu.Unlock()
			bad.set(func(f *fake) { f.current, f.life = 0, banks.Incarnation{ID: f.life.ID + 1, Clean: true} })
			b.step(2)
		},
		"the collector does not run": func(b *meshBench, _ *edge) {
			b.end = b.end.Add(time.Second)
			b.step(2)
		},
		"a flip is slow": func(b *meshBench, bad *edge) {
			hold := make(chan struct{})
			bad.set(func(f *fake) { f.holdFlip = hold })
			timer := time.AfterFunc(1500*time.Millisecond, func() { close(hold) }) // beyond a quarter of 2 s, real time
			defer timer.Stop()
			ep := b.step(2)
			bad.set(func(f *fake) { f.holdFlip = nil })
			if len(ep.Warnings) == 0 {
				b.Errorf("no warning of a flip that was not waited for: %+v", ep)
			}
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newMesh(t, "s1", "s2", "s3")
			b.step(1)
			fault(b, b.m.edges[1])
			good := 0
			for i := 0; i < 40 && good < 4; i++ {
				b.join()
				if b.exact(b.step(5), 5) {
					good++
				} else {
					good = 0
				}
			}
			if good < 4 {
				t.Error("epochs do not become exact again")
			}
		})
	}
}

// While a switch is dead, epochs have no warning about it: its links are down, so it sends no
// packets. If only its session is away, or its links went down within the epoch, each epoch has a
// warning.
func TestDeadSwitchesAreNotOutOfStep(t *testing.T) {
	b := newMesh(t, "s1", "s2", "s3")
	b.step(1)
	b.m.edges[1].set(func(f *fake) { f.down = errors.New("away") })
	for i := range 4 {
		if ep := b.step(1); i > 0 && len(ep.Warnings) == 0 {
			t.Errorf("epoch %d has no warning: the session of a switch is away", ep.Number)
		}
	}
	b.isolated.Store("s2", true)
	if ep := b.step(1); len(ep.Warnings) == 0 {
		t.Errorf("epoch %d has no warning: a switch lost its links within it", ep.Number)
	}
	for i := range 5 {
		if ep := b.step(1); i > 1 && len(ep.Warnings) > 0 {
			t.Errorf("epoch %d: %+v", ep.Number, ep.Warnings)
		}
	}
	b.isolated.Delete("s2")
	b.step(1)
	if ep := b.step(1); len(ep.Warnings) == 0 {
		t.Errorf("epoch %d has no warning: the links of a switch are up again", ep.Number)
	}
}

// Two collectors, one after the other, measure switches with constant traffic on the wall clock.
func TestASecondCollectorFindsSwitchesInAnyBank(t *testing.T) {
	m := &mesh{}
	for i := range 3 {
		e := newEdge(m, fmt.Sprint("s", i))
		e.life.Clean = false
		e.current = i % 2
		e.traffic = true
	}
	cfg := epoch.Config{Interval: 60 * time.Millisecond, Guard: time.Millisecond, Drain: 5 * time.Millisecond,
		Deadline: 50 * time.Millisecond, Origin: time.Unix(0, 0)}
	for range 2 {
		n := newNetwork(cfg, epoch.Dependencies{})
		for _, s := range m.edges {
			s.set(func(f *fake) { f.life.ID++ })
			n.add(s)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if missing := n.g.WaitJoined(ctx); missing != nil {
			t.Fatal(missing)
		}
		exact := 0
		err := n.run(ctx, func(ep *epoch.Epoch) {
			if ep.Status == epoch.Complete && len(ep.Warnings) == 0 {
				exact++
				sum := pair{}
				for _, o := range ep.Sources {
					sum.entered += pairOf(o.Reading).entered
					sum.left += pairOf(o.Reading).left
				}
				if sum.entered != sum.left {
					t.Errorf("epoch %d: %d entered, %d left", ep.Number, sum.entered, sum.left)
				}
			}
			if exact == 8 {
				cancel()
			}
		})
		cancel()
		n.stop()
		if err != nil || exact < 8 {
			t.Errorf("%d exact epochs, error %v", exact, err)
		}
		m.deliver()
	}
}

// All switches use the same bank in an epoch, for any number of banks. The first epoch's bank is
// not the initial bank of a pipeline.
func TestBanksFollowTheEpochsNumbers(t *testing.T) {
	clock := epoch.NewVirtual(t0, 0)
	n := newNetwork(epoch.Config{Interval: time.Second, Deadline: time.Second, Origin: time.Unix(3, 0)},
		epoch.Dependencies{Clock: clock})
	defer n.stop()
	two, three := newFake("two"), newFake("three")
	three.banks = make([]int, 3)
	n.add(two)
	n.add(three)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if missing := n.g.WaitJoined(ctx); missing != nil {
		t.Fatal(missing)
	}
	if err := n.e.Open(ctx, t0, nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := 1; i <= 5; i++ {
		number, _ := n.e.Current()
		for _, f := range []*fake{two, three} {
			if want := int((number + n.g.Shift()) % uint64(len(f.banks))); f.current != want {
				t.Errorf("%s counts in bank %d in epoch %d, want %d", f.name, f.current, number, want)
			}
		}
		got = append(got, fmt.Sprint(two.current, three.current))
		clock.Advance(time.Second)
		if ep, err := n.e.Close(ctx, t0.Add(time.Duration(i)*time.Second),
			func(context.Context, time.Duration) error { return nil }); err != nil || ep.Status != epoch.Complete {
			t.Fatal(ep, err)
		}
	}
	if diff := cmp.Diff([]string{"1 1", "0 2", "1 0", "0 1", "1 2"}, got); diff != "" {
		t.Error(diff)
	}
}

// Flips further apart than the guard cause a warning.
func TestSkewBeyondTheGuardCausesAWarning(t *testing.T) {
	cfg := epoch.Config{Interval: 400 * time.Millisecond, Guard: time.Millisecond, Deadline: 400 * time.Millisecond}
	n := newNetwork(cfg, epoch.Dependencies{})
	defer n.stop()
	slow := &slowFake{fake: newFake("s2")}
	n.add(newFake("s1"))
	n.add(slow)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if missing := n.g.WaitJoined(ctx); missing != nil {
		t.Fatal(missing)
	}
	var reasons []string
	if err := n.run(ctx, func(ep *epoch.Epoch) {
		for _, d := range ep.Warnings {
			reasons = append(reasons, d.Reason)
		}
		if slow.delay.Swap(int64(30 * time.Millisecond)); len(reasons) > 0 {
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(reasons, func(s string) bool { return strings.Contains(s, "more than the guard of 1ms") }) {
		t.Errorf("warnings %q", reasons)
	}
}

// slowFake flips with a delay.
type slowFake struct {
	*fake
	delay atomic.Int64
}

func (s *slowFake) Flip(ctx context.Context, bank int) error {
	_ = epoch.Wall{}.Sleep(ctx, time.Duration(s.delay.Load()))
	return s.fake.Flip(ctx, bank)
}

// leaving removes switches without a session while the engine waits for them.
type leaving struct {
	*fake
	g *banks.Group
}

func (f *leaving) Ready() (banks.Incarnation, error) {
	f.g.Remove("s1")
	return banks.Incarnation{}, errors.New("no session")
}

type leavingWindow struct {
	*slotted
	g *banks.Group
}

func (f *leavingWindow) Ready() (banks.Incarnation, error) { return (&leaving{g: f.g}).Ready() }

// The group does not wait for a switch that is removed because another collector measures it.
func TestRemovedSwitchIsNotWaitedFor(t *testing.T) {
	g := banks.New(banks.Config{Interval: time.Second}, epoch.Wall{})
	t.Cleanup(g.Stop)
	first, second := &leaving{newFake("s1"), banks.New(banks.Config{}, epoch.Wall{})},
		&leavingWindow{newSlotted("s1"), banks.New(banks.Config{}, epoch.Wall{})}
	g.Add(first)
	first.g = g
	if missing := g.WaitJoined(t.Context()); len(missing) > 0 {
		t.Errorf("%q are missing", missing)
	}
	g.Add(second)
	second.g = g
	if missing := g.WaitJoined(t.Context()); len(missing) > 0 {
		t.Errorf("%q are missing", missing)
	}
}
