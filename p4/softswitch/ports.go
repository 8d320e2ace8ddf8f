// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Port is how AddPort wants a port to be.
type Port struct {
	Name  string
	Speed uint64 // bits a second, for reports only
	// Tx takes a packet that leaves here. The slice is the switch's own and is overwritten after Tx returns: copy what is
	// kept. It is called in the goroutine of the packet, with the time the packet leaves. A nil Tx discards without error.
	Tx func(pkt []byte, at time.Duration)
	// Flush sends what Tx has put off; see [Switch.Burst]. nil: Tx puts nothing off.
	Flush func()
	// Lost tells how many frames were lost outside of the switch, before Inject and after Tx; they are among the port's discards.
	// nil: none. It is called whenever the port's status is read, and must not call the switch.
	Lost func() (in, out uint64)
	// QueueRate serves the port's egress queues at so many packets a second; 0: packets never wait. A packet that has to wait goes through
	// egress and leaves when the queue lets it go, see [Switch.Advance].
	QueueRate uint64
	// QueueDepth bounds each queue in packets; 0: 64, as in BMv2. A packet that finds its queue full is discarded and counted.
	QueueDepth int
	// Queues is how many queues there are, at most 8; 0: one. A packet's is the one of its priority (standard_metadata.priority), or the
	// highest there is; higher ones are served first.
	Queues int
	// QueueRates and QueueDepths give queues, from the lowest priority on, a rate and a depth of their own: within QueueRate, if there is
	// one; 0, and beyond the end: QueueRate alone, QueueDepth. With a rate for each queue and no QueueRate a port is as BMv2 makes it.
	QueueRates  []uint64
	QueueDepths []int
	// Down adds the port in the down state.
	Down bool
}

// PortCounters count since the port was added.
type PortCounters struct {
	InPackets, InOctets, InErrors, InDiscards     uint64
	OutPackets, OutOctets, OutErrors, OutDiscards uint64
	// Of the packets, those to a group of stations, and those to all.
	InMulticast, InBroadcast, OutMulticast, OutBroadcast uint64
}

// PortStatus is a port's state at one moment.
type PortStatus struct {
	ID         uint32
	Name       string
	Speed      uint64
	Up         bool          // enabled, and the link is up
	Disabled   bool          // turned off by configuration
	LastChange time.Duration // of Up, on the switch's clock
	Counters   PortCounters
	Removed    bool // only in calls of a watch function
}

// maxPorts bounds port ids: v1model's have 9 bits, and 511 is the drop port.
const maxPorts = 512

// port is a port at work.
type port struct {
	id  uint32
	cfg Port
	up  atomic.Bool

	changed atomic.Int64

	counts []portCounts // one for each lane

	disabled atomic.Bool // by configuration
	cut      bool        // the link is down; guarded by Switch.portsMu

	queue atomic.Pointer[queue] // nil without rates
}

func (s *Switch) port(id uint32) *port {
	if id >= maxPorts {
		return nil
	}
	return s.ports.Load()[id]
}

func (s *Switch) portUp(w WatchPort) bool {
	if !w.Set {
		return true
	}
	pt := s.port(w.Port)
	return pt != nil && pt.up.Load()
}

// working is a replica, or the first of its backups whose port is up while its own is not. Where none is, the replica itself goes to the
// port that is down.
func (s *Switch) working(r *Replica) *Replica {
	if len(r.Backups) == 0 || s.portUp(WatchPort{true, r.Port}) {
		return r
	}
	for i := range r.Backups {
		if s.portUp(WatchPort{true, r.Backups[i].Port}) {
			return &r.Backups[i]
		}
	}
	return r
}

