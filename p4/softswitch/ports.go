// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/ports"
)

// AddPort adds a port. Ids are 0 to 510 and not the CPU port. Errors: ErrExists, ErrInvalid,
// ErrClosed.
func (s *Switch) AddPort(id uint32, p Port) error {
	if id >= DropPort || id == s.cfg.CPUPort {
		return control.Errorf(ErrInvalid, ports.Name(id), "ids are 0 to %d and not the CPU port %d", DropPort-1,
			s.cfg.CPUPort)
	}
	q, err := ports.NewQueue[queued](p)
	if err != nil {
		return control.Errorf(ErrInvalid, ports.Name(id), "%v", err)
	}
	if s.closed.Load() {
		return control.Errorf(ErrClosed, ports.Name(id), "the switch was closed")
	}
	return s.ports.Add(id, p, func() { s.replaceQueue(id, q) })
}

// RemovePort removes a port. Packets in its queues are dropped. Errors: ErrNotFound.
func (s *Switch) RemovePort(id uint32) error {
	return s.ports.Remove(id, func() { s.replaceQueue(id, nil) })
}

// SetQueues replaces a port's queues by the queues of p; other fields of p have no effect. Packets
// in the old queues are dropped and counted.
func (s *Switch) SetQueues(id uint32, p Port) error {
	q, err := ports.NewQueue[queued](p)
	if err != nil {
		return control.Errorf(ErrInvalid, ports.Name(id), "%v", err)
	}
	return s.ports.With(id, func(pt *ports.Port) {
		n := s.replaceQueue(id, q)
		s.queueDrops.Add(uint64(n))
		pt.DiscardOut(n)
	})
}

// SetPortUp sets a port's link up or down. A port whose link is down, or that is not enabled,
// neither receives nor sends packets.
func (s *Switch) SetPortUp(id uint32, up bool) error { return s.ports.SetUp(id, up) }

// PortUp reports whether a port exists and is up.
func (s *Switch) PortUp(id uint32) bool { return s.ports.IsUp(id) }

// SetPortEnabled enables or disables a port by configuration. A port is up if it is enabled and its
// link is up (SetPortUp).
func (s *Switch) SetPortEnabled(id uint32, enabled bool) error {
	return s.ports.SetEnabled(id, enabled)
}

// Ports returns the state of all ports by id, without the CPU port.
func (s *Switch) Ports() []PortStatus { return s.ports.All() }

// PortStatus returns the state of one port. Errors: ErrNotFound.
func (s *Switch) PortStatus(id uint32) (PortStatus, error) { return s.ports.Status(id) }

// WatchPorts calls f after each change of a port (added, removed, up, down), in the goroutine that
// made the change, until the returned function is called.
func (s *Switch) WatchPorts(f func(PortStatus)) (stop func()) { return s.ports.Watch(f) }

// Burst calls f, which injects several packets. Ports may defer sending until f has returned.
func (s *Switch) Burst(f func()) { s.ports.Burst(f) }

// Bursting reports whether a Burst is in progress: packets that Tx defers now are sent by
// Port.Flush. A Tx function calls it after it has deferred a frame, and sends the frame itself if
// there is no burst.
func (s *Switch) Bursting() bool { return s.ports.Bursting() }
