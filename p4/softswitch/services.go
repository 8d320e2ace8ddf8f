// SPDX-License-Identifier: Apache-2.0

// The switch's own software sends and receives frames of its protocols past the pipeline.

package softswitch

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
)

// trap receives frames of one EtherType instead of the pipeline.
type trap struct {
	etherType uint16
	take      func(port uint32, pkt []byte, at time.Duration)
}

// SetTrap directs received frames of an EtherType to f instead of the pipeline, for control
// protocols such as LLDP (0x88cc). The frames count as received. f is called in the goroutine of
// Inject and must not keep the slice. There is one trap: a later call replaces it, a nil f removes
// it.
func (s *Switch) SetTrap(etherType uint16, f func(port uint32, pkt []byte, at time.Duration)) {
	if f == nil {
		s.trap.Store(nil)
		return
	}
	s.trap.Store(&trap{etherType, f})
}

// trapped passes a frame to the trap if it has its EtherType.
func (s *Switch) trapped(port uint32, pkt []byte, at time.Duration) bool {
	t := s.trap.Load()
	if t == nil || len(pkt) < 14 || binary.BigEndian.Uint16(pkt[12:]) != t.etherType {
		return false
	}
	s.traps.Add(1)
	t.take(port, pkt, at)
	return true
}

// Transmit sends a frame by a port past the pipeline. It does not keep the slice. Errors:
// ErrNotFound for an unknown port, ErrInvalid for a port that is down and a frame that is too long.
func (s *Switch) Transmit(port uint32, pkt []byte) error {
	object := fmt.Sprintf("port %d", port)
	pt := s.ports.Get(port)
	switch {
	case pt == nil:
		return control.Errorf(ErrNotFound, object, "")
	case len(pkt) > maxPacket:
		return control.Errorf(ErrInvalid, object, "a frame of %d bytes; at most %d", len(pkt), maxPacket)
	case !pt.Up():
		pt.DiscardOut(1)
		return control.Errorf(ErrInvalid, object, "it is down")
	}
	pt.Send(0, pkt, s.clock())
	return nil
}
