// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/netsketch/netsketch/hostagent/packet"
)

// states of an entry, as in bpf/omnimon.c.
const (
	unused uint32 = iota
	active
	ended
	reopened
	returned
)

// mark is what the agent records about an entry.
type mark uint8

const (
	assigned mark = 1 << iota // the mapping is assigned in the pool
	ending                    // the flow is among the endings
	leaving                   // the flow left the table and its entry is not free yet
)

// begun records the mappings of flows that are new since the last call.
func (p *Path) begun() error {
	t := p.tables
	var b omnimonBegan
	for {
		err := t.maps[omnimonMapBegun].LookupAndDelete(nil, &b)
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("map begun: %w", err)
		}
		p.assign(b.Index, b.Mapping)
		if atomic.LoadUint32(&t.entries[b.Index].State) == returned {
			if err := p.free(b.Index); err != nil {
				return err
			}
		}
	}
}

func (p *Path) assign(index, number uint32) {
	if p.marks[index]&assigned == 0 {
		p.marks[index] |= assigned
		p.pool.Assign(number)
	}
}

// retire removes flows that have ended or are idle, as package omnimon does. A flow stays as long
// as an epoch with its packets is not released.
func (p *Path) retire() error {
	t := p.tables
	oldest := p.now
	p.sealed = slices.DeleteFunc(p.sealed, func(g *report) bool {
		if !g.released.Load() {
			oldest = min(oldest, g.epoch)
			return false
		}
		atomic.StoreUint64(&t.control.Released[g.epoch%t.generations], g.epoch+1)
		return true
	})
	for _, e := range p.open {
		oldest = min(oldest, e)
	}
	var index uint32
	for {
		err := t.maps[omnimonMapEndings].LookupAndDelete(nil, &index)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("map endings: %w", err)
		}
		p.end(index)
	}
	var gone []uint32
	p.endings = slices.DeleteFunc(p.endings, func(index uint32) bool {
		e := &t.entries[index]
		switch {
		case atomic.CompareAndSwapUint32(&e.State, reopened, active):
			p.marks[index] &^= ending
			return true
		case t.last(index) >= oldest:
			return false
		}
		p.marks[index] = p.marks[index]&^ending | leaving
		gone = append(gone, index)
		return true
	})
	tcp, others := p.settings.IdleEpochs, cmp.Or(p.settings.UDPIdleEpochs, p.settings.IdleEpochs)
	for range t.flows/min(tcp, others) + 1 {
		if uint64(p.cursor) >= t.fresh() {
			p.cursor = 0
			break
		}
		e := &t.entries[p.cursor]
		state := atomic.LoadUint32(&e.State)
		// The idle timeout also removes an ended flow that is not among the endings.
		if state != unused && state != returned && p.marks[p.cursor]&(ending|leaving) == 0 {
			idle := others
			if e.Key.Proto == packet.ProtocolTCP {
				idle = tcp
			}
			if last := t.last(p.cursor); last < oldest && last+idle < p.now {
				p.marks[p.cursor] |= leaving
				gone = append(gone, p.cursor)
			}
		}
		p.cursor++
	}
	return p.leave(gone, oldest)
}

func (p *Path) end(index uint32) {
	if p.marks[index]&ending == 0 {
		p.marks[index] |= ending
		p.endings = append(p.endings, index)
	}
}

// leave removes flows from the table. Their entries become free when no processor can count a
// packet of theirs any more and no report needs them.
func (p *Path) leave(gone []uint32, oldest uint64) error {
	t := p.tables
	for _, index := range gone {
		// The copy of the cell goes first: an agent that ends between the two leaves a flow that is in
		// the table.
		cell, near, _ := t.cell(index)
		atomic.CompareAndSwapUint32(near, cell, 0)
		if at := t.place(index); at != nil {
			atomic.StoreUint32(at, 0)
		}
	}
	if len(gone) > 0 {
		if err := t.wait(); err != nil {
			return err
		}
	}
	gone = append(p.limbo, gone...)
	p.limbo = nil
	for _, index := range gone {
		if t.last(index) >= oldest {
			p.limbo = append(p.limbo, index)
			continue
		}
		if err := p.free(index); err != nil {
			return err
		}
	}
	p.cycle()
	return nil
}

// free gives an entry and its mapping back.
func (p *Path) free(index uint32) error {
	t := p.tables
	number := t.entries[index].Mapping
	p.marks[index] = 0
	t.flowlets[index] = omnimonFlowlet{}
	atomic.StoreUint32(&t.entries[index].State, unused)
	p.pool.Return(number)
	if !p.pool.InUse(number) {
		if err := t.maps[omnimonMapFreeMappings].Put(nil, number); err != nil {
			return fmt.Errorf("map free_mappings: %w", err)
		}
	}
	if err := t.maps[omnimonMapFreeIndexes].Put(nil, index); err != nil {
		return fmt.Errorf("map free_indexes: %w", err)
	}
	return nil
}

// cycle gives the kernel the mappings to share when all are in use.
func (p *Path) cycle() {
	t := p.tables
	n := len(t.mappings)
	if n >= int(t.flows) {
		return // never all
	}
	half := 1 - int(atomic.LoadUint64(&t.control.Shared)>>63)
	p.order = p.pool.Cycle(p.order[:0])
	for i, number := range p.order {
		t.shared[half*n+i] = uint64(number)
	}
	atomic.StoreUint64(&t.control.Shared, uint64(half)<<63)
}
