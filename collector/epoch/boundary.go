// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// WaitFunc waits for d, or until ctx ends.
type WaitFunc = func(ctx context.Context, d time.Duration) error

// Open begins the first epoch at the given time: what the switches counted before is discarded.
// The number of the epoch follows from the origin; with none, it is 1. wait does the straggler wait,
// where a switch has counted anything; nil means to sleep on the clock.
func (e *Engine[R]) Open(ctx context.Context, at time.Time, wait WaitFunc) error {
	_, err := e.open(ctx, at, wait)
	return err
}

// open is Open. It returns how many members' banks are not clean yet.
func (e *Engine[R]) open(ctx context.Context, at time.Time, wait WaitFunc) (late int, err error) {
	tracks := e.tracks()
	banks := make([]int, len(tracks))
	for i, t := range tracks {
		banks[i] = max(t.m.Banks(), 2)
	}
	e.mu.Lock()
	if e.cfg.Origin.IsZero() {
		e.origin = at
	}
	number := uint64(max(0, at.Sub(e.origin)/e.cfg.Interval)) + 1
	e.mu.Unlock()
	e.begin(number, at, banks)
	ep := e.boundary(ctx, time.Time{}, at, number-1, wait)
	for i, o := range ep.Switches {
		tracks[i].mu.Lock()
		quiet := tracks[i].quiet
		if tracks[i].isIn && (tracks[i].spoiled != nil || errors.Is(o.Err, ErrLate) || errors.Is(o.Err, ErrMerged)) {
			late++
		}
		tracks[i].mu.Unlock()
		if !quiet {
			tracks[i].wasOut(number - 1)
		}
	}
	return late, ctx.Err()
}

// Close ends the open epoch at the given time, which is the boundary, and opens the next. It
// returns when every switch was read or the deadline passed. wait does the waits for stragglers and for the
// network to drain, one after the other and while no switch is being read; nil means to sleep on the clock. The
// error is ctx's, or says that no epoch is open.
func (e *Engine[R]) Close(ctx context.Context, at time.Time, wait WaitFunc) (*Epoch[R], error) {
	e.mu.Lock()
	start, number := e.start, e.number
	if start.IsZero() || !at.After(start) {
		e.mu.Unlock()
		return nil, fmt.Errorf("epoch: nothing to close at %s: the open epoch begins at %s", at.Format(time.RFC3339Nano), start.Format(time.RFC3339Nano))
	}
	// An epoch that stretched over several intervals carries the number of its last one.
	length := max(1, uint64((at.Sub(start)+e.cfg.Interval/2)/e.cfg.Interval))
	number += length - 1
	e.start, e.number = at, number+1
	shift := e.shift
	e.mu.Unlock()
	if length > 1 {
		start = at.Add(-e.cfg.Interval)
	}
	ep := e.boundary(ctx, start, at, number, wait)
	ep.Number, ep.Start, ep.End, ep.Skipped, ep.BankShift = number, start, at, length-1, shift
	ep.Closed = e.clock.Now()
	return ep, ctx.Err()
}

// arrival is what a member's goroutine reports.
type arrival[R any] struct {
	i       int
	outcome Outcome[R]
	doubt   string // a reason for one; empty: none
}

