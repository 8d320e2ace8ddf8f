// SPDX-License-Identifier: Apache-2.0

// Package banks makes switches that count in banks of registers sources of epochs.
//
// All switches of a Group count an epoch in the same bank: epoch n uses bank (n + shift) modulo
// the number of banks; shift is chosen once. A packet can therefore carry its bank through the
// network as its time bit.
//
//   - A switch is flipped at every boundary, so that it stays in step. If its next bank is still
//     being read, that read-out is cancelled: the epoch that begins is counted in a bank that is
//     not clean, and is lost for this switch. At its end the bank is cleared by the read-out. So a
//     read-out that is too late costs at most two epochs, the one that was not read and the one
//     that has its bank next.
//   - A read-out that misses the deadline goes on, so that its bank is clean for a later epoch.
//   - A switch whose session is new, or that did not acknowledge a flip, joins: it is flipped to
//     the bank of the open epoch, the other banks are cleared if there is time, and it takes part
//     from the first epoch that it counts as a whole in a clean bank.
//   - A switch that was out of step in an epoch may have sent packets with another time bit, which
//     other switches counted. The following epochs whose banks these packets can reach have an
//     accuracy warning, unless no link of the switch was up (Config.Isolated).
//
// A WindowSwitch is not flipped: packets carry their epoch, which selects the bank (window.go).
//
// source.go has the work of a switch at a boundary, join.go how a switch joins.
//
// # Concurrency
//
// Methods of Group may be called from any goroutine. Stop waits for every goroutine that the group
// started.
package banks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
)

// Reasons why a switch is missing from an epoch. Errors of the switch are wrapped in other errors.
var (
	// ErrUnread means that the bank had not been read completely when the epoch began.
	ErrUnread = fmt.Errorf("the bank %w: it had not been read when the epoch began", epoch.ErrStale)
	// ErrMerged means that the switch was not flipped at the start of the epoch.
	ErrMerged = fmt.Errorf("the bank %w: the switch was not flipped in between", epoch.ErrStale)
	// ErrFlipping means that the switch has not acknowledged an earlier flip.
	ErrFlipping = errors.New("has not acknowledged the flip of an earlier epoch")
)

// Incarnation identifies a period in which the registers of a switch keep their contents.
type Incarnation struct {
	// ID differs from the ID of every earlier incarnation.
	ID uint64
	// Clean is set if the registers were cleared at the start of the period, because the pipeline was
	// pushed.
	Clean bool
}

// Switch is a switch with banks. Several goroutines call its methods, but never two at once for
// the same bank.
type Switch interface {
	// Name is the name of the switch; constant.
	Name() string
	// Banks is the number of banks, at least 2; constant for an incarnation.
	Banks() int
	// Ready returns the incarnation, or why the switch cannot be measured now.
	Ready() (Incarnation, error)
	// Flip makes packets count in bank from now on.
	Flip(ctx context.Context, bank int) error
	// Read returns the contents of the bank and clears it. After an error, the bank may hold any
	// data. Before Read reads cells that packets in flight may still change, it calls drained once;
	// if drained fails, Read continues. If the error is an InexactError, the reading is valid.
	Read(ctx context.Context, bank int, drained epoch.Drained) (*epoch.Reading, error)
}

// InexactError reports that packets were counted in a bank after it was sealed. The reading is
// valid, with an accuracy warning, but the bank is not clean.
type InexactError struct {
	// Reason is a text for the operator.
	Reason string
}

// Error is the reason.
func (e *InexactError) Error() string { return e.Reason }

// ioLimit bounds a flip, and a read-out of short epochs. It is longer than the epoch's deadline,
// because a late flip still brings the switch in step, and a late read-out still cleans the bank.
const ioLimit = 30 * time.Second

// Config is the schedule of epochs, as in epoch.Config.
type Config struct {
	// Interval is the length of an epoch.
	Interval time.Duration
	// Guard and Drain are the times that packets need to leave the pipelines and the network. Both
	// pass before the banks of a joining switch are cleared.
	Guard, Drain time.Duration
	// Common makes shift 0, so that groups of other collectors, whose switches exchange packets with
	// this group's switches, use the same banks.
	Common bool
	// Isolated reports whether no packet of a switch can reach another switch now, as when the switch
	// is off; nil if that is never known.
	Isolated func(name string) bool
}

// lag is how many epochs later a windowed switch is read (epoch.Config.Lag).
func (c *Config) lag() uint64 { return uint64(c.Drain / max(c.Interval, 1)) }

// Group is a set of switches that count an epoch in the same bank.
type Group struct {
	cfg   Config
	clock epoch.Clock

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	sources map[string]member
	chosen  bool   // shift is chosen
	shift   uint64 // added to an epoch's number to find its bank
	open    uint64 // number of the open epoch; 0 before the first
	opened  time.Duration
	bounds  *bounds // bounds of the flips and read-outs at the start of the open epoch
}

// bounds are contexts that all switches share at a boundary: separate timers would cost the
// collector more than the rest of a flip.
type bounds struct{ flip, read context.Context }

// bound returns a context that ends with the group or after the given time.
func (g *Group) bound(after time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(g.ctx, after)
	_ = cancel // calls bounded by the context may outlive the boundary
	return ctx
}