// AddPort adds a port. Ids are 0 to 510 and not the CPU port. Errors: ErrExists, ErrInvalid.
func (s *Switch) AddPort(id uint32, p Port) error {
	object := fmt.Sprintf("port %d", id)
	if id >= DropPort || id == s.cfg.CPUPort {
		return fail(ErrInvalid, object, "ids are 0 to %d and not the CPU port %d", DropPort-1, s.cfg.CPUPort)
	}
	q, err := newQueue(p)
	if err != nil {
		return fail(ErrInvalid, object, "%v", err)
	}
	if s.closed.Load() {
		return fail(ErrClosed, object, "the switch was closed")
	}
	pt := &port{id: id, cfg: p, cut: p.Down, counts: make([]portCounts, len(s.lanes))}
	pt.queue.Store(q)
	pt.up.Store(!p.Down)
	pt.changed.Store(int64(s.clock()))
	s.portsMu.Lock()
	if s.port(id) != nil {
		s.portsMu.Unlock()
		return fail(ErrExists, object, "it is there")
	}
	next := *s.ports.Load()
	next[id] = pt
	s.ports.Store(&next)
	if q != nil {
		s.listQueues()
	}
	s.listFlushers()
	s.tellPort(pt.status())
	return nil
}

// SetQueues gives a port other queues, those that p says; the rest of p does not count. What waits in the old ones is dropped and counted.
func (s *Switch) SetQueues(id uint32, p Port) error {
	object := fmt.Sprintf("port %d", id)
	q, err := newQueue(p)
	if err != nil {
		return fail(ErrInvalid, object, "%v", err)
	}
	s.portsMu.Lock()
	defer s.portsMu.Unlock()
	pt := s.port(id)
	if pt == nil {
		return fail(ErrNotFound, object, "it is not there")
	}
	if old := pt.queue.Swap(q); old != nil {
		n := old.close()
		s.waiting.Add(-int64(n))
		s.queueDrops.Add(uint64(n))
		pt.counts[0].outDiscards.Add(uint64(n))
	}
	s.listQueues()
	return nil
}

// RemovePort removes a port.
func (s *Switch) RemovePort(id uint32) error {
	s.portsMu.Lock()
	pt := s.port(id)
	if pt == nil {
		s.portsMu.Unlock()
		return fail(ErrNotFound, fmt.Sprintf("port %d", id), "it is not there")
	}
	next := *s.ports.Load()
	next[id] = nil
	s.ports.Store(&next)
	s.listFlushers()
	if q := pt.queue.Load(); q != nil {
		s.waiting.Add(-int64(q.close()))
		s.listQueues()
	}
	st := pt.status()
	st.Up, st.Removed = false, true
	s.tellPort(st)
	return nil
}

// tellPort calls the watchers, and releases portsMu, which the caller holds.
func (s *Switch) tellPort(st PortStatus) {
	fs := make([]func(PortStatus), 0, len(s.watchers))
	for _, f := range s.watchers {
		fs = append(fs, f)
	}
	s.portsMu.Unlock()
	for _, f := range fs {
		f(st)
	}
}

// SetPortUp takes a port's link up or down. A port whose link is down, or that is not enabled, takes no packets and sends none.
func (s *Switch) SetPortUp(id uint32, up bool) error {
	return s.changePort(id, func(pt *port) { pt.cut = !up })
}

func (pt *port) status() PortStatus {
	return PortStatus{
		ID: pt.id, Name: pt.cfg.Name, Speed: pt.cfg.Speed, Up: pt.up.Load(), Disabled: pt.disabled.Load(),
		LastChange: time.Duration(pt.changed.Load()),
		Counters:   pt.counters(),
	}
}

// Ports returns the state of all ports by id, the CPU port not among them.
func (s *Switch) Ports() (out []PortStatus) {
	for _, pt := range s.ports.Load() {
		if pt != nil {
			out = append(out, pt.status())
		}
	}
	return out
}

// PortStatus returns the state of one port.
func (s *Switch) PortStatus(id uint32) (PortStatus, error) {
	pt := s.port(id)
	if pt == nil {
		return PortStatus{}, fail(ErrNotFound, fmt.Sprintf("port %d", id), "it is not there")
	}
	return pt.status(), nil
}

// WatchPorts calls f after each change of a port (added, removed, up, down), in the goroutine that made the change, until the
// returned function is called.
func (s *Switch) WatchPorts(f func(PortStatus)) (stop func()) {
	s.portsMu.Lock()
	defer s.portsMu.Unlock()
	s.watchID++
	id := s.watchID
	s.watchers[id] = f
	return func() {
		s.portsMu.Lock()
		defer s.portsMu.Unlock()
		delete(s.watchers, id)
	}
}