// boundary flips, waits and reads every member. number is that of the epoch that ends.
func (e *Engine[R]) boundary(ctx context.Context, start, end time.Time, number uint64, wait WaitFunc) *Epoch[R] {
	tracks := e.tracks()
	caller := ctx
	ep := &Epoch[R]{Switches: make([]Outcome[R], len(tracks))}
	ctx, cancel := e.clock.WithTimeout(ctx, end.Add(e.cfg.Deadline).Sub(e.clock.Now()))
	defer cancel()
	begin := time.Now()
	ep.Timings.Late = max(0, e.clock.Now().Sub(end))
	ep.Doubts = doubts(tracks, number)

	b := &turn[R]{
		e: e, start: start, end: end, number: number, arrivals: make(chan arrival[R], len(tracks)), flipped: make(chan flip, len(tracks)),
		cut: make(chan struct{}), read: make(chan struct{}), early: make(chan struct{}, len(tracks)), drained: make(chan struct{}),
	}
	for i, t := range tracks {
		ep.Switches[i] = Outcome[R]{Name: t.m.Name(), Err: ErrLate}
		if !e.goDo(func() { b.member(ctx, t, i) }) {
			ep.Switches[i].Err = context.Canceled
			b.arrivals <- arrival[R]{i: i, outcome: ep.Switches[i]}
			b.flipped <- flip{}
		}
	}
	// Also where the boundary itself is late: who is out of step harms more epochs than one that is read too late.
	patience, done := e.clock.WithTimeout(caller, e.cfg.Deadline)
	flips := b.awaitFlips(patience, len(tracks))
	done()
	close(b.cut)
	ep.Timings.Flip = ep.Timings.Late + flips.last.Sub(begin)
	ep.Timings.Skew = flips.last.Sub(flips.first)
	if flips.spread > e.cfg.Guard {
		ep.Doubts = append(ep.Doubts, Doubt{Reason: fmt.Sprintf("the flips at its end were %v apart, more than the guard of %v", flips.spread, e.cfg.Guard)})
	}
	sleep := wait
	if sleep == nil {
		sleep = e.clock.Sleep
	}
	if flips.sealed {
		_ = sleep(ctx, e.cfg.Guard) // an error is ctx's and shows below
	}
	close(b.read)
	readBegin := time.Now()
	ep.Timings.Wait = readBegin.Sub(flips.last)
	b.collect(ctx, ep, wait)
	ep.Timings.Read = time.Since(readBegin)
	if b.waited {
		ep.Timings.Drain = b.drainedAt.Sub(readBegin)
	}
	ep.Status = statusOf(ep.Switches)
	if !start.IsZero() && caller.Err() == nil { // an epoch that was given up says nothing of the switches
		for i, t := range tracks {
			t.settled(ep.Switches[i].Err)
		}
		e.settled(ep.Doubts)
	}
	return ep
}

// settled logs a change between epochs with doubts and without.
func (e *Engine[R]) settled(doubts []Doubt) {
	switch doubted := len(doubts) > 0; {
	case doubted && !e.doubted:
		e.log.Warn("epochs are not exact", "device", doubts[0].Member, "reason", doubts[0].Reason, "reasons", len(doubts))
	case !doubted && e.doubted:
		e.log.Info("epochs are exact again")
	}
	e.doubted = len(doubts) > 0
}

// doubts lists what is known against an epoch before it is read.
func doubts[R any](tracks []*track[R], number uint64) (all []Doubt) {
	for _, t := range tracks {
		if d, ok := t.doubt(number); ok {
			all = append(all, d)
		}
	}
	return all
}

// turn is one boundary. Its channels have room for all members: nobody waits for a late one.
type turn[R any] struct {
	e          *Engine[R]
	start, end time.Time
	number     uint64 // of the epoch that ends
	arrivals   chan arrival[R]
	flipped    chan flip
	cut        chan struct{} // closed when flips are not waited for any more
	read       chan struct{} // closed when the read-out may begin
	early      chan struct{} // a member has read what it can before the network has drained
	drained    chan struct{} // closed when the network has drained

	waited    bool // some member waited for that
	drainedAt time.Time
}

