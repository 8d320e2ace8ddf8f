// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// boundary ends one epoch and begins the next. run calls the phases in order; each source goes
// through them in a goroutine of its own (follow). The channels have room for all sources, so that
// no source blocks after the boundary has ended.
type boundary struct {
	Boundary
	e       *Engine
	due     time.Duration // monotonic time of the boundary
	wait    WaitFunc      // waits for a duration; nil waits on the clock
	sources []*tracked
	parts   []Part
	ep      *Epoch

	collecting context.Context // ends at the deadline of the epoch
	cancel     context.CancelFunc

	sealing  context.Context // ends when the engine stops waiting for seals
	seals    chan seal
	settled  chan struct{} // closed when the guard is over
	draining chan struct{} // one value for each source that waits for the network to drain
	drained  chan struct{} // closed when the network has drained
	arrived  []arrival     // one for each source, written by the source's goroutine
	arrivals chan *arrival // the sources that have been collected

	sealed   bool          // at least one source is sealed
	sealedAt time.Time     // when the last source was sealed
	waited   time.Duration // time from the last seal to the end of the guard
	flips    *Flips        // the flips of all collectors; nil if none is known

	left, own int // number of sources that have not been collected: all sources, and this collector's own

	mu         sync.Mutex
	drainedAt  time.Time // zero until the network has drained
	handedOver bool      // later arrivals are too late for Dependencies.HandOver
	over       bool      // the epoch was delivered: later arrivals belong to a later epoch
}

// seal is the end of one source's seal phase.
type seal struct {
	ok   bool          // the source was sealed
	real time.Time     // when the source acknowledged the seal
	at   time.Duration // time of the acknowledgment on the epochs' clock
}

// arrival is the end of one source's collect phase.
type arrival struct {
	i       int
	outcome Outcome
	result  Result
}

func (e *Engine) newBoundary(b Boundary, t edge, wait WaitFunc) *boundary {
	sources := e.sorted()
	n := len(sources)
	own := 0
	for _, m := range sources {
		if !m.source.Sealing().IsElsewhere() {
			own++
		}
	}
	return &boundary{
		left: n, own: own,
		Boundary: b, e: e, due: t.due, wait: wait,
		sources: sources, parts: make([]Part, n), ep: &Epoch{Sources: make([]Outcome, n)},
		seals: make(chan seal, n), settled: make(chan struct{}),
		arrived: make([]arrival, n), arrivals: make(chan *arrival, n),
		draining: make(chan struct{}, n), drained: make(chan struct{}),
	}
}

// run takes all sources through the boundary.
func (b *boundary) run(caller context.Context) *Epoch {
	b.start(caller)
	return b.finish()
}

// start seals the sources and begins to collect from them. Collection ends at the epoch's deadline,
// or earlier if caller ends. If draining takes whole epochs, start also waits until the sources
// that the collector seals have been read, because a later epoch reuses their banks.
func (b *boundary) start(caller context.Context) {
	late := max(0, b.e.clock.Monotonic()-b.due)
	deadline := b.e.cfg.Deadline + time.Duration(b.lag())*b.e.cfg.Interval - late
	b.collecting, b.cancel = b.e.clock.WithTimeout(caller, deadline)
	b.ep.Timings.Late = late
	b.begin()
	b.seal(caller, b.collecting)
	b.settle(b.collecting)
	if b.lag() == 0 || !b.sealed {
		return
	}
	limit, stop := b.e.clock.WithTimeout(caller, b.e.cfg.Deadline-late)
	defer stop()
	for left := b.count(SealedByCollector); left > 0; {
		select {
		case a := <-b.arrivals:
			if a.outcome.Sealing == SealedByCollector {
				left--
			}
			b.take(a)
		case <-limit.Done():
			return
		}
	}
}

