// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// slot holds the values of one flow in one epoch: one cache line.
type slot struct {
	bytes                                            uint64
	packets, syn, finRst, synAck, ack, bare, matched uint32
	// check belongs to an incoming flow, untagged to the packets of an outgoing flow without a header.
	check, untagged uint32
	// extremes are the maxima and minima of an outgoing flow, and the sums of the differences that
	// the packets of an incoming flow carried.
	extremes      [wire.MaxExtremes]int32
	untaggedBytes uint32 // at most 2^32-1
}

const pageSlots = 64

// page is a run of slots; pages are allocated as flows appear.
type page [pageSlots]slot

// count adds a packet, except for its extremes.
func (s *slot) count(p *packet.IP, match []byte) {
	s.packets++
	s.bytes += uint64(p.Length)
	if p.TCP {
		switch {
		case p.Flags&(packet.SYN|packet.ACK) == packet.SYN:
			s.syn++
		case p.Flags&(packet.SYN|packet.ACK) == packet.SYN|packet.ACK:
			s.synAck++
		case p.Flags&(packet.FIN|packet.RST|packet.ACK) == packet.ACK:
			s.ack++
		}
		if p.Flags&(packet.FIN|packet.RST) != 0 {
			s.finRst++
		}
		if p.Length == 40 && !p.Key.V6 || p.Length == 60 && p.Key.V6 {
			s.bare++
		}
	}
	if len(match) > 0 && bytes.Contains(p.Payload, match) {
		s.matched++
	}
}

// leave counts a packet that leaves without the header.
func (s *slot) leave(p *packet.IP) {
	s.untagged++
	s.untaggedBytes = uint32(min(uint64(s.untaggedBytes)+uint64(p.Length), math.MaxUint32))
}

// follow updates the extremes of an outgoing flow before count, and puts the differences into the
// header.
func (s *slot) follow(extremes []wire.Extreme, p *packet.IP, h *header.Header) {
	for i, e := range extremes {
		value := fieldOf(e.Field, p)
		old := s.extremes[i]
		h.Differences[i] = 0
		switch {
		case s.packets == 0:
			h.Differences[i] = value
		case e.Min && value < old, !e.Min && value > old:
			h.Differences[i] = value - old
		default:
			continue
		}
		s.extremes[i] = value
	}
}

func fieldOf(f wire.Field, p *packet.IP) int32 {
	switch f {
	case wire.FieldLength:
		return int32(p.Length)
	case wire.FieldTTL:
		return int32(p.TTL)
	default:
		return int32(p.Window)
	}
}

// receive adds the differences that a packet carried.
func (s *slot) receive(h *header.Header, extremes int) {
	for i := range extremes {
		s.extremes[i] += h.Differences[i]
	}
}

func (s *slot) values() (v wire.Values) {
	v[wire.Packets], v[wire.Bytes] = int64(s.packets), int64(s.bytes)
	v[wire.SYN], v[wire.FinRst], v[wire.SynAck], v[wire.Ack] = int64(s.syn), int64(s.finRst), int64(s.synAck), int64(s.ack)
	v[wire.Bare], v[wire.Matched] = int64(s.bare), int64(s.matched)
	for i, x := range s.extremes {
		v[wire.FirstExtreme+wire.Statistic(i)] = int64(x)
	}
	return v
}

// pool keeps empty pages for reuse. It is safe for concurrent use.
type pool struct {
	mu   sync.Mutex
	free []*page
}

func (p *pool) take() *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		last := p.free[n-1]
		p.free = p.free[:n-1]
		return last
	}
	return new(page)
}

// give returns pages to the pool and clears them.
func (p *pool) give(pages []*page) {
	for _, q := range pages {
		if q != nil {
			*q = page{}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range pages {
		if q != nil {
			p.free = append(p.free, q)
		}
	}
}

// epochSlots are the slots of one epoch, and its report after Seal.
type epochSlots struct {
	wire.Summary
	pool     *pool
	flows    []entry
	base     uint64 // epoch in which the table began
	d        int
	egress   []*page
	ingress  [][]*page // pages by source host
	pages    int       // number of pages of ingress
	steps    *Steps    // steps of queries
	released atomic.Bool
}

// egressSlot returns the slot of an outgoing flow.
func (g *epochSlots) egressSlot(index uint32) *slot {
	p := g.egress[index/pageSlots]
	if p == nil {
		p = g.pool.take()
		g.egress[index/pageSlots] = p
	}
	return &p[index%pageSlots]
}

// ingressSlot returns the slot of an incoming flow, or nil if the epoch has no page left.
func (g *epochSlots) ingressSlot(host uint16, index uint32, limit int) *slot {
	pages := g.ingress[host]
	if n := int(index / pageSlots); n >= len(pages) {
		pages = append(pages, make([]*page, n+1-len(pages))...)
		g.ingress[host] = pages
	}
	p := pages[index/pageSlots]
	if p == nil {
		if g.pages == limit {
			return nil
		}
		g.pages++
		p = g.pool.take()
		pages[index/pageSlots] = p
	}
	return &p[index%pageSlots]
}

// each calls f for each slot in use.
func each(pages []*page, f func(index uint32, s *slot)) {
	for n, p := range pages {
		if p == nil {
			continue
		}
		for i := range p {
			if p[i].packets != 0 || p[i].untagged != 0 {
				f(uint32(n*pageSlots+i), &p[i])
			}
		}
	}
}

// count is the count of slots in use.
func count(pages []*page) (n int) {
	each(pages, func(uint32, *slot) { n++ })
	return n
}

// late counts a packet that arrived in this epoch, after the report of the packet's own epoch.
func (g *epochSlots) late(epoch uint64) {
	i, found := slices.BinarySearchFunc(g.Late, epoch, func(l wire.LateEpoch, e uint64) int {
		return cmp.Compare(l.Epoch, e)
	})
	switch {
	case found:
		g.Late[i].Packets++
	case len(g.Late) < wire.MaxLate:
		g.Late = slices.Insert(g.Late, i, wire.LateEpoch{Epoch: epoch, Packets: 1})
	}
}

// Append implements role.Report.
func (g *epochSlots) Append(data []byte) []byte {
	b := wire.Builder{Data: data}
	b.Begin(&g.Summary, g.d, count(g.egress))
	each(g.egress, func(index uint32, s *slot) {
		e := &g.flows[index]
		row := wire.EgressRow{Index: index, Key: e.key, Age: g.Epoch - g.base - uint64(e.first), Slots: e.slots,
			Untagged: wire.Untagged{Packets: uint64(s.untagged), Bytes: uint64(s.untaggedBytes)}}
		values := s.values()
		b.Egress(&row, &values)
	})
	hosts := 0
	for _, pages := range g.ingress {
		if count(pages) > 0 {
			hosts++
		}
	}
	b.BeginIngress(hosts)
	for host, pages := range g.ingress {
		n := count(pages)
		if n == 0 {
			continue
		}
		b.BeginHost(host, n)
		each(pages, func(index uint32, s *slot) {
			values := s.values()
			b.Ingress(index, s.check, &values)
		})
	}
	b.Queries(g.steps.Rows(0, 0))
	return b.Data
}

// Release implements role.Report.
func (g *epochSlots) Release() {
	g.pool.give(g.egress)
	for _, pages := range g.ingress {
		g.pool.give(pages)
	}
	g.egress, g.ingress = nil, nil
	g.released.Store(true)
}