// member is a switch of a group.
type member interface {
	epoch.Source
	// check lets the switch join if its incarnation is new.
	check()
	// wait waits until the switch has joined and no bank is being read; false if ctx ends first.
	wait(ctx context.Context) bool
	// handover returns the state for Group.Handover.
	handover() (*Handover, error)
	// hasOffer reports whether banks that the previous collector handed over still wait to be
	// adopted.
	hasOffer() bool
}

// New returns an empty group.
func New(cfg Config, clock epoch.Clock) *Group {
	g := &Group{cfg: cfg, clock: clock, sources: map[string]member{}, chosen: cfg.Common}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Add adds a switch and lets it join; it replaces a switch of the same name. Pass the returned
// source to an epoch.Engine.
func (g *Group) Add(sw Switch) epoch.Source { return g.add(sw, nil) }

func (g *Group) add(sw Switch, h *Handover) epoch.Source {
	var s member
	if ws, ok := sw.(WindowSwitch); ok && ws.Windowed() {
		w := newWindow(g, ws)
		w.offered = h
		s = w
	} else {
		of := newSource(g, sw)
		of.offered = h
		s = of
	}
	g.mu.Lock()
	g.sources[sw.Name()] = s
	g.mu.Unlock()
	s.check()
	return s
}

// Remove removes a switch.
func (g *Group) Remove(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sources, name)
}

// has reports whether a switch is still part of the group.
func (g *Group) has(m member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sources[m.Name()] == m
}

// Check lets a switch join if its incarnation is new. Call it when the session becomes ready;
// otherwise the switch joins at the next boundary, one epoch later.
func (g *Group) Check(name string) {
	g.mu.Lock()
	s := g.sources[name]
	g.mu.Unlock()
	if s != nil {
		s.check()
	}
}

// WaitJoined waits until every switch has joined and no bank is being read, or until ctx ends. It
// returns the names of the remaining switches.
func (g *Group) WaitJoined(ctx context.Context) []string {
	var missing []string
	for _, s := range g.members() {
		if !s.wait(ctx) {
			missing = append(missing, s.Name())
		}
	}
	return missing
}

// Shift returns the shift of banks: epoch n uses bank (n + Shift) modulo the number of banks. The
// shift is chosen at the first boundary and never changes; with Config.Common it is 0.
func (g *Group) Shift() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shift
}

// Stop ends background work and waits for it. Later flips and read-outs fail.
func (g *Group) Stop() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.cancel()
	g.work.Wait()
}

// begin opens epoch number and returns the bounds of its boundary. It first adopts banks that were
// handed over, because they are valid in the previous epoch only. At the first call it chooses the
// shift so that all switches count the epoch in bank 1, because a new pipeline counts in bank 0.
func (g *Group) begin(number uint64) *bounds {
	g.mu.Lock()
	known, chosen, limits := g.open == number, g.chosen, g.bounds
	g.mu.Unlock()
	if known && chosen {
		return limits
	}
	for _, s := range g.members() { // a session may have begun just now
		if s.hasOffer() {
			s.check()
		}
	}
	every := uint64(1)
	if !chosen {
		every = g.commonBanks()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.chosen {
		g.chosen, g.shift = true, (1+every-number%every)%every
	}
	g.open, g.opened = number, g.clock.Monotonic()
	g.bounds = &bounds{g.bound(g.clock.IOLimit(ioLimit)), g.bound(g.readLimit())}
	return g.bounds
}

// commonBanks returns the least common multiple of the switches' numbers of banks, or of some of
// them if it gets too large.
func (g *Group) commonBanks() uint64 {
	every := uint64(1)
	for _, s := range g.flipped() {
		if every < 1<<32 {
			every = leastCommonMultiple(every, uint64(max(s.sw.Banks(), 2)))
		}
	}
	return every
}

func leastCommonMultiple(x, y uint64) uint64 {
	a, b := x, y
	for b != 0 {
		a, b = b, a%b
	}
	return x / a * y
}

// bankOf is the bank of an epoch at a switch with n banks.
func (g *Group) bankOf(number uint64, n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return int((number + g.shift) % uint64(n))
}

// openBank returns the bank of the open epoch at a switch with n banks; 0 before the first epoch.
// from is the first epoch that the switch counts completely if it counts in this bank from now on.
func (g *Group) openBank(n int) (bank int, from uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.chosen {
		return 0, 0
	}
	from = g.open
	if g.clock.Monotonic() > g.opened {
		from++
	}
	return int((g.open + g.shift) % uint64(n)), from
}

func (g *Group) openNumber() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// goDo runs f in a goroutine that Stop waits for; it does nothing after Stop.
func (g *Group) goDo(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.work.Go(f)
	return true
}

// readLimit bounds a read-out, and the changes of a window. A read-out may continue after its
// epoch.
func (g *Group) readLimit() time.Duration {
	return g.clock.IOLimit(max(ioLimit, 10*g.cfg.Interval))
}

// pause waits for d on the clock or in real time, whichever ends first, because the wait belongs
// to no epoch.
func (g *Group) pause(ctx context.Context, d time.Duration) error {
	over := make(chan struct{})
	stop := g.clock.AfterFunc(d, func() { close(over) })
	defer stop()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// members lists the switches by name.
func (g *Group) members() []member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.sources), func(a, b member) int {
		return strings.Compare(a.Name(), b.Name())
	})
}

// flipped lists the switches that the group flips, by name.
func (g *Group) flipped() (all []*source) {
	for _, m := range g.members() {
		if s, ok := m.(*source); ok {
			all = append(all, s)
		}
	}
	return all
}
