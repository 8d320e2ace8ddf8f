// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"sync"
	"time"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Stay is how long a packet was at a switch: from its arrival at a port to its departure, with the
// time in the queue.
type Stay struct {
	Switch string
	Delay  time.Duration
}

// Stays is the ground truth of the packets that arrived at hosts: their paths, and how long they
// stayed at each switch. Its methods may be called from any goroutine.
type Stays struct {
	mu     sync.Mutex
	epochs map[uint64]*StaysEpoch
}

// StaysEpoch is one epoch of Stays.
type StaysEpoch struct {
	Packets map[flow.Key]uint64
	Delays  map[FlowAt]Delays
	Paths   map[flow.Key]Path
}

// FlowAt is a flow at a switch.
type FlowAt struct {
	Flow   flow.Key
	Switch string
}

// Delays sums up the stays of a flow's packets at a switch.
type Delays struct {
	Packets    uint64
	Sum, Worst time.Duration
}

// Mean returns the mean stay.
func (d Delays) Mean() float64 { return float64(d.Sum) / float64(d.Packets) }

// Path is the path of a flow's last packet.
type Path struct {
	Host     string // host that received the packet
	Switches []string
	Previous []string // the path before its last change; nil: the path has not changed
}

// newStaysEpoch returns an empty epoch.
func newStaysEpoch() *StaysEpoch {
	return &StaysEpoch{Packets: map[flow.Key]uint64{}, Delays: map[FlowAt]Delays{}, Paths: map[flow.Key]Path{}}
}

// Arrive records a packet that arrived at a host in an epoch, with its stays in the order of its
// path.
func (s *Stays) Arrive(epoch uint64, host string, k flow.Key, stays []Stay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epochs == nil {
		s.epochs = map[uint64]*StaysEpoch{}
	}
	e := s.epochs[epoch]
	if e == nil {
		e = newStaysEpoch()
		s.epochs[epoch] = e
	}
	e.Packets[k]++
	p, known := e.Paths[k]
	same := len(p.Switches) == len(stays)
	for i := range stays {
		at := FlowAt{k, stays[i].Switch}
		d := e.Delays[at]
		e.Delays[at] = Delays{d.Packets + 1, d.Sum + stays[i].Delay, max(d.Worst, stays[i].Delay)}
		same = same && p.Switches[i] == stays[i].Switch
	}
	if same && known {
		return
	}
	if known {
		p.Previous = p.Switches
	}
	p.Host, p.Switches = host, make([]string, len(stays))
	for i := range stays {
		p.Switches[i] = stays[i].Switch
	}
	e.Paths[k] = p
}

// Take returns an epoch and removes it, and all earlier ones.
func (s *Stays) Take(epoch uint64) *StaysEpoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.epochs[epoch]
	for n := range s.epochs {
		if n <= epoch {
			delete(s.epochs, n)
		}
	}
	if e == nil {
		return newStaysEpoch()
	}
	return e
}
