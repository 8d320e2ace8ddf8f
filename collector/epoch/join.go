// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

func (t *track[R]) joined() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.in
}

// recheck is how often a member that is waited for is asked whether it is ready.
const recheck = 50 * time.Millisecond

// wait waits until the member has joined; false when ctx ends before.
func (t *track[R]) wait(ctx context.Context) bool {
	again := time.NewTicker(recheck)
	defer again.Stop()
	for {
		t.check()
		select {
		case <-t.joined():
			return true
		default:
		}
		select {
		case <-t.joined():
		case <-again.C:
		case <-ctx.Done():
			return false
		}
	}
}

// check starts a join when the member is ready and its session is not the one that joined. A member that
// is not ready falls out.
func (t *track[R]) check() {
	inc, err := t.m.Ready()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.fallOut()
		return
	}
	t.checkLocked(inc)
}

// checkLocked reports whether the member has joined with this incarnation. t.mu is held.
func (t *track[R]) checkLocked(inc Incarnation) bool {
	if t.incarnation.ID != inc.ID {
		t.fallOut()
		t.incarnation, t.tried, t.pending, t.skipped = inc, false, 0, false
	}
	if t.isIn {
		return true
	}
	if !t.joining && t.pending == 0 { // the end of a read-out comes back to it
		t.joining = true
		isClean := inc.Clean && !t.tried
		t.tried = true
		if !t.e.goDo(func() { t.join(inc, isClean) }) {
			t.joining = false
		}
	}
	return false
}

// fallOut forgets what is known of the banks. t.mu is held.
func (t *track[R]) fallOut() {
	t.skipped = false
	if t.isIn {
		t.isIn, t.quiet = false, false
		t.in = make(chan struct{})
	}
}

// join makes the member write into the bank of the open epoch and clears all others. Where that lasts over a
// boundary, it joins all the same: a boundary or two later it is in step.
func (t *track[R]) join(inc Incarnation, isClean bool) {
	ctx, cancel := context.WithTimeout(t.e.ctx, DefaultIOLimit)
	defer cancel()
	n := max(t.m.Banks(), 2)
	bank := t.e.openBank(n)
	since, err := t.enter(ctx, bank, t.unknown(inc, n, isClean))
	t.mu.Lock()
	t.joining = false
	changed := t.incarnation.ID != inc.ID
	switch {
	case changed:
	case err != nil:
		t.skipped = false
		t.missing(fmt.Errorf("clearing its banks: %w", err))
	default:
		t.current, t.since, t.banks = bank, since, make([]bankState, n)
		t.isIn, t.quiet, t.fresh, t.skipped = true, isClean && bank == 0, !isClean, false
		close(t.in)
	}
	t.mu.Unlock()
	if changed {
		t.check()
	}
}

// unknown lists the banks that may hold something: all, bank 0 where it alone was written since the registers
// were cleared, or those that are known to.
func (t *track[R]) unknown(inc Incarnation, n int, isClean bool) (banks []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.skipped && t.incarnation.ID == inc.ID && len(t.banks) == n
	for b := range n {
		if isClean && b != 0 || known && b != t.current && t.banks[b] == clean {
			continue
		}
		banks = append(banks, b)
	}
	return banks
}

// enter makes the member write into one bank and, after a pause, discards what others hold. It returns since
// when the bank is written. The pause is over when it is on either clock: it belongs to no epoch.
func (t *track[R]) enter(ctx context.Context, bank int, unknown []int) (time.Time, error) {
	if err := t.m.Flip(ctx, bank); err != nil {
		return time.Time{}, err
	}
	since := t.e.clock.Now()
	waited := false
	for _, b := range unknown {
		if b == bank {
			continue
		}
		if !waited {
			waited = true
			if err := t.pause(ctx, t.e.cfg.Guard+t.e.cfg.Drain); err != nil {
				return since, err
			}
		}
		if _, err := t.m.Read(ctx, b, noDrain); err != nil {
			return since, err
		}
	}
	return since, nil
}

// pause waits for d, of real time or on the clock.
func (t *track[R]) pause(ctx context.Context, d time.Duration) error {
	over := make(chan struct{})
	stop := t.e.clock.AfterFunc(d, func() { close(over) })
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

// settle clears the banks of the first epoch once more, where packets may have been sent into the network
// before its switches had all joined, and waits for those that are on their way.
func (e *Engine[R]) settle(ctx context.Context) {
	tracks := e.tracks()
	restless := false
	for _, t := range tracks {
		t.mu.Lock()
		restless = restless || t.isIn && !t.quiet
		t.mu.Unlock()
	}
	if !restless {
		return
	}
	if err := e.clock.Sleep(ctx, e.cfg.Guard+e.cfg.Drain); err != nil {
		return
	}
	var work sync.WaitGroup
	for _, t := range tracks {
		work.Go(func() { t.settle(ctx) })
	}
	work.Wait()
}

// settle clears all banks but the current one.
func (t *track[R]) settle(ctx context.Context) {
	t.mu.Lock()
	if !t.isIn || t.pending > 0 {
		t.mu.Unlock()
		return
	}
	inc := t.incarnation
	var others []int
	for b := range t.banks {
		if b != t.current {
			t.begin(b)
			others = append(others, b)
		}
	}
	t.mu.Unlock()
	quiet := true
	for _, b := range others {
		_, err := t.read(inc, b, noDrain, false)
		quiet = quiet && err == nil && ctx.Err() == nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quiet = quiet && t.isIn && t.incarnation.ID == inc.ID
}
