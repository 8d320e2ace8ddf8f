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

// source is a switch and the state of its banks.
type source struct {
	g  *Group
	sw Switch

	mu          sync.Mutex
	incarnation Incarnation
	in          chan struct{} // closed when the switch has joined and its banks are clean; replaced when it leaves
	isIn        bool          // the switch is flipped and read at boundaries
	joining     bool
	flipping    chan struct{} // closed when the flip in progress ends; nil if there is none
	joinErr     error         // why the latest join failed
	tried       bool          // an earlier join of this incarnation began, so its banks are no longer clean
	quiet       bool          // before the first epoch: all its packets carried bank 0
	current     int           // the bank in use
	from        uint64        // the first epoch that was counted completely since current came into use
	spoiled     error         // why current was not clean when it came into use; nil if it was clean
	banks       []bank
	// recent epochs in which the switch may have counted in another bank than the other switches
	out      []uint64
	isolated bool      // no packet of the switch could reach another switch at the latest boundary
	offered  *Handover // state from the previous collector; nil if there was none or it was used
}

// bank is the state of one bank.
type bank struct {
	unread error    // why the bank may hold data of earlier epochs; nil if it is clean or in use
	reader *readout // the read-out in progress; nil if there is none
}

// readout is a read-out of one bank. It is canceled if the bank comes into use again.
type readout struct {
	ctx       context.Context
	cancel    context.CancelFunc
	overtaken bool          // the bank is in use again; guarded by the source's mu
	done      chan struct{} // closed when the read-out ends
}

func newSource(g *Group, sw Switch) *source { return &source{g: g, sw: sw, in: make(chan struct{})} }

// Name is the name of the switch.
func (s *source) Name() string { return s.sw.Name() }

// Sealing returns SealedByCollector: the collector flips the switch.
func (s *source) Sealing() epoch.Sealing { return epoch.SealedByCollector }

// Begin starts a boundary. It also prepares the read-out: doing that in each source's goroutine
// would cost more, because its stack would have to grow.
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

// part is a switch at one boundary, where the bank of the ending epoch is sealed and read.
type part struct {
	*source
	epoch.Boundary
	limits  *bounds
	inc     Incarnation
	bank    int      // the sealed bank
	readout *readout // the bank's read-out, prepared by Begin; nil if the bank cannot be read
	inStep  bool     // the switch counted in the epoch's bank for the whole epoch
	err     error    // reason for which the reading is not used
	inexact []string // accuracy warnings
}

// Seal flips the switch to the bank of the next epoch, also if that bank has not been read.
func (p *part) Seal(ctx context.Context) error {
	begin := time.Now()
	next, spoiled, err := p.seal()
	if err == nil {
		err = p.flip(next, spoiled)
	} else {
		p.readout.cancel()
		p.readout = nil
	}
	if silent := p.silent(err); !silent && (!p.inStep && !p.Opening || err != nil && p.Opening) {
		p.outOfStep(p.Number)
	}
	if err == nil && ctx.Err() != nil { // the first packets of the next epoch still carried the other bank
		took := time.Since(begin)
		p.inexact = append(p.inexact,
			fmt.Sprintf("the flip at the end of the epoch took %v; other switches were read before", took))
		p.outOfStep(p.Number + 1)
	}
	return err
}

// seal prepares the flip: it determines the next bank, and whether the sealed bank holds exactly
// the epoch.
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
	if next == p.bank { // epochs were skipped: the switch is in the right bank, which also holds the earlier epoch
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

// flip flips the switch. If the flip fails, the bank in use is unknown, and the switch joins
// again.
func (p *part) flip(next int, spoiled error) error {
	err := p.sw.Flip(p.limits.flip, next)
	if err == nil && p.g.openNumber() != p.Number+1 {
		err = errors.New("the switch acknowledged the flip epochs later")
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

// Collect reads the sealed bank. It continues after the deadline, until the bank comes into use
// again.
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
	// If the bank held an earlier epoch, it is clean now, but the reading is not used.
	return epoch.Result{Reading: reading, Warnings: p.inexact}, cmp.Or(p.err, err)
}

// supersede cancels the read-out of a bank that comes into use, and returns why the bank is not
// clean. The caller holds s.mu.
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

// beginReadout records that r reads a bank, and returns r; nil if an earlier read-out of the bank
// has not ended. The caller holds s.mu.
func (s *source) beginReadout(bank int, r *readout) *readout {
	b := &s.banks[bank]
	if b.reader != nil {
		r.cancel()
		return nil
	}
	b.reader = r
	return r
}

// endReadout records the end of a read-out; unread says why the bank may still hold data. The
// caller holds s.mu.
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

// noDrain is the drained function of a reading that is not used.
func noDrain(context.Context) error { return nil }

// read reads a bank and updates its state. With again, it reads a bank that was not read
// completely once more, so that the bank is clean when it comes into use.
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

// silent reports whether a switch that cannot be flipped, for the reason err, sent no packets to
// other switches in the ending epoch: it was isolated at the beginning and at the end. It returns
// false if err is nil, because the switch was flipped then.
func (s *source) silent(err error) bool {
	now := err != nil && s.g.cfg.Isolated != nil && s.g.cfg.Isolated(s.Name())
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.isolated
	s.isolated = now
	return now && before
}

// outOfStep records that the switch was out of step in an epoch.
func (s *source) outOfStep(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = append(s.out, number)
}

// warnings returns warnings about packets that the switch sent in an earlier epoch in which it was
// out of step: other switches may have counted these packets in the bank of this epoch, which they
// have not read since.
func (s *source) warnings(number uint64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	banks := uint64(max(len(s.banks), 2))
	s.out = slices.DeleteFunc(s.out, func(out uint64) bool { return out+banks <= number })
	for _, out := range s.out {
		if out < number {
			return []string{fmt.Sprintf("the switch was out of step in epoch %d: packets that it sent then may be "+
				"counted in this epoch", out)}
		}
	}
	return nil
}