// finish waits until the network has drained and all sources are collected, or until the deadline.
func (b *boundary) finish() *Epoch {
	defer b.cancel()
	late := max(0, b.e.clock.Monotonic()-b.due)
	deadline := b.e.cfg.Deadline + time.Duration(b.lag())*b.e.cfg.Interval
	early, stop := b.e.clock.WithTimeout(b.collecting, deadline-b.e.cfg.HandOver-late)
	defer stop()
	b.collect(b.collecting, early)
	b.compareFlips()
	b.ep.Status = statusOf(b.ep.Sources)
	return b.ep
}

// lag is how many epochs later the epoch is collected.
func (b *boundary) lag() int {
	if b.Opening {
		return 0
	}
	return b.e.cfg.Lag()
}

// count returns the number of sources with a kind of sealing.
func (b *boundary) count(s Sealing) (n int) {
	for _, m := range b.sources {
		if m.source.Sealing() == s {
			n++
		}
	}
	return n
}

// begin announces the boundary to all sources.
func (b *boundary) begin() {
	for i, m := range b.sources {
		part, warnings := m.source.Begin(b.Boundary)
		b.parts[i] = part
		b.ep.Sources[i] = Outcome{Name: m.source.Name(), Sealing: m.source.Sealing(), Err: ErrLate}
		b.warn(m.source.Name(), warnings...)
		if b.lag() > 0 && m.source.Sealing() == SealedByCollector {
			b.warn(m.source.Name(), "epoch.drain is longer than an epoch, so packets in flight were not waited for: only "+
				"switches whose packets carry their epoch can wait that long")
		}
	}
}

// seal starts the sources' goroutines and waits until all sources that the collector seals are
// sealed. It waits for a slow source until a quarter of the deadline has passed; meanwhile the
// sealed sources are read. The wait is the same if the boundary itself is late, because a source
// that counts in the wrong epoch harms more epochs than a late boundary does.
func (b *boundary) seal(caller, deadline context.Context) {
	begin := time.Now()
	full, stop := b.e.clock.WithTimeout(caller, b.e.cfg.Deadline)
	defer stop()
	limit, cancel := context.WithTimeout(full, quarterOf(full, b.e.cfg.Deadline))
	defer cancel()
	sealing, cut := context.WithCancel(b.e.ctx)
	defer cut()
	b.sealing = sealing
	n := b.count(SealedByCollector)
	for i, m := range b.sources {
		a := &b.arrived[i]
		a.i, a.outcome.Name, a.outcome.Sealing = i, m.source.Name(), m.source.Sealing()
		if !b.e.goDo(func() { b.follow(deadline, a) }) {
			b.seals <- seal{}
			a.outcome.Err = context.Canceled
			b.arrivals <- a
		}
	}
	seals, all := b.awaitSeals(limit, n)
	b.sealedAt = time.Now()
	if all && len(seals) > 0 {
		b.sealedAt = slices.MaxFunc(seals, func(x, y seal) int { return x.real.Compare(y.real) }).real
	}
	b.ep.Timings.Flip = b.ep.Timings.Late + b.sealedAt.Sub(begin)
	if len(seals) > 0 {
		b.sealed = true
		b.measureSkew(seals)
	}
}

// awaitSeals waits for n seals. It returns the successful ones, and whether all n ended before
// limit.
func (b *boundary) awaitSeals(limit context.Context, n int) (seals []seal, all bool) {
	seals = make([]seal, 0, n)
	for range n {
		select {
		case s := <-b.seals:
			if s.ok {
				seals = append(seals, s)
			}
		case <-limit.Done():
			return seals, false
		}
	}
	return seals, true
}

// measureSkew adds a warning if the first and the last seal were further apart than the guard.
func (b *boundary) measureSkew(seals []seal) {
	first, last := seals[0].at, seals[0].at
	firstReal := seals[0].real
	for _, s := range seals {
		first, last = min(first, s.at), max(last, s.at)
		if s.real.Before(firstReal) {
			firstReal = s.real
		}
	}
	b.ep.Timings.Skew = b.sealedAt.Sub(firstReal)
	b.flips = &Flips{first - b.due, last - b.due}
	b.ep.Timings.Flips = b.flips
	if skew := last - first; skew > b.e.cfg.Guard {
		b.warn("", fmt.Sprintf("the flips at the end of the epoch were %v apart, more than the guard of %v", skew,
			b.e.cfg.Guard))
	}
}

