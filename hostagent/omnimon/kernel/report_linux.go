// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/role"
)

// Seal implements agent.DataPath.
func (p *Path) Seal(epoch uint64) (role.Report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tables == nil {
		return nil, nil
	}
	if err := p.maintain(); err != nil {
		return nil, err
	}
	if epoch >= p.now {
		return nil, nil
	}
	if i := slices.Index(p.open, epoch); i >= 0 {
		if err := p.closeEpoch(epoch); err != nil {
			return nil, err
		}
		p.open = slices.Delete(p.open, i, i+1)
		g, err := p.encode(epoch)
		if g == nil || err != nil {
			return nil, err
		}
		return g, nil
	}
	i := slices.IndexFunc(p.waiting, func(g *report) bool { return g.epoch == epoch })
	if i < 0 {
		return nil, nil
	}
	if epoch+window >= p.now { // packets may still have been counted
		if err := p.closeEpoch(epoch); err != nil {
			return nil, err
		}
		if err := p.update(p.waiting[i]); err != nil {
			return nil, err
		}
	}
	g := p.waiting[i]
	p.waiting = slices.Delete(p.waiting, i, i+1)
	if g.data == nil {
		return nil, nil
	}
	return g, nil
}

// closeEpoch makes further packets of an epoch late, and waits until all its other packets are
// counted.
func (p *Path) closeEpoch(epoch uint64) error {
	t := p.tables
	atomic.StoreUint64(&t.control.Sealed[epoch%t.generations], epoch+1)
	return errors.Join(t.wait(), p.begun(), p.readCopies())
}

// refresh completes the waiting reports of epochs whose packets are all counted by now.
func (p *Path) refresh() error {
	for _, g := range p.waiting {
		if !g.complete && g.epoch+window < p.now {
			if err := p.update(g); err != nil {
				return err
			}
		}
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(g *report) bool { return g.data == nil })
	return nil
}

// update adds to a report the packets of its epoch that were counted after the report was encoded.
// If the kernel has used the slots again, the report is dropped: data is nil.
func (p *Path) update(g *report) error {
	g.complete = true
	if t := p.tables; atomic.LoadUint64(&t.control.Behind[g.epoch%t.generations]) <= g.epoch {
		return nil
	}
	intact, err := p.fill(g)
	if err == nil && !intact {
		p.dropped += 1 + g.dropped
		g.data = nil
		g.Release()
	}
	return err
}

// report is an encoded report. Its flows keep their entries until it is released.
type report struct {
	epoch, dropped, restarted uint64
	mappings                  uint64 // mappings in use when the report was encoded
	steps                     *omnimon.Steps
	data                      []byte
	complete                  bool // set when no packet can be counted any more
	released                  atomic.Bool
}

// Append implements role.Report.
func (g *report) Append(b []byte) []byte { return append(b, g.data...) }

// Release implements role.Report.
func (g *report) Release() { g.released.Store(true) }

// owner is the place of a page of incoming flows.
type owner struct {
	cell uint64
	page int
}

// encode returns the report of an epoch, or nil if the kernel has used its slots again; that is
// counted as dropped.
func (p *Path) encode(epoch uint64) (*report, error) {
	g := &report{epoch: epoch, dropped: p.dropped, restarted: p.restarts[epoch], mappings: uint64(p.pool.Used()),
		steps: p.stepsOf(epoch), complete: epoch+window < p.now}
	p.dropped = 0
	delete(p.restarts, epoch)
	delete(p.steps, epoch)
	intact, err := p.fill(g)
	if err != nil {
		return nil, err
	}
	if !intact {
		p.dropped = 1 + g.dropped
		return nil, nil
	}
	p.sealed = append(p.sealed, g)
	return g, nil
}

// fill encodes the packets of a report that are counted in the maps. It returns false if the kernel
// has used its slots again.
func (p *Path) fill(g *report) (bool, error) {
	t, epoch := p.tables, g.epoch
	at := epoch % t.generations
	s := wire.Summary{Host: p.settings.Host, Epoch: epoch, MappingsUsed: g.mappings, MappingsOwned: p.owned}
	var counts []omnimonCounts
	if err := t.maps[omnimonMapCounters].Lookup(uint32(at), &counts); err != nil {
		return false, fmt.Errorf("map counters: %w", err)
	}
	var unread, uncounted uint64 // packets that queries did not see, in this process and in the kernel
	for _, c := range counts {
		if c.Epoch == epoch {
			for i := range s.Counters {
				s.Counters[i] += c.N[i]
			}
			unread += c.N[unreadCounter]
			uncounted += c.N[uncountedCounter]
		}
	}
	s.Late = lateEpochs(epoch, counts)
	s.Counters[wire.Missed], s.Counters[wire.Restarted] = g.dropped, g.restarted

	b := wire.Builder{}
	out := t.outgoing[at*t.flows : (at+1)*t.flows]
	p.rows = p.rows[:0]
	number := t.number(epoch)
	for i := range out[:t.fresh()] {
		if out[i].Epoch == number && (out[i].Packets != 0 || out[i].Rest != 0) {
			p.rows = append(p.rows, uint32(i))
		}
	}
	b.Begin(&s, p.settings.SlotsPerFlow, len(p.rows))
	for _, i := range p.rows {
		e := &t.entries[i]
		row := wire.EgressRow{Index: i, Key: key(&e.Key), Age: epoch - t.first(i), Slots: slotsOf(e.Slots),
			Untagged: wire.Untagged{Packets: out[i].Rest & (1<<untaggedBytes - 1), Bytes: out[i].Rest >> untaggedBytes}}
		v := values(&out[i], uint64(out[i].Mark))
		b.Egress(&row, &v)
	}
	p.encodeIngress(&b, epoch)
	b.Queries(g.steps.Rows(unread, uncounted))
	g.data = b.Data
	return atomic.LoadUint64(&t.control.Epoch) < epoch+t.generations, nil
}

