// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"slices"
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// emptied holds the packet counts of a session's banks (see [p4values.Readout]) at the time when
// they were read in full. A bank without a count, because it was not read in full, is always read.
type emptied struct {
	mu    sync.Mutex
	at    map[bankOf]uint64
	blind bool // the switch does not support reads of its counters
}

type bankOf struct {
	register uint32
	bank     int
}

func (p *readPart) key() bankOf { return bankOf{p.reg.ID, p.cells.Bank} }

// note stores the count of a part that was read in full. The count is from before the read, so
// packets that came during the read make the bank be read again.
func (e *emptied) note(p *readPart) {
	if !p.cells.counted {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == nil {
		e.at = map[bankOf]uint64{}
	}
	e.at[p.key()] = p.cells.count
}

// take reports whether no packet has changed a bank since it was cleared, and removes its count.
func (e *emptied) take(p *readPart) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, known := e.at[p.key()]
	delete(e.at, p.key())
	return known && p.cells.counted && at == p.cells.count
}

// skipEmpty reads the counters of the parts that have one, and skips the parts that no packet has
// changed.
func (j *readJob) skipEmpty(ctx context.Context) {
	cells := make([]*Cells, len(j.parts))
	for i, p := range j.parts {
		cells[i] = p.cells
	}
	e := &j.s.emptied
	e.mu.Lock()
	blind := e.blind
	e.mu.Unlock()
	if blind {
		return
	}
	err := j.s.readCounts(ctx, cells, func(c *Cells, count uint64) { c.count, c.counted = count, true })
	if err != nil && ctx.Err() == nil && j.s.ctx.Err() == nil {
		j.s.log.Debug("counters of registers cannot be read; all cells are read", "error", err)
		e.mu.Lock()
		e.blind = true
		e.mu.Unlock()
	}
	for _, p := range j.parts {
		if e.take(p) {
			p.arrived, p.next = p.cells.Len(), p.cells.Len()
		}
	}
}

// readCounts reads the counters of banks that have one, and calls f with the counts.
func (s *session) readCounts(ctx context.Context, cells []*Cells, f func(c *Cells, count uint64)) error {
	var queries []*p4v1.Entity
	queried := map[uint32]bool{}
	for _, c := range cells {
		if counter := c.Register.Readout.Counter; counter != nil && !queried[counter.ID] {
			queried[counter.ID] = true
			e := &p4v1.CounterEntry{CounterId: counter.ID, Index: &p4v1.Index{Index: int64(c.Bank)}}
			queries = append(queries, &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: e}})
		}
	}
	if len(queries) == 0 {
		return nil
	}
	for entity, err := range s.read(ctx, queries) {
		if err != nil {
			return err
		}
		e := entity.GetCounterEntry()
		for _, c := range cells {
			counter := c.Register.Readout.Counter
			if counter != nil && counter.ID == e.GetCounterId() && int64(c.Bank) == e.GetIndex().GetIndex() {
				f(c, uint64(e.GetData().GetPacketCount()))
			}
		}
	}
	return nil
}

// Moved returns the number of packets that were counted in banks since just before they were read:
// 0 if the switch counts in another bank. Banks without a readable counter are left out.
func (c *Client) Moved(ctx context.Context, cells ...*Cells) (packets uint64, err error) {
	known := slices.DeleteFunc(slices.Clone(cells), func(c *Cells) bool { return !c.counted })
	if len(known) == 0 {
		return 0, nil
	}
	s, err := c.use(Ready)
	if err != nil {
		return 0, err
	}
	err = s.readCounts(ctx, known, func(c *Cells, count uint64) { packets = max(packets, count-c.count) })
	return packets, err
}