// compareFlips extends the skew by the flips of other collectors, and adds a warning if that makes
// the skew greater than the guard.
func (b *boundary) compareFlips() {
	skew := b.flips.apart()
	b.ep.Timings.Skew = max(b.ep.Timings.Skew, skew)
	if skew > b.e.cfg.Guard && skew > b.ep.Timings.Flips.apart() {
		b.warn("", fmt.Sprintf("the flips of all collectors at the end of the epoch were %v apart, more than the "+
			"guard of %v", skew, b.e.cfg.Guard))
	}
}

// settle waits for the guard, in which packets leave the pipelines.
func (b *boundary) settle(ctx context.Context) {
	byPackets := slices.ContainsFunc(b.sources, func(m *tracked) bool { return m.source.Sealing() == SealedByPackets })
	if b.sealed || byPackets && !b.Opening {
		sleep := b.wait
		if sleep == nil {
			sleep = b.e.clock.Sleep
		}
		_ = sleep(ctx, b.e.cfg.Guard) // Sleep fails only if ctx ends, which also ends collect
	}
	close(b.settled)
	b.waited = time.Since(b.sealedAt)
}

// collect gathers what sources return until the deadline, and lets the network drain meanwhile.
func (b *boundary) collect(ctx, early context.Context) {
	begin := time.Now()
	b.ep.Timings.Wait = b.waited
	waiting := b.gather(ctx, early)
	if b.wait != nil {
		b.drain()
	}
	b.mu.Lock()
	b.over = true
	for len(b.arrivals) > 0 { // takes arrivals from the moment of the deadline
		b.take(<-b.arrivals)
	}
	drainedAt := b.drainedAt
	b.mu.Unlock()
	b.ep.Timings.Read = time.Since(begin)
	if waiting > 0 {
		b.ep.Timings.Drain = b.ep.Timings.Read
		if !drainedAt.IsZero() {
			b.ep.Timings.Drain = drainedAt.Sub(begin)
		}
	}
}

// gather takes arrivals until all sources have arrived or ctx ends, and returns how many sources
// waited for the network to drain. It hands over the readings of this collector's sources when all
// of them have arrived, or when early ends.
func (b *boundary) gather(ctx, early context.Context) (waiting int) {
	slow, stop := b.letDrain(ctx)
	defer stop()
	defer b.giveOver()
	handing := early.Done()
	play := slow != nil
	for {
		if b.own == 0 {
			b.giveOver()
		}
		if b.left == 0 {
			return waiting
		}
		select {
		case a := <-b.arrivals:
			b.take(a)
		case <-b.draining:
			waiting++
		case <-slow:
			slow = nil
		case <-handing:
			handing = nil
			b.giveOver()
		case <-ctx.Done():
			return waiting
		}
		if play && waiting > 0 && (slow == nil || b.own == waiting) {
			play = false
			_ = b.wait(ctx, b.e.cfg.rest())
			b.drain()
		}
	}
}

// letDrain starts the wait for the rest of Config.Drain; its whole epochs have passed already. If
// the caller drives the clock (wait is set), gather waits for the drain instead, when no source is
// at work. slow receives a value after a quarter of the deadline: gather then stops waiting for
// slow sources.
func (b *boundary) letDrain(ctx context.Context) (slow <-chan time.Time, stop func() bool) {
	switch {
	case b.e.cfg.rest() <= 0:
		b.drain()
	case b.wait == nil:
		b.e.clock.AfterFunc(b.e.cfg.rest(), b.drain)
	default:
		timer := time.NewTimer(quarterOf(ctx, b.e.cfg.Deadline))
		return timer.C, timer.Stop
	}
	return nil, func() bool { return false }
}

