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

	"github.com/netsketch/netsketch/collector/epoch"
)

// mesh is a network of fakes that count packets where they enter, and again where they leave, in the bank that the
// packet carries. Packets are on their way for some time.
type mesh struct {
	mu     sync.Mutex
	edges  []*edge
	flying []packet
	way    sync.RWMutex // read-locked while packets are on their way, where that is of real time: no machine is too slow for it
}

// edge is a switch of a mesh: what entered and what left, by bank.
type edge struct {
	fake
	m       *mesh
	entered []int
	left    []int
	traffic bool // packets are sent and are on their way whenever the edge is flipped or read
}

// packet is on its way to a switch.
type packet struct {
	bank int
	to   *edge
}

// pair is what an edge counted.
type pair struct{ entered, left int }

func newEdge(m *mesh, name string) *edge {
	e := &edge{m: m, entered: make([]int, 2), left: make([]int, 2)}
	e.name, e.life, e.banks = name, epoch.Incarnation{ID: 1, Clean: true}, make([]int, 2)
	m.edges = append(m.edges, e)
	return e
}

// send makes n packets enter at each edge for each other one.
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

// Flip flips between two packets.
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

// Read reads what entered at once and what left when the network has drained.
func (e *edge) Read(ctx context.Context, bank int, drained epoch.Drained) (pair, error) {
	if e.traffic {
		e.m.way.RLock()
		e.m.send(1)
		e.m.deliver()
		e.m.way.RUnlock()
	}
	if _, err := e.fake.Read(ctx, bank, drained); err != nil {
		return pair{}, err
	}
	e.m.mu.Lock()
	p := pair{entered: e.entered[bank]}
	e.entered[bank] = 0
	e.m.mu.Unlock()
	if err := drained(ctx); err != nil {
		return pair{}, err
	}
	e.m.way.Lock()
	defer e.m.way.Unlock()
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	p.left, e.left[bank] = e.left[bank], 0
	return p, nil
}

// meshBench drives a mesh on virtual time.
type meshBench struct {
	*testing.T
	m     *mesh
	e     *epoch.Engine[pair]
	clock *epoch.Virtual
	end   time.Time
	waits []time.Duration
}

var meshConfig = epoch.Config{Interval: time.Second, Guard: 2 * time.Millisecond, Drain: 30 * time.Millisecond, Deadline: 800 * time.Millisecond}

func newMesh(t *testing.T, names ...string) *meshBench {
	t.Helper()
	b := &meshBench{T: t, m: &mesh{}, clock: epoch.NewVirtual(t0, 2*time.Second), end: t0}
	b.e = epoch.New[pair](meshConfig, epoch.Options{Clock: b.clock})
	t.Cleanup(b.e.Shutdown)
	for _, n := range names {
		b.e.Add(newEdge(b.m, n))
	}
	b.join()
	if err := b.e.Open(context.Background(), t0, b.wait); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *meshBench) join() {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if missing := b.e.WaitJoined(ctx); missing != nil {
		b.Fatalf("%v did not join", missing)
	}
}

// wait plays the network: packets arrive when they have had time to.
func (b *meshBench) wait(_ context.Context, d time.Duration) error {
	b.waits = append(b.waits, d)
	if d == meshConfig.Drain {
		b.m.deliver()
	}
	b.clock.Advance(d)
	return nil
}

// step sends packets, of which the last are on their way when the epoch ends, and closes it.
func (b *meshBench) step(n int) *epoch.Epoch[pair] {
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

// exact checks that an epoch without doubt lost no packet, and has what was sent.
func (b *meshBench) exact(ep *epoch.Epoch[pair], n int) bool {
	b.Helper()
	if ep.Status != epoch.Complete || len(ep.Doubts) > 0 {
		return false
	}
	edges := len(b.m.edges)
	for _, o := range ep.Switches {
		if want := (pair{(n + 1) * edges, (n + 1) * edges}); o.Reading != want {
			b.Errorf("epoch %d: %s has %v, want %v", ep.Number, o.Name, o.Reading, want)
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
			t.Errorf("epoch %d is %v, doubts %v", i, ep.Status, ep.Doubts)
		}
		if diff := cmp.Diff([]time.Duration{meshConfig.Guard, meshConfig.Drain}, b.waits); diff != "" {
			t.Error(diff)
		}
		if ep.Timings.Drain <= 0 {
			t.Errorf("drain %v", ep.Timings.Drain)
		}
	}
}

// One edge falls out of step in several ways; packets that it sends with a wrong bank reach no epoch that is
// called exact, and in the end all are exact again.
func TestNoEpochIsCalledExactThatIsNot(t *testing.T) {
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
			bad.set(func(f *fake) { f.current, f.life = 0, epoch.Incarnation{ID: f.life.ID + 1, Clean: true} })
			b.step(2)
		},
		"the collector stands still": func(b *meshBench, _ *edge) {
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
			if len(ep.Doubts) == 0 {
				b.Errorf("nothing is said of a flip that was not waited for: %+v", ep)
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
				t.Error("the epochs do not become exact again")
			}
		})
	}
}

