// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Why a switch is missing from an epoch. Errors of the switch itself are wrapped in others.
var (
	// ErrJoining: the switch's session is new, and it has not seen the whole epoch.
	ErrJoining = errors.New("joined during the epoch")
	// ErrBusy: the bank to write next has not been read to the end, so the switch was not flipped.
	ErrBusy = errors.New("the other bank is still being read; what this epoch counted stays in its bank")
	// ErrMerged: the sealed bank holds more than this epoch, because the switch was not flipped at its start.
	ErrMerged = errors.New("the bank also holds an earlier epoch")
	// ErrLate: the read-out did not end before the deadline.
	ErrLate = errors.New("not read before the deadline")
)

// bankState is what the engine knows of a bank.
type bankState uint8

const (
	clean   bankState = iota // read to the end, holds zeros
	reading                  // a read-out is under way
	dirty                    // holds anything: a read-out failed
)

// track is the engine's view of one member.
type track[R any] struct {
	e *Engine[R]
	m Member[R]

	mu          sync.Mutex
	incarnation Incarnation
	in          chan struct{} // closed while joined; replaced when the member falls out
	isIn        bool
	joining     bool
	tried       bool // a join of this incarnation has begun before: its banks are no longer clean
	current     int  // the bank being written
	since       time.Time
	banks       []bankState
	wasMissing  bool // for the log: one line per change
	everSeen    bool
}

func newTrack[R any](e *Engine[R], m Member[R]) *track[R] {
	return &track[R]{e: e, m: m, in: make(chan struct{})}
}

func sortedTracks[R any](members map[string]*track[R]) []*track[R] {
	out := make([]*track[R], 0, len(members))
	for _, t := range members {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *track[R]) int { return strings.Compare(a.m.Name(), b.m.Name()) })
	return out
}

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
		t.incarnation, t.tried = inc, false
	}
	if t.isIn {
		return true
	}
	if !t.joining {
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
		t.isIn = false
		t.in = make(chan struct{})
	}
}

// join clears all banks and makes the member write into a bank whose beginning is known.
func (t *track[R]) join(inc Incarnation, isClean bool) {
	ctx, cancel := context.WithTimeout(t.e.ctx, DefaultIOLimit)
	defer cancel()
	n := max(t.m.Banks(), 2)
	current, since, err := t.clear(ctx, n, isClean)
	t.mu.Lock()
	t.joining = false
	changed := t.incarnation.ID != inc.ID
	switch {
	case changed:
	case err != nil:
		t.missing(fmt.Errorf("clearing its banks: %w", err))
	default:
		t.current, t.since, t.banks = current, since, make([]bankState, n)
		t.isIn = true
		close(t.in)
	}
	t.mu.Unlock()
	if changed {
		t.check()
	}
}

// clear returns the bank that is written when all others are clean, and since when.
func (t *track[R]) clear(ctx context.Context, n int, isClean bool) (int, time.Time, error) {
	if isClean {
		err := t.m.Flip(ctx, 0)
		return 0, t.e.clock.Now(), err
	}
	// Bank 0 is written while the others are read, then bank 1 while bank 0 is.
	others := make([]int, 0, n-1)
	for b := 1; b < n; b++ {
		others = append(others, b)
	}
	if _, err := t.drain(ctx, 0, others...); err != nil {
		return 0, time.Time{}, err
	}
	since, err := t.drain(ctx, 1, 0)
	return 1, since, err
}

// drain makes the member write into one bank and discards what others hold. It returns since when
// the bank is written. Its wait is one of real time on every clock: it belongs to no epoch.
func (t *track[R]) drain(ctx context.Context, write int, banks ...int) (time.Time, error) {
	if err := t.m.Flip(ctx, write); err != nil {
		return time.Time{}, err
	}
	since := t.e.clock.Now()
	if err := (Wall{}).Sleep(ctx, t.e.cfg.Guard); err != nil {
		return since, err
	}
	for _, b := range banks {
		if _, err := t.m.Read(ctx, b); err != nil {
			return since, err
		}
	}
	return since, nil
}

// seal is the first half of a boundary for one member.
type seal struct {
	bank int           // the sealed bank; read it even when err is set
	flip time.Duration // how long the flip took
	err  error         // why the reading will not count
	read bool          // whether there is a bank to read
}

// flip seals the current bank of an epoch that began at start and ends at end.
func (t *track[R]) flip(ctx context.Context, start, end time.Time) seal {
	inc, err := t.m.Ready()
	t.mu.Lock()
	if err != nil {
		t.fallOut() // whoever was primary meanwhile may have used the banks
		t.mu.Unlock()
		return seal{err: err}
	}
	if !t.checkLocked(inc) {
		t.mu.Unlock()
		return seal{err: ErrJoining}
	}
	if !t.since.Before(end) { // joined right at the boundary: nothing to seal
		t.mu.Unlock()
		return seal{err: ErrJoining}
	}
	sealed, next := t.current, (t.current+1)%len(t.banks)
	if t.banks[next] != clean {
		if t.banks[next] == dirty {
			t.banks[next] = reading
			t.e.goDo(func() { _, _ = t.read(inc, next) })
		}
		t.mu.Unlock()
		return seal{err: ErrBusy}
	}
	s := seal{bank: sealed, read: true}
	switch {
	case t.since.After(start):
		s.err = ErrJoining
	case t.since.Before(start):
		s.err = ErrMerged
	}
	t.banks[sealed] = reading
	t.mu.Unlock()

	begin := time.Now()
	err = t.m.Flip(ctx, next)
	s.flip = time.Since(begin)

	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		// Whether the switch flipped is not known: start over with clean banks.
		if t.incarnation.ID == inc.ID {
			t.fallOut()
		}
		return seal{err: fmt.Errorf("flipping to bank %d: %w", next, err), flip: s.flip}
	}
	t.current, t.since = next, end
	return s
}

// read reads a bank whose state is reading and notes what became of it.
func (t *track[R]) read(inc Incarnation, bank int) (R, error) {
	// Not the epoch's deadline: a late read-out still cleans the bank.
	ctx, cancel := context.WithTimeout(t.e.ctx, max(DefaultIOLimit, 10*t.e.cfg.Interval))
	defer cancel()
	r, err := t.m.Read(ctx, bank)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.incarnation.ID != inc.ID || !t.isIn || bank >= len(t.banks) {
		return r, err
	}
	t.banks[bank] = clean
	if err != nil {
		t.banks[bank] = dirty
		err = fmt.Errorf("reading bank %d: %w", bank, err)
	}
	return r, err
}

// settled logs a change between being in the epochs and missing from them.
func (t *track[R]) settled(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.missing(err)
		return
	}
	if t.wasMissing || !t.everSeen {
		t.e.log.Info("device is measured", "device", t.m.Name())
	}
	t.wasMissing, t.everSeen = false, true
}

// missing logs that the member falls out of the epochs. t.mu is held.
func (t *track[R]) missing(err error) {
	if t.wasMissing || errors.Is(err, ErrJoining) {
		return
	}
	t.wasMissing = true
	t.e.log.Warn("device is missing from the epoch", "device", t.m.Name(), "reason", strings.ReplaceAll(err.Error(), "\n", "; "))
}
