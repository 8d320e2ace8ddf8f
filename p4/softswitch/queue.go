// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/ports"
)

// queueOf returns the queues of a port, or nil if it has none.
func (s *Switch) queueOf(port uint32) *ports.Queue[queued] {
	if port >= ports.Max {
		return nil
	}
	return s.queues[port].Load()
}

func (s *Switch) queuedPorts() []uint32 {
	if all := s.queued.Load(); all != nil {
		return *all
	}
	return nil
}

// replaceQueue sets or removes a port's queues, and returns the count of packets dropped from the
// old ones. The caller holds the ports' lock.
func (s *Switch) replaceQueue(port uint32, q *ports.Queue[queued]) (dropped int) {
	if old := s.queues[port].Swap(q); old != nil {
		dropped = old.Close()
		s.waiting.Add(-int64(dropped))
	}
	var all []uint32
	for id := range s.queues {
		if s.queues[id].Load() != nil {
			all = append(all, uint32(id))
		}
	}
	s.queued.Store(&all)
	return dropped
}

// clearQueues drops the packets in all queues.
func (s *Switch) clearQueues() {
	for _, id := range s.queuedPorts() {
		if q := s.queues[id].Load(); q != nil {
			s.waiting.Add(-int64(q.Clear()))
		}
	}
}

// working returns a replica whose port is up: the replica itself, else the first such backup, else
// the replica itself.
func (s *Switch) working(r *Replica) *Replica {
	if len(r.Backups) == 0 || s.ports.IsUp(r.Port) {
		return r
	}
	for i := range r.Backups {
		if s.ports.IsUp(r.Backups[i].Port) {
			return &r.Backups[i]
		}
	}
	return r
}

// NextDeparture returns when the next packet leaves a queue, on the switch's clock.
func (s *Switch) NextDeparture() (at time.Duration, ok bool) {
	_, at, ok = s.nextQueue()
	return at, ok
}

// nextQueue returns the queues from which the next packet leaves.
func (s *Switch) nextQueue() (first *ports.Queue[queued], at time.Duration, ok bool) {
	if s.waiting.Load() == 0 {
		return nil, 0, false
	}
	for _, id := range s.queuedPorts() {
		q := s.queues[id].Load()
		if q == nil {
			continue
		}
		if t, there := q.Next(); there && (!ok || t < at) {
			first, at, ok = q, t, true
		}
	}
	return first, at, ok
}

// Advance sends the packets that leave queues up to a time on the switch's clock, in order of
// departure. Inject advances to the time of its packet; on the wall clock PacketOut and a timer do
// so, too. The owner of another clock calls Advance at the times of NextDeparture.
func (s *Switch) Advance(now time.Duration) {
	for {
		q, at, ok := s.nextQueue()
		if !ok || at > now {
			return
		}
		out := s.outs.Get().(*txBuffer)
		l := s.lockLane(out.lane)
		d, ok := q.Pop(now)
		if !ok || s.st == nil { // another goroutine sent the packet
			l.mu.Unlock()
			s.outs.Put(out)
			continue
		}
		s.waiting.Add(-1)
		l.out, out.lane = out, l.ID
		s.depart(l, &d)
		l.out = nil
		l.mu.Unlock()
		s.send(out)
		out.reset()
		s.outs.Put(out)
	}
}

// wait queues a packet at its port.
func (s *Switch) wait(l *lane, q queued, line *ports.Queue[queued]) {
	p, std := q.p, &s.st.Prog.Std
	p.KeepData(p.Data)
	p.Set(std.EnqTimestamp, uint64(p.Now.Microseconds()))
	s.waiting.Add(1)
	if !line.Push(q, p.Get(std.Priority), p.Now) {
		s.waiting.Add(-1)
		s.queueDrops.Add(1)
		if pt := s.ports.Get(q.port); pt != nil {
			pt.DiscardOut(1)
		}
		l.Give(p)
	}
}

// depart runs a packet that leaves its queue, and all its copies.
func (s *Switch) depart(l *lane, d *ports.Departure[queued]) {
	p, std := d.Item.p, &s.st.Prog.Std
	p.Lane = &l.Lane
	p.Set(std.EnqDepth, uint64(d.Found))
	p.Set(std.DeqDelta, uint64((d.At - p.Now).Microseconds()))
	p.Set(std.DeqDepth, uint64(d.Left))
	p.Set(std.QID, uint64(d.Priority))
	p.Now = d.At
	l.budget = maxCopies
	if s.cfg.Depart != nil {
		s.cfg.Depart(d.Item.port)
	}
	s.leave(l, d.Item)
	s.settle(l)
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
