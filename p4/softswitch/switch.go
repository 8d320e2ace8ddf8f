// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/machine"
	"github.com/netsketch/netsketch/p4/softswitch/ports"
)

// DefaultCPUPort is BMv2's usual CPU port.
const DefaultCPUPort = 255

const defaultMaxLoops = 64

// Config is the configuration of a Switch. The zero value is usable.
type Config struct {
	Name     string               // name in the log
	Clock    func() time.Duration // time since the switch started, for PacketOut and idle timeouts; nil: the wall clock
	CPUPort  uint32               // 0 stands for DefaultCPUPort
	Seed     uint64               // seed of random()
	Parallel int                  // number of packets that run concurrently; 0 is 1
	MaxLoops int                  // resubmits and recirculations of a packet before it is dropped and counted; 0: 64
	Logger   *slog.Logger         // nil disables logging
	// Drop is called between ingress and egress with the ports of a packet, in its goroutine; true
	// drops it as a full queue does. It must not call the switch. If nil, no packet is dropped so.
	Drop func(from, to uint32) bool
	// Depart is called before a packet that has waited in the queues of a port runs through egress and
	// leaves, in the goroutine of Inject or Advance. It must not call the switch. It may be nil.
	Depart func(port uint32)
}

// Switch is a soft switch. Create it with New.
type Switch struct {
	cfg   Config
	log   *slog.Logger
	clock func() time.Duration

	lanes    []*lane
	nextLane atomic.Uint32
	st       *loaded // guarded by the lanes' mutexes: any one to read, all to change
	closed   atomic.Bool

	ctl     sync.Mutex // serializes control plane calls
	batches sync.Mutex // serializes calls of Atomically
	held    bool       // Atomically holds the lanes; guarded by ctl

	ports  *ports.Set
	queues [ports.Max]atomic.Pointer[ports.Queue[queued]]
	queued atomic.Pointer[[]uint32] // ports that have queues

	waiting atomic.Int64 // packets in queues
	timerMu sync.Mutex
	timer   *time.Timer // serves queues on the wall clock; guarded, like timerAt, by timerMu
	timerAt time.Duration

	packetIn atomic.Pointer[func([]byte)]
	trap     atomic.Pointer[trap]

	subsMu sync.RWMutex
	subs   map[int]chan Digest
	subID  int

	listeners atomic.Int32 // subscriptions

	outs        sync.Pool // *txBuffer
	noProgram   atomic.Uint64
	digestDrops atomic.Uint64
	noPort      atomic.Uint64
	queueDrops  atomic.Uint64
	packetIns   atomic.Uint64
	packetOuts  atomic.Uint64
	traps       atomic.Uint64
	tooLong     atomic.Uint64
}

// loaded is the state of the loaded program and the configured replication.
type loaded struct {
	*machine.State
	mcast  map[uint32]*MulticastGroup
	clones map[uint32]*CloneSession
}

// lane runs one packet at a time with its copies. A control plane call that changes what packets
// read holds the mutexes of all lanes.
type lane struct {
	_  [64]byte // lanes share no cache line
	mu sync.Mutex
	machine.Lane
	queue  []queued          // packets on their way to egress
	loops  []*machine.Packet // resubmitted and recirculated packets, in order
	out    *txBuffer
	budget int           // copies that the arriving packet may still make
	values arena[[]byte] // memory for the values of digests
	digits arena[byte]
	_      [64]byte
}

// arena allocates long-lived slices from larger blocks.
type arena[T any] struct{ block []T }

const arenaBlock = 1 << 10

func (a *arena[T]) take(n int) []T {
	if n > len(a.block) {
		if n > arenaBlock/4 {
			return make([]T, n)
		}
		a.block = make([]T, arenaBlock)
	}
	piece := a.block[:n:n]
	a.block = a.block[n:]
	return piece
}

