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
)

// boundary ends one epoch and begins the next. run calls the phases in order; each source goes
// through them in a goroutine of its own (follow). The channels have room for all sources, so that
// no source blocks after the boundary has ended.
type boundary struct {
	Boundary
	e       *Engine
	due     time.Duration // monotonic time of the boundary
	wait    WaitFunc      // nil: sleep on the clock
	members []*member
	parts   []Part
	ep      *Epoch

	sealing  context.Context // ends when seals are not waited for any more
	seals    chan seal
	settled  chan struct{} // closed when the guard is over
	draining chan struct{} // a source waits for the network to drain
	drained  chan struct{} // closed when the network has drained
	arrived  []arrival     // one for each member, written by its goroutine
	arrivals chan *arrival // those that are complete

	sealed   bool      // a source is
	sealedAt time.Time // when the last one was
	flips    *Flips    // of all collectors; nil: none

	mu         sync.Mutex
	drainedAt  time.Time // zero until the network has drained
	handedOver bool      // arrivals are late for Dependencies.HandOver
	over       bool      // the epoch was delivered: arrivals are late
}

// seal is the end of one source's seal phase.
type seal struct {
	ok   bool          // the source counts in the next epoch
	real time.Time     // when it was acknowledged
	at   time.Duration // the same on the epochs' clock
}

// arrival is the end of one source's collect phase.
type arrival struct {
	i       int
	outcome Outcome
	result  Result
}

func (e *Engine) newBoundary(b Boundary, t edge, wait WaitFunc) *boundary {
	members := e.sorted()
	n := len(members)
	return &boundary{
		Boundary: b, e: e, due: t.due, wait: wait,
		members: members, parts: make([]Part, n), ep: &Epoch{Sources: make([]Outcome, n)},
		seals: make(chan seal, n), settled: make(chan struct{}),
		arrived: make([]arrival, n), arrivals: make(chan *arrival, n),
		draining: make(chan struct{}, n), drained: make(chan struct{}),
	}
}

// run takes all sources through the boundary. caller bounds it besides the deadline.
func (b *boundary) run(caller context.Context) *Epoch {
	late := max(0, b.e.clock.Monotonic()-b.due)
	ctx, cancel := b.e.clock.WithTimeout(caller, b.e.cfg.Deadline-late)
	defer cancel()
	early, stop := b.e.clock.WithTimeout(ctx, b.e.cfg.Deadline-b.e.cfg.HandOver-late)
	defer stop()
	b.ep.Timings.Late = late
	b.begin()
	b.seal(caller, ctx)
	b.settle(ctx)
	b.collect(ctx, early)
	b.compareFlips()
	b.ep.Status = statusOf(b.ep.Sources)
	return b.ep
}

// begin announces the boundary to all sources.
func (b *boundary) begin() {
	for i, m := range b.members {
		part, warnings := m.source.Begin(b.Boundary)
		b.parts[i] = part
		b.ep.Sources[i] = Outcome{Name: m.source.Name(), Sealing: m.source.Sealing(), Err: ErrLate}
		b.warn(m.source.Name(), warnings...)
	}
}

// seal starts the sources' goroutines and waits until all that the collector seals are sealed. A
// slow one does not delay the others' read-out: it is waited for until a quarter of the deadline.
// That also holds if the boundary itself is late, because a source out of step harms more epochs
// than a late one.
func (b *boundary) seal(caller, deadline context.Context) {
	begin := time.Now()
	full, stop := b.e.clock.WithTimeout(caller, b.e.cfg.Deadline)
	defer stop()
	limit, cancel := context.WithTimeout(full, quarterOf(full, b.e.cfg.Deadline))
	defer cancel()
	sealing, cut := context.WithCancel(b.e.ctx)
	defer cut()
	b.sealing = sealing
	n := 0
	for i, m := range b.members {
		if m.source.Sealing() == SealedByCollector {
			n++
		}
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

// awaitSeals returns those of n seals that succeeded, and whether all ended before limit.
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

// measureSkew adds a warning if seals were further apart than the guard.
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
		b.warn("", fmt.Sprintf("the flips at its end were %v apart, more than the guard of %v", skew, b.e.cfg.Guard))
	}
}