// giveOver passes the readings of this collector's sources to Dependencies.HandOver; further calls
// do nothing. It first takes the arrivals that are queued.
func (b *boundary) giveOver() {
	if b.e.handOver == nil || b.Opening {
		return
	}
	b.mu.Lock()
	first := !b.handedOver
	b.handedOver = true
	for first && len(b.arrivals) > 0 {
		b.take(<-b.arrivals)
	}
	b.mu.Unlock()
	if first {
		b.e.handOver(b.ownPart())
	}
}

// ownPart returns the epoch with this collector's sources only.
func (b *boundary) ownPart() *Epoch {
	out := *b.ep
	out.Sources = nil
	own := map[string]bool{"": true}
	for _, o := range b.ep.Sources {
		if !o.Sealing.IsElsewhere() {
			own[o.Name] = true
			out.Sources = append(out.Sources, o)
		}
	}
	out.Warnings = slices.DeleteFunc(slices.Clone(b.ep.Warnings), func(w AccuracyWarning) bool { return !own[w.Source] })
	out.LateWarnings = slices.DeleteFunc(slices.Clone(b.ep.LateWarnings),
		func(w LateWarning) bool { return !own[w.Source] })
	late, _ := b.e.unsent.take(b.Number, b.e.cfg.LateEpochs) // dropped reports are counted at the delivery
	out.Late = slices.DeleteFunc(late, func(r sdk.LateReport) bool { return !own[r.Host] })
	out.Status = statusOf(out.Sources)
	return &out
}

// drain releases the sources that wait for the network to drain.
func (b *boundary) drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drainedAt.IsZero() {
		b.drainedAt = time.Now()
		close(b.drained)
	}
}

// take enters an arrival into the epoch.
func (b *boundary) take(a *arrival) {
	if b.left--; !a.outcome.Sealing.IsElsewhere() {
		b.own--
	}
	b.ep.Sources[a.i] = a.outcome
	b.flips = b.flips.with(a.result.Flips)
	b.warn(a.outcome.Name, a.result.Warnings...)
	for _, w := range a.result.LateWarnings {
		w.Source = a.outcome.Name
		b.ep.LateWarnings = append(b.ep.LateWarnings, w)
	}
}

// warn adds accuracy warnings to the epoch.
func (b *boundary) warn(source string, reasons ...string) {
	for _, r := range reasons {
		b.ep.Warnings = append(b.ep.Warnings, AccuracyWarning{Source: source, Reason: r})
	}
}

// follow takes a's source through the phases of the boundary.
func (b *boundary) follow(ctx context.Context, a *arrival) {
	part := b.parts[a.i]
	switch {
	case a.outcome.Sealing == SealedByCollector:
		if a.outcome.Flip, a.outcome.Err = b.sealPart(ctx, a.outcome.Name, part); a.outcome.Err == nil {
			b.collectPart(ctx, part, a)
		}
	case a.outcome.Sealing == SealedByPackets:
		<-b.settled
		b.collectPart(ctx, part, a)
	case b.Opening:
	default:
		b.collectPart(ctx, part, a)
	}
	b.arrive(ctx, a)
}

// sealPart seals one source. When it returns, the guard has passed since the seal.
func (b *boundary) sealPart(ctx context.Context, source string, part Part) (took time.Duration, err error) {
	begin := time.Now()
	err = part.Seal(b.sealing)
	took = time.Since(begin)
	late := b.sealing.Err() != nil
	b.seals <- seal{err == nil, time.Now(), b.e.clock.Monotonic()}
	if err != nil {
		return took, err
	}
	if b.e.afterFlip != nil {
		b.e.afterFlip(ctx, source, b.Number+1)
	}
	<-b.settled
	if late {
		_ = (Wall{}).Sleep(b.e.ctx, b.e.cfg.Guard)
	}
	return took, nil
}

