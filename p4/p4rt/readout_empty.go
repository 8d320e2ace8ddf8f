// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// emptied remembers where the counters of a session's banks (see [p4values.Readout]) stood when the banks were read to the end. A
// bank of which nothing is known, because it was never read or not to the end, is read whatever its counter says.
type emptied struct {
	mu    sync.Mutex
	at    map[bankOf]uint64
	blind bool // the switch does not let its counters be read
}

type bankOf struct {
	register uint32
	bank     int
}

func (p *readPart) key() bankOf { return bankOf{p.reg.ID, p.cells.Bank} }

// note takes note of a part that was read to the end. The count is from before it was read: a packet that came later is
// counted again.
func (e *emptied) note(p *readPart) {
	if !p.counted {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == nil {
		e.at = map[bankOf]uint64{}
	}
	e.at[p.key()] = p.count
}

// take tells whether no packet has changed a bank since it was cleared, and forgets when that was.
func (e *emptied) take(p *readPart) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, known := e.at[p.key()]
	delete(e.at, p.key())
	return known && p.counted && at == p.count
}

// skipEmpty reads the counters of the parts that have one, and leaves those out that no packet has changed.
func (j *readJob) skipEmpty(ctx context.Context) {
	e := &j.s.emptied
	var queries []*p4v1.Entity
	parts := map[uint32][]*readPart{} // by counter
	for _, p := range j.parts {
		c := p.reg.Readout.Counter
		if c == nil {
			continue
		}
		if parts[c.ID] == nil {
			queries = append(queries, counterEntity(c, p.cells.Bank))
		}
		parts[c.ID] = append(parts[c.ID], p)
	}
	e.mu.Lock()
	blind := e.blind
	e.mu.Unlock()
	if len(queries) == 0 || blind {
		return
	}
	for entity, err := range j.s.read(ctx, queries) {
		if err != nil {
			if ctx.Err() == nil && j.s.ctx.Err() == nil {
				j.s.log.Debug("counters of registers cannot be read; all cells are", "error", err)
				e.mu.Lock()
				e.blind = true
				e.mu.Unlock()
			}
			break
		}
		entry := entity.GetCounterEntry()
		for _, p := range parts[entry.GetCounterId()] {
			if entry.GetIndex().GetIndex() == int64(p.cells.Bank) {
				p.count, p.counted = uint64(entry.GetData().GetPacketCount()), true
			}
		}
	}
	for _, all := range parts {
		for _, p := range all {
			if e.take(p) {
				p.arrived, p.next = p.cells.Len(), p.cells.Len()
			}
		}
	}
}

func counterEntity(c *p4values.Counter, index int) *p4v1.Entity {
	e := &p4v1.CounterEntry{CounterId: c.ID, Index: &p4v1.Index{Index: int64(index)}}
	return &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: e}}
}
