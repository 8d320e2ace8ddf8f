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
	// ErrJoining: the switch's session is new, and it has not seen the whole epoch from a clean bank on.
	ErrJoining = errors.New("joined during the epoch")
	// ErrUnread: the bank had not been read to the end when the epoch began.
	ErrUnread = errors.New("its bank had not been read to the end before, and also holds an earlier epoch")
	// ErrMerged: the sealed bank holds more than this epoch, because the switch was not flipped at its start.
	ErrMerged = errors.New("the bank also holds an earlier epoch")
	// ErrFlipping: the switch has not answered an earlier flip.
	ErrFlipping = errors.New("has not answered the flip of an earlier epoch")
	// ErrLate: the read-out did not end before the deadline.
	ErrLate = errors.New("not read before the deadline")
)

// bank is what the engine knows of one bank of a member.
type bank struct {
	unread error   // why it may hold something from before the epoch that is counted in it next; nil: nothing
	reader *reader // the read-out under way; nil: none
}

// reader is a read-out of one bank. It ends when the bank is written again, whether it got that far or not.
type reader struct {
	ctx       context.Context
	cancel    context.CancelFunc
	overtaken bool          // the bank is written again; guarded by the track's mu
	done      chan struct{} // closed at its end
}

// track is the engine's view of one member.
type track[R any] struct {
	e *Engine[R]
	m Member[R]

	mu          sync.Mutex
	incarnation Incarnation
	in          chan struct{} // closed when the member has joined and its banks are clean; replaced when it falls out
	isIn        bool          // it is flipped and read at boundaries
	joining     bool
	flipping    chan struct{} // closed when the boundary's flip that is under way has ended; nil: none is
	joinErr     error         // why the newest join failed
	tried       bool          // a join of this incarnation has begun before: its banks are no longer clean
	quiet       bool          // before the first epoch: no packet of its carried another bank than 0
	current     int           // the bank being written, or flipped to
	since       time.Time
	spoiled     error // what current held as it began to be written; nil: nothing
	banks       []bank
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
	bank    int           // the sealed bank; read it even when err is set
	reader  *reader       // for that; nil: it cannot be read
	inc     Incarnation   // whose bank it is
	flipped bool          // it writes for the next epoch
	flip    time.Duration // how long the flip took
	err     error         // why the reading will not count
	inStep  bool          // it wrote into the epoch's bank all the time
}

// flip seals the current bank of an epoch that began at start and ends at end. number is that of the epoch; the
// next one begins. A member is flipped whatever the state of its next bank: so it stays in step with the others,
// and the epoch that is counted in a bank that was not read to the end is the only one to suffer.
func (t *track[R]) flip(start, end time.Time, number uint64) seal {
	inc, err := t.m.Ready()
	t.mu.Lock()
	if err != nil {
		t.fallOut() // whoever was primary meanwhile may have used the banks
		t.mu.Unlock()
		return seal{err: err}
	}
	if t.flipping != nil && t.incarnation.ID == inc.ID {
		t.mu.Unlock()
		return seal{err: ErrFlipping}
	}
	if !t.checkLocked(inc) {
		err := ErrJoining
		if t.joinErr != nil {
			err = fmt.Errorf("%w: %w", ErrJoining, t.joinErr)
		}
		t.mu.Unlock()
		return seal{err: err}
	}
	sealed, next := t.current, t.e.bankOf(number+1, len(t.banks))
	s := seal{bank: sealed, inc: inc, inStep: !t.since.After(start) && sealed == t.e.bankOf(number, len(t.banks))}
	switch {
	case t.since.After(start):
		s.err = ErrJoining
	case t.since.Before(start):
		s.err = ErrMerged
	default:
		s.err = t.spoiled
	}
	if next == sealed {
		// Epochs were skipped: it is in the right bank now, with too much in it.
		t.mu.Unlock()
		s.err = cmp.Or(s.err, ErrMerged)
		return s
	}
	if s.reader = t.begin(sealed); s.reader == nil {
		s.err = cmp.Or(s.err, ErrUnread)
	}
	spoiled := t.overtake(next)
	t.flipping, t.current = make(chan struct{}), next
	t.mu.Unlock()

	// Not the epoch's deadline: a switch that is slow to flip is in step all the same when it has.
	ctx, cancel := context.WithTimeout(t.e.ctx, DefaultIOLimit)
	begin := time.Now()
	err = t.m.Flip(ctx, next)
	s.flip = time.Since(begin)
	cancel()

	t.mu.Lock()
	close(t.flipping)
	t.flipping = nil
	if open, _ := t.e.Current(); err == nil && open != number+1 {
		err = errors.New("answered epochs later")
	}
	if err == nil && t.isIn && t.incarnation.ID == inc.ID {
		t.since, t.spoiled, s.flipped = end, spoiled, true
		t.mu.Unlock()
		return s
	}
	// Which bank it writes is not known: it joins anew at once.
	if s.reader != nil {
		t.end(inc, sealed, s.reader, ErrJoining)
	}
	if t.incarnation.ID == inc.ID {
		t.fallOut()
	}
	t.mu.Unlock()
	t.check()
	if err == nil {
		err = ErrJoining
	}
	return seal{err: fmt.Errorf("flipping to bank %d: %w", next, err), flip: s.flip}
}

// overtake ends a read-out of a bank that is to be written, and tells what the bank may hold. t.mu is held.
func (t *track[R]) overtake(bank int) (holds error) {
	b := &t.banks[bank]
	if b.reader != nil {
		b.reader.overtaken = true
		b.reader.cancel()
		b.unread = cmp.Or(b.unread, ErrUnread)
	}
	return b.unread
}

// begin notes that a bank is being read. It returns nil where an earlier read-out of it has not ended. t.mu is held.
func (t *track[R]) begin(bank int) *reader {
	b := &t.banks[bank]
	if b.reader != nil {
		return nil
	}
	r := &reader{done: make(chan struct{})}
	// Not the epoch's deadline: a late read-out still cleans the bank.
	r.ctx, r.cancel = context.WithTimeout(t.e.ctx, max(DefaultIOLimit, 10*t.e.cfg.Interval))
	b.reader = r
	return r
}

// end notes that a read-out is over, and what became of the bank. t.mu is held.
func (t *track[R]) end(inc Incarnation, bank int, r *reader, err error) {
	r.cancel()
	close(r.done)
	if bank >= len(t.banks) || t.banks[bank].reader != r {
		return
	}
	b := &t.banks[bank]
	b.reader = nil
	if t.incarnation.ID == inc.ID && !r.overtaken {
		b.unread = err
	}
}

// noDrain is for a reading that does not count.
func noDrain(context.Context) error { return nil }

// read reads a bank and notes what became of it. With again, one that was not read to the end is read once more, so
// that it is clean when it is to be written.
func (t *track[R]) read(inc Incarnation, bank int, r *reader, drained Drained, again bool) (R, error) {
	reading, err := t.m.Read(r.ctx, bank, drained)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.end(inc, bank, r, nil)
		return reading, nil
	}
	t.end(inc, bank, r, ErrUnread)
	if again && !r.overtaken && t.isIn && t.incarnation.ID == inc.ID {
		if r := t.begin(bank); r != nil && !t.e.goDo(func() { _, _ = t.read(inc, bank, r, noDrain, false) }) {
			t.end(inc, bank, r, ErrUnread)
		}
	}
	return reading, fmt.Errorf("reading bank %d: %w", bank, err)
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
