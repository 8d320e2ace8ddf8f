// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"math/bits"
	"slices"
)

// Liveness tells, for every place of a program's code, which slots may still be read as they are there. What nobody will read need not be
// computed (eliminate), a slot that is always written first need not be zeroed for each packet (clearing), and an action none of whose results is
// read may be run later (see deferral.go).

// slotSpan is n slots from the first on.
type slotSpan struct {
	first uint32
	n     int
}

// usage is what a closure reads and surely overwrites. Of a closure without one, nothing is known.
type usage struct {
	known  bool
	reads  []slotSpan
	writes []slotSpan
}

func using(reads ...slotSpan) usage { return usage{known: true, reads: reads} }

func (u usage) writing(w ...slotSpan) usage {
	u.writes = append(u.writes, w...)
	return u
}

func slot1(s uint32) slotSpan { return slotSpan{s, 1} }

// callUsing is call for a closure of which is known what it does.
func (b *builder) callUsing(u usage, f func(*packet)) {
	b.call(f)
	b.use(u)
}

// use says what the closure made last does.
func (b *builder) use(u usage) {
	if b.fnUse == nil {
		b.fnUse = map[int]usage{}
	}
	b.fnUse[len(b.fns)-1] = u
}

// slotSet is a set of slots.
type slotSet []uint64

func (s slotSet) has(i uint32) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s slotSet) add(i uint32)      { s[i/64] |= 1 << (i % 64) }
func (s slotSet) drop(i uint32)     { s[i/64] &^= 1 << (i % 64) }

func (s slotSet) addSpan(x slotSpan) {
	for i := range uint32(x.n) {
		s.add(x.first + i)
	}
}

func (s slotSet) dropSpan(x slotSpan) {
	for i := range uint32(x.n) {
		s.drop(x.first + i)
	}
}

// addAll adds o, and tells whether that changed the set.
func (s slotSet) addAll(o slotSet) (changed bool) {
	for i, w := range o {
		if n := s[i] | w; n != s[i] {
			s[i], changed = n, true
		}
	}
	return changed
}

// each lists the slots.
func (s slotSet) each(f func(uint32)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			f(uint32(i*64 + bits.TrailingZeros64(w)))
		}
	}
}

// liveness is the slots that are live before each instruction.
type liveness struct {
	b     *builder
	in    []slotSet
	end   slotSet // live where a pipeline ends
	rets  map[uint32][]uint32
	zeros bool // which slots have to be zero at the beginning, rather than which are read
}

// maxLiveWords bounds the memory of one analysis; programs beyond it go without.
const maxLiveWords = 1 << 23

// live analyses the code there is. It returns nil for programs that are too large.
func (b *builder) live(zeros bool) *liveness {
	words := (b.constAt+len(b.constVal)+2*b.maxKey)/64 + 1
	if len(b.code)*words > maxLiveWords {
		return nil
	}
	l := &liveness{b: b, in: make([]slotSet, len(b.code)), rets: b.returns(), zeros: zeros}
	all := make([]uint64, (len(b.code)+2)*words)
	take := func() slotSet {
		s := all[:words:words]
		all = all[words:]
		return s
	}
	for i := range l.in {
		l.in[i] = take()
	}
	l.end = take()
	l.ends()
	now := take()
	p := b.prog
	for changed := true; changed; {
		changed = false
		for pc := len(b.code) - 1; pc >= 0; pc-- {
			clear(now)
			l.before(uint32(pc), now)
			changed = l.in[pc].addAll(now) || changed
		}
		for _, pc := range []uint32{p.ingressPC, p.egressPC, p.deparserPC} {
			changed = l.end.addAll(l.in[pc]) || changed
		}
	}
	return l
}

// ends adds what the switch itself reads after the code.
func (l *liveness) ends() {
	p := l.b.prog
	s := &p.std
	for _, f := range []stdField{
		s.ingressPort, s.egressSpec, s.egressPort, s.instanceType, s.packetLength, s.parserError, s.checksumError, s.mcastGrp, s.egressRid,
		s.priority, s.qid, s.ingressTS, s.egressTS, s.enqTS, s.enqDepth, s.deqDelta, s.deqDepth,
	} {
		if f.slot >= 0 {
			l.end.add(uint32(f.slot))
		}
	}
	for _, list := range p.fieldLists {
		for _, f := range list {
			l.end.addSpan(slotSpan{uint32(f.slot), f.words})
		}
	}
	for i := range p.digests {
		for _, f := range p.digests[i].fields {
			l.end.addSpan(slotSpan{uint32(f.slot), f.words})
		}
	}
	for _, h := range p.deparse {
		if n := h.t.slots; l.zeros && h.t.vl < 0 { // where it is valid, what made it so wrote all of it
			l.end.add(uint32(h.base))
		} else {
			l.end.addSpan(slotSpan{uint32(h.base), n})
		}
	}
}

// returns lists where the opRet at each place may lead.
func (b *builder) returns() map[uint32][]uint32 {
	acts := make([]*action, 0, len(b.actionByID))
	for _, a := range b.actionByID {
		acts = append(acts, a)
	}
	slices.SortFunc(acts, func(x, y *action) int { return int(x.pc) - int(y.pc) })
	to := map[int][]uint32{}
	for _, t := range b.prog.tables {
		for id, pc := range t.next {
			if t.hitMiss {
				to[id] = append(to[id], t.onHit, t.onMiss)
			}
			to[id] = append(to[id], pc)
		}
		if t.profile >= 0 && t.hitMiss {
			for _, a := range b.prog.profiles[t.profile].actions {
				to[a.id] = append(to[a.id], t.onHit, t.onMiss)
			}
		}
	}
	out := map[uint32][]uint32{}
	for i, a := range acts {
		end := uint32(len(b.code))
		if i+1 < len(acts) {
			end = acts[i+1].pc
		}
		for pc := a.pc; pc < end; pc++ {
			if b.code[pc].op == opRet {
				out[pc] = append([]uint32{0}, to[a.id]...)
				break
			}
		}
	}
	return out
}

