// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"
)

// left is a packet of queues.p4 as it left.
type left struct {
	number                   byte
	at, in, out, enq, waited time.Duration
	enqDepth, deqDepth       int
}

// queueBench returns a switch with queues.p4, whose port 1 has the configuration p.
func queueBench(t *testing.T, cfg Config, p Port) (*Switch, func() []left) {
	t.Helper()
	s := New(cfg)
	t.Cleanup(s.Close)
	if err := s.Load(load(t, "queues")); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []left
	p.Tx = func(pkt []byte, at time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		micros := func(b []byte, n int) time.Duration {
			return time.Duration(binary.BigEndian.Uint64(append(make([]byte, 8-n), b[:n]...))) * time.Microsecond
		}
		all = append(all, left{
			number: pkt[2], at: at, in: micros(pkt[4:], 6), out: micros(pkt[10:], 6), enq: micros(pkt[16:], 4),
			enqDepth: int(binary.BigEndian.Uint32(pkt[20:])), waited: micros(pkt[24:], 4),
			deqDepth: int(binary.BigEndian.Uint32(pkt[28:])),
		})
	}
	for id, port := range []Port{{}, p} {
		if err := s.AddPort(uint32(id), port); err != nil {
			t.Fatal(err)
		}
	}
	return s, func() []left {
		mu.Lock()
		defer mu.Unlock()
		out := all
		all = nil
		return out
	}
}

func zeroClock() time.Duration { return 0 }

const ms = time.Millisecond

func TestQueue(t *testing.T) {
	t.Parallel()
	s, take := queueBench(t, Config{Clock: zeroClock}, Port{QueueRate: 1000, QueueDepth: 3})
	begin := 5 * time.Second
	for n := range byte(6) {
		pkt := []byte{1, 0, n, 0}
		s.Inject(0, pkt, begin)
		pkt[2] = 99 // the queue has bytes of its own
	}
	if out := take(); len(out) != 0 || s.Stats().QueueDrops != 3 {
		t.Fatalf("%d packets left at once, %+v", len(out), s.Stats())
	}
	if at, ok := s.NextDeparture(); !ok || at != begin+ms {
		t.Errorf("the next packet leaves at %v, %v", at, ok)
	}
	s.Inject(0, []byte{1, 0, 6, 0}, begin+2*ms) // two have left by then
	s.Advance(begin + time.Second)
	out := take()
	want := []left{
		{0, begin + 1*ms, begin, begin + 1*ms, begin, 1 * ms, 0, 2},
		{1, begin + 2*ms, begin, begin + 2*ms, begin, 2 * ms, 1, 1},
		{2, begin + 3*ms, begin, begin + 3*ms, begin, 3 * ms, 2, 1},
		{6, begin + 4*ms, begin + 2*ms, begin + 4*ms, begin + 2*ms, 2 * ms, 1, 0},
	}
	if !slices.Equal(out, want) {
		t.Errorf("got  %+v\nwant %+v", out, want)
	}
	if _, ok := s.NextDeparture(); ok {
		t.Error("something waits in an empty queue")
	}
	if st, err := s.PortStatus(1); err != nil || st.Counters.OutDiscards != 3 || st.Counters.OutPackets != 4 {
		t.Errorf("%+v %v", st, err)
	}
	s.Inject(0, []byte{1, 0, 7, 0}, begin+2*time.Second)
	s.Advance(begin + 3*time.Second)
	if out := take(); len(out) != 1 || out[0].waited != ms || out[0].deqDepth != 0 {
		t.Errorf("an idle queue: %+v", out)
	}
}

