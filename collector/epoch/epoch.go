// SPDX-License-Identifier: Apache-2.0

// Package epoch is the network's clock. At each boundary it makes all switches write into their
// next bank of registers, waits for packets that are still in the pipelines, reads the bank that
// was sealed, waits for the network to drain before it reads what packets on their way may still
// write to, and tells complete, partial and lost epochs apart.
//
// All switches measure an epoch in the same bank: that of epoch n is (n + shift) modulo the number of
// banks, with a shift that Open chooses once (Engine.BankShift). So a packet may carry its bank with it
// through the network as its time bit.
//
// What keeps one switch from harming the rest, or one epoch the next:
//
//   - Every switch is flipped and read in a goroutine of its own. At the deadline the epoch is
//     handed over with what has arrived; a read-out that is late goes on, so that its bank is clean
//     for a later epoch, and its result is dropped.
//   - Every switch is flipped at every boundary, so that all stay in step. Where its next bank has not been read to
//     the end, that read-out is given up: the epoch that begins is counted in a bank that is not clean, and is
//     lost for this switch. At its end the bank is cleared as it is read. So what is read too late costs two
//     epochs at most, the one that was not read and the one that has its bank next, and no work beyond theirs.
//   - A switch whose session is new, or that was not known to flip, joins: it is made to write into the bank of the
//     open epoch, the others are cleared if there is time, and it counts from the first epoch it has seen the
//     whole of from a clean bank on.
//   - A switch that was not in step in an epoch may have sent packets with another time bit through the
//     network, which others counted. So the epochs that follow, as many as that can reach, have a Doubt.
//
// Run drives the boundaries of a Clock. An emulation on virtual time calls Open and Close itself
// and so decides what happens between them.
//
// # Concurrency
//
// Methods of Engine may be called from any goroutine, except that Open, Close and Run must not
// overlap. Shutdown waits for every goroutine that the engine started.
package epoch

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// Config is the rhythm.
type Config struct {
	// Interval is the length of an epoch.
	Interval time.Duration
	// Guard is the wait between the flips and the read-out. Flips that are further apart cast doubt on an
	// epoch.
	Guard time.Duration
	// Drain is how long packets may be on their way through the network. It counts from the end of the
	// guard, and passes before what such packets are counted in is read.
	Drain time.Duration
	// Deadline counts from the boundary; what has not been read by then is missing. At most Interval.
	Deadline time.Duration
	// Parallel is how many switches are read at the same time; 0 means 8 for each processor, at least
	// 16. Reading all at once would make all of them late together where time is short; this way most
	// are in time. A switch that is slow to answer gives its place up after a quarter of the deadline.
	Parallel int
	// Origin is when epoch 1 begins. The zero time means the start of Run.
	Origin time.Time
}

// Incarnation says which life of a switch's registers a session sees.
type Incarnation struct {
	// ID differs from that of every earlier session.
	ID uint64
	// Clean is set when the registers were cleared as the session began, because the pipeline was
	// pushed.
	Clean bool
}

// Member is one switch. R is what reading a bank gives. Its methods are called from several
// goroutines, but for one bank never from two at once.
type Member[R any] interface {
	// Name is the switch's name, constant.
	Name() string
	// Banks is the number of banks, at least 2, constant for an incarnation.
	Banks() int
	// Ready returns the incarnation, or why the switch cannot be measured now.
	Ready() (Incarnation, error)
	// Flip makes packets that arrive from now on count in bank.
	Flip(ctx context.Context, bank int) error
	// Read returns what the bank holds and clears it. After an error the bank is taken to hold
	// anything. Before it reads what packets on their way through the network are counted in, it calls
	// drained once, which returns when none can be left, and reads on even when that fails; where it has
	// nothing of the kind it does not call it. With an InexactError comes a reading that counts.
	Read(ctx context.Context, bank int, drained Drained) (R, error)
}

// Drained waits until the network has drained, or until ctx ends.
type Drained = func(ctx context.Context) error

// InexactError tells that packets were counted in a bank after it had been sealed. What was read counts, with a doubt;
// the bank is not clean.
type InexactError struct {
	// Reason is for an operator.
	Reason string
}

// Error is the reason.
func (e *InexactError) Error() string { return e.Reason }

// Doubt is why packets of another epoch may be among those of an epoch, or packets of it missing, at any
// switch that counts packets by the bank that they carry.
type Doubt struct {
	// Member is the switch that is behind it; empty: all of them.
	Member string
	// Reason is for an operator.
	Reason string
}

// Status says how much of the network an epoch rests on.
type Status uint8

// The states of an epoch.
const (
	// Complete: every expected switch was read.
	Complete Status = iota + 1
	// Partial: some were.
	Partial
	// Lost: none was.
	Lost
)

// String is "complete", "partial" or "lost".
func (s Status) String() string {
	switch s {
	case Complete:
		return "complete"
	case Partial:
		return "partial"
	case Lost:
		return "lost"
	}
	return "unknown"
}

// Outcome is what became of one switch in one epoch.
type Outcome[R any] struct {
	// Name is the switch's.
	Name string
	// Err is why there is no reading; nil when there is one. It is one of this package's errors or
	// wraps the switch's own.
	Err error
	// Reading is what the sealed bank held.
	Reading R
	// Flip and Read are how long the two took, without the wait for the network to drain; zero when not
	// done.
	Flip, Read time.Duration
}