// New returns a switch without ports and without a program.
func New(cfg Config) *Switch {
	if cfg.CPUPort == 0 {
		cfg.CPUPort = DefaultCPUPort
	}
	if cfg.MaxLoops <= 0 {
		cfg.MaxLoops = defaultMaxLoops
	}
	s := &Switch{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, subs: map[int]chan Digest{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if cfg.Name != "" {
		s.log = s.log.With("switch", cfg.Name)
	}
	if s.clock == nil {
		start := time.Now()
		s.clock = func() time.Duration { return time.Since(start) }
	}
	n := max(1, cfg.Parallel)
	for i := range n {
		s.lanes = append(s.lanes, &lane{Lane: machine.NewLane(i, n, cfg.Seed)})
	}
	s.ports = ports.NewSet(s.clock, n)
	s.outs.New = func() any {
		return &txBuffer{lane: int(s.nextLane.Add(1)) % n, bytes: make([]byte, 0, 2*machine.CacheLine),
			packets: make([]txPacket, 0, machine.CacheLine)}
	}
	return s
}

// Close stops the switch: later packets are dropped, later calls return ErrClosed, subscriptions
// end.
func (s *Switch) Close() {
	if s.closed.Swap(true) {
		return
	}
	s.exclusive(func() {
		s.st = nil
		s.clearQueues()
	})
	s.timerMu.Lock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timerMu.Unlock()
	s.subsMu.Lock()
	defer s.subsMu.Unlock()
	for id, c := range s.subs {
		delete(s.subs, id)
		s.listeners.Add(-1)
		close(c)
	}
}

// Atomically runs f while no packet runs: packets see all of f's control plane calls or none. f
// must not send packets or call Stats, Program or Load.
func (s *Switch) Atomically(f func() error) error {
	s.batches.Lock()
	defer s.batches.Unlock()
	hold := func(held bool, each func(l *lane)) {
		s.ctl.Lock()
		defer s.ctl.Unlock()
		for _, l := range s.lanes {
			each(l)
		}
		s.held = held
	}
	hold(true, func(l *lane) { l.mu.Lock() })
	defer hold(false, func(l *lane) { l.mu.Unlock() })
	return f()
}

// exclusive runs f while no packet runs.
func (s *Switch) exclusive(f func()) {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	if s.held {
		f()
		return
	}
	for _, l := range s.lanes {
		l.mu.Lock()
	}
	defer func() {
		for _, l := range s.lanes {
			l.mu.Unlock()
		}
	}()
	f()
}

// with runs f on the loaded program's state while no packet runs.
func (s *Switch) with(object string, f func(st *loaded) error) error {
	if s.closed.Load() {
		return control.Errorf(ErrClosed, object, "the switch was closed")
	}
	var err error
	s.exclusive(func() {
		if s.st == nil {
			err = control.Errorf(ErrNoProgram, object, "load a program first")
			return
		}
		err = f(s.st)
	})
	return err
}

// Load replaces the switch's program and discards all state of the old one: entries, counters,
// meters, registers, groups, sessions, value sets. Ports and their counters stay.
func (s *Switch) Load(p *Program) error {
	if s.closed.Load() {
		return control.Errorf(ErrClosed, "switch", "the switch was closed")
	}
	if p == nil {
		return control.Errorf(ErrInvalid, "switch", "no program given")
	}
	env := machine.Env{Lanes: len(s.lanes), Clock: s.clock, PortUp: s.ports.IsUp, Log: s.log}
	st, err := machine.NewState(env, p)
	if err != nil {
		return err
	}
	s.exclusive(func() {
		s.st = &loaded{State: st, mcast: map[uint32]*MulticastGroup{}, clones: map[uint32]*CloneSession{}}
		s.clearQueues()
		for _, l := range s.lanes {
			l.Lane.Load(st)
			l.queue, l.loops = make([]queued, 0, machine.CacheLine/4), make([]*machine.Packet, 0, machine.CacheLine/4)
		}
		for _, c := range []*atomic.Uint64{&s.noProgram, &s.digestDrops, &s.noPort, &s.queueDrops, &s.packetIns,
			&s.packetOuts, &s.traps, &s.tooLong} {
			c.Store(0)
		}
	})
	return nil
}

// Program returns the loaded program, or nil.
func (s *Switch) Program() *Program {
	l := s.lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.st == nil {
		return nil
	}
	return s.st.Prog
}

// Stats returns the counts of packets by outcome.
func (s *Switch) Stats() Stats {
	var t Stats
	for _, l := range s.lanes {
		l.mu.Lock()
		t.Add(&l.Stats)
		l.mu.Unlock()
	}
	t.NoProgramDrops, t.DigestDrops = s.noProgram.Load(), s.digestDrops.Load()
	t.NoPortDrops, t.QueueDrops = s.noPort.Load(), s.queueDrops.Load()
	t.PacketIns, t.PacketOuts = s.packetIns.Load(), s.packetOuts.Load()
	t.Trapped = s.traps.Load()
	t.TooLong += s.tooLong.Load()
	return t
}

// Now returns the time on the switch's clock.
func (s *Switch) Now() time.Duration { return s.clock() }
