// SPDX-License-Identifier: Apache-2.0

package banks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
)

// source is a switch with the state of its banks.
type source struct {
	g  *Group
	sw Switch

	mu          sync.Mutex
	incarnation Incarnation
	in          chan struct{} // closed when the switch has joined and its banks are clean; replaced when it leaves
	isIn        bool          // it is flipped and read at boundaries
	joining     bool
	flipping    chan struct{} // closed at the end of the boundary's flip in progress; nil: none
	joinErr     error         // why the latest join failed
	tried       bool          // a join of this incarnation began before: its banks are no longer clean
	quiet       bool          // before the first epoch: none of its packets carried another bank than 0
	current     int           // the bank in use
	from        uint64        // the first epoch that was counted as a whole since current is in use
	spoiled     error         // why current was not clean when it came into use; nil: it was
	banks       []bank
	out         []uint64  // recent epochs in which it may have counted in another bank than the others
	offered     *Handover // of the collector before; nil: none, or it has been used
}

// bank is the state of one bank.
type bank struct {
	unread error    // why it may hold data of earlier epochs; nil: it does not, except while it is in use
	reader *readout // the read-out in progress; nil: none
}

// readout is a read-out of one bank. It is cancelled if the bank comes into use again.
type readout struct {
	ctx       context.Context
	cancel    context.CancelFunc
	overtaken bool          // the bank is in use again; guarded by the source's mu
	done      chan struct{} // closed at its end
}

func newSource(g *Group, sw Switch) *source { return &source{g: g, sw: sw, in: make(chan struct{})} }

// Name is the name of the switch.
func (s *source) Name() string { return s.sw.Name() }

// Sealing: a switch is flipped by the collector.
func (s *source) Sealing() epoch.Sealing { return epoch.SealedByCollector }

// Begin starts a boundary. It prepares the read-out, which costs more in the goroutine of each
// source: its stack would grow.
func (s *source) Begin(b epoch.Boundary) (epoch.Part, []string) {
	limits := s.g.begin(b.Number + 1)
	if b.Opening {
		s.mu.Lock()
		quiet := s.quiet
		s.mu.Unlock()
		if !quiet {
			s.outOfStep(b.Number)
		}
	}
	return &part{source: s, Boundary: b, limits: limits, readout: newReadout(limits.read)}, s.warnings(b.Number)
}

// part is a switch at one boundary: the bank of the ending epoch is sealed and read.
type part struct {
	*source
	epoch.Boundary
	limits  *bounds
	inc     Incarnation
	bank    int      // the sealed one
	readout *readout // of that bank, prepared by Begin; nil: it cannot be read
	inStep  bool     // the switch counted in the epoch's bank all the time
	err     error    // why the reading does not count
	inexact []string // accuracy warnings
}

// Seal flips the switch to the bank of the next epoch, whatever the state of that bank is.
func (p *part) Seal(ctx context.Context) error {
	begin := time.Now()
	next, spoiled, err := p.seal()
	if err == nil {
		err = p.flip(next, spoiled)
	} else {
		p.readout.cancel()
		p.readout = nil
	}
	if !p.inStep && !p.Opening || err != nil && p.Opening {
		p.outOfStep(p.Number)
	}
	if err == nil && ctx.Err() != nil { // its first packets still carried the other bank
		took := time.Since(begin)
		p.inexact = append(p.inexact, fmt.Sprintf("its flip at the end took %v; the others were read before", took))
		p.outOfStep(p.Number + 1)
	}
	return err
}

// seal prepares the flip: it determines the next bank and what the sealed one holds.
func (p *part) seal() (next int, spoiled, err error) {
	inc, err := p.sw.Ready()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.leave() // another primary may have used the banks
		return 0, nil, err
	case p.flipping != nil && p.incarnation.ID == inc.ID:
		return 0, nil, ErrFlipping
	case !p.checkLocked(inc):
		return 0, nil, cmp.Or(p.joinErr, epoch.ErrJoining)
	}
	n := len(p.banks)
	p.inc, p.bank, next = inc, p.current, p.g.bankOf(p.Number+1, n)
	p.inStep = p.from <= p.Number && p.bank == p.g.bankOf(p.Number, n)
	switch {
	case p.Opening:
	case p.from > p.Number:
		p.err = epoch.ErrJoining
	case p.from < p.Number:
		p.err = ErrMerged
	default:
		p.err = p.spoiled
	}
	if next == p.bank { // epochs were skipped: it is in the right bank, which also holds the earlier epoch
		return 0, nil, cmp.Or(p.err, ErrMerged)
	}
	if p.readout = p.beginReadout(p.bank, p.readout); p.readout == nil {
		p.err = cmp.Or(p.err, ErrUnread)
	}
	spoiled = p.supersede(next)
	if p.Opening && spoiled != nil {
		p.err = ErrUnread
	}
	p.flipping, p.current = make(chan struct{}), next
	return next, spoiled, nil
}

