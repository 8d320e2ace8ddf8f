// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"cmp"
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
	ErrBusy = errors.New("the other bank is still being read; what this epoch counted is lost")
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
	fresh       bool // the current bank was not empty when it joined
	skipped     bool // it is out because it was skipped: what is known of the banks still holds
	quiet       bool // before the first epoch: no packet of its carried another bank than 0
	current     int  // the bank being written
	since       time.Time
	banks       []bankState
	pending     int      // banks of this incarnation that are being read
	out         []uint64 // recent epochs in which it may have written another bank than the others
	wasMissing  bool     // for the log: one line per change
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

// seal is the first half of a boundary for one member.
type seal struct {
	bank   int           // the sealed bank; read it even when err is set
	flip   time.Duration // how long the flip took
	err    error         // why the reading will not count
	read   bool          // whether there is a bank to read
	inStep bool          // it wrote into the epoch's bank all the time
}

// flip seals the current bank of an epoch that began at start and ends at end. number is that of the epoch; the
// next one begins.
func (t *track[R]) flip(ctx context.Context, start, end time.Time, number uint64) seal {
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
	sealed, next := t.current, t.e.bankOf(number+1, len(t.banks))
	s := seal{bank: sealed, read: true, inStep: !t.since.After(start) && sealed == t.e.bankOf(number, len(t.banks))}
	switch {
	case t.fresh || t.since.After(start):
		s.err = ErrJoining
	case t.since.Before(start):
		s.err = ErrMerged
	}
	if next == sealed {
		// Its joining lasted over a boundary, or epochs were skipped: it is in the right bank now, with too much in it.
		t.mu.Unlock()
		return seal{err: cmp.Or(s.err, ErrMerged), inStep: s.inStep}
	}
	if t.banks[next] != clean {
		if t.banks[next] == dirty {
			t.readAside(inc, next)
		}
		t.fallOut()
		t.skipped = true
		t.mu.Unlock()
		return seal{err: ErrBusy, inStep: s.inStep}
	}
	t.begin(sealed)
	t.mu.Unlock()

	begin := time.Now()
	err = t.m.Flip(ctx, next)
	s.flip = time.Since(begin)

	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		// Whether the switch flipped is not known: start over with clean banks.
		if t.incarnation.ID == inc.ID {
			t.pending--
			t.banks[sealed] = dirty
			t.fallOut()
		}
		return seal{err: fmt.Errorf("flipping to bank %d: %w", next, err), flip: s.flip}
	}
	t.current, t.since, t.fresh = next, end, false
	return s
}

// begin notes that a bank is being read. t.mu is held.
func (t *track[R]) begin(bank int) {
	t.banks[bank] = reading
	t.pending++
}

// readAside reads a bank for nobody. t.mu is held.
func (t *track[R]) readAside(inc Incarnation, bank int) {
	t.begin(bank)
	if !t.e.goDo(func() { _, _ = t.read(inc, bank, noDrain, false) }) {
		t.pending--
	}
}

// noDrain is for a reading that does not count.
func noDrain(context.Context) error { return nil }

// read reads a bank whose state is reading and notes what became of it. With again, one that was not read to the
// end is read once more, so that it is clean when it is to be written.
func (t *track[R]) read(inc Incarnation, bank int, drained Drained, again bool) (R, error) {
	// Not the epoch's deadline: a late read-out still cleans the bank.
	ctx, cancel := context.WithTimeout(t.e.ctx, max(DefaultIOLimit, 10*t.e.cfg.Interval))
	defer cancel()
	r, err := t.m.Read(ctx, bank, drained)
	t.mu.Lock()
	if t.incarnation.ID != inc.ID || bank >= len(t.banks) {
		t.mu.Unlock()
		return r, err
	}
	t.pending--
	t.banks[bank] = clean
	if err != nil {
		t.banks[bank] = dirty
		err = fmt.Errorf("reading bank %d: %w", bank, err)
		if again && t.isIn {
			t.readAside(inc, bank)
		}
	}
	skipped := !t.isIn && t.pending == 0 // because of this
	t.mu.Unlock()
	if skipped && t.e.ctx.Err() == nil {
		t.check()
	}
	return r, err
}

// wasOut notes that the member was out of step in an epoch.
func (t *track[R]) wasOut(number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out = append(t.out, number)
}

// doubt says whether the member's packets may be in the bank of an epoch at others, although they belong to an
// earlier one: since others last read that bank, it has been out of step.
func (t *track[R]) doubt(number uint64) (Doubt, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	banks := uint64(max(len(t.banks), 2))
	t.out = slices.DeleteFunc(t.out, func(out uint64) bool { return out+banks <= number })
	for _, out := range t.out {
		if out < number {
			return Doubt{t.m.Name(), fmt.Sprintf("was out of step in epoch %d: what it sent then may have been counted in this one", out)}, true
		}
	}
	return Doubt{}, false
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
