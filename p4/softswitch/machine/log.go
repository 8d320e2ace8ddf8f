// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sync/atomic"
	"unsafe"

	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// Lanes share registers. A cell that two cores write moves between their caches each time, which
// takes longer than all other work on it. So if a packet does not depend on an action, its lane
// logs the action for the group of registers, and executes many log entries under one lock; while
// it executes an entry, it prefetches the cells of the following ones.
//
// An action that reads registers for its packet takes the lock and first executes the logs of all
// lanes; so does the control plane, which stops all lanes. An entry is logged before Inject
// returns, so no packet is missed. The order of entries within a lane is kept.

// registerGroup is the lock of registers that actions use together.
type registerGroup struct {
	spinLock
	awaited uint64 // executed actions that packets wait for, and others, since the last review; guarded by the lock
	others  uint64
	_       [104]byte // cores prefetch pairs of cache lines

	logs   []*laneLog // one for each lane; empty if no action of the group can be deferred
	stride int        // words of an entry
	// An action that packets wait for has to check all logs. If there are many, nothing is
	// deferred.
	eager atomic.Bool
	_     [92]byte
}

const (
	logSize      = 1 << 8 // entries of a log
	logBatch     = 1 << 6 // number of entries at which the lane tries to execute them
	logRetry     = 1 << 3 // number of further entries until it tries again
	lookAhead    = 6      // entries whose cells are prefetched
	reviewPeriod = 1 << 8 // actions between reviews of eager
)

// laneLog is the deferred actions of a lane. The lane writes entries; the holder of the group's
// lock executes them.
type laneLog struct {
	_     [64]byte
	words []uint64
	tail  uint64 // entries written; owned by the lane
	seen  uint64 // latest value of done that the lane has read
	base  uint64 // the entry at the start of words; owned by the lane, changed under the group's lock
	_     [64]byte
	ready atomic.Uint64 // tail, for other lanes
	_     [64]byte
	done  atomic.Uint64 // entries executed; changed under the group's lock
	_     [64]byte
}

// newGroups creates the groups of a program's registers.
func newGroups(p *program.Program, lanes int) []registerGroup {
	groups := make([]registerGroup, p.Locks)
	if lanes == 1 {
		return groups
	}
	for i := range p.Deferred {
		d := &p.Deferred[i]
		g := &groups[d.Lock]
		g.stride = max(g.stride, 1+len(d.Live))
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

// enter takes the lock for an action that a packet waits for.
func (g *registerGroup) enter(p *Packet) {
	g.lock()
	if g.logs == nil {
		return
	}
	for _, l := range g.logs {
		if l.ready.Load() != l.done.Load() {
			g.replay(l, p.Lane)
		}
	}
	if g.awaited++; g.awaited >= reviewPeriod {
		g.review()
	}
}

// enterEager takes the lock for an action that could be deferred.
func (g *registerGroup) enterEager(p *Packet) {
	g.lock()
	if l := g.logs[p.Lane.ID]; l.tail != l.done.Load() {
		g.replay(l, p.Lane)
	}
	if g.others++; g.others >= 16*reviewPeriod {
		g.review()
	}
}

// review decides whether actions are deferred from now on.
func (g *registerGroup) review() {
	g.eager.Store(g.awaited > g.others/16)
	g.awaited, g.others = 0, 0
}

// capture logs a part of an action.
func (g *registerGroup) capture(p *Packet, d *program.Deferred, id uint32) {
	l := g.logs[p.Lane.ID]
	if l.tail-l.seen == logSize {
		if l.seen = l.done.Load(); l.tail-l.seen == logSize {
			g.lock()
			g.replayOwn(l, p.Lane)
			g.unlock()
		}
	}
	e := l.words[int((l.tail-l.base)%logSize)*g.stride:]
	e[0] = uint64(id)
	live, f := d.Live, p.f
	e = e[1:][:len(live)]
	for i, s := range live {
		e[i] = f[s]
	}
	l.tail++
	l.ready.Store(l.tail)
	if n := l.tail - l.seen; n >= logBatch && n%logRetry == 0 {
		if l.seen = l.done.Load(); l.tail-l.seen >= logBatch && g.tryLock() {
			g.replayOwn(l, p.Lane)
			g.unlock()
		}
	}
}

// replayOwn executes a lane's own log and restarts it at its beginning, which is in the cache. The
// caller holds the lock.
func (g *registerGroup) replayOwn(l *laneLog, by *Lane) {
	g.replay(l, by)
	l.seen, l.base = l.tail, l.tail
}

// replay executes a log in a lane. The caller holds the lock.
func (g *registerGroup) replay(l *laneLog, by *Lane) {
	p := by.replayer
	st := p.st
	from, to := l.done.Load(), l.ready.Load()
	g.others += to - from
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
		d := &p.prog.Deferred[e[0]]
		live, f := d.Live, p.f
		e = e[1:][:len(live)]
		for k, s := range live {
			f[s] = e[k]
		}
		p.run(d.PC)
	}
	l.done.Store(to)
}

// fetchCell is a CellAhead in the layout that prefetch reads: the cell with index entry[Word] >>
// shift, if that is below size.
type fetchCell struct {
	cells unsafe.Pointer
	size  uint64
	bytes uint64 // of a cell
	word  uint32 // offset in the entry, bytes
	shift uint32
}

// newFetches creates the fetchCells of each deferred part.
func newFetches(p *program.Program, regs []*Register) [][]fetchCell {
	all := make([][]fetchCell, len(p.Deferred))
	for i := range p.Deferred {
		for _, a := range p.Deferred[i].Ahead {
			r := regs[a.Register]
			all[i] = append(all[i], fetchCell{r.cells, r.size, r.bytes, uint32(8 * a.Word), uint32(a.Shift)})
		}
	}
	return all
}

// fetch prefetches the cells of an entry.
func (l *laneLog) fetch(st *State, stride int, i uint64) {
	e := l.words[int((i-l.base)%logSize)*stride:]
	if cells := st.fetches[e[0]]; len(cells) > 0 {
		prefetch(&cells[0], len(cells), &e[0])
	}
}

// ReplayAll executes all logs in one of the lanes. The caller holds all lanes.
func (st *State) ReplayAll(by *Lane) {
	for i := range st.groups {
		g := &st.groups[i]
		for _, l := range g.logs {
			if l.ready.Load() != l.done.Load() {
				g.replay(l, by)
			}
		}
	}
}
