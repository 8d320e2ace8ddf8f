// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"fmt"
	"sync"
	"time"
)

const (
	maxQueues         = 8
	maxQueueDepth     = 1 << 16
	defaultQueueDepth = 64
)

// Queue is the egress queues of a port: the service of a packet takes 1/rate seconds, the highest
// priority is served first, and no packet interrupts another. A line with a rate of its own keeps
// its packets at least 1/rate apart.
type Queue[T any] struct {
	interval time.Duration // 0 if only the lines have rates

	mu     sync.Mutex
	lines  []line[T] // lines by priority
	length int
	free   time.Duration // time of the last departure
	latest time.Duration // time of the last arrival
	closed bool
}

// line is the packets of one priority, in order of arrival.
type line[T any] struct {
	packets  []waiting[T]
	head     int
	depth    int
	interval time.Duration // 0 if only the queue's rate applies
	free     time.Duration // time of the last departure
}

type waiting[T any] struct {
	item  T
	at    time.Duration // time of arrival
	depth int           // packets in the packet's line on arrival
}

// Departure is a packet that leaves its queue, with its priority and the packets of the same
// priority that were in the queue when it arrived (Found) and when it leaves (Left).
type Departure[T any] struct {
	Item     T
	At       time.Duration
	Priority int
	Found    int
	Left     int
}

func (l *line[T]) len() int { return len(l.packets) - l.head }

// ready returns when the service of the line's first packet can begin.
func (l *line[T]) ready(service time.Duration) time.Duration {
	at := l.packets[l.head].at
	if l.interval == 0 {
		return at
	}
	return max(at, max(l.free, at)+l.interval-service)
}

// NewQueue returns the queues of a port; nil if it has no rates.
func NewQueue[T any](p Config) (*Queue[T], error) {
	lines := max(1, p.Queues, len(p.QueueRates), len(p.QueueDepths))
	if p.Queues < 0 || lines > maxQueues {
		return nil, fmt.Errorf("%d queues; there are 1 to %d", max(lines, -p.Queues), maxQueues)
	}
	every := func(rate uint64) (time.Duration, error) {
		switch {
		case rate > uint64(time.Second):
			return 0, fmt.Errorf("a queue's rate of %d packets a second; at most %d", rate, time.Second)
		case rate == 0:
			return 0, nil
		}
		return time.Duration(uint64(time.Second) / rate), nil
	}
	depth := func(d, unset int) (int, error) {
		if d < 0 || d > maxQueueDepth {
			return 0, fmt.Errorf("a queue's depth of %d packets; at most %d", d, maxQueueDepth)
		}
		if d == 0 {
			return unset, nil
		}
		return d, nil
	}
	q := &Queue[T]{lines: make([]line[T], lines)}
	var err error
	if q.interval, err = every(p.QueueRate); err != nil {
		return nil, err
	}
	all, err := depth(p.QueueDepth, defaultQueueDepth)
	if err != nil {
		return nil, err
	}
	rates := q.interval > 0
	for i := range q.lines {
		l := &q.lines[i]
		l.depth = all
		if i < len(p.QueueRates) {
			if l.interval, err = every(p.QueueRates[i]); err != nil {
				return nil, err
			}
			rates = rates || l.interval > 0
		}
		if i < len(p.QueueDepths) {
			if l.depth, err = depth(p.QueueDepths[i], all); err != nil {
				return nil, err
			}
		}
	}
	if !rates {
		return nil, nil
	}
	return q, nil
}

// Push adds a packet and owns it from then on. It returns false if there is no room.
func (q *Queue[T]) Push(item T, priority uint64, now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := &q.lines[min(priority, uint64(len(q.lines)-1))]
	if q.closed || l.len() >= l.depth {
		return false
	}
	depth := l.len()
	if l.head > 0 && len(l.packets) == cap(l.packets) {
		n := copy(l.packets, l.packets[l.head:])
		l.packets, l.head = l.packets[:n], 0
	}
	q.latest = max(q.latest, now)
	l.packets = append(l.packets, waiting[T]{item, q.latest, depth})
	q.length++
	return true
}

// next returns the line whose packet leaves next, and when. The caller holds mu.
func (q *Queue[T]) next() (at time.Duration, from int, ok bool) {
	if q.length == 0 {
		return 0, 0, false
	}
	var start time.Duration
	for i := range q.lines {
		l := &q.lines[i]
		if l.len() == 0 {
			continue
		}
		if s := max(q.free, l.ready(q.interval)); !ok || s <= start { // on a tie, the higher priority is first
			start, from, ok = s, i, true
		}
	}
	return start + q.interval, from, ok
}

// Next returns when the next packet leaves.
func (q *Queue[T]) Next() (time.Duration, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, _, ok := q.next()
	return at, ok
}

// Pop removes and returns the next packet, if it leaves by now.
func (q *Queue[T]) Pop(now time.Duration) (d Departure[T], ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, from, ok := q.next()
	if !ok || at > now {
		return d, false
	}
	l := &q.lines[from]
	w := l.packets[l.head]
	l.packets[l.head] = waiting[T]{}
	if l.head++; l.head == len(l.packets) {
		l.packets, l.head = l.packets[:0], 0
	}
	q.length--
	q.free, l.free = at, at
	return Departure[T]{Item: w.item, At: at, Priority: from, Found: w.depth, Left: l.len()}, true
}

// Clear drops all packets and returns their count.
func (q *Queue[T]) Clear() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.length
	for i := range q.lines {
		l := &q.lines[i]
		l.packets, l.head = nil, 0
	}
	q.length = 0
	return n
}

// Close drops all packets, returns their count, and rejects later ones.
func (q *Queue[T]) Close() int {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	return q.Clear()
}
