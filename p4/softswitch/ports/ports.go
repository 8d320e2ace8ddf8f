// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
)

// Config is the configuration of a port.
type Config struct {
	Name  string
	Speed uint64 // bits per second, for reports only
	// Tx sends a packet that leaves by the port at a time on the switch's clock. It is called in
	// the goroutine of the packet. The slice is overwritten after Tx returns. A nil Tx discards
	// packets.
	Tx func(pkt []byte, at time.Duration)
	// Flush sends the packets that Tx has deferred, see Set.Burst; nil if Tx defers none.
	Flush func()
	// Lost returns how many frames were lost outside of the switch, before Inject and after Tx; the
	// port counts them as discards. It is called whenever the port's status is read, and must not
	// call the switch.
	Lost func() (in, out uint64)
	// QueueRate is the service rate of the egress queues in packets per second; 0 disables
	// queueing. A packet that waits runs through the egress pipeline when it leaves its queue.
	QueueRate uint64
	// QueueDepth bounds each queue in packets; 0 is 64, as in BMv2. Packets beyond it are dropped
	// and counted.
	QueueDepth int
	// Queues is the number of queues, at most 8; 0 is one. A packet takes the queue of its priority
	// (standard_metadata.priority), or the highest one; higher queues are served first.
	Queues int
	// QueueRates and QueueDepths are rates and depths of single queues, from the lowest priority
	// on; the rates apply within QueueRate. 0 and missing values mean QueueRate alone and
	// QueueDepth. A rate for each queue without QueueRate is BMv2's behavior.
	QueueRates  []uint64
	QueueDepths []int
	// Down adds the port in the down state.
	Down bool
}

// Counters are the counters of a port since it was added.
type Counters struct {
	InPackets, InOctets, InErrors, InDiscards     uint64
	OutPackets, OutOctets, OutErrors, OutDiscards uint64
	// Multicast and broadcast packets among them.
	InMulticast, InBroadcast, OutMulticast, OutBroadcast uint64
}

// Status is the state of a port.
type Status struct {
	ID         uint32
	Name       string
	Speed      uint64
	Up         bool          // enabled, and the link is up
	Disabled   bool          // turned off by configuration
	LastChange time.Duration // time of the last change of Up, on the switch's clock
	Counters   Counters
	Removed    bool // only in calls of a watch function: the port was removed
}

// Max bounds port ids: v1model has 9 bits, and 511 is the drop port.
const Max = 512

// Port is a port of a Set.
type Port struct {
	id  uint32
	cfg Config
	up  atomic.Bool

	changed atomic.Int64

	counts []portCounts // counters of each lane

	disabled atomic.Bool // whether the configuration disables the port
	cut      bool        // the link is down; guarded by Set.mu
}

// Up reports whether the port is enabled and its link is up.
func (pt *Port) Up() bool { return pt.up.Load() }

// Send counts and sends a frame of a lane.
func (pt *Port) Send(lane int, pkt []byte, at time.Duration) {
	pt.counts[lane].countOut(pkt)
	if pt.cfg.Tx != nil {
		pt.cfg.Tx(pkt, at)
	}
}

// CountIn counts a received frame.
func (pt *Port) CountIn(lane int, pkt []byte) { pt.counts[lane].countIn(pkt) }

// ErrorIn counts a received frame that is too long.
func (pt *Port) ErrorIn() { pt.counts[0].inErrors.Add(1) }

// DiscardIn counts a received frame that is dropped.
func (pt *Port) DiscardIn() { pt.counts[0].inDiscards.Add(1) }

// DiscardOut counts frames that are dropped on their way out.
func (pt *Port) DiscardOut(n int) { pt.counts[0].outDiscards.Add(uint64(n)) }

func (pt *Port) status() Status {
	return Status{
		ID: pt.id, Name: pt.cfg.Name, Speed: pt.cfg.Speed, Up: pt.up.Load(), Disabled: pt.disabled.Load(),
		LastChange: time.Duration(pt.changed.Load()),
		Counters:   pt.counters(),
	}
}

// Set is the ports of a switch. Its methods may be called from any goroutine.
type Set struct {
	clock func() time.Duration
	lanes int

	list     atomic.Pointer[[Max]*Port]
	mu       sync.Mutex // adding, removing, up and down, watchers
	watchers map[int]func(Status)
	watchID  int

	flushers atomic.Pointer[[]*Port] // ports with a Flush
	bursts   atomic.Int64
}

// NewSet returns an empty set for a switch with a number of lanes. clock times the changes of
// ports.
func NewSet(clock func() time.Duration, lanes int) *Set {
	s := &Set{clock: clock, lanes: lanes, watchers: map[int]func(Status){}}
	s.list.Store(new([Max]*Port))
	return s
}

// Get returns a port, or nil if there is none.
func (s *Set) Get(id uint32) *Port {
	if id >= Max {
		return nil
	}
	return s.list.Load()[id]
}