func TestQueuePriorities(t *testing.T) {
	t.Parallel()
	s, take := queueBench(t, Config{Clock: zeroClock}, Port{QueueRate: 1000, QueueDepth: 2, Queues: 3})
	order := func(priorities ...byte) (out []byte) {
		t.Helper()
		for n, p := range priorities {
			s.Inject(0, []byte{1, p, byte(n), 0}, 0)
		}
		s.Advance(time.Hour)
		for _, l := range take() {
			out = append(out, l.number)
		}
		return out
	}
	// All packets arrived at one time. Priority 7 is above the highest queue, and uses it.
	if got := order(0, 2, 1, 7, 0, 1); !slices.Equal(got, []byte{1, 3, 2, 5, 0, 4}) {
		t.Errorf("left in the order %v", got)
	}
	if got := order(0, 0, 0, 2); !slices.Equal(got, []byte{3, 0, 1}) {
		t.Errorf("left in the order %v: each queue holds two", got)
	}
	s, take = queueBench(t, Config{Clock: zeroClock}, Port{QueueRate: 1000, Queues: 2})
	for i, at := range []time.Duration{0, 200 * time.Microsecond, 400 * time.Microsecond} {
		s.Inject(0, []byte{1, byte(i / 2), byte(i), 0}, at)
	}
	s.Advance(time.Second)
	if out := take(); len(out) != 3 || out[0].number != 0 || out[1].number != 2 || out[1].at != 2*ms ||
		out[2].number != 1 {
		t.Errorf("a packet in service was interrupted: %+v", out)
	}
}

