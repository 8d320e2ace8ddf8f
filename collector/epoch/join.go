// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// recheck is how often a member that is waited for is asked whether it is ready.
const recheck = 50 * time.Millisecond

// wait waits until the member has joined and no bank of its is being read; false when ctx ends before.
func (t *track[R]) wait(ctx context.Context) bool {
	again := time.NewTicker(recheck)
	defer again.Stop()
	for {
		t.check()
		done := t.busy()
		if done == nil {
			return true
		}
		select {
		case <-done:
		case <-again.C:
		case <-ctx.Done():
			return false
		}
	}
}

// busy returns what ends when the member may have joined or been read; nil when both are so.
func (t *track[R]) busy() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flipping != nil {
		return t.flipping
	}
	select {
	case <-t.in:
	default:
		return t.in
	}
	for _, b := range t.banks {
		if b.reader != nil {
			return b.reader.done
		}
	}
	return nil
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
		t.incarnation, t.tried, t.joinErr = inc, false, nil
	}
	if t.isIn {
		return true
	}
	if !t.joining && t.flipping == nil { // the end of a flip comes back to it
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
	if t.isIn {
		t.isIn, t.quiet = false, false
		t.in = make(chan struct{})
	}
}

// join makes the member write into the bank of the open epoch, from when on it is in step, and then clears its other
// banks. A boundary that comes before that is done ends it: the epoch that begins then is counted in a bank that is
// not clean, and at its end that bank is cleared as it is read.
func (t *track[R]) join(inc Incarnation, isClean bool) {
	ctx, cancel := context.WithTimeout(t.e.ctx, DefaultIOLimit)
	defer cancel()
	if in := t.enter(ctx, inc, isClean); in != nil {
		t.clear(ctx, inc)
		close(in)
	}
}

// enter flips until the member writes into the bank of the epoch that is open then. It returns what to close when
// its banks are clean; nil where that failed.
func (t *track[R]) enter(ctx context.Context, inc Incarnation, isClean bool) (in chan struct{}) {
	n := max(t.m.Banks(), 2)
	banks := make([]bank, n)
	for b := range banks {
		if !isClean || b == 0 { // programs begin with bank 0
			banks[b].unread = ErrJoining
		}
	}
	for {
		bank := t.e.openBank(n)
		err := t.m.Flip(ctx, bank)
		t.mu.Lock()
		switch {
		case t.incarnation.ID != inc.ID:
			t.joining = false
			t.mu.Unlock()
			t.check()
			return nil
		case err != nil:
			t.joining, t.joinErr = false, fmt.Errorf("flipping to bank %d: %w", bank, err)
			t.missing(t.joinErr)
			t.mu.Unlock()
			return nil
		case t.e.openBank(n) != bank: // a boundary has passed
			banks[bank].unread = ErrJoining
			t.mu.Unlock()
			continue
		}
		for b := range min(n, len(t.banks)) {
			banks[b].reader = t.banks[b].reader
		}
		t.current, t.since, t.spoiled, t.banks = bank, t.e.clock.Now(), banks[bank].unread, banks
		t.joining, t.joinErr, t.isIn, t.quiet = false, nil, true, isClean && bank == 0
		in = t.in
		t.mu.Unlock()
		return in
	}
}

// clear discards what banks hold that are not written, after a pause in which packets of theirs leave the network.
// The pause is over when it is on either clock: it belongs to no epoch.
func (t *track[R]) clear(ctx context.Context, inc Incarnation) {
	paused := false
	for b := 0; ; {
		t.mu.Lock()
		if !t.isIn || t.incarnation.ID != inc.ID || b >= len(t.banks) || ctx.Err() != nil {
			t.mu.Unlock()
			return
		}
		if t.banks[b].unread == nil || b == t.current {
			t.mu.Unlock()
			b++
			continue
		}
		if !paused {
			t.mu.Unlock()
			paused = true
			_ = t.pause(ctx, t.e.cfg.Guard+t.e.cfg.Drain) // its error is ctx's
			continue
		}
		if r := t.banks[b].reader; r != nil {
			t.mu.Unlock()
			select {
			case <-r.done:
			case <-ctx.Done():
			}
			continue
		}
		r := t.begin(b)
		t.mu.Unlock()
		if _, err := t.read(inc, b, r, noDrain, false); err != nil {
			t.mu.Lock()
			if !r.overtaken {
				t.missing(fmt.Errorf("clearing its banks: %w", err))
			}
			t.mu.Unlock()
		}
		b++
	}
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
	inc := t.incarnation
	readers := map[int]*reader{}
	quiet := t.isIn
	if t.isIn {
		for b := range t.banks {
			if b == t.current {
				continue
			}
			if r := t.begin(b); r != nil {
				readers[b] = r
			} else {
				quiet = false
			}
		}
	}
	t.mu.Unlock()
	for b, r := range readers {
		_, err := t.read(inc, b, r, noDrain, false)
		quiet = quiet && err == nil && ctx.Err() == nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quiet = quiet && t.isIn && t.incarnation.ID == inc.ID
}
