// SPDX-License-Identifier: Apache-2.0

// What the switch's own software needs beside the pipeline: frames of its protocols past the pipeline in both directions, and ports
// turned off by configuration.

package softswitch

import (
	"encoding/binary"
	"fmt"
	"time"
)

// trap takes frames of one EtherType before the pipeline sees them.
type trap struct {
	etherType uint16
	take      func(port uint32, pkt []byte, at time.Duration)
}

// SetTrap makes f take every frame of an EtherType that arrives on a port, in place of the pipeline, as a switch's control protocols
// (LLDP is 0x88cc) are taken. Frames count as received. f is called in the goroutine of Inject; the slice must not be kept.
// There is one trap: a later call replaces it, a nil f removes it.
func (s *Switch) SetTrap(etherType uint16, f func(port uint32, pkt []byte, at time.Duration)) {
	if f == nil {
		s.trap.Store(nil)
		return
	}
	s.trap.Store(&trap{etherType, f})
}

// trapped hands a frame to the trap when it is of its kind.
func (s *Switch) trapped(port uint32, pkt []byte, at time.Duration) bool {
	t := s.trap.Load()
	if t == nil || len(pkt) < 14 || binary.BigEndian.Uint16(pkt[12:]) != t.etherType {
		return false
	}
	t.take(port, pkt, at)
	return true
}

// Transmit sends a frame out of a port past the pipeline, as the switch's own software does. The slice is not kept. Errors: ErrNotFound
// for a port that is not there, ErrInvalid for one that is down or a frame that is too long.
func (s *Switch) Transmit(port uint32, pkt []byte) error {
	object := fmt.Sprintf("port %d", port)
	pt := s.port(port)
	switch {
	case pt == nil:
		return fail(ErrNotFound, object, "it is not there")
	case len(pkt) > maxPacket:
		return fail(ErrInvalid, object, "a frame of %d bytes; at most %d", len(pkt), maxPacket)
	case !pt.up.Load():
		pt.counts[0].outDiscards.Add(1)
		return fail(ErrInvalid, object, "it is down")
	}
	pt.counts[0].countOut(pkt)
	if pt.cfg.Tx != nil {
		pt.cfg.Tx(pkt, s.clock())
	}
	return nil
}

// SetPortEnabled turns a port on or off by configuration. A port is up when it is enabled and its link is (SetPortUp).
func (s *Switch) SetPortEnabled(id uint32, enabled bool) error {
	return s.changePort(id, func(pt *port) { pt.disabled.Store(!enabled) })
}

// changePort changes a port and tells the watchers when that changed its state.
func (s *Switch) changePort(id uint32, change func(*port)) error {
	s.portsMu.Lock()
	pt := s.port(id)
	if pt == nil {
		s.portsMu.Unlock()
		return fail(ErrNotFound, fmt.Sprintf("port %d", id), "it is not there")
	}
	disabled := pt.disabled.Load()
	change(pt)
	up := !pt.disabled.Load() && !pt.cut
	changed := pt.up.Swap(up) != up
	if changed {
		pt.changed.Store(int64(s.clock()))
	}
	if !changed && pt.disabled.Load() == disabled {
		s.portsMu.Unlock()
		return nil
	}
	s.tellPort(pt.status())
	return nil
}
