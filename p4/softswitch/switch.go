// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultCPUPort is BMv2's usual CPU port.
const DefaultCPUPort = 255

// DropPort is the egress_spec by which v1model drops a packet.
const DropPort = 511

const defaultMaxLoops = 64

// Config is how a Switch runs. The zero value is usable.
type Config struct {
	Name     string               // for the log
	Clock    func() time.Duration // time since the switch started; nil: the wall clock. Used where no time is given: PacketOut, idle timeouts
	CPUPort  uint32               // 0: DefaultCPUPort
	Seed     uint64               // of random()
	Parallel int                  // packets that may run at once; 0 and 1: one after another
	MaxLoops int                  // resubmits plus recirculations a packet may make before it is dropped and counted; 0: 64
	Logger   *slog.Logger         // nil: discards
}

// Stats count what happened to packets, since the last Load.
type Stats struct {
	Packets        uint64 // packets that entered, loops not counted
	ParserErrors   uint64 // packets whose parser ended in an error (they go on, as in BMv2)
	ChecksumErrors uint64
	IngressDrops   uint64 // dropped at the end of ingress
	EgressDrops    uint64 // dropped at the end of egress
	NoPortDrops    uint64 // sent to a port that is not there or down
	QueueDrops     uint64 // egress queue full
	LoopDrops      uint64 // MaxLoops reached
	NoProgramDrops uint64
	PacketIns      uint64
	PacketOuts     uint64
	Clones         uint64
	Replicas       uint64 // multicast copies
	Resubmits      uint64
	Recirculations uint64
	Digests        uint64
	DigestDrops    uint64 // no subscriber had room
	IndexErrors    uint64 // register, counter or meter index out of range: the operation did nothing
	AssertFailures uint64 // assert() or assume() was false: the packet was dropped
	TooLong        uint64 // packets outgrew the limit of 64 KiB
}

// Switch is a soft switch. Make one with New.
type Switch struct {
	cfg   Config
	log   *slog.Logger
	clock func() time.Duration

	lanes    []*lane
	nextLane atomic.Uint32
	st       *state // guarded by the lanes' mutexes: any one to read, all to change
	closed   atomic.Bool

	ctl     sync.Mutex // one control plane call at a time
	batches sync.Mutex // one Atomically at a time
	held    bool       // an Atomically holds the lanes; guarded by ctl

	ports    atomic.Pointer[[maxPorts]*port]
	portsMu  sync.Mutex // adding, removing, up and down, watchers
	watchers map[int]func(PortStatus)
	watchID  int

	flushers atomic.Pointer[[]*port] // ports with a Flush
	bursts   atomic.Int64

	queues  atomic.Pointer[[]*port] // ports that have one
	waiting atomic.Int64            // packets in queues
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
}

// New makes a switch without ports and without a program.
func New(cfg Config) *Switch {
	if cfg.CPUPort == 0 {
		cfg.CPUPort = DefaultCPUPort
	}
	if cfg.MaxLoops <= 0 {
		cfg.MaxLoops = defaultMaxLoops
	}
	s := &Switch{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, watchers: map[int]func(PortStatus){}, subs: map[int]chan Digest{}}
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
		s.lanes = append(s.lanes, &lane{id: i, rng: *rand.NewPCG(cfg.Seed, uint64(i)), serial: n == 1})
	}
	s.ports.Store(new([maxPorts]*port))
	s.outs.New = func() any {
		return &txBuffer{lane: int(s.nextLane.Add(1)) % n, bytes: make([]byte, 0, 2*cacheLine), packets: make([]txPacket, 0, cacheLine)}
	}
	return s
}

// Close stops the switch: later packets are dropped, later calls return ErrClosed, subscriptions end.
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

// Atomically runs f while no packet runs: packets see all that control plane calls change within f, or nothing of it. f must not send
// packets, ask for Stats or Program, or load one.
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
	if s.st != nil {
		s.st.replayAll()
	}
	f()
}

// with runs f on the loaded program's state while no packet runs.
func (s *Switch) with(object string, f func(st *state) error) error {
	if s.closed.Load() {
		return fail(ErrClosed, object, "the switch was closed")
	}
	var err error
	s.exclusive(func() {
		if s.st == nil {
			err = fail(ErrNoProgram, object, "load one first")
			return
		}
		err = f(s.st)
	})
	return err
}

// Load makes p the switch's program. All state of the program before it is gone: entries, counters, meters, registers,
// groups, sessions, value sets. Ports and their counters stay.
func (s *Switch) Load(p *Program) error {
	if s.closed.Load() {
		return fail(ErrClosed, "switch", "the switch was closed")
	}
	if p == nil {
		return fail(ErrInvalid, "switch", "no program given")
	}
	st, err := newState(s, p)
	if err != nil {
		return err
	}
	s.exclusive(func() {
		s.st = st
		s.clearQueues()
		for _, l := range s.lanes {
			l.free, l.queue, l.loops = make([]*packet, 0, cacheLine/4), make([]queued, 0, cacheLine/4), make([]*packet, 0, cacheLine/4)
			l.stats = Stats{}
			l.pad = make([]byte, p.padBytes)
			if l.replayer = nil; !l.serial {
				l.replayer = l.newPacket(st)
			}
		}
		for _, c := range []*atomic.Uint64{&s.noProgram, &s.digestDrops, &s.noPort, &s.queueDrops, &s.packetIns, &s.packetOuts} {
			c.Store(0)
		}
	})
	return nil
}

// Program returns what is loaded, or nil.
func (s *Switch) Program() *Program {
	l := s.lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.st == nil {
		return nil
	}
	return s.st.prog
}

// Stats returns what happened to packets.
func (s *Switch) Stats() Stats {
	if len(s.lanes) > 1 {
		s.exclusive(func() {}) // actions that were put off may count errors
	}
	var t Stats
	for _, l := range s.lanes {
		l.mu.Lock()
		t.add(&l.stats)
		l.mu.Unlock()
	}
	t.NoProgramDrops, t.DigestDrops = s.noProgram.Load(), s.digestDrops.Load()
	t.NoPortDrops, t.QueueDrops = s.noPort.Load(), s.queueDrops.Load()
	t.PacketIns, t.PacketOuts = s.packetIns.Load(), s.packetOuts.Load()
	return t
}

func (t *Stats) add(o *Stats) {
	t.Packets += o.Packets
	t.ParserErrors += o.ParserErrors
	t.ChecksumErrors += o.ChecksumErrors
	t.IngressDrops += o.IngressDrops
	t.EgressDrops += o.EgressDrops
	t.LoopDrops += o.LoopDrops
	t.Clones += o.Clones
	t.Replicas += o.Replicas
	t.Resubmits += o.Resubmits
	t.Recirculations += o.Recirculations
	t.Digests += o.Digests
	t.IndexErrors += o.IndexErrors
	t.AssertFailures += o.AssertFailures
	t.TooLong += o.TooLong
}

// Now returns the time on the switch's clock.
func (s *Switch) Now() time.Duration { return s.clock() }
