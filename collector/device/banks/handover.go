// SPDX-License-Identifier: Apache-2.0

package banks

import (
	"errors"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/collector/epoch"
)

// Handover is what the next collector of a switch needs to go on in the open epoch, as if it had
// measured the switch before. It is of no use in any other epoch.
type Handover struct {
	// Epoch is the open epoch, From the first one that is counted as a whole in Bank.
	Epoch uint64 `json:"epoch"`
	From  uint64 `json:"from"`
	Bank  int    `json:"bank"`
	// Spoiled is set if the bank was not clean when it came into use, and Unread by bank if it may
	// hold data of earlier epochs.
	Spoiled bool   `json:"spoiled,omitempty"`
	Unread  []bool `json:"unread"`
	// Out are recent epochs in which the switch was out of step.
	Out []uint64 `json:"out,omitempty"`
	// Window is set for a switch whose packets select the bank; Bank, Spoiled and Out are not used.
	Window *WindowState `json:"window,omitempty"`
}

// WindowState is the state of a window; see the fields of window.
type WindowState struct {
	First     uint64            `json:"first"`
	Size      uint64            `json:"size"`
	Epochs    []uint64          `json:"epochs"` // by bank
	Missed    map[uint64]uint64 `json:"missed,omitempty"`
	Unsure    map[uint64]string `json:"unsure,omitempty"`
	Delivered map[uint64]bool   `json:"delivered,omitempty"`
	Late      map[uint64]uint64 `json:"late,omitempty"`
}

// errReading is why a switch cannot be handed over now.
var errReading = errors.New("a bank is being read")

// Handover returns what the next collector of a switch needs; nil if the switch has not joined, so
// that nothing is lost. After an error it cannot be handed over now.
func (g *Group) Handover(name string) (*Handover, error) {
	g.mu.Lock()
	s := g.sources[name]
	g.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	return s.handover()
}

// Adopt is Add for a switch that another collector has handed over. If its session is not ready in
// the epoch of the handover, or the switch was restarted, it joins as any other.
func (g *Group) Adopt(sw Switch, h *Handover) epoch.Source { return g.add(sw, h) }

// Opened notes that an epoch is open, for a group that has had no switch at its start.
func (g *Group) Opened(number uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.chosen && number > g.open {
		g.open, g.opened = number, -1
	}
}

// fits reports whether a switch with a number of banks can have handed this over in an epoch. What
// does not fit is of no use: the switch joins as after the loss of a collector.
func (h *Handover) fits(banks int, open uint64, windowed bool) bool {
	if h == nil || h.Epoch != open || len(h.Unread) != max(banks, 2) || h.From > open+1 ||
		(h.Window != nil) != windowed {
		return false
	}
	if !windowed {
		return h.Bank >= 0 && h.Bank < len(h.Unread)
	}
	n := uint64(len(h.Unread))
	return uint64(len(h.Window.Epochs)) == n && h.Window.Size <= n && h.Window.First <= open+n
}

// handover implements member.
func (s *source) handover() (*Handover, error) {
	inc, err := s.sw.Ready()
	open := s.g.openNumber()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil || !s.isIn || s.incarnation.ID != inc.ID || open == 0:
		return nil, nil
	case s.flipping != nil:
		return nil, ErrFlipping
	}
	h := &Handover{Epoch: open, From: s.from, Bank: s.current, Spoiled: s.spoiled != nil, Out: slices.Clone(s.out)}
	for _, b := range s.banks {
		if b.reader != nil {
			return nil, errReading
		}
		h.Unread = append(h.Unread, b.unread != nil)
	}
	return h, nil
}

// hasOffer implements member.
func (s *source) hasOffer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offered != nil
}

// adopt goes on with the banks that were handed over, and reports whether they still hold what they
// held then. s.mu is held.
func (s *source) adopt(inc Incarnation) bool {
	h := s.offered
	s.offered = nil
	if inc.Clean || s.joining || !h.fits(s.sw.Banks(), s.g.openNumber(), false) {
		return false
	}
	s.current, s.from, s.spoiled, s.out = h.Bank, h.From, nil, h.Out
	if h.Spoiled {
		s.spoiled = ErrUnread
	}
	s.banks = make([]bank, len(h.Unread))
	for i, unread := range h.Unread {
		if unread {
			s.banks[i].unread = ErrUnread
		}
	}
	s.tried, s.isIn = true, true
	close(s.in)
	return true
}

// handover implements member.
func (w *window) handover() (*Handover, error) {
	inc, err := w.sw.Ready()
	open := w.g.openNumber()
	select {
	case w.io <- struct{}{}:
		defer w.release()
	default:
		return nil, errReading
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil || !w.isIn || w.incarnation.ID != inc.ID || open == 0:
		return nil, nil
	case w.first < open && w.size > 0: // the epoch before has not been read
		return nil, errReading
	}
	state := &WindowState{First: w.first, Size: w.size, Missed: maps.Clone(w.missed), Unsure: maps.Clone(w.unsure),
		Delivered: maps.Clone(w.delivered), Late: maps.Clone(w.late)}
	h := &Handover{Epoch: open, From: w.from, Window: state}
	for _, b := range w.banks {
		state.Epochs = append(state.Epochs, b.epoch)
		h.Unread = append(h.Unread, b.dirty != nil)
	}
	return h, nil
}

// hasOffer implements member.
func (w *window) hasOffer() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offered != nil
}

// adopt is source.adopt. w.mu is held.
func (w *window) adopt(inc Incarnation) bool {
	h := w.offered
	w.offered = nil
	if inc.Clean || w.joining || !h.fits(w.sw.Banks(), w.g.openNumber(), true) {
		return false
	}
	st := h.Window
	w.first, w.size, w.from = st.First, st.Size, h.From
	w.banks = make([]content, len(h.Unread))
	for i, unread := range h.Unread {
		if w.banks[i].epoch = st.Epochs[i]; unread {
			w.banks[i].dirty = ErrUnread
		}
	}
	maps.Copy(w.missed, st.Missed)
	maps.Copy(w.unsure, st.Unsure)
	maps.Copy(w.delivered, st.Delivered)
	maps.Copy(w.late, st.Late)
	w.tried, w.isIn = true, true
	close(w.in)
	return true
}