// TestQueueRates: each priority has its rate and depth, as in BMv2, and a port's own rate bounds
// them all.
func TestQueueRates(t *testing.T) {
	t.Parallel()
	type step struct {
		priority byte
		at       time.Duration
	}
	together := []step{{0, 0}, {0, 0}, {0, 0}, {1, 0}, {1, 0}, {2, 0}}
	for _, tt := range []struct {
		name  string
		port  Port
		steps []step
		want  []left // number, at, deqDepth; enqDepth
	}{
		{"rates", Port{QueueRates: []uint64{1000, 500}}, together[:5], []left{
			{number: 0, at: ms, deqDepth: 2}, {number: 3, at: 2 * ms, deqDepth: 1},
			{number: 1, at: 2 * ms, enqDepth: 1, deqDepth: 1},
			{number: 2, at: 3 * ms, enqDepth: 2}, {number: 4, at: 4 * ms, enqDepth: 1},
		}},
		{"within the port's", Port{QueueRate: 1000, QueueRates: []uint64{0, 250}}, together[:5], []left{
			{number: 0, at: ms, deqDepth: 2}, {number: 1, at: 2 * ms, enqDepth: 1, deqDepth: 1},
			{number: 2, at: 3 * ms, enqDepth: 2},
			{number: 3, at: 4 * ms, deqDepth: 1}, {number: 4, at: 8 * ms, enqDepth: 1},
		}},
		{"depths", Port{QueueRate: 1000, Queues: 3, QueueDepths: []int{2, 1}}, together, []left{
			{number: 5, at: ms}, {number: 3, at: 2 * ms}, {number: 0, at: 3 * ms, deqDepth: 1},
			{number: 1, at: 4 * ms, enqDepth: 1},
		}},
		{"after a pause", Port{QueueRates: []uint64{1000}}, []step{{0, 0}, {0, time.Second}, {0, time.Second}}, []left{
			{number: 0, at: ms}, {number: 1, at: time.Second + ms, deqDepth: 1},
			{number: 2, at: time.Second + 2*ms, enqDepth: 1},
		}},
	} {
		s, take := queueBench(t, Config{Clock: zeroClock}, tt.port)
		for n, p := range tt.steps {
			s.Inject(0, []byte{1, p.priority, byte(n), 0}, p.at)
		}
		s.Advance(time.Hour)
		var got []left
		for _, l := range take() {
			got = append(got, left{number: l.number, at: l.at, enqDepth: l.enqDepth, deqDepth: l.deqDepth})
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

// TestSetQueues: a port's queues can change; what waited is dropped.
func TestSetQueues(t *testing.T) {
	t.Parallel()
	s, take := queueBench(t, Config{Clock: zeroClock}, Port{})
	s.Inject(0, []byte{1, 0, 0, 0}, 0)
	if out := take(); len(out) != 1 {
		t.Fatalf("%+v", out)
	}
	for i, p := range []Port{{QueueRate: 1000}, {QueueRate: 10, QueueDepth: 2}, {}} {
		if err := s.SetQueues(1, p); err != nil {
			t.Fatal(err)
		}
		if drops := s.Stats().QueueDrops; drops != uint64(i) {
			t.Errorf("%+v: %d dropped", p, drops)
		}
		s.Inject(0, []byte{1, 0, 1, 0}, time.Duration(i)*time.Hour)
		if _, ok := s.NextDeparture(); ok != (p.QueueRate > 0) {
			t.Errorf("%+v: waits: %v", p, ok)
		}
	}
	if out := take(); len(out) != 1 {
		t.Errorf("%+v", out)
	}
	for id, p := range map[uint32]Port{1: {Queues: 9}, 5: {QueueRate: 1}} {
		if err := s.SetQueues(id, p); err == nil {
			t.Errorf("port %d, %+v: accepted", id, p)
		}
	}
}

// TestQueueLoops: recirculated packets wait in the queue each time.
func TestQueueLoops(t *testing.T) {
	t.Parallel()
	s, take := queueBench(t, Config{Clock: zeroClock}, Port{QueueRate: 1000})
	for n := range byte(3) {
		s.Inject(0, []byte{1, 0, n, 2}, 0)
	}
	s.Advance(time.Second)
	out := take()
	if len(out) != 3 || out[0].at != 7*ms || out[2].at != 9*ms || out[2].number != 2 || out[2].waited != 3*ms {
		t.Errorf("%+v", out)
	}
	s.Inject(0, []byte{1, 0, 0, 255}, 2*time.Second)
	s.Advance(time.Hour)
	if st := s.Stats(); st.LoopDrops != 1 || len(take()) != 0 {
		t.Errorf("a loop through a queue: %+v", st)
	}
}

// TestQueueEnds: waiting packets are dropped when their program or their port is removed.
func TestQueueEnds(t *testing.T) {
	t.Parallel()
	s, take := queueBench(t, Config{Clock: zeroClock}, Port{QueueRate: 1000})
	for _, end := range []func() error{
		func() error { return s.Load(load(t, "queues")) },
		func() error { return s.RemovePort(1) },
		func() error { return s.AddPort(1, Port{QueueRate: 1}) },
		func() error { s.Close(); return nil },
	} {
		s.Inject(0, []byte{1, 0, 0, 0}, 0)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		s.Advance(time.Hour)
		if _, ok := s.NextDeparture(); ok || len(take()) != 0 || s.waiting.Load() != 0 {
			t.Fatal("a packet outlived its queue")
		}
	}
	for _, p := range []Port{{QueueRate: 1 << 40}, {QueueDepth: -1}, {Queues: 9}, {QueueRates: make([]uint64, 9)},
		{QueueRates: []uint64{1 << 40}}, {QueueDepths: []int{-1}}} {
		if err := New(Config{}).AddPort(1, p); err == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}

// TestQueueOnTheWallClock: a timer serves the queues, whatever core the packets come from.
func TestQueueOnTheWallClock(t *testing.T) {
	t.Parallel()
	s, _ := queueBench(t, Config{Parallel: 2}, Port{})
	if err := s.RemovePort(1); err != nil {
		t.Fatal(err)
	}
	got := make(chan byte, 200)
	if err := s.AddPort(1, Port{QueueRate: 100_000, QueueDepth: 200,
		Tx: func(pkt []byte, _ time.Duration) { got <- pkt[2] }}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for n := range byte(100) {
				s.Inject(0, []byte{1, 0, n, 0}, s.Now())
			}
		})
	}
	for range 200 {
		<-got
	}
	wg.Wait()
}

// TestDepart: Config.Depart is called before each packet leaves its queue. Packets of a controller
// do not advance queues if the clock has an owner.
func TestDepart(t *testing.T) {
	t.Parallel()
	var ports []uint32
	var sent func() []left
	before := 0
	s, take := queueBench(t, Config{Clock: func() time.Duration { return time.Hour }, Depart: func(port uint32) {
		ports = append(ports, port)
		before += len(sent())
	}}, Port{QueueRate: 1000})
	sent = take
	s.Inject(0, []byte{1, 0, 0, 0}, 0)
	s.Inject(0, []byte{1, 0, 1, 0}, 0)
	if err := s.PacketOut([]byte{1, 0, 2, 0}); err != nil || len(ports) > 0 {
		t.Errorf("a controller's packet advanced the queues of ports %v: %v", ports, err)
	}
	s.Advance(time.Hour - ms)
	if !slices.Equal(ports, []uint32{1, 1}) || before != 1 || len(take()) != 1 {
		t.Errorf("departures from ports %v, %d packets left before the last one", ports, before)
	}
}
