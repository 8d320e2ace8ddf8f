// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config is the schedule of epochs.
type Config struct {
	// Interval is the length of an epoch.
	Interval time.Duration
	// Guard is the wait between the seals and the read-out. Seals that are further apart add an
	// accuracy warning.
	Guard time.Duration
	// Drain is the longest time that a packet spends in the network. It counts from the end of the
	// guard. If it is longer than an epoch, each epoch is collected Lag epochs later.
	Drain time.Duration
	// Deadline counts from the boundary; sources not collected before it are missing. At most
	// Interval.
	Deadline time.Duration
	// Parallel is the number of sources that are read at the same time; 0 means 8 per processor and
	// at least 16. The bound lets most sources finish in time if not all can. A source that is read
	// for longer than a quarter of the deadline no longer counts towards it.
	Parallel int
	// LateEpochs is how many epochs after its own a late report can still be delivered; 0 means
	// DefaultLateEpochs.
	LateEpochs uint64
	// HandOver is how long before the deadline Dependencies.HandOver is called at the latest.
	HandOver time.Duration
	// Origin is the start of epoch 1. The zero time means the first boundary.
	Origin time.Time
}

// Lag is how many whole epochs the network takes to drain. An epoch is collected and delivered that
// many epochs later.
func (c *Config) Lag() int { return int(c.Drain / c.Interval) }

// rest is the part of Drain that remains after Lag epochs.
func (c *Config) rest() time.Duration { return c.Drain % c.Interval }

// DefaultLateEpochs is the value of Config.LateEpochs if it is 0.
const DefaultLateEpochs = 4

// Dependencies are what New needs from its caller. Zero values are usable.
type Dependencies struct {
	// Clock measures the time; nil means Wall.
	Clock Clock
	// Logger receives changes of sources and of accuracy; nil disables logging.
	Logger *slog.Logger
	// Reasons, if set, is called by Run at each boundary and returns why the ending epoch may be
	// inexact at all sources.
	Reasons func() []string
	// HandOver, if set, receives the readings of this collector's sources at each boundary, when all
	// of them are collected and at the latest Config.HandOver before the deadline. A source that was
	// not collected by then has ErrLate; later reports of a host are in Late of a following epoch.
	// Sources of other collectors are left out. HandOver must not block.
	HandOver func(*Epoch)
}

// Engine drives the epochs of a set of sources.
type Engine struct {
	cfg       Config
	clock     Clock
	log       *slog.Logger
	afterFlip func(context.Context, string, uint64)
	reasons   func() []string
	handOver  func(*Epoch)
	places    chan *place // places that no source holds
	late      lateReports
	unsent    lateReports // late reports that HandOver has not passed to other collectors

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	work   sync.WaitGroup

	draining []*boundary // epochs that have ended and are not collected; only used by boundaries

	inexact trouble // accuracy warnings; only used by boundaries
	tight   trouble // collections that take most of the deadline; only used by boundaries

	mu      sync.Mutex
	closed  bool
	sources map[string]*tracked
	open    openEpoch
}

// openEpoch is the epoch in progress.
type openEpoch struct {
	number uint64        // 0 before Open
	start  time.Time     // time of day
	end    time.Duration // monotonic time
}

// tracked is a source and the problems of it that the log has reported. Only boundaries use it, one
// at a time.
type tracked struct {
	source  Source
	missing trouble
	seen    bool // the source has delivered data
}

// New returns an engine without sources.
func New(cfg Config, deps Dependencies) *Engine {
	if deps.Clock == nil {
		deps.Clock = Wall{}
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = max(16, 8*runtime.GOMAXPROCS(0))
	}
	if cfg.LateEpochs == 0 {
		cfg.LateEpochs = DefaultLateEpochs
	}
	e := &Engine{
		cfg: cfg, clock: deps.Clock, log: deps.Logger, reasons: deps.Reasons, handOver: deps.HandOver,
		places: make(chan *place, cfg.Parallel), sources: map[string]*tracked{},
	}
	for range cfg.Parallel {
		e.places <- &place{e: e}
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// AfterFlip makes the engine call f for each source that the collector has sealed, in the source's
// goroutine, as soon as the source counts in epoch next. The source is collected after f returns.
// Call AfterFlip before the first epoch.
func (e *Engine) AfterFlip(f func(ctx context.Context, source string, next uint64)) { e.afterFlip = f }

// Add adds a source from the next boundary on. It replaces a source of the same name.
func (e *Engine) Add(s Source) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sources[s.Name()] = &tracked{source: s}
}

// Remove removes a source. A collection in progress continues, and its result is ignored.
func (e *Engine) Remove(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sources, name)
}

// Current returns the number of the open epoch, 0 before Open, and the time of day at which the
// epoch ends. end minus Clock.Now is the time left, even after the time of day was set.
func (e *Engine) Current() (number uint64, end time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open.number == 0 {
		return 0, time.Time{}
	}
	return e.open.number, e.clock.Now().Add(e.open.end - e.clock.Monotonic())
}

