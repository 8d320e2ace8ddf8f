// SPDX-License-Identifier: Apache-2.0

package softswitch

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

// queue is a port's egress queues: a packet is served in 1/rate seconds, the highest priority first, no packet interrupts another's service.
// Packets of a line with a rate of its own leave no closer to each other than that allows.
type queue struct {
	interval time.Duration // 0: only lines have rates

	mu     sync.Mutex
	lines  []line // by priority
	length int
	free   time.Duration // the last departure
	latest time.Duration // the last arrival
	closed bool
}

// line is the packets of one priority, in order of arrival.
type line struct {
	packets  []waiting
	head     int
	depth    int
	interval time.Duration // 0: the queue's alone
	free     time.Duration // the last departure
}

type waiting struct {
	q  queued
	at time.Duration // of arrival
}

func (l *line) len() int { return len(l.packets) - l.head }

// ready tells when the line's first packet can begin to be served, in a service of so long.
func (l *line) ready(service time.Duration) time.Duration {
	at := l.packets[l.head].at
	if l.interval == 0 {
		return at
	}
	return max(at, max(l.free, at)+l.interval-service)
}

// newQueue makes the queues that a port wants; nil without rates.
func newQueue(p Port) (*queue, error) {
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
	q := &queue{lines: make([]line, lines)}
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

// push adds a packet, which from then on is the queue's.
func (q *queue) push(p queued, now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := &q.lines[p.priority]
	if q.closed || l.len() >= l.depth {
		return false
	}
	p.p.set(p.p.prog.std.enqDepth, uint64(l.len()))
	if l.head > 0 && len(l.packets) == cap(l.packets) {
		n := copy(l.packets, l.packets[l.head:])
		l.packets, l.head = l.packets[:n], 0
	}
	q.latest = max(q.latest, now)
	l.packets = append(l.packets, waiting{p, q.latest})
	q.length++
	return true
}

// next tells which line's packet leaves next, and when. The caller holds mu.
func (q *queue) next() (at time.Duration, from int, ok bool) {
	if q.length == 0 {
		return 0, 0, false
	}
	var start time.Duration
	for i := range q.lines {
		l := &q.lines[i]
		if l.len() == 0 {
			continue
		}
		if s := max(q.free, l.ready(q.interval)); !ok || s <= start { // of two the higher priority
			start, from, ok = s, i, true
		}
	}
	return start + q.interval, from, ok
}

func (q *queue) departure() (time.Duration, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, _, ok := q.next()
	return at, ok
}

// pop takes out the packet that leaves next if that is not after now, and tells how many it leaves behind in its
// line.
func (q *queue) pop(now time.Duration) (w waiting, at time.Duration, behind int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, from, ok := q.next()
	if !ok || at > now {
		return waiting{}, 0, 0, false
	}
	l := &q.lines[from]
	w = l.packets[l.head]
	l.packets[l.head] = waiting{}
	if l.head++; l.head == len(l.packets) {
		l.packets, l.head = l.packets[:0], 0
	}
	q.length--
	q.free, l.free = at, at
	return w, at, l.len(), true
}

// clear drops what waits, and tells how many that are.
func (q *queue) clear() int {
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

func (q *queue) close() int {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	return q.clear()
}

// listQueues notes which ports have queues. The caller holds portsMu.
func (s *Switch) listQueues() {
	var all []*port
	for _, pt := range s.ports.Load() {
		if pt != nil && pt.queue.Load() != nil {
			all = append(all, pt)
		}
	}
	s.queues.Store(&all)
}

func (s *Switch) queuedPorts() []*port {
	if all := s.queues.Load(); all != nil {
		return *all
	}
	return nil
}

// clearQueues drops what waits anywhere.
func (s *Switch) clearQueues() {
	for _, pt := range s.queuedPorts() {
		if q := pt.queue.Load(); q != nil {
			s.waiting.Add(-int64(q.clear()))
		}
	}
}

// NextDeparture tells when the next packet leaves a queue, on the switch's clock.
func (s *Switch) NextDeparture() (at time.Duration, ok bool) {
	_, at, ok = s.nextQueue()
	return at, ok
}

// nextQueue finds the port whose queue lets a packet go first.
func (s *Switch) nextQueue() (first *queue, at time.Duration, ok bool) {
	if s.waiting.Load() == 0 {
		return nil, 0, false
	}
	for _, pt := range s.queuedPorts() {
		q := pt.queue.Load()
		if q == nil {
			continue
		}
		if t, there := q.departure(); there && (!ok || t < at) {
			first, at, ok = q, t, true
		}
	}
	return first, at, ok
}

// Advance lets go the packets that leave queues up to a time on the switch's clock, in the order of their departures. Inject and PacketOut
// advance to the time of their packet; on the wall clock a timer does. With a clock of its own, whoever drives it calls Advance, and
// NextDeparture tells when.
func (s *Switch) Advance(now time.Duration) {
	for {
		q, at, ok := s.nextQueue()
		if !ok || at > now {
			return
		}
		out := s.outs.Get().(*txBuffer)
		l := s.lockLane(out.lane)
		w, at, behind, ok := q.pop(now)
		if !ok || s.st == nil { // another goroutine was first
			l.mu.Unlock()
			s.outs.Put(out)
			continue
		}
		s.waiting.Add(-1)
		l.out, out.lane = out, l.id
		s.st.depart(l, w, at, behind)
		l.out = nil
		l.mu.Unlock()
		s.send(out)
		out.reset()
		s.outs.Put(out)
	}
}

// wait puts a packet in its port's queue.
func (st *state) wait(q queued, pt *port, line *queue) {
	p, std := q.p, &st.prog.std
	p.keepData(p.data)
	p.set(std.enqTS, uint64(p.now.Microseconds()))
	q.priority = int(min(p.get(std.priority), uint64(len(line.lines)-1)))
	st.sw.waiting.Add(1)
	if !line.push(q, p.now) {
		st.sw.waiting.Add(-1)
		st.sw.queueDrops.Add(1)
		pt.counts[0].outDiscards.Add(1)
		p.lane.give(p)
	}
}

// depart runs a packet that leaves its queue, and everything that comes of it.
func (st *state) depart(l *lane, w waiting, at time.Duration, behind int) {
	p, std := w.q.p, &st.prog.std
	p.lane = l
	p.set(std.deqDelta, uint64((at - p.now).Microseconds()))
	p.set(std.deqDepth, uint64(behind))
	p.set(std.qid, uint64(w.q.priority))
	p.now = at
	l.budget = maxCopies
	st.leave(w.q)
	st.settle(l)
}

// wake sets the timer that serves queues on the wall clock.
func (s *Switch) wake() {
	if s.cfg.Clock != nil {
		return
	}
	at, ok := s.NextDeparture()
	if !ok {
		return
	}
	s.timerMu.Lock()
	defer s.timerMu.Unlock()
	switch {
	case s.closed.Load() || s.timerAt > 0 && s.timerAt <= at:
	case s.timer == nil:
		s.timer, s.timerAt = time.AfterFunc(max(0, at-s.clock()), s.ring), at
	default:
		s.timerAt = at
		s.timer.Reset(max(0, at-s.clock()))
	}
}

func (s *Switch) ring() {
	s.timerMu.Lock()
	s.timerAt = 0
	s.timerMu.Unlock()
	s.Advance(s.clock())
	s.wake()
}