// collectPart collects from a source. The source occupies one of the places for parallel reads,
// except while it waits for the network to drain.
func (b *boundary) collectPart(ctx context.Context, part Part, a *arrival) {
	held := b.e.takePlace(b.e.ctx, a.outcome.Sealing)
	begin := time.Now()
	var waited time.Duration
	result, err := part.Collect(ctx, func(ctx context.Context) error {
		if b.lag() > 0 && a.outcome.Sealing == SealedByCollector {
			return nil // the bank is needed again before the network has drained
		}
		held.leave()
		start := time.Now()
		b.draining <- struct{}{}
		var err error
		select {
		case <-b.drained:
		case <-ctx.Done():
			err = ctx.Err()
		case <-b.e.ctx.Done():
			err = b.e.ctx.Err()
		}
		waited = time.Since(start)
		held = b.e.takePlace(ctx, a.outcome.Sealing)
		return err
	})
	held.leave()
	a.outcome.Read = time.Since(begin) - waited
	a.result, a.outcome.Err = result, err
	if err == nil {
		a.outcome.Reading, a.outcome.Began = result.Reading, result.Began
	}
}

// arrive adds a source's result to this epoch. If this epoch was delivered already, the reports of
// a host are delivered with a later one, and the cells of a switch are discarded.
func (b *boundary) arrive(ctx context.Context, a *arrival) {
	err := a.outcome.Err
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		a.outcome.Err = ErrLate
	}
	unsent := b.e.handOver != nil && !a.outcome.Sealing.IsElsewhere()
	if unsent && a.outcome.Reading != nil {
		// the memory must stay valid: the reading may still be sent to other collectors
		a.outcome.Reading.Release = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var reports []sdk.HostReport
	if a.outcome.Err == nil && !b.Opening {
		reports = a.outcome.Reading.Hosts
	}
	for _, r := range reports {
		late := sdk.LateReport{Epoch: b.Number, HostReport: r}
		if b.over {
			b.e.late.add(late, 0)
		}
		if unsent && b.handedOver {
			b.e.unsent.add(late, 0)
		}
	}
	switch r := a.outcome.Reading; {
	case !b.over:
		b.arrivals <- a
	case r != nil && r.Release != nil:
		r.Release()
	}
}

// quarterOf returns how long slow sources may delay the others: a quarter of the deadline, in real
// time.
func quarterOf(ctx context.Context, deadline time.Duration) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return time.Until(at) / 4
	}
	return deadline / 4
}

// place permits one source to be read; the number of places bounds parallel reads. The source
// returns its place after the read. A place held for longer than a quarter of the deadline is
// replaced by a new one (expire).
type place struct {
	e     *Engine
	held  atomic.Bool
	timer *time.Timer // nil before the place is taken for the first time
}

// takePlace waits for a place and returns it; nil if ctx ends first. Sources that report by
// themselves are not read and get nil.
func (e *Engine) takePlace(ctx context.Context, s Sealing) *place {
	if s != SealedByCollector && s != SealedByPackets {
		return nil
	}
	var p *place
	select {
	case p = <-e.places:
	case <-ctx.Done():
		return nil
	}
	p.held.Store(true)
	if quarter := max(e.cfg.Deadline/4, time.Millisecond); p.timer == nil {
		p.timer = time.AfterFunc(quarter, p.expire)
	} else {
		p.timer.Reset(quarter)
	}
	return p
}

// leave returns the place to the engine. It does nothing for nil and for a place that expired.
func (p *place) leave() {
	if p != nil && p.held.CompareAndSwap(true, false) {
		p.timer.Stop()
		p.e.places <- p
	}
}

// expire gives the engine a new place instead of p, unless p was given back already.
func (p *place) expire() {
	if p.held.CompareAndSwap(true, false) {
		p.e.places <- &place{e: p.e}
	}
}

func statusOf(outcomes []Outcome) Status {
	present := 0
	for _, o := range outcomes {
		if o.Err == nil {
			present++
		}
	}
	switch present {
	case len(outcomes):
		return Complete
	case 0:
		return Lost
	}
	return Partial
}

// isStale reports whether the source of err takes part in epochs but still holds data of an
// earlier epoch.
func isStale(err error) bool { return errors.Is(err, ErrLate) || errors.Is(err, ErrStale) }

