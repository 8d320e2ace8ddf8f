// SPDX-License-Identifier: Apache-2.0

package banks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
)

// recheck is how often wait checks whether a switch is ready.
const recheck = 50 * time.Millisecond

// wait waits until the switch has joined and none of its banks is being read, or until the switch
// was removed. It returns false if ctx ends first.
func (s *source) wait(ctx context.Context) bool {
	again := time.NewTicker(recheck)
	defer again.Stop()
	for s.g.has(s) {
		s.check()
		done := s.busy()
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
	return true
}

// busy returns a channel that is closed when a flip, a join or a read-out in progress ends; nil if
// none is in progress.
func (s *source) busy() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flipping != nil {
		return s.flipping
	}
	select {
	case <-s.in:
	default:
		return s.in
	}
	for _, b := range s.banks {
		if b.reader != nil {
			return b.reader.done
		}
	}
	return nil
}

// check starts a join if the switch is ready and has not joined in this incarnation.
func (s *source) check() {
	inc, err := s.sw.Ready()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.leave()
		return
	}
	s.checkLocked(inc)
}

// checkLocked does the work of check for a switch that is ready, and reports whether the switch
// has joined. The caller holds s.mu.
func (s *source) checkLocked(inc Incarnation) bool {
	if s.incarnation.ID != inc.ID {
		s.leave()
		s.incarnation, s.tried, s.joinErr = inc, false, nil
	}
	if s.isIn || s.adopt(inc) {
		return true
	}
	if !s.joining && s.flipping == nil { // during a flip, flip checks again at its end
		s.joining = true
		isClean := inc.Clean && !s.tried
		s.tried = true
		if !s.g.goDo(func() { s.join(inc, isClean) }) {
			s.joining = false
		}
	}
	return false
}

// leave resets a switch whose banks are unknown. The caller holds s.mu.
func (s *source) leave() {
	if s.isIn {
		s.isIn, s.quiet = false, false
		s.in = make(chan struct{})
	}
}

// join flips the switch to the bank of the open epoch, so that it is in step, and then clears its
// other banks. If a boundary comes before they are clear, the next epoch is counted in a bank that
// is not clean, and is lost for the switch; the read-out at that epoch's end clears the bank.
func (s *source) join(inc Incarnation, isClean bool) {
	ctx, cancel := context.WithTimeout(s.g.ctx, s.g.clock.IOLimit(ioLimit))
	defer cancel()
	if in := s.enter(ctx, inc, isClean); in != nil {
		s.clear(ctx, inc)
		close(in)
	}
}

// enter flips the switch until it counts in the bank of the open epoch. It returns the channel to
// close when the other banks are clean; nil if it failed.
func (s *source) enter(ctx context.Context, inc Incarnation, isClean bool) (in chan struct{}) {
	n := max(s.sw.Banks(), 2)
	banks := make([]bank, n)
	for b := range banks {
		if !isClean || b == 0 { // a pipeline begins with bank 0
			banks[b].unread = epoch.ErrJoining
		}
	}
	for {
		bank, _ := s.g.openBank(n)
		err := s.sw.Flip(ctx, bank)
		s.mu.Lock()
		now, from := s.g.openBank(n)
		switch {
		case s.incarnation.ID != inc.ID:
			s.joining = false
			s.mu.Unlock()
			s.check()
			return nil
		case err != nil:
			s.joining, s.joinErr = false, fmt.Errorf("flipping to bank %d: %w", bank, err)
			s.mu.Unlock()
			return nil
		case now != bank: // a boundary has passed meanwhile
			banks[bank].unread = epoch.ErrJoining
			s.mu.Unlock()
			continue
		}
		for b := range min(n, len(s.banks)) {
			banks[b].reader = s.banks[b].reader
		}
		s.current, s.from, s.spoiled, s.banks = bank, from, banks[bank].unread, banks
		s.joining, s.joinErr, s.isIn, s.quiet = false, nil, true, isClean && bank == 0
		in = s.in
		s.mu.Unlock()
		return in
	}
}

// clear reads and discards the banks that are neither clean nor in use. It first pauses until
// packets that carry these banks have left the network.
func (s *source) clear(ctx context.Context, inc Incarnation) {
	unread := s.unread()
	if len(unread) == 0 || s.g.pause(ctx, s.g.cfg.Guard+s.g.cfg.Drain) != nil {
		return
	}
	for _, b := range unread {
		for {
			mine, other := s.claim(inc, b)
			if mine != nil {
				_, _ = s.read(inc, b, mine, noDrain, false) // the switch's state reports errors
				break
			}
			if other == nil {
				break
			}
			select {
			case <-other.done:
			case <-ctx.Done():
				return
			}
		}
	}
}

// unread lists the banks that are neither clean nor in use.
func (s *source) unread() (list []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.banks {
		if s.banks[b].unread != nil && b != s.current {
			list = append(list, b)
		}
	}
	return list
}

// claim begins a read-out (mine) of a bank that is neither clean nor in use. If the bank is
// already being read, claim returns that read-out (other).
func (s *source) claim(inc Incarnation, b int) (mine, other *readout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.isIn || s.incarnation.ID != inc.ID || b >= len(s.banks) || s.banks[b].unread == nil || b == s.current:
		return nil, nil
	case s.banks[b].reader != nil:
		return nil, s.banks[b].reader
	}
	return s.beginReadout(b, newReadout(s.g.bound(s.g.readLimit()))), nil
}

// Prepare clears all banks once more before the first epoch if packets entered the network before
// all switches had joined: these packets may carry any bank. It first waits until they have left.
func (g *Group) Prepare(ctx context.Context) {
	sources := g.flipped()
	quiet := true
	for _, s := range sources {
		s.mu.Lock()
		quiet = quiet && (s.quiet || !s.isIn)
		s.mu.Unlock()
	}
	if quiet || g.clock.Sleep(ctx, g.cfg.Guard+g.cfg.Drain) != nil {
		return
	}
	var work sync.WaitGroup
	for _, s := range sources {
		work.Go(func() { s.prepare(ctx) })
	}
	work.Wait()
}

// prepare clears all banks that are not in use.
func (s *source) prepare(ctx context.Context) {
	s.mu.Lock()
	inc := s.incarnation
	readouts := map[int]*readout{}
	quiet := s.isIn
	for b := range s.banks {
		if !s.isIn || b == s.current {
			continue
		}
		if r := s.beginReadout(b, newReadout(s.g.bound(s.g.readLimit()))); r != nil {
			readouts[b] = r
		} else {
			quiet = false
		}
	}
	s.mu.Unlock()
	for b, r := range readouts {
		_, err := s.read(inc, b, r, noDrain, false)
		quiet = quiet && err == nil && ctx.Err() == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = quiet && s.isIn && s.incarnation.ID == inc.ID
}