// flip flips the switch. If that fails, the bank in use is unknown and the switch joins anew.
func (p *part) flip(next int, spoiled error) error {
	err := p.sw.Flip(p.limits.flip, next)
	if err == nil && p.g.openNumber() != p.Number+1 {
		err = errors.New("acknowledged epochs later")
	}
	p.mu.Lock()
	close(p.flipping)
	p.flipping = nil
	same := p.incarnation.ID == p.inc.ID
	if err == nil && p.isIn && same {
		p.from, p.spoiled = p.Number+1, spoiled
		p.mu.Unlock()
		return nil
	}
	p.inStep = false
	if p.readout != nil {
		p.endReadout(p.inc, p.bank, p.readout, epoch.ErrJoining)
	}
	if same {
		p.leave()
	}
	p.mu.Unlock()
	p.check()
	return fmt.Errorf("flipping to bank %d: %w", next, cmp.Or(err, epoch.ErrJoining))
}

// Collect reads the sealed bank. It goes on after the deadline until the bank comes into use again.
func (p *part) Collect(_ context.Context, drained epoch.Drained) (epoch.Result, error) {
	if p.readout == nil {
		return epoch.Result{Warnings: p.inexact}, p.err
	}
	reading, err := p.read(p.inc, p.bank, p.readout, drained, true)
	var inexact *InexactError
	if errors.As(err, &inexact) {
		err = nil
		p.inexact = append(p.inexact, inexact.Reason)
		p.outOfStep(p.Number + 1)
	}
	// A bank that held an earlier epoch is clean now; the reading does not count.
	return epoch.Result{Reading: reading, Warnings: p.inexact}, cmp.Or(p.err, err)
}

// supersede cancels a read-out of a bank that comes into use, and returns why the bank is not
// clean. s.mu is held.
func (s *source) supersede(bank int) error {
	b := &s.banks[bank]
	if b.reader != nil {
		b.reader.overtaken = true
		b.reader.cancel()
		b.unread = cmp.Or(b.unread, ErrUnread)
	}
	return b.unread
}

// newReadout returns a read-out that ends with ctx, for beginReadout.
func newReadout(ctx context.Context) *readout {
	r := &readout{done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// beginReadout notes that r reads a bank, and returns r; nil if an earlier read-out of the bank has
// not ended. s.mu is held.
func (s *source) beginReadout(bank int, r *readout) *readout {
	b := &s.banks[bank]
	if b.reader != nil {
		r.cancel()
		return nil
	}
	b.reader = r
	return r
}

// endReadout notes the end of a read-out; unread is why the bank may hold data. s.mu is held.
func (s *source) endReadout(inc Incarnation, bank int, r *readout, unread error) {
	r.cancel()
	close(r.done)
	if bank >= len(s.banks) || s.banks[bank].reader != r {
		return
	}
	b := &s.banks[bank]
	b.reader = nil
	if s.incarnation.ID == inc.ID && !r.overtaken {
		b.unread = unread
	}
}

// noDrain is for a reading that does not count.
func noDrain(context.Context) error { return nil }

// read reads a bank and updates its state. With again, a bank that was not read to the end is read
// once more, so that it is clean when it comes into use.
func (s *source) read(inc Incarnation, bank int, r *readout, drained epoch.Drained,
	again bool,
) (*epoch.Reading, error) {
	reading, err := s.sw.Read(r.ctx, bank, drained)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.endReadout(inc, bank, r, nil)
		return reading, nil
	}
	s.endReadout(inc, bank, r, ErrUnread)
	if again && !r.overtaken && s.isIn && s.incarnation.ID == inc.ID {
		r := s.beginReadout(bank, newReadout(s.g.bound(s.g.readLimit())))
		if r != nil && !s.g.goDo(func() { _, _ = s.read(inc, bank, r, noDrain, false) }) {
			s.endReadout(inc, bank, r, ErrUnread)
		}
	}
	return reading, fmt.Errorf("reading bank %d: %w", bank, err)
}

// outOfStep notes that the switch was out of step in an epoch.
func (s *source) outOfStep(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = append(s.out, number)
}

// warnings warns of packets that the switch sent in an earlier epoch in which it was out of step:
// other switches may have counted them in the bank of this one, which they have not read since.
func (s *source) warnings(number uint64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	banks := uint64(max(len(s.banks), 2))
	s.out = slices.DeleteFunc(s.out, func(out uint64) bool { return out+banks <= number })
	for _, out := range s.out {
		if out < number {
			return []string{fmt.Sprintf("was out of step in epoch %d: packets that it sent then may be counted in this "+
				"epoch", out)}
		}
	}
	return nil
}