// steady is the number of good epochs in a row after which the log reports that a problem is over.
// A problem that returns earlier counts as the same problem.
const steady = 3

// trouble follows a problem over the epochs, so that the log reports it once.
type trouble struct {
	logged bool
	bad    uint64 // epochs with the problem since it was logged
	good   int    // epochs in a row without the problem
}

// update records whether the current epoch has the problem. begins is true if the problem is to be
// logged, over if its end is to be logged.
func (t *trouble) update(bad bool) (begins, over bool) {
	if bad {
		begins = !t.logged
		t.logged, t.good, t.bad = true, 0, t.bad+1
		return begins, false
	}
	if t.good++; t.logged && t.good == steady {
		t.logged = false
		return false, true
	}
	return false, false
}

// Names joins the first five names for the log, and appends the count of the remaining names.
func Names(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ",")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ","), len(names)-most)
}

// logHosts logs hosts that changed in one line, with the first of the reasons.
func (e *Engine) logHosts(level slog.Level, message string, all int, hosts, reasons []string) {
	if len(hosts) == 0 {
		return
	}
	args := []any{"count", fmt.Sprintf("%d of %d", len(hosts), all), "hosts", Names(hosts)}
	if len(reasons) > 0 {
		args = append(args, "reason", reasons[0])
	}
	e.log.Log(e.ctx, level, message, args...)
}

// logChanges logs which sources have become missing or are back, and when accuracy changes. All
// hosts share one line.
func (e *Engine) logChanges(b *boundary, ep *Epoch) {
	hosts := 0
	var measured, missing, again, reasons []string
	defer func() {
		e.logHosts(slog.LevelInfo, "hosts are measured", hosts, measured, nil)
		e.logHosts(slog.LevelWarn, "hosts are missing from the epoch", hosts, missing, reasons)
		e.logHosts(slog.LevelInfo, "hosts are measured again", hosts, again, nil)
	}()
	for i, m := range b.sources {
		err, name := ep.Sources[i].Err, m.source.Name()
		isHost := m.source.Sealing().IsHost()
		if isHost {
			hosts++
		}
		if err == nil && !m.seen {
			if m.seen, m.missing = true, (trouble{}); isHost {
				measured = append(measured, name)
			} else {
				e.log.Info("device is measured", "device", name)
			}
		}
		if errors.Is(err, ErrJoining) && !m.missing.logged {
			continue
		}
		switch begins, over := m.missing.update(err != nil); {
		case begins:
			reason := strings.ReplaceAll(err.Error(), "\n", "; ")
			if isHost {
				missing, reasons = append(missing, name), append(reasons, reason)
			} else {
				e.log.Warn("device is missing from the epoch", "device", name, "reason", reason)
			}
		case over:
			if isHost {
				again = append(again, name)
			} else {
				e.log.Info("device is measured again", "device", name, "epochs-missed", m.missing.bad)
			}
			m.missing.bad = 0
		}
	}
	warnings := ep.AllWarnings()
	switch begins, over := e.inexact.update(len(warnings) > 0); {
	case begins:
		w := warnings[0]
		e.log.Warn("epochs may be inexact", "device", w.Source, "reason", w.Reason, "reasons", len(warnings))
	case over:
		e.log.Info("epochs are exact again", "epochs-inexact", e.inexact.bad)
		e.inexact.bad = 0
	}
	took := ep.Closed.Sub(ep.End) - time.Duration(e.cfg.Lag())*e.cfg.Interval
	switch begins, over := e.tight.update(took > e.cfg.Deadline*4/5); {
	case begins:
		e.log.Warn("the collection takes most of epoch.deadline; devices are missing from epochs if it takes longer: "+
			"a longer epoch.interval and epoch.deadline, or fewer and smaller registers, help",
			"took", took.Round(time.Millisecond), "deadline", e.cfg.Deadline)
	case over:
		e.log.Info("the collection ends well before epoch.deadline again", "took", took.Round(time.Millisecond),
			"epochs-near", e.tight.bad)
		e.tight.bad = 0
	}
}