// IsUp reports whether a port exists and is up.
func (s *Set) IsUp(id uint32) bool {
	pt := s.Get(id)
	return pt != nil && pt.Up()
}

// Add adds a port; prepare runs first, if the port is new. Errors: ErrExists.
func (s *Set) Add(id uint32, p Config, prepare func()) error {
	pt := &Port{id: id, cfg: p, cut: p.Down, counts: make([]portCounts, s.lanes)}
	pt.up.Store(!p.Down)
	pt.changed.Store(int64(s.clock()))
	s.mu.Lock()
	if s.Get(id) != nil {
		s.mu.Unlock()
		return control.Errorf(control.ErrExists, Name(id), "")
	}
	prepare()
	s.replace(id, pt)
	s.notify(pt.status())
	return nil
}

// Remove removes a port, then runs clean. Errors: ErrNotFound.
func (s *Set) Remove(id uint32, clean func()) error {
	s.mu.Lock()
	pt := s.Get(id)
	if pt == nil {
		s.mu.Unlock()
		return control.Errorf(control.ErrNotFound, Name(id), "")
	}
	s.replace(id, nil)
	clean()
	st := pt.status()
	st.Up, st.Removed = false, true
	s.notify(st)
	return nil
}

// replace sets the port with an id. The caller holds mu.
func (s *Set) replace(id uint32, pt *Port) {
	next := *s.list.Load()
	next[id] = pt
	s.list.Store(&next)
	var flushers []*Port
	for _, pt := range next {
		if pt != nil && pt.cfg.Flush != nil {
			flushers = append(flushers, pt)
		}
	}
	s.flushers.Store(&flushers)
}

// With runs f on a port while the list does not change. Errors: ErrNotFound.
func (s *Set) With(id uint32, f func(pt *Port)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pt := s.Get(id)
	if pt == nil {
		return control.Errorf(control.ErrNotFound, Name(id), "")
	}
	f(pt)
	return nil
}

// notify calls the watchers, and releases mu, which the caller holds.
func (s *Set) notify(st Status) {
	fs := make([]func(Status), 0, len(s.watchers))
	for _, f := range s.watchers {
		fs = append(fs, f)
	}
	s.mu.Unlock()
	for _, f := range fs {
		f(st)
	}
}

// SetUp takes a port's link up or down. Errors: ErrNotFound.
func (s *Set) SetUp(id uint32, up bool) error {
	return s.change(id, func(pt *Port) { pt.cut = !up })
}

// SetEnabled enables or disables a port by configuration. Errors: ErrNotFound.
func (s *Set) SetEnabled(id uint32, enabled bool) error {
	return s.change(id, func(pt *Port) { pt.disabled.Store(!enabled) })
}

// change changes a port and notifies the watchers if its state changes.
func (s *Set) change(id uint32, change func(*Port)) error {
	s.mu.Lock()
	pt := s.Get(id)
	if pt == nil {
		s.mu.Unlock()
		return control.Errorf(control.ErrNotFound, Name(id), "")
	}
	disabled := pt.disabled.Load()
	change(pt)
	up := !pt.disabled.Load() && !pt.cut
	changed := pt.up.Swap(up) != up
	if changed {
		pt.changed.Store(int64(s.clock()))
	}
	if !changed && pt.disabled.Load() == disabled {
		s.mu.Unlock()
		return nil
	}
	s.notify(pt.status())
	return nil
}

// All returns the state of all ports by id.
func (s *Set) All() (out []Status) {
	for _, pt := range s.list.Load() {
		if pt != nil {
			out = append(out, pt.status())
		}
	}
	return out
}

// Status returns the state of one port. Errors: ErrNotFound.
func (s *Set) Status(id uint32) (Status, error) {
	pt := s.Get(id)
	if pt == nil {
		return Status{}, control.Errorf(control.ErrNotFound, Name(id), "")
	}
	return pt.status(), nil
}

// Watch calls f after each change of a port (added, removed, up, down), in the goroutine that made
// the change, until the returned function is called.
func (s *Set) Watch(f func(Status)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchID++
	id := s.watchID
	s.watchers[id] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, id)
	}
}

// Burst calls f, which injects several packets. Ports may defer sending until f has returned.
func (s *Set) Burst(f func()) {
	s.bursts.Add(1)
	f()
	s.bursts.Add(-1)
	if all := s.flushers.Load(); all != nil {
		for _, pt := range *all {
			pt.cfg.Flush()
		}
	}
}

// Bursting reports whether a Burst is in progress: packets that Tx defers now are sent by Flush. A
// Tx function calls it after it has deferred a frame, and sends the frame itself if there is no
// burst.
func (s *Set) Bursting() bool { return s.bursts.Load() > 0 }

func Name(id uint32) string { return fmt.Sprintf("port %d", id) }