// Collectors one after another over switches that run on, with traffic all the time, on the wall clock.
func TestASecondCollectorFindsSwitchesInAnyBank(t *testing.T) {
	m := &mesh{}
	for i := range 3 {
		e := newEdge(m, fmt.Sprint("s", i))
		e.life.Clean = false
		e.current = i % 2
		e.traffic = true
	}
	cfg := epoch.Config{Interval: 60 * time.Millisecond, Guard: time.Millisecond, Drain: 5 * time.Millisecond, Deadline: 50 * time.Millisecond, Origin: time.Unix(0, 0)}
	for range 2 {
		e := epoch.New[pair](cfg, epoch.Options{})
		for _, s := range m.edges {
			s.set(func(f *fake) { f.life.ID++ })
			e.Add(s)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if missing := e.WaitJoined(ctx); missing != nil {
			t.Fatal(missing)
		}
		exact := 0
		err := e.Run(ctx, func(ep *epoch.Epoch[pair]) {
			if ep.Status == epoch.Complete && len(ep.Doubts) == 0 {
				exact++
				sum := pair{}
				for _, o := range ep.Switches {
					sum.entered += o.Reading.entered
					sum.left += o.Reading.left
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
		e.Shutdown()
		if err != nil || exact < 8 {
			t.Errorf("%d exact epochs, error %v", exact, err)
		}
		m.deliver()
	}
}

// Every epoch has one bank for all, whatever the number of banks, and the first is not the one that programs begin with.
func TestBanksFollowTheEpochsNumbers(t *testing.T) {
	clock := epoch.NewVirtual(t0, 0)
	e := epoch.New[int](epoch.Config{Interval: time.Second, Deadline: time.Second, Origin: time.Unix(3, 0)}, epoch.Options{Clock: clock})
	defer e.Shutdown()
	two, three := newFake("two"), newFake("three")
	three.banks = make([]int, 3)
	e.Add(two)
	e.Add(three)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if missing := e.WaitJoined(ctx); missing != nil {
		t.Fatal(missing)
	}
	if err := e.Open(ctx, t0, nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := 1; i <= 5; i++ {
		number, _ := e.Current()
		for _, f := range []*fake{two, three} {
			if want := int((number + e.BankShift()) % uint64(len(f.banks))); f.current != want {
				t.Errorf("%s writes into bank %d in epoch %d, want %d", f.name, f.current, number, want)
			}
		}
		got = append(got, fmt.Sprint(two.current, three.current))
		clock.Advance(time.Second)
		if ep, err := e.Close(ctx, t0.Add(time.Duration(i)*time.Second), func(context.Context, time.Duration) error { return nil }); err != nil || ep.Status != epoch.Complete {
			t.Fatal(ep, err)
		}
	}
	if diff := cmp.Diff([]string{"1 1", "0 2", "1 0", "0 1", "1 2"}, got); diff != "" {
		t.Error(diff)
	}
}

// Flips that are further apart than the guard are said, and so is what follows from them.
func TestSkewBeyondTheGuardIsSaid(t *testing.T) {
	cfg := epoch.Config{Interval: 400 * time.Millisecond, Guard: time.Millisecond, Deadline: 400 * time.Millisecond}
	e := epoch.New[int](cfg, epoch.Options{})
	defer e.Shutdown()
	slow := &slowFake{fake: newFake("s2")}
	e.Add(newFake("s1"))
	e.Add(slow)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if missing := e.WaitJoined(ctx); missing != nil {
		t.Fatal(missing)
	}
	var said []string
	if err := e.Run(ctx, func(ep *epoch.Epoch[int]) {
		for _, d := range ep.Doubts {
			said = append(said, d.Reason)
		}
		if slow.delay.Swap(int64(30 * time.Millisecond)); len(said) > 0 {
			cancel()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "more than the guard of 1ms") }) {
		t.Errorf("said %q", said)
	}
}

// slowFake takes its time to flip.
type slowFake struct {
	*fake
	delay atomic.Int64
}

func (s *slowFake) Flip(ctx context.Context, bank int) error {
	_ = epoch.Wall{}.Sleep(ctx, time.Duration(s.delay.Load()))
	return s.fake.Flip(ctx, bank)
}