// before makes of the empty set what is live before the instruction at pc.
func (l *liveness) before(pc uint32, s slotSet) {
	in := &l.b.code[pc]
	from := func(next ...uint32) {
		for _, n := range next {
			s.addAll(l.in[n])
		}
	}
	switch in.op {
	case opEnd:
		s.addAll(l.end)
		return
	case opRet:
		if next, ok := l.rets[pc]; ok {
			from(next...)
			return
		}
		fill(s)
		return
	case opJmp:
		from(in.d)
		return
	case opExitTest:
		from(pc+1, 0)
		return
	case opDefer:
		from(pc+1, in.d)
		return
	case opCapture:
		from(in.d)
		for _, x := range l.b.prog.deferred[in.a].live {
			s.add(x)
		}
		return
	case opTable:
		l.table(l.b.prog.tables[in.a], s)
		return
	case opSelect:
		sel := l.b.prog.selects[in.a]
		from(sel.def)
		for i := range sel.cases {
			from(sel.cases[i].next)
		}
		for _, x := range sel.slots {
			s.add(x)
		}
		return
	}
	from(pc + 1)
	switch in.op {
	case opCall, opCallP:
		u := l.b.fnUse[int(in.a)]
		if !u.known {
			fill(s)
			return
		}
		for _, x := range u.writes {
			s.dropSpan(x)
		}
		if in.op == opCallP {
			from(in.d)
		}
		for _, x := range u.reads {
			s.addSpan(x)
		}
		return
	case opExtract:
		h := l.b.headers[in.a]
		s.dropSpan(slotSpan{uint32(h.base), h.t.slots})
		from(in.d)
		return
	case opAddHdr:
		h := l.b.headers[in.a]
		if l.zeros { // an invalid header is cleared, a valid one has been written
			s.dropSpan(slotSpan{uint32(h.base), h.t.slots})
		}
		s.add(uint32(h.base))
		return
	case opRmHdr:
		s.add(uint32(l.b.headers[in.a].base))
		return
	case opHash:
		c := l.b.prog.calcs[in.a]
		s.drop(in.d)
		for _, x := range c.reads() {
			s.add(x)
		}
		return
	case opLoad:
		s.drop(in.d)
		for i := range in.imm {
			s.add(uint32(uint64(in.a) + i*uint64(in.c)))
		}
	case opRegRd:
		s.drop(in.d)
	case opState:
		from(in.d)
	default:
		if in.op >= opJmp && in.op <= opJGeS {
			from(in.d)
		} else if in.pure() {
			s.drop(in.d)
		}
	}
	for _, x := range in.operands() {
		s.add(*x)
	}
}

func fill(s slotSet) {
	for i := range s {
		s[i] = ^uint64(0)
	}
}

// table adds what an applied table reads and what is live where it leads.
func (l *liveness) table(t *tableDef, s slotSet) {
	s.addAll(l.in[t.missPC])
	if t.hitMiss {
		s.addAll(l.in[t.onHit])
		s.addAll(l.in[t.onMiss])
	}
	for _, pc := range t.next { // of an empty group
		s.addAll(l.in[pc])
	}
	for id := range t.actions {
		s.addAll(l.in[l.b.actionByID[id].pc])
	}
	if t.profile >= 0 {
		d := l.b.prog.profiles[t.profile]
		for _, a := range d.actions {
			s.addAll(l.in[a.pc])
		}
		if d.calc != nil {
			for _, x := range d.calc.reads() {
				s.add(x)
			}
		}
	}
	for i := range t.pieces {
		s.add(t.pieces[i].slot)
	}
}

// droppable tells whether the instruction does nothing but write d.
func (b *builder) droppable(in *instr) bool {
	return in.pure() || in.op == opHash && b.prog.calcs[in.a].fn != nil
}

// eliminate drops instructions whose result nobody reads.
func (b *builder) eliminate() {
	for range 8 {
		l := b.live(false)
		if l == nil {
			return
		}
		again := false
		for pc := range b.code {
			if in := &b.code[pc]; b.droppable(in) && !l.in[pc+1].has(in.d) {
				*in = instr{op: opJmp, d: uint32(pc + 1)}
				again = true
			}
		}
		if !again {
			return
		}
		b.compact()
	}
}

// clearing finds the slots that have to be zero when a packet enters.
func (b *builder) clearing() {
	p := b.prog
	p.zero = []slotSpan{{0, p.phv}}
	l := b.live(true)
	if l == nil {
		return
	}
	p.zero = nil
	const gap = 6 // slots that are as well cleared as gone round
	l.in[p.parserPC].each(func(s uint32) {
		if int(s) >= p.phv {
			return
		}
		if n := len(p.zero) - 1; n >= 0 && int(s)-(int(p.zero[n].first)+p.zero[n].n) <= gap {
			p.zero[n].n = int(s) - int(p.zero[n].first) + 1
			return
		}
		p.zero = append(p.zero, slot1(s))
	})
}
