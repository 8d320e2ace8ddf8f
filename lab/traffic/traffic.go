// SPDX-License-Identifier: Apache-2.0

// Package traffic makes the packets of the lab: replayed from a capture file or
// generated from a flow-size distribution and a seed.
//
// A Source returns packets in time order. The same description and seed give the same packets, byte
// for byte, on every machine. A Source is not safe for concurrent use.
package traffic

import (
	"container/heap"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/internal/pcapfile"
)

// Packet is one frame that a host sends.
type Packet struct {
	At    time.Duration // since the start of the experiment
	Host  int           // index of the sending host
	Frame []byte        // Ethernet, without FCS; valid until the source's next call
	// Doomed is the number, from 1, of the link between switches on which the packet is lost; 0 for
	// none. A packet with a shorter path is not lost.
	Doomed uint8
}

// Source returns packets in the order of their times.
type Source interface {
	// Next returns the next packet, and io.EOF after the last.
	Next() (Packet, error)
}

// Merge returns a source of all packets of the sources in time order; packets with the same time
// are in the order of the sources.
func Merge(sources ...Source) Source {
	if len(sources) == 1 {
		return sources[0]
	}
	return &merged{sources: sources}
}

// Together returns a source of the packets of several traces in time order. It cuts pauses of more
// than pcapfile.MaxPause in which no trace has a packet, except a pause that the first packet of a
// trace ends. If counts[i] is not nil, it adds the number of packets of trace i to it: of those
// before end, or of all if end is 0.
func Together(end time.Duration, counts []*atomic.Int64, traces ...Source) Source {
	return &merged{sources: traces, together: true, end: end, counts: counts, earlier: make([]time.Duration, len(traces)),
		begun: make([]bool, len(traces))}
}

type merged struct {
	sources []Source
	heads   heads
	started bool

	together bool
	last     time.Duration   // time of the last packet
	earlier  []time.Duration // how much has been cut of each source
	begun    []bool          // a source has had a packet
	counts   []*atomic.Int64
	end      time.Duration
}

type head struct {
	p     Packet
	order int
}

type heads []head

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, j int) bool {
	if h[i].p.At != h[j].p.At {
		return h[i].p.At < h[j].p.At
	}
	return h[i].order < h[j].order
}
func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(head)) }
func (h *heads) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (m *merged) Next() (Packet, error) {
	if !m.started {
		m.started = true
		for i, s := range m.sources {
			p, err := s.Next()
			if errors.Is(err, io.EOF) {
				continue
			}
			if err != nil {
				return Packet{}, err
			}
			m.heads = append(m.heads, head{p, i})
		}
		heap.Init(&m.heads)
	} else if len(m.heads) > 0 {
		// The latest packet is still at the top: its frame is valid until this call, so its source
		// advances only now.
		order := m.heads[0].order
		p, err := m.sources[order].Next()
		if m.together {
			p.At -= m.earlier[order]
		}
		switch {
		case errors.Is(err, io.EOF):
			heap.Pop(&m.heads)
		case err != nil:
			return Packet{}, err
		default:
			m.heads[0].p = p
			heap.Fix(&m.heads, 0)
		}
	}
	if len(m.heads) == 0 {
		return Packet{}, io.EOF
	}
	if m.together {
		m.cut()
	}
	return m.heads[0].p, nil
}

// cut cuts a pause of all traces before the next packet, and counts the packet.
func (m *merged) cut() {
	h := &m.heads[0]
	if pause := h.p.At - m.last; pause > pcapfile.MaxPause && m.begun[h.order] {
		// shifts all packets alike, so that their order stays, unless some sources have not begun
		for i := range m.heads {
			if x := &m.heads[i]; m.begun[x.order] {
				x.p.At -= pause
				m.earlier[x.order] += pause
			}
		}
		heap.Init(&m.heads)
		h = &m.heads[0]
	}
	m.last = h.p.At
	m.begun[h.order] = true
	if n := m.counts[h.order]; n != nil && (m.end == 0 || m.last < m.end) {
		n.Add(1)
	}
}

// Until returns a source that ends before the first packet at or after end.
func Until(s Source, end time.Duration) Source { return &until{s, end} }

type until struct {
	s   Source
	end time.Duration
}

func (u *until) Next() (Packet, error) {
	p, err := u.s.Next()
	if err == nil && p.At >= u.end {
		return Packet{}, io.EOF
	}
	return p, err
}

// Shift returns a source whose packets are d later.
func Shift(s Source, d time.Duration) Source {
	if d == 0 {
		return s
	}
	return &shifted{s, d}
}

type shifted struct {
	s Source
	d time.Duration
}

func (s *shifted) Next() (Packet, error) {
	p, err := s.s.Next()
	p.At += s.d
	return p, err
}
