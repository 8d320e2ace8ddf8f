// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
)

const ms = time.Millisecond

// drain removes all packets that leave by now, as "item@milliseconds".
func drain(q *Queue[int], now time.Duration) (items []int, at []time.Duration) {
	for {
		d, ok := q.Pop(now)
		if !ok {
			return items, at
		}
		items, at = append(items, d.Item), append(at, d.At)
	}
}

// TestQueueOrder: the highest priority first, in order of arrival within a priority, one packet per
// interval, without interrupting a service that has begun.
func TestQueueOrder(t *testing.T) {
	q, err := NewQueue[int](Config{QueueRate: 100, Queues: 3, QueueDepth: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []struct {
		priority uint64
		room     bool
	}{{0, true}, {0, true}, {0, false}, {9, true}, {1, true}} {
		if q.Push(i, p.priority, 0) != p.room {
			t.Errorf("packet %d of priority %d: expected room %v", i, p.priority, p.room)
		}
	}
	if at, ok := q.Next(); !ok || at != 10*ms {
		t.Errorf("the next packet leaves at %v, %v", at, ok)
	}
	if _, ok := q.Pop(10*ms - 1); ok {
		t.Error("a packet left before its service was over")
	}
	items, at := drain(q, 20*ms)
	q.Push(5, 2, 25*ms) // leaves before the packets of priority 0
	rest, later := drain(q, time.Second)
	if items, at := append(items, rest...), append(at, later...); !slices.Equal(items, []int{3, 4, 0, 5, 1}) ||
		!slices.Equal(at, []time.Duration{10 * ms, 20 * ms, 30 * ms, 40 * ms, 50 * ms}) {
		t.Errorf("packets %v left at %v", items, at)
	}
}

// TestQueueDepths: a departure carries the packets of its priority at arrival and departure.
func TestQueueDepths(t *testing.T) {
	q, err := NewQueue[int](Config{QueueRate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		q.Push(i, 0, 0)
	}
	for i := range 3 {
		d, ok := q.Pop(time.Second)
		if !ok || d.Found != i || d.Left != 2-i {
			t.Errorf("packet %d: %+v, %v", i, d, ok)
		}
	}
	q.Push(7, 0, time.Second)
	if n := q.Close(); n != 1 || q.Push(8, 0, time.Second) {
		t.Errorf("%d packets were dropped at the end, and later ones were taken", n)
	}
}

func TestNewQueueRefuses(t *testing.T) {
	if q, err := NewQueue[int](Config{QueueDepth: 5}); q != nil || err != nil {
		t.Errorf("without a rate: %v, %v", q, err)
	}
	for _, c := range []Config{
		{QueueRate: 1, Queues: -1}, {QueueRate: 1, Queues: maxQueues + 1}, {QueueRate: 2e9},
		{QueueRate: 1, QueueDepth: -1}, {QueueRate: 1, QueueDepths: []int{maxQueueDepth + 1}},
		{QueueRates: make([]uint64, maxQueues+1)},
	} {
		if _, err := NewQueue[int](c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// TestSet: ports are added, change, are watched and removed; a port is up if it is enabled and its
// link is up.
func TestSet(t *testing.T) {
	now := time.Second
	s := NewSet(func() time.Duration { return now }, 2)
	var seen []Status
	stop := s.Watch(func(st Status) { seen = append(seen, st) })
	nothing := func() {}
	var sent []byte
	if err := s.Add(3, Config{Tx: func(pkt []byte, _ time.Duration) { sent = pkt },
		Lost: func() (in, out uint64) { return 5, 6 }}, nothing); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(3, Config{}, nothing); !errors.Is(err, control.ErrExists) {
		t.Errorf("added twice: %v", err)
	}
	now = 2 * time.Second
	for _, step := range []struct {
		change func(uint32, bool) error
		on, up bool
	}{{s.SetUp, false, false}, {s.SetEnabled, false, false}, {s.SetUp, true, false}, {s.SetEnabled, true, true}} {
		if err := step.change(3, step.on); err != nil || s.IsUp(3) != step.up {
			t.Errorf("%+v: up %v, %v", step, s.IsUp(3), err)
		}
	}
	broadcast := append([]byte{255, 255, 255, 255, 255, 255}, make([]byte, 54)...)
	multicast := append([]byte{1, 0, 0x5e, 0, 0, 1}, make([]byte, 54)...)
	p := s.Get(3)
	p.CountIn(0, broadcast)
	p.CountIn(1, multicast)
	p.Send(1, multicast, 0)
	p.ErrorIn()
	p.DiscardOut(2)
	st, err := s.Status(3)
	want := Counters{InPackets: 2, InOctets: 120, InErrors: 1, InDiscards: 5, OutPackets: 1, OutOctets: 60,
		OutDiscards: 8, InMulticast: 1, InBroadcast: 1, OutMulticast: 1}
	if err != nil || st.Counters != want || st.LastChange != now || &sent[0] != &multicast[0] {
		t.Errorf("%+v, %v", st, err)
	}
	if err := s.Remove(3, nothing); err != nil || s.Get(3) != nil || s.IsUp(3) || s.IsUp(Max) {
		t.Errorf("removed: %v", err)
	}
	stop()
	if err := s.Remove(3, nothing); !errors.Is(err, control.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	// Disabling a port whose link is down, and raising the link of a disabled port, change no state
	// but the first is visible in Disabled.
	if n := len(seen); n != 5 || seen[0].Up != true || seen[1].Up || !seen[2].Disabled || !seen[3].Up || !seen[4].Removed {
		t.Errorf("%d changes: %+v", n, seen)
	}
}