// collect gathers what members read, and lets the network drain meanwhile.
func (b *turn[R]) collect(ctx context.Context, ep *Epoch[R], wait WaitFunc) {
	e, n := b.e, len(ep.Switches)
	arrived, waiting, over := 0, 0, false
	drain := func() {
		if !over {
			over = true
			b.drainedAt = time.Now()
			close(b.drained)
		}
	}
	defer drain()
	timer := make(chan struct{}, 1)
	var patience <-chan time.Time
	switch {
	case e.cfg.Drain <= 0:
		drain()
	case wait == nil:
		defer e.clock.AfterFunc(e.cfg.Drain, func() { timer <- struct{}{} })()
	default:
		// The caller plays the network, which is best done when no switch is at work.
		p := time.NewTimer(patienceOf(ctx, e.cfg.Deadline))
		defer p.Stop()
		patience = p.C
	}
	take := func(a arrival[R]) {
		arrived++
		ep.Switches[a.i] = a.outcome
		if a.doubt != "" {
			ep.Doubts = append(ep.Doubts, Doubt{a.outcome.Name, a.doubt})
		}
	}
	for arrived < n {
		play := false
		select {
		case a := <-b.arrivals:
			take(a)
		case <-b.early:
			waiting++
			b.waited = true
		case <-timer:
			drain()
		case <-patience:
			patience, play = nil, true
		case <-ctx.Done():
			// Take what came together with the deadline.
			for {
				select {
				case a := <-b.arrivals:
					take(a)
					continue
				default:
				}
				return
			}
		}
		if wait != nil && !over && waiting > 0 && (play || patience == nil || arrived+waiting == n) {
			_ = wait(ctx, e.cfg.Drain)
			drain()
		}
	}
}

// patienceOf is how long slow members hold up the others.
func patienceOf(ctx context.Context, deadline time.Duration) time.Duration {
	if at, ok := ctx.Deadline(); ok { // of real time, where the clock is virtual
		return time.Until(at) / 4
	}
	return deadline / 4
}

// flip tells that a member was done with its flip.
type flip struct {
	at     time.Time // of day
	clock  time.Time // of the epochs' clock
	sealed bool      // there is a bank to read
}

// flips sums up all of them.
type flips struct {
	first, last time.Time
	spread      time.Duration // on the epochs' clock
	sealed      bool          // any was
}

// awaitFlips waits for n flips, but for slow ones no longer than a quarter of the deadline, so that
// they do not hold up the others' read-out.
func (b *turn[R]) awaitFlips(ctx context.Context, n int) (all flips) {
	limit, cancel := context.WithTimeout(ctx, patienceOf(ctx, b.e.cfg.Deadline))
	defer cancel()
	var first, last time.Time
	for range n {
		select {
		case f := <-b.flipped:
			if !f.sealed {
				continue
			}
			if !all.sealed || f.at.Before(all.first) {
				all.first = f.at
			}
			if !all.sealed || f.at.After(all.last) {
				all.last = f.at
			}
			if !all.sealed || f.clock.Before(first) {
				first = f.clock
			}
			if !all.sealed || f.clock.After(last) {
				last = f.clock
			}
			all.sealed = true
			continue
		case <-limit.Done():
		}
		break
	}
	all.spread = last.Sub(first)
	if limit.Err() != nil || !all.sealed {
		all.last = time.Now()
		if !all.sealed {
			all.first = all.last
		}
	}
	return all
}

// member takes one member through a boundary.
func (b *turn[R]) member(ctx context.Context, t *track[R], i int) {
	e := b.e
	out := Outcome[R]{Name: t.m.Name()}
	s := t.flip(b.start, b.end, b.number)
	a := arrival[R]{i: i}
	if !s.inStep && !b.start.IsZero() {
		t.wasOut(b.number)
	}
	select {
	case <-b.cut:
		if s.flipped {
			a.doubt = fmt.Sprintf("took %v to flip at its end; the others were read before", s.flip)
			t.wasOut(b.number + 1) // its first packets still carried the other bank
		}
	default:
	}
	b.flipped <- flip{time.Now(), e.clock.Now(), s.flipped}
	out.Flip, out.Err = s.flip, s.err
	if s.flipped && e.afterFlip != nil {
		e.afterFlip(ctx, out.Name, b.number+1)
	}
	if s.reader == nil {
		a.outcome = out
		b.arrivals <- a
		return
	}
	select {
	case <-b.read:
		// The common wait was over before this one flipped only if the flip was slow; packets in the
		// pipeline were then given less than the guard, so give them the rest.
		if a.doubt != "" {
			_ = (Wall{}).Sleep(e.ctx, e.cfg.Guard)
		}
	case <-s.reader.ctx.Done():
	}
	leave := e.takePlace(s.reader.ctx)
	begin := time.Now()
	var waited time.Duration
	r, err := t.read(s.inc, s.bank, s.reader, func(ctx context.Context) error {
		leave()
		waiting := time.Now()
		b.early <- struct{}{}
		var err error
		select {
		case <-b.drained:
		case <-ctx.Done():
			err = ctx.Err()
		}
		waited = time.Since(waiting)
		leave = e.takePlace(ctx)
		return err
	}, true)
	leave()
	out.Read = time.Since(begin) - waited
	if inexact := (*InexactError)(nil); errors.As(err, &inexact) {
		err, a.doubt = nil, inexact.Reason
		t.wasOut(b.number + 1)
	}
	switch {
	case out.Err != nil: // what it holds is not this epoch alone: the bank is clean now, the reading does not count
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled):
		out.Err = ErrLate
	case err != nil:
		out.Err = err
	default:
		out.Reading = r
	}
	a.outcome = out
	b.arrivals <- a
}