func (p *Path) encodeIngress(b *wire.Builder, epoch uint64) {
	t := p.tables
	at := epoch % t.generations
	used := uint64(0)
	if n := atomic.LoadUint64(&t.control.Pages[at]); uint32(n>>32) == uint32(epoch) {
		used = uint64(uint32(n))
	}
	p.owners = p.owners[:0]
	for i, cell := range t.owners[at*t.pages:][:used] {
		p.owners = append(p.owners, owner{cell, i})
	}
	slices.SortFunc(p.owners, func(a, b owner) int { return cmp.Compare(a.cell, b.cell) })
	slots := t.incoming[at*t.pages*pageSlots:]
	number := t.number(epoch)
	each := func(pages []owner, f func(index uint32, s *omnimonFlowSlot)) {
		for _, o := range pages {
			for i := range slots[o.page*pageSlots:][:pageSlots] {
				if s := &slots[o.page*pageSlots+i]; s.Epoch == number && s.Packets != 0 {
					f(uint32(o.cell%uint64(t.cells))*pageSlots+uint32(i), s)
				}
			}
		}
	}
	type host struct {
		number, rows int
		pages        []owner
	}
	var hosts []host
	for rest := p.owners; len(rest) > 0; {
		h := host{number: int(rest[0].cell / uint64(t.cells))}
		n := 1
		for n < len(rest) && int(rest[n].cell/uint64(t.cells)) == h.number {
			n++
		}
		h.pages, rest = rest[:n], rest[n:]
		each(h.pages, func(uint32, *omnimonFlowSlot) { h.rows++ })
		if h.rows > 0 {
			hosts = append(hosts, h)
		}
	}
	b.BeginIngress(len(hosts))
	for _, h := range hosts {
		b.BeginHost(h.number, h.rows)
		each(h.pages, func(index uint32, s *omnimonFlowSlot) {
			v := values(s, s.Rest)
			b.Ingress(index, s.Mark, &v)
		})
	}
}

// untaggedBytes is the first bit of the bytes of untagged packets in flow_slot.rest.
const untaggedBytes = 26

// lateEpochs adds up the processors' counts of late packets in an epoch. A cell of the map has the
// first epoch that used it.
func lateEpochs(epoch uint64, counts []omnimonCounts) (all []wire.LateEpoch) {
	for _, c := range counts {
		if c.LateEpoch != epoch {
			continue
		}
		for _, l := range c.Late {
			if l.Packets == 0 {
				continue
			}
			late := wire.LateEpoch{Epoch: epoch - uint64(uint16(epoch)-l.Epoch), Packets: uint64(l.Packets)}
			i, found := slices.BinarySearchFunc(all, late, func(a, b wire.LateEpoch) int {
				return cmp.Compare(a.Epoch, b.Epoch)
			})
			switch {
			case found:
				all[i].Packets += late.Packets
			case len(all) < wire.MaxLate:
				all = slices.Insert(all, i, late)
			}
		}
	}
	return all
}

func slotsOf(packed uint64) (s [4]uint16) {
	for i := range s {
		s[i] = uint16(packed >> (16 * i))
	}
	return s
}

func values(s *omnimonFlowSlot, matched uint64) (v wire.Values) {
	v[wire.Packets], v[wire.Bytes] = int64(s.Packets), int64(s.Bytes)
	v[wire.SYN], v[wire.FinRst], v[wire.SynAck], v[wire.Ack] = int64(s.Syn), int64(s.FinRst), int64(s.SynAck), int64(s.Ack)
	v[wire.Bare], v[wire.Matched] = int64(s.Bare), int64(matched)
	for i, x := range s.Extremes {
		v[wire.FirstExtreme+wire.Statistic(i)] = int64(x)
	}
	return v
}