// compareFlips adds the flips of other collectors to the skew, and a warning if these make it
// greater than the guard.
func (b *boundary) compareFlips() {
	skew := b.flips.apart()
	b.ep.Timings.Skew = max(b.ep.Timings.Skew, skew)
	if skew > b.e.cfg.Guard && skew > b.ep.Timings.Flips.apart() {
		b.warn("", fmt.Sprintf("the flips at its end were %v apart at all collectors, more than the guard of %v", skew,
			b.e.cfg.Guard))
	}
}

// settle waits for the guard, in which packets leave the pipelines.
func (b *boundary) settle(ctx context.Context) {
	byPackets := slices.ContainsFunc(b.members, func(m *member) bool { return m.source.Sealing() == SealedByPackets })
	if b.sealed || byPackets && !b.Opening {
		sleep := b.wait
		if sleep == nil {
			sleep = b.e.clock.Sleep
		}
		_ = sleep(ctx, b.e.cfg.Guard) // an error is ctx's and ends collect
	}
	close(b.settled)
}

// collect gathers what sources return until the deadline, and lets the network drain meanwhile.
func (b *boundary) collect(ctx, early context.Context) {
	begin := time.Now()
	b.ep.Timings.Wait = begin.Sub(b.sealedAt)
	waiting := b.gather(ctx, early)
	if b.wait != nil {
		b.drain()
	}
	b.mu.Lock()
	b.over = true
	for len(b.arrivals) > 0 { // what arrived together with the deadline
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

// gather takes arrivals until all have arrived or ctx ends. It returns how many sources waited for
// the network to drain. Where the caller waits for the drain, it does so when no source is at work;
// slow ones are waited for until a quarter of the deadline. What this collector's sources measured
// is handed over when all of them have arrived, or when early ends.
func (b *boundary) gather(ctx, early context.Context) (waiting int) {
	var slow <-chan time.Time
	switch {
	case b.e.cfg.Drain <= 0:
		b.drain()
	case b.wait == nil:
		b.e.clock.AfterFunc(b.e.cfg.Drain, b.drain)
	default:
		timer := time.NewTimer(quarterOf(ctx, b.e.cfg.Deadline))
		defer timer.Stop()
		slow = timer.C
	}
	play := slow != nil
	own := 0 // sources of this collector that have not arrived
	for _, m := range b.members {
		if !m.source.Sealing().IsElsewhere() {
			own++
		}
	}
	handing := early.Done()
	defer b.giveOver()
	for arrived, n := 0, len(b.members); arrived < n; {
		if own == 0 {
			arrived += b.giveOver()
			own = -1
			continue
		}
		select {
		case a := <-b.arrivals:
			b.take(a)
			arrived++
			if !a.outcome.Sealing.IsElsewhere() {
				own--
			}
		case <-b.draining:
			waiting++
		case <-slow:
			slow = nil
		case <-handing:
			handing = nil
			arrived += b.giveOver()
		case <-ctx.Done():
			return waiting
		}
		if play && waiting > 0 && (slow == nil || own == waiting) {
			play = false
			_ = b.wait(ctx, b.e.cfg.Drain)
			b.drain()
		}
	}
	return waiting
}

// giveOver hands over what this collector's sources measured, once. It takes the arrivals that wait
// and returns their count.
func (b *boundary) giveOver() (taken int) {
	if b.e.handOver == nil || b.Opening {
		return 0
	}
	b.mu.Lock()
	first := !b.handedOver
	b.handedOver = true
	for first && len(b.arrivals) > 0 {
		b.take(<-b.arrivals)
		taken++
	}
	b.mu.Unlock()
	if !first {
		return 0
	}
	out := *b.ep
	out.Sources, out.Warnings, out.LateWarnings = nil, nil, nil
	own := map[string]bool{"": true}
	for _, o := range b.ep.Sources {
		if !o.Sealing.IsElsewhere() {
			own[o.Name] = true
			out.Sources = append(out.Sources, o)
		}
	}
	for _, w := range b.ep.Warnings {
		if own[w.Source] {
			out.Warnings = append(out.Warnings, w)
		}
	}
	for _, w := range b.ep.LateWarnings {
		if own[w.Source] {
			out.LateWarnings = append(out.LateWarnings, w)
		}
	}
	out.Late, _ = b.e.unsent.take(b.Number, b.e.cfg.LateEpochs) // the delivery counts those that are too old
	out.Status = statusOf(out.Sources)
	b.e.handOver(&out)
	return taken
}

// drain notes that the network has drained.
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

// follow takes the source of a through the boundary.
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

// sealPart seals one source. When it returns, the guard has passed since.
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

// collectPart collects from a source that has a place except while it waits for the drain.
func (b *boundary) collectPart(ctx context.Context, part Part, a *arrival) {
	held := b.e.takePlace(b.e.ctx, a.outcome.Sealing)
	begin := time.Now()
	var waited time.Duration
	result, err := part.Collect(ctx, func(ctx context.Context) error {
		held.leave()
		start := time.Now()
		b.draining <- struct{}{}
		var err error
		select {
		case <-b.drained:
		case <-ctx.Done():
			err = ctx.Err()
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

// arrive hands over what a source returned, for this epoch or, after its delivery, for a later one.
func (b *boundary) arrive(ctx context.Context, a *arrival) {
	err := a.outcome.Err
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		a.outcome.Err = ErrLate
	}
	unsent := b.e.handOver != nil && !a.outcome.Sealing.IsElsewhere()
	if unsent && a.outcome.Reading != nil {
		a.outcome.Reading.Release = nil // other collectors may still be sent it
	}
	b.e.late.add(a.outcome.Name, a.result.Late...)
	if unsent {
		b.e.unsent.add(a.outcome.Name, a.result.Late...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	report := Report{Epoch: b.Number, Reading: a.outcome.Reading}
	measured := a.outcome.Err == nil && !b.Opening
	if !b.over {
		b.arrivals <- a
	} else if measured {
		b.e.late.add(a.outcome.Name, report)
	}
	if unsent && b.handedOver && measured {
		b.e.unsent.add(a.outcome.Name, report)
	}
}

// quarterOf is how long slow sources delay the others: a quarter of the deadline, in real time.
func quarterOf(ctx context.Context, deadline time.Duration) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return time.Until(at) / 4
	}
	return deadline / 4
}

// place is one of the places of sources that are being read at the same time. It is given back by
// its holder, at the latest a quarter of the deadline after it was taken.
type place struct {
	e     *Engine
	held  atomic.Bool
	timer *time.Timer // nil before it is taken for the first time
}

// takePlace waits for a place; nil if ctx ends before. Sources that report need none.
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

// leave gives the place back; nil is none.
func (p *place) leave() {
	if p != nil && p.held.CompareAndSwap(true, false) {
		p.timer.Stop()
		p.e.places <- p
	}
}

// expire puts another place in the place of one that is held too long.
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

// isStale reports whether a source takes part and still holds data of an earlier epoch.
func isStale(err error) bool { return errors.Is(err, ErrLate) || errors.Is(err, ErrStale) }

// steady is the number of good epochs in a row after which a problem counts as over in the log. A
// problem that comes back earlier is still the same one.
const steady = 3

// trouble is a problem that comes and goes with the epochs.
type trouble struct {
	logged bool
	bad    uint64 // epochs since it was logged
	good   int    // epochs in a row without it
}

// update returns whether the problem is to be logged, or its end.
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

// Names lists names for the log: the first five, and the count of the others.
func Names(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ",")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ","), len(names)-most)
}

// logHosts logs a change of hosts in one line, of which reasons has the first.
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

// logChanges logs which sources have become missing or are back, and changes of accuracy. Hosts
// share a line.
func (e *Engine) logChanges(b *boundary, ep *Epoch) {
	hosts := 0
	var measured, missing, again, reasons []string
	defer func() {
		e.logHosts(slog.LevelInfo, "hosts are measured", hosts, measured, nil)
		e.logHosts(slog.LevelWarn, "hosts are missing from the epoch", hosts, missing, reasons)
		e.logHosts(slog.LevelInfo, "hosts are measured again", hosts, again, nil)
	}()
	for i, m := range b.members {
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
	took := ep.Closed.Sub(ep.End)
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