// takePlace waits for a place among those that are being read. leave gives it back, which otherwise
// happens by itself after a quarter of the deadline.
func (e *Engine[R]) takePlace(ctx context.Context) (leave func()) {
	select {
	case e.places <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	var once sync.Once
	free := func() { once.Do(func() { <-e.places }) }
	timer := time.AfterFunc(max(e.cfg.Deadline/4, time.Millisecond), free)
	return func() {
		timer.Stop()
		free()
	}
}

func statusOf[R any](outcomes []Outcome[R]) Status {
	present := 0
	for _, o := range outcomes {
		if o.Err == nil {
			present++
		}
	}
	switch {
	case present == 0:
		return Lost
	case present < len(outcomes):
		return Partial
	}
	return Complete
}

// openTries is how often Run tries to begin with a complete epoch.
const openTries = 3

// Run opens an epoch at the next multiple of the interval since the origin (at once when there is
// no origin) and then closes one after another, each handed to deliver, until ctx ends; it returns
// nil then. deliver must not take long: the next boundary waits for it.
func (e *Engine[R]) Run(ctx context.Context, deliver func(*Epoch[R])) error {
	e.settle(ctx)
	at := e.clock.Now()
	if origin := e.cfg.Origin; !origin.IsZero() {
		at = origin.Add((at.Sub(origin)/e.cfg.Interval + 1) * e.cfg.Interval)
	}
	at = at.Round(0) // boundaries are times of day
	if err := e.clock.Sleep(ctx, at.Sub(e.clock.Now())); err != nil {
		return nil
	}
	for try := 1; ; try++ {
		late, err := e.open(ctx, at, nil)
		if err != nil {
			return nil
		}
		if late == 0 || try == openTries {
			break
		}
		// Begin an interval later rather than with a partial epoch.
		at = at.Add(e.cfg.Interval)
		if err := e.clock.Sleep(ctx, at.Sub(e.clock.Now())); err != nil {
			return nil
		}
	}
	steppedBack := false
	for {
		next := at.Add(e.cfg.Interval)
		now := e.clock.Now()
		if behind := now.Sub(next) / e.cfg.Interval; behind >= 1 {
			e.log.Warn("the collector stood still over epoch boundaries", "epochs", int(behind), "since", next)
			next = next.Add(behind * e.cfg.Interval)
		}
		wait := next.Sub(now)
		if back := wait > 2*e.cfg.Interval; back != steppedBack {
			steppedBack = back
			if back {
				e.log.Warn("the machine's clock was set back; epochs keep their rhythm until it has caught up", "by", wait-e.cfg.Interval)
			}
		}
		if err := e.clock.Sleep(ctx, min(wait, e.cfg.Interval)); err != nil {
			return nil
		}
		ep, err := e.Close(ctx, next, nil)
		if err != nil {
			return nil
		}
		at = next
		deliver(ep)
	}
}