// Numbering returns the length of an epoch, the time of day at which epoch 0 would have begun
// (computed from the start of the open epoch), and the number of the open epoch; 0 before Open.
func (e *Engine) Numbering() (length time.Duration, zero time.Time, number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	length, number = e.cfg.Interval, e.open.number
	return length, e.open.start.Add(-time.Duration(number) * length), number
}

// WaitFunc waits for d, or until ctx ends.
type WaitFunc = func(ctx context.Context, d time.Duration) error

// edge is the time of a boundary on both clocks.
type edge struct {
	at  time.Time     // time of day
	due time.Duration // monotonic time
}

// edgeAt returns the boundary at a time of day that has passed or is now.
func (e *Engine) edgeAt(at time.Time) edge {
	return edge{at: at, due: e.clock.Monotonic() - max(0, e.clock.Now().Sub(at))}
}

// Open begins the first epoch at the given time; data that sources counted before is discarded.
// The number of the epoch follows from the origin; without an origin it is 1. wait waits for the
// guard and the drain; nil sleeps on the clock.
func (e *Engine) Open(ctx context.Context, at time.Time, wait WaitFunc) error {
	number := uint64(1)
	if origin := e.cfg.Origin; !origin.IsZero() {
		number += uint64(max(0, at.Sub(origin)/e.cfg.Interval))
	}
	_, err := e.openAt(ctx, number, e.edgeAt(at), wait)
	return err
}

// openAt does the work of Open. stale is the number of sources that take part and still hold
// earlier data.
func (e *Engine) openAt(ctx context.Context, number uint64, t edge, wait WaitFunc) (stale int, err error) {
	e.begin(number, t)
	ep := e.newBoundary(Boundary{Number: number - 1, Opening: true}, t, wait).run(ctx)
	for _, o := range ep.Sources {
		if isStale(o.Err) {
			stale++
		}
	}
	return stale, ctx.Err()
}

// Close ends the open epoch at the boundary at, and opens the next one. It returns when every
// source has been collected or the deadline has passed. wait waits for the guard and then for the
// drain, while no source is being read; nil sleeps on the clock. Close fails with ctx's error, or
// if no epoch is open. If the network drains for whole epochs (Config.Lag), Close returns the epoch
// that ended so many epochs before, or nil if there is none; ctx must live until Close has returned
// the epoch that it ends.
func (e *Engine) Close(ctx context.Context, at time.Time, wait WaitFunc) (*Epoch, error) {
	e.mu.Lock()
	open := e.open
	e.mu.Unlock()
	if open.number == 0 || !at.After(open.start) {
		return nil, fmt.Errorf("epoch: nothing to close at %s: the open epoch begins at %s",
			at.Format(time.RFC3339Nano), open.start.Format(time.RFC3339Nano))
	}
	length := max(1, uint64((at.Sub(open.start)+e.cfg.Interval/2)/e.cfg.Interval))
	return e.closeAt(ctx, e.edgeAt(at), length-1, nil, wait)
}

// closeAt does the work of Close. An epoch that lasted longer because boundaries were skipped has
// the number of the last epoch that it covers. reasons become accuracy warnings.
func (e *Engine) closeAt(ctx context.Context, t edge, skipped uint64, reasons []string, wait WaitFunc) (*Epoch, error) {
	e.mu.Lock()
	number, start := e.open.number+skipped, e.open.start
	e.mu.Unlock()
	if skipped > 0 {
		start = t.at.Add(-e.cfg.Interval)
	}
	e.begin(number+1, t)
	b := e.newBoundary(Boundary{Number: number}, t, wait)
	for _, reason := range reasons {
		b.warn("", reason)
	}
	b.ep.Number, b.ep.Start, b.ep.End, b.ep.Skipped = number, start, t.at, skipped
	b.start(ctx)
	if e.draining = append(e.draining, b); len(e.draining) <= e.cfg.Lag() {
		return nil, ctx.Err()
	}
	b, e.draining = e.draining[0], e.draining[1:]
	b.wait = wait
	ep := b.finish()
	ep.Late, ep.Dropped = e.late.take(b.Number, e.cfg.LateEpochs)
	ep.Closed, ep.Open = e.clock.Now(), number+1
	if ctx.Err() == nil { // a canceled epoch says nothing about the sources
		e.logChanges(b, ep)
	}
	return ep, ctx.Err()
}

// begin records the epoch that opens at t.
func (e *Engine) begin(number uint64, t edge) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open = openEpoch{number: number, start: t.at, end: t.due + e.cfg.Interval}
}

// Shutdown ends background work and waits for it. The engine cannot be used after Shutdown.
func (e *Engine) Shutdown() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.work.Wait()
}

// goDo runs f in a goroutine that Shutdown waits for; it does nothing after Shutdown.
func (e *Engine) goDo(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.work.Go(f)
	return true
}

// sorted lists the sources by name.
func (e *Engine) sorted() []*tracked {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*tracked, 0, len(e.sources))
	for _, m := range e.sources {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *tracked) int { return strings.Compare(a.source.Name(), b.source.Name()) })
	return all
}
