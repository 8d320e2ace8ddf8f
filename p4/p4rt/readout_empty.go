// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"slices"
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// emptied holds the packet counts (see [p4values.Readout]) that a session's banks had when they
// were read completely. A bank without a count, because it was not read completely, is always
// read.
type emptied struct {
	mu    sync.Mutex
	at    map[bankOf]uint64
	blind bool // whether the switch does not support reads of its counters
}

type bankOf struct {
	register uint32
	bank     int
}

func (p *readPart) key() bankOf { return bankOf{p.reg.ID, p.cells.Bank} }

// note stores the count of a part that was read completely. The count was read before the cells,
// so packets that arrived during the read make the bank be read again.
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

// take sets how many packets have changed a part's bank since it was cleared, and removes the
// stored count.
func (e *emptied) take(p *readPart) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, known := e.at[p.key()]
	delete(e.at, p.key())
	p.packets, p.known = p.cells.count-at, known && p.cells.counted
}

// skipEmpty reads the packet counters of the parts that have one, and skips the parts that no
// packet has changed.
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
		if e.take(p); p.known && p.packets == 0 {
			for i := range p.asked {
				p.skip(i)
			}
		}
	}
}

// skipPieces reads the marks of the parts that have marks, and skips the pieces that no packet has
// changed. If the marks' sum differs from the packet counter, a packet came while the bank was
// read, and all cells are read.
func (j *readJob) skipPieces(ctx context.Context) error {
	marked := map[*readPart]*readPart{} // the parts with the marks
	for _, p := range j.parts {
		if pieces := p.reg.Readout.Pieces; pieces != nil && p.known && p.packets > 0 {
			for _, marker := range j.parts {
				if marker.reg == pieces.Marker {
					marked[p] = marker
				}
			}
		}
	}
	if len(marked) == 0 {
		return nil
	}
	err := j.request(ctx, func(part *readPart, packet int) bool {
		for p, marker := range marked {
			pieces := p.reg.Readout.Pieces
			if part == marker && overlap(packet, pieces.First, pieces.First+pieces.Count) {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	for p, marker := range marked {
		p.skipUnmarked(marker.cells)
	}
	return nil
}

// overlap reports whether a packet contains any of the cells first to last-1.
func overlap(packet, first, last int) bool {
	return packet*ReadoutCells < last && first < (packet+1)*ReadoutCells
}

// skipUnmarked skips the pieces whose mark is zero.
func (p *readPart) skipUnmarked(marks *Cells) {
	pieces := p.reg.Readout.Pieces
	var sum uint32
	changed := make([]bool, len(p.asked)) // packets whose cells may have changed
	if marks.Register == p.reg {
		for i := range changed {
			changed[i] = overlap(i, pieces.First, p.cells.Len())
		}
	}
	for i := range pieces.Count {
		mark := marks.At(pieces.First + i)
		sum += mark
		if mark == 0 {
			continue
		}
		for at := pieces.Start(i) / ReadoutCells; at < len(changed) && at*ReadoutCells < pieces.Start(i+1); at++ {
			changed[at] = true
		}
	}
	if sum != uint32(p.packets) {
		return
	}
	for i := range changed {
		if !changed[i] {
			p.skip(i)
		}
	}
}

// readCounts reads the packet counters of banks that have one, and calls f with each count.
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

// Moved returns how many packets banks have counted since just before they were read; 0 means that
// the switch counts in another bank. Banks without a readable counter are left out.
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
