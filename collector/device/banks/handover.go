// SPDX-License-Identifier: Apache-2.0

package banks

import (
	"errors"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/epoch"
)

// Handover is the state of a switch's banks that the next collector needs.
type Handover = clusterv1.Banks

// errReading is the reason why a switch cannot be handed over at the moment.
var errReading = errors.New("a bank is being read")

// Handover returns the state for the next collector of a switch; nil if the switch has not joined,
// in which case nothing is lost. An error means that the switch cannot be handed over at the
// moment.
func (g *Group) Handover(name string) (*Handover, error) {
	g.mu.Lock()
	s := g.sources[name]
	g.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	return s.handover()
}

// Adopt adds a switch that another collector has handed over. If the switch's session is not ready
// in the epoch of the handover, or the switch was restarted, the switch joins like any other
// switch.
func (g *Group) Adopt(sw Switch, h *Handover) epoch.Source { return g.add(sw, h) }

// Opened sets the open epoch of a group that had no switch when the epoch began.
func (g *Group) Opened(number uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.chosen && number > g.open {
		g.open, g.opened = number, -1
	}
}

// fits reports whether a state was handed over in the open epoch, by a switch with this number of
// banks. A state that does not fit is not used, and the switch joins as after the loss of a
// collector.
func fits(h *Handover, banks int, open uint64, windowed bool) bool {
	w := h.GetWindow()
	if h == nil || h.GetEpoch() != open || len(h.GetUnread()) != max(banks, 2) || h.GetFrom() > open+1 ||
		(w != nil) != windowed {
		return false
	}
	n := uint64(len(h.GetUnread()))
	if !windowed {
		return uint64(h.GetBank()) < n
	}
	return uint64(len(w.GetEpochs())) == n && w.GetSize() <= n && w.GetFirst() <= open+n
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
	h := &Handover{Epoch: open, From: s.from, Bank: uint32(s.current), Spoiled: s.spoiled != nil, Out: slices.Clone(s.out)}
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

// adopt continues with the banks that were handed over. It returns false if they may have changed
// since. The caller holds s.mu.
func (s *source) adopt(inc Incarnation) bool {
	h := s.offered
	s.offered = nil
	if inc.Clean || s.joining || !fits(h, s.sw.Banks(), s.g.openNumber(), false) {
		return false
	}
	s.current, s.from, s.spoiled, s.out = int(h.GetBank()), h.GetFrom(), nil, h.GetOut()
	if h.GetSpoiled() {
		s.spoiled = ErrUnread
	}
	s.banks = make([]bank, len(h.GetUnread()))
	for i, unread := range h.GetUnread() {
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
	case w.first+w.g.cfg.lag() < open && w.size > 0: // an epoch that has drained has not been read
		return nil, errReading
	}
	state := &clusterv1.Window{First: w.first, Size: w.size, Missed: maps.Clone(w.missed), Unsure: maps.Clone(w.unsure),
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

// adopt does for a window what source.adopt does for banks. The caller holds w.mu.
func (w *window) adopt(inc Incarnation) bool {
	h := w.offered
	w.offered = nil
	if inc.Clean || w.joining || !fits(h, w.sw.Banks(), w.g.openNumber(), true) {
		return false
	}
	st := h.GetWindow()
	w.first, w.size, w.from = st.GetFirst(), st.GetSize(), h.GetFrom()
	w.banks = make([]content, len(h.GetUnread()))
	for i, unread := range h.GetUnread() {
		if w.banks[i].epoch = st.GetEpochs()[i]; unread {
			w.banks[i].dirty = ErrUnread
		}
	}
	maps.Copy(w.missed, st.GetMissed())
	maps.Copy(w.unsure, st.GetUnsure())
	maps.Copy(w.delivered, st.GetDelivered())
	maps.Copy(w.late, st.GetLate())
	w.tried, w.isIn = true, true
	close(w.in)
	return true
}
