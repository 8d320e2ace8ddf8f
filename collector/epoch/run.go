// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"fmt"
	"time"
)

// openTries bounds how often Run tries to open the first epoch while a source still holds earlier
// data.
const openTries = 3

// Run opens the first epoch at the next multiple of the interval since the origin, or at once
// without an origin. It then closes one epoch after another and passes each to deliver when it is
// collected, until ctx ends; it returns nil then. deliver must return soon, because the next
// boundary waits for it.
func (e *Engine) Run(ctx context.Context, deliver func(*Epoch)) error {
	s := e.newSchedule()
	if !e.openFirst(ctx, s) {
		return nil
	}
	for {
		s.advance()
		e.setEnd(s.next.due)
		if !s.wait(ctx) {
			return nil
		}
		skipped := s.skip()
		reasons := s.reasons()
		if e.reasons != nil {
			reasons = append(reasons, e.reasons()...)
		}
		ep, err := e.closeAt(ctx, s.next, skipped, reasons, nil)
		if err != nil {
			return nil
		}
		if ep != nil {
			deliver(ep)
		}
	}
}

// openFirst opens the first epoch. If a source still holds earlier data, it tries again one
// interval later, at most openTries times.
func (e *Engine) openFirst(ctx context.Context, s *schedule) bool {
	number := uint64(1)
	for try := 1; s.wait(ctx); try++ {
		if !e.cfg.Origin.IsZero() {
			number = s.number()
		}
		stale, err := e.openAt(ctx, number, s.next, nil)
		if err != nil {
			return false
		}
		s.reasons()
		if stale == 0 || try == openTries {
			return true
		}
		s.advance()
		number++
	}
	return false
}

// setEnd sets the time at which the open epoch will end, after the clock was corrected.
func (e *Engine) setEnd(due time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open.end = due
}

// moveStart shifts the time of day at which the open epoch began, after the time of day was set.
func (e *Engine) moveStart(by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open.start = e.open.start.Add(by)
}

// schedule computes boundaries. A boundary is due at a monotonic time, so that setting the time of
// day neither stops nor shortens epochs. The time of day of a boundary is read from the clock at
// that moment.
type schedule struct {
	e        *Engine
	interval time.Duration
	origin   time.Time // boundaries are multiples of the interval after origin
	next     edge
	warnings []string // accuracy warnings of the open epoch
}

func (e *Engine) newSchedule() *schedule {
	s := &schedule{e: e, interval: e.cfg.Interval, origin: e.cfg.Origin}
	now, mono := s.read()
	s.next = edge{now, mono}
	if s.origin.IsZero() {
		s.origin = now
		return s
	}
	at := s.origin.Add((now.Sub(s.origin)/s.interval + 1) * s.interval)
	s.next = edge{at, mono + at.Sub(now)}
	return s
}

// read reads both clocks, again if the process was interrupted between the two readings.
func (s *schedule) read() (now time.Time, mono time.Duration) {
	shortest := time.Duration(-1)
	for range 5 {
		before := s.e.clock.Monotonic()
		at := s.e.clock.Now().Round(0)
		after := s.e.clock.Monotonic()
		if took := after - before; shortest < 0 || took < shortest {
			shortest, now, mono = took, at, after
		}
		if shortest < time.Millisecond {
			break
		}
	}
	return now, mono
}

// number returns the number of the epoch that begins at the next boundary.
func (s *schedule) number() uint64 {
	return uint64(max(0, s.next.at.Sub(s.origin)/s.interval)) + 1
}

// advance moves on to the next boundary. After the time of day was set, the next boundary is the
// first aligned one at least half an interval later.
func (s *schedule) advance() {
	since := s.next.at.Sub(s.origin) % s.interval
	if since < 0 {
		since += s.interval
	}
	length := s.interval - since
	if length < s.interval/2 {
		length += s.interval
	}
	if length != s.interval {
		s.warnings = append(s.warnings, fmt.Sprintf("the epoch is %v long instead of %v, to follow the time of day", length,
			s.interval))
	}
	s.next = edge{s.next.at.Add(length), s.next.due + length}
}

// wait waits for the next boundary. It returns false if ctx ends first.
func (s *schedule) wait(ctx context.Context) bool {
	for {
		s.follow()
		left := s.next.due - s.e.clock.Monotonic()
		if left <= 0 {
			return ctx.Err() == nil
		}
		if s.e.clock.Sleep(ctx, left) != nil {
			return false
		}
	}
}

// follow compares the time of day with the monotonic clock. A small difference means a slewed
// clock: the boundary keeps its time of day and is due earlier or later. A larger difference means
// that the time of day was set: the boundary stays due and gets the new time of day. The limit
// between both is a tenth of the time that passed, because clocks are slewed by less.
func (s *schedule) follow() {
	now, mono := s.read()
	off := now.Sub(s.next.at) - (mono - s.next.due)
	if off.Abs() <= max(s.interval/8, 2*time.Millisecond) {
		s.next.due -= off
		return
	}
	s.e.log.Warn("the time of day was set; epochs follow it", "by", off)
	s.warnings = append(s.warnings, fmt.Sprintf("the time of day was set by %v during the epoch", off))
	s.next.at = s.next.at.Add(off)
	s.e.moveStart(off)
}

// skip skips all boundaries that have passed, except the last one, and returns their count.
func (s *schedule) skip() (skipped uint64) {
	behind := (s.e.clock.Monotonic() - s.next.due) / s.interval
	if behind < 1 {
		return 0
	}
	s.e.log.Warn("the collector did not run over epoch boundaries", "epochs", int(behind), "since", s.next.at)
	s.next = edge{s.next.at.Add(behind * s.interval), s.next.due + behind*s.interval}
	return uint64(behind)
}

// reasons returns the accuracy warnings of the open epoch.
func (s *schedule) reasons() []string {
	all := s.warnings
	s.warnings = nil
	return all
}
