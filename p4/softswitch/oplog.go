// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"sync/atomic"
	"unsafe"
)

// Lanes share registers, and a cell that two cores write moves from one's cache to the other's each time, which takes longer than everything else
// that is done with it. So a lane writes down what is to be done to registers where the packet needs no answer (deferral.go), in a log for each
// group of registers, and takes the group's lock for many packets at once; while it does one entry it has the cells of the next ones fetched.
//
// Who needs an answer takes the lock and does first what is in all lanes' logs: an action that reads the registers for its packet, and the
// control plane, which stops all lanes. An entry is in its log before Inject returns, so no packet is missed. What lanes put off is done in
// some order that keeps each lane's own.

// registerGroup is registers that actions use together, with their lock.
type registerGroup struct {
	spinLock
	answered uint64 // actions with an answer, and without, since eager was thought of; guarded by the lock
	without  uint64
	_        [104]byte // cores fetch two cache lines together

	logs   []*laneLog // of each lane; none where nothing is put off
	stride int        // words of an entry
	// An action that needs an answer has to look at all logs. Where many do, nothing is put off.
	eager atomic.Bool
	_     [92]byte
}

const (
	logSize   = 1 << 8 // entries of a log
	logBatch  = 1 << 6 // from so many on the lane tries to do them
	logRetry  = 1 << 3 // and again when it has so many more
	lookAhead = 6      // entries whose cells are fetched before they are used
	thinkOver = 1 << 8 // actions until eager is thought of again
)

// laneLog is what a lane has put off. The lane writes entries; whoever has the group's lock does them.
type laneLog struct {
	_     [64]byte
	words []uint64
	tail  uint64 // entries written; the lane's
	seen  uint64 // what the lane knows of done
	base  uint64 // the entry that is first in words; the lane's, changed under the group's lock
	_     [64]byte
	ready atomic.Uint64 // tail, for others
	_     [64]byte
	done  atomic.Uint64 // entries done; changed under the group's lock
	_     [64]byte
}

// newGroups makes the groups of a program's registers.
func newGroups(p *Program, lanes int) []registerGroup {
	groups := make([]registerGroup, p.locks)
	if lanes == 1 {
		return groups
	}
	for i := range p.deferred {
		d := &p.deferred[i]
		g := &groups[d.lock]
		g.stride = max(g.stride, 1+len(d.live))
	}
	for i := range groups {
		g := &groups[i]
		if g.stride == 0 {
			continue
		}
		for range lanes {
			g.logs = append(g.logs, &laneLog{words: make([]uint64, logSize*g.stride)})
		}
	}
	return groups
}

// enter takes the lock for an action with an answer.
func (g *registerGroup) enter(p *packet) {
	g.lock()
	if g.logs == nil {
		return
	}
	for _, l := range g.logs {
		if l.ready.Load() != l.done.Load() {
			g.replay(l, p.lane)
		}
	}
	if g.answered++; g.answered >= thinkOver {
		g.think()
	}
}

// enterEager takes the lock for an action that could be put off, but is not.
func (g *registerGroup) enterEager(p *packet) {
	g.lock()
	if l := g.logs[p.lane.id]; l.tail != l.done.Load() {
		g.replay(l, p.lane)
	}
	if g.without++; g.without >= 16*thinkOver {
		g.think()
	}
}

// think decides whether actions are put off from now on.
func (g *registerGroup) think() {
	g.eager.Store(g.answered > g.without/16)
	g.answered, g.without = 0, 0
}

// capture puts off a part of an action.
func (g *registerGroup) capture(p *packet, d *deferred, id uint32) {
	l := g.logs[p.lane.id]
	if l.tail-l.seen == logSize {
		if l.seen = l.done.Load(); l.tail-l.seen == logSize {
			g.lock()
			g.replayOwn(l, p.lane)
			g.unlock()
		}
	}
	e := l.words[int((l.tail-l.base)%logSize)*g.stride:]
	e[0] = uint64(id)
	live, f := d.live, p.f
	e = e[1:][:len(live)]
	for i, s := range live {
		e[i] = f[s]
	}
	l.tail++
	l.ready.Store(l.tail)
	if n := l.tail - l.seen; n >= logBatch && n%logRetry == 0 {
		if l.seen = l.done.Load(); l.tail-l.seen >= logBatch && g.tryLock() {
			g.replayOwn(l, p.lane)
			g.unlock()
		}
	}
}

// replayOwn does what a lane's own log holds, and begins it anew: memory that was used just now is near. The caller has the lock.
func (g *registerGroup) replayOwn(l *laneLog, by *lane) {
	g.replay(l, by)
	l.seen, l.base = l.tail, l.tail
}

// replay does what a log holds, in a lane. The caller has the lock.
func (g *registerGroup) replay(l *laneLog, by *lane) {
	p := by.replayer
	st := p.st
	from, to := l.done.Load(), l.ready.Load()
	g.without += to - from
	for i := from; i < to; i++ {
		if i == from {
			for k := range min(lookAhead, to-from) {
				l.fetch(st, g.stride, from+k)
			}
		}
		if i+lookAhead < to {
			l.fetch(st, g.stride, i+lookAhead)
		}
		e := l.words[int((i-l.base)%logSize)*g.stride:]
		d := &p.prog.deferred[e[0]]
		live, f := d.live, p.f
		e = e[1:][:len(live)]
		for k, s := range live {
			f[s] = e[k]
		}
		p.run(d.pc)
	}
	l.done.Store(to)
}

// fetchCell is a cellAhead as prefetch wants it: the cell whose index is entry[word] >> shift, where that is below size.
type fetchCell struct {
	cells unsafe.Pointer
	size  uint64
	bytes uint64 // of a cell
	word  uint32 // in bytes from the entry's begin
	shift uint32
}

// newFetches makes the fetchCells of each deferred part.
func newFetches(p *Program, regs []*register) [][]fetchCell {
	all := make([][]fetchCell, len(p.deferred))
	for i := range p.deferred {
		for _, a := range p.deferred[i].ahead {
			r := regs[a.reg]
			all[i] = append(all[i], fetchCell{r.cells, r.size, r.bytes, uint32(8 * a.word), uint32(a.shift)})
		}
	}
	return all
}

// fetch has the cells that an entry will use brought to this core.
func (l *laneLog) fetch(st *state, stride int, i uint64) {
	e := l.words[int((i-l.base)%logSize)*stride:]
	if cells := st.fetches[e[0]]; len(cells) > 0 {
		prefetch(&cells[0], len(cells), &e[0])
	}
}

// replayAll does what all logs hold. The caller has all lanes.
func (st *state) replayAll() {
	for i := range st.groups {
		g := &st.groups[i]
		for _, l := range g.logs {
			if l.ready.Load() != l.done.Load() {
				g.replay(l, st.sw.lanes[0])
			}
		}
	}
}