// Timings are the parts of the time from the end of an epoch to its hand-over.
type Timings struct {
	// Late is from the boundary to the first flip request: how late the collector itself was.
	Late time.Duration
	// Flip is from the boundary to the last flip acknowledged (or given up waiting for).
	Flip time.Duration
	// Skew is from the first flip acknowledged to the last.
	Skew time.Duration
	// Wait is from there to the start of the read-out.
	Wait time.Duration
	// Read is from there to the last switch read, or the deadline.
	Read time.Duration
	// Drain is the part of Read that passed before the network had drained; zero where no switch waited
	// for that.
	Drain time.Duration
}

// Epoch is one sealed epoch.
type Epoch[R any] struct {
	// Number counts from 1 at the origin.
	Number uint64
	// Start is the first instant and End the first one after it.
	Start, End time.Time
	// Status says how much of the network it rests on.
	Status Status
	// Switches has one outcome per member, in the order of their names.
	Switches []Outcome[R]
	// BankShift is Engine.BankShift.
	BankShift uint64
	// Doubts are reasons not to take it for exact although it has arrived.
	Doubts []Doubt
	// Skipped is how many epochs before this one were never sealed because the collector stood
	// still.
	Skipped uint64
	// Timings says where the time went; Closed is when the engine was done.
	Timings Timings
	Closed  time.Time
}

// Options are an engine's surroundings.
type Options struct {
	// Clock is the time; nil means Wall.
	Clock Clock
	// Logger hears of members coming and going; nil discards.
	Logger *slog.Logger
	// AfterFlip, when set, is called for each member in its own goroutine as soon as it writes for
	// epoch next; the read-out of the sealed bank starts when it has returned.
	AfterFlip func(ctx context.Context, member string, next uint64)
}

// Engine drives the epochs of a set of members.
type Engine[R any] struct {
	cfg       Config
	clock     Clock
	log       *slog.Logger
	afterFlip func(context.Context, string, uint64)

	places chan struct{} // taken by switches that are being read

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	members map[string]*track[R]
	origin  time.Time // of epoch 1
	start   time.Time // of the open epoch; zero before Open
	number  uint64    // of the open epoch
	opened  bool      // shift is chosen
	doubted bool      // the newest epoch has doubts; only used by the boundaries
	shift   uint64
}

// New returns an engine without members.
func New[R any](cfg Config, o Options) *Engine[R] {
	if o.Clock == nil {
		o.Clock = Wall{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = max(16, 8*runtime.GOMAXPROCS(0))
	}
	e := &Engine[R]{places: make(chan struct{}, cfg.Parallel), cfg: cfg, clock: o.Clock, log: o.Logger, afterFlip: o.AfterFlip, members: map[string]*track[R]{}}
	e.origin = cfg.Origin
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Add makes a switch a member; one of the same name is replaced. It counts from the first epoch
// that it has seen the whole of.
func (e *Engine[R]) Add(m Member[R]) {
	e.mu.Lock()
	e.members[m.Name()] = newTrack(e, m)
	e.mu.Unlock()
	e.Check(m.Name())
}

// Remove makes a switch no member any more. A read-out under way goes on, unheard.
func (e *Engine[R]) Remove(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.members, name)
}

// Check lets a member whose session is new join. Call it when the session became ready; otherwise
// the next boundary finds out, and the member joins an epoch later.
func (e *Engine[R]) Check(name string) {
	e.mu.Lock()
	t := e.members[name]
	e.mu.Unlock()
	if t != nil {
		t.check()
	}
}

// WaitJoined waits until every member takes part and no bank is being read, or ctx ends, and then returns the names
// of those of which that is not so.
func (e *Engine[R]) WaitJoined(ctx context.Context) []string {
	var missing []string
	for _, t := range e.tracks() {
		if !t.wait(ctx) {
			missing = append(missing, t.m.Name())
		}
	}
	return missing
}

// BankShift tells which bank epochs are measured in: that of epoch n is (n + BankShift) modulo a switch's
// number of banks. It is chosen by the first Open and stays.
func (e *Engine[R]) BankShift() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.shift
}

// Current returns the number of the open epoch, 0 before Open, and when it is due to end.
func (e *Engine[R]) Current() (number uint64, end time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.number, e.start.Add(e.cfg.Interval)
}

// bankOf is the bank of an epoch at a member with so many banks.
func (e *Engine[R]) bankOf(number uint64, banks int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int((number + e.shift) % uint64(banks))
}

// openBank is the bank of the open epoch. Before Open it is bank 0, which programs begin with, and the first
// epoch is measured in bank 1, so that what was counted before reaches no epoch.
func (e *Engine[R]) openBank(banks int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.opened {
		return 0
	}
	return int((e.number + e.shift) % uint64(banks))
}

// begin opens epoch number at the given time. The first time it chooses the shift so that the epoch is measured
// in bank 1 by members of any of these numbers of banks.
func (e *Engine[R]) begin(number uint64, at time.Time, banks []int) {
	every := uint64(1)
	for _, n := range banks {
		if a, b := every, uint64(n); every < 1<<32 {
			for b != 0 {
				a, b = b, a%b
			}
			every *= uint64(n) / a
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.opened {
		e.opened, e.shift = true, (1+every-number%every)%every
	}
	e.number, e.start = number, at
}

// Shutdown ends background work and waits for it. The engine cannot be used afterwards.
func (e *Engine[R]) Shutdown() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.work.Wait()
}

// goDo runs f in a goroutine that Shutdown waits for; it does nothing after Shutdown.
func (e *Engine[R]) goDo(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.work.Go(f)
	return true
}

// tracks lists the members by name.
func (e *Engine[R]) tracks() []*track[R] {
	e.mu.Lock()
	defer e.mu.Unlock()
	return sortedTracks(e.members)
}
