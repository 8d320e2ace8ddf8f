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

// open is Open. It returns how many members' banks are still being cleared.
func (e *Engine[R]) open(ctx context.Context, at time.Time, wait WaitFunc) (late int, err error) {
	e.mu.Lock()
	if e.cfg.Origin.IsZero() {
		e.origin = at
	}
	e.number = uint64(max(0, at.Sub(e.origin)/e.cfg.Interval)) + 1
	e.start = at
	number := e.number
	e.mu.Unlock()
	ep := e.boundary(ctx, time.Time{}, at, number, wait)
	for _, o := range ep.Switches {
		if errors.Is(o.Err, ErrLate) || errors.Is(o.Err, ErrBusy) {
			late++
		}
	}
	return late, ctx.Err()
}

// Close ends the open epoch at the given time, which is the boundary, and opens the next. It
// returns when every switch was read or the deadline passed. wait does the straggler wait; nil
// means to sleep on the clock. The error is ctx's, or says that no epoch is open.
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
	e.mu.Unlock()
	if length > 1 {
		start = at.Add(-e.cfg.Interval)
	}
	ep := e.boundary(ctx, start, at, number+1, wait)
	ep.Number, ep.Start, ep.End, ep.Skipped = number, start, at, length-1
	ep.Closed = e.clock.Now()
	return ep, ctx.Err()
}

// arrival is what a member's goroutine reports.
type arrival[R any] struct {
	i       int
	outcome Outcome[R]
}

// boundary flips, waits and reads every member. next is the number of the epoch that begins.
func (e *Engine[R]) boundary(ctx context.Context, start, end time.Time, next uint64, wait WaitFunc) *Epoch[R] {
	tracks := e.tracks()
	caller := ctx
	ep := &Epoch[R]{Switches: make([]Outcome[R], len(tracks))}
	ctx, cancel := e.clock.WithTimeout(ctx, end.Add(e.cfg.Deadline).Sub(e.clock.Now()))
	defer cancel()
	begin := time.Now()
	ep.Timings.Late = max(0, e.clock.Now().Sub(end))

	flipped := make(chan flip, len(tracks)) // one value per member
	start2read := make(chan struct{})
	arrivals := make(chan arrival[R], len(tracks)) // buffered: nobody waits for a late one
	for i, t := range tracks {
		ep.Switches[i] = Outcome[R]{Name: t.m.Name(), Err: ErrLate}
		if !e.goDo(func() { e.member(ctx, t, i, start, end, next, flipped, start2read, arrivals) }) {
			ep.Switches[i].Err = context.Canceled
			arrivals <- arrival[R]{i, ep.Switches[i]}
			flipped <- flip{at: time.Now()}
		}
	}
	first, last, sealed := e.awaitFlips(ctx, len(tracks), flipped)
	ep.Timings.Flip = ep.Timings.Late + last.Sub(begin)
	ep.Timings.Skew = last.Sub(first)

	if wait == nil {
		wait = e.clock.Sleep
	}
	if sealed {
		_ = wait(ctx, e.cfg.Guard) // an error is ctx's and shows below
	}
	close(start2read)
	readBegin := time.Now()
	ep.Timings.Wait = readBegin.Sub(last)
	for range tracks {
		select {
		case a := <-arrivals:
			ep.Switches[a.i] = a.outcome
			continue
		case <-ctx.Done():
		}
		break
	}
	e.sweep(arrivals, ep)
	ep.Timings.Read = time.Since(readBegin)
	ep.Status = statusOf(ep.Switches)
	if !start.IsZero() && caller.Err() == nil { // an epoch that was given up says nothing of the switches
		for i, t := range tracks {
			t.settled(ep.Switches[i].Err)
		}
	}
	return ep
}

// sweep takes the arrivals that came together with the deadline.
func (e *Engine[R]) sweep(arrivals <-chan arrival[R], ep *Epoch[R]) {
	for {
		select {
		case a := <-arrivals:
			ep.Switches[a.i] = a.outcome
		default:
			return
		}
	}
}

// flip tells that a member was done with its flip.
type flip struct {
	at     time.Time
	sealed bool // there is a bank to read
}

// awaitFlips waits for n flips, but for slow ones no longer than a quarter of the deadline, so that
// they do not hold up the others' read-out. It returns when the first and the last bank was sealed
// and whether any was.
func (e *Engine[R]) awaitFlips(ctx context.Context, n int, flipped <-chan flip) (first, last time.Time, sealed bool) {
	quarter := e.cfg.Deadline / 4
	if deadline, ok := ctx.Deadline(); ok { // of real time, where the clock is virtual
		quarter = time.Until(deadline) / 4
	}
	limit, cancel := context.WithTimeout(ctx, quarter)
	defer cancel()
	for range n {
		select {
		case f := <-flipped:
			if !f.sealed {
				continue
			}
			if !sealed || f.at.Before(first) {
				first = f.at
			}
			if !sealed || f.at.After(last) {
				last = f.at
			}
			sealed = true
			continue
		case <-limit.Done():
		}
		if sealed {
			return first, time.Now(), true
		}
		break
	}
	if !sealed {
		first = time.Now()
		last = first
	}
	return first, last, sealed
}

// member takes one member through a boundary.
func (e *Engine[R]) member(ctx context.Context, t *track[R], i int, start, end time.Time, next uint64,
	flipped chan<- flip, start2read <-chan struct{}, arrivals chan<- arrival[R],
) {
	out := Outcome[R]{Name: t.m.Name()}
	s := t.flip(ctx, start, end)
	flipped <- flip{time.Now(), s.read}
	out.Flip, out.Err = s.flip, s.err
	if s.read && e.afterFlip != nil {
		e.afterFlip(ctx, out.Name, next)
	}
	if !s.read {
		arrivals <- arrival[R]{i, out}
		return
	}
	select {
	case <-start2read:
		// The common wait was over before this one flipped only if the flip was slow; packets in the
		// pipeline were then given less than the guard, so give them the rest.
		if s.flip > e.cfg.Deadline/4 {
			_ = (Wall{}).Sleep(e.ctx, e.cfg.Guard)
		}
	case <-e.ctx.Done():
	}
	t.mu.Lock()
	inc := t.incarnation
	t.mu.Unlock()
	leave := e.takePlace()
	begin := time.Now()
	r, err := t.read(inc, s.bank)
	leave()
	out.Read = time.Since(begin)
	switch {
	case out.Err != nil: // joined or merged: the bank is clean now, the reading does not count
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled):
		out.Err = ErrLate
	case err != nil:
		out.Err = err
	default:
		out.Reading = r
	}
	arrivals <- arrival[R]{i, out}
}

// takePlace waits for a place among those that are being read. leave gives it back, which otherwise
// happens by itself after a quarter of the deadline.
func (e *Engine[R]) takePlace() (leave func()) {
	select {
	case e.places <- struct{}{}:
	case <-e.ctx.Done():
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
