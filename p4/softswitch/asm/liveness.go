// SPDX-License-Identifier: Apache-2.0

package asm

import (
	"math/bits"
	"slices"

	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// liveness is the set of live slots before each instruction. It shows which results are not read
// and need not be computed (Eliminate), which slots are written before they are read and need not
// be zeroed for each packet (Clearing), and which actions have no result that the packet reads and
// can be deferred (DeferActions).

// slotSet is a set of slots.
type slotSet []uint64

func (s slotSet) has(i uint32) bool { return s[i/64]>>(i%64)&1 != 0 }

func (s slotSet) add(i uint32) { s[i/64] |= 1 << (i % 64) }

func (s slotSet) drop(i uint32) { s[i/64] &^= 1 << (i % 64) }

func (s slotSet) addSpan(x program.Span) {
	for i := range uint32(x.N) {
		s.add(x.First + i)
	}
}

func (s slotSet) dropSpan(x program.Span) {
	for i := range uint32(x.N) {
		s.drop(x.First + i)
	}
}

// addAll adds o, and reports whether the set changed.
func (s slotSet) addAll(o slotSet) (changed bool) {
	for i, w := range o {
		if n := s[i] | w; n != s[i] {
			s[i], changed = n, true
		}
	}
	return changed
}

// each calls f for each slot.
func (s slotSet) each(f func(uint32)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			f(uint32(i*64 + bits.TrailingZeros64(w)))
		}
	}
}

type liveness struct {
	b     *Builder
	in    []slotSet
	end   slotSet // live where a pipeline ends
	rets  map[uint32][]uint32
	zeros bool // the analysis is of the slots that must be zero at the start, not of those that are read
}

// maxLiveWords bounds the memory of one analysis; larger programs are not analyzed.
const maxLiveWords = 1 << 23

// live analyzes the code. It returns nil for a program that is too large.
func (b *Builder) live(zeros bool) *liveness {
	words := (b.ConstAt+len(b.ConstVal)+2*b.MaxKey)/64 + 1
	if len(b.Code)*words > maxLiveWords {
		return nil
	}
	l := &liveness{b: b, in: make([]slotSet, len(b.Code)), rets: b.returns(), zeros: zeros}
	all := make([]uint64, (len(b.Code)+2)*words)
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
	p := b.Prog
	for changed := true; changed; {
		changed = false
		for pc := len(b.Code) - 1; pc >= 0; pc-- {
			clear(now)
			l.before(uint32(pc), now)
			changed = l.in[pc].addAll(now) || changed
		}
		for _, pc := range []uint32{p.IngressPC, p.EgressPC, p.DeparserPC} {
			changed = l.end.addAll(l.in[pc]) || changed
		}
	}
	return l
}

// ends adds the slots that the switch reads after the code.
func (l *liveness) ends() {
	p := l.b.Prog
	s := &p.Std
	for _, f := range []program.StdField{
		s.IngressPort, s.EgressSpec, s.EgressPort, s.InstanceType, s.PacketLength, s.ParserError, s.ChecksumError,
		s.McastGroup, s.EgressRID,
		s.Priority, s.QID, s.IngressTimestamp, s.EgressTimestamp, s.EnqTimestamp, s.EnqDepth, s.DeqDelta, s.DeqDepth,
	} {
		if f.Slot >= 0 {
			l.end.add(uint32(f.Slot))
		}
	}
	for _, list := range p.FieldLists {
		for _, f := range list {
			l.end.addSpan(program.Span{First: uint32(f.Slot), N: f.Words})
		}
	}
	for i := range p.Digests {
		for _, f := range p.Digests[i].Fields {
			l.end.addSpan(program.Span{First: uint32(f.Slot), N: f.Words})
		}
	}
	for _, h := range p.Deparse {
		if n := h.Type.Slots; l.zeros && !h.Metadata { // if it is valid, all of it has been written
			l.end.add(uint32(h.Base))
		} else {
			l.end.addSpan(program.Span{First: uint32(h.Base), N: n})
		}
	}
}

// returns lists the possible targets of each OpRet.
func (b *Builder) returns() map[uint32][]uint32 {
	acts := slices.Clone(b.Prog.Actions)
	slices.SortFunc(acts, func(x, y *program.Action) int { return int(x.PC) - int(y.PC) })
	to := map[int][]uint32{}
	for _, t := range b.Prog.Tables {
		for id, pc := range t.Next {
			if t.HitMiss {
				to[id] = append(to[id], t.OnHit, t.OnMiss)
			}
			to[id] = append(to[id], pc)
		}
		if t.Profile >= 0 && t.HitMiss {
			for _, a := range b.Prog.Profiles[t.Profile].Actions {
				to[a.ID] = append(to[a.ID], t.OnHit, t.OnMiss)
			}
		}
	}
	out := map[uint32][]uint32{}
	for i, a := range acts {
		end := uint32(len(b.Code))
		if i+1 < len(acts) {
			end = acts[i+1].PC
		}
		for pc := a.PC; pc < end; pc++ {
			if b.Code[pc].Op == program.OpRet {
				out[pc] = append([]uint32{0}, to[a.ID]...)
				break
			}
		}
	}
	return out
}

// before computes the slots that are live before the instruction at pc; s is empty.
func (l *liveness) before(pc uint32, s slotSet) {
	in := &l.b.Code[pc]
	from := func(next ...uint32) {
		for _, n := range next {
			s.addAll(l.in[n])
		}
	}
	switch in.Op {
	case program.OpEnd:
		s.addAll(l.end)
		return
	case program.OpRet:
		if next, ok := l.rets[pc]; ok {
			from(next...)
			return
		}
		fill(s)
		return
	case program.OpJmp:
		from(in.D)
		return
	case program.OpExitTest:
		from(pc+1, 0)
		return
	case program.OpDefer:
		from(pc+1, in.D)
		return
	case program.OpCapture:
		from(in.D)
		for _, x := range l.b.Prog.Deferred[in.A].Live {
			s.add(x)
		}
		return
	case program.OpTable:
		l.table(l.b.Prog.Tables[in.A], s)
		return
	case program.OpSelect:
		sel := l.b.Prog.Selects[in.A]
		from(sel.Default)
		for i := range sel.Cases {
			from(sel.Cases[i].Next)
		}
		for _, x := range sel.Slots {
			s.add(x)
		}
		return
	}
	from(pc + 1)
	if !l.zeros && l.b.droppable(in) && !s.has(in.D) {
		return // Eliminate removes it, with what only its operands need
	}
	switch in.Op {
	case program.OpCall, program.OpCallP:
		u := &l.b.Prog.Calls[in.A]
		if !u.Known {
			fill(s)
			return
		}
		for _, x := range u.Writes {
			s.dropSpan(x)
		}
		if in.Op == program.OpCallP {
			from(in.D)
		}
		for _, x := range u.Reads {
			s.addSpan(x)
		}
		return
	case program.OpExtract:
		h := l.b.Prog.Headers[in.A]
		s.dropSpan(program.Span{First: uint32(h.Base), N: h.Type.Slots})
		from(in.D)
		return
	case program.OpAddHdr:
		h := l.b.Prog.Headers[in.A]
		if l.zeros { // an invalid header is cleared, a valid one has been written
			s.dropSpan(program.Span{First: uint32(h.Base), N: h.Type.Slots})
		}
		s.add(uint32(h.Base))
		return
	case program.OpRmHdr:
		s.add(uint32(l.b.Prog.Headers[in.A].Base))
		return
	case program.OpHash:
		c := l.b.Prog.Hashes[in.A]
		s.drop(in.D)
		for _, x := range c.Reads() {
			s.add(x)
		}
		return
	case program.OpLoad:
		s.drop(in.D)
		for i := range in.Imm {
			s.add(uint32(uint64(in.A) + i*uint64(in.C)))
		}
	case program.OpRegRd:
		s.drop(in.D)
	case program.OpState:
		from(in.D)
	default:
		if in.Op >= program.OpJmp && in.Op <= program.OpJGeS {
			from(in.D)
		} else if in.Pure() {
			s.drop(in.D)
		}
	}
	for _, x := range in.Operands() {
		s.add(*x)
	}
}

func fill(s slotSet) {
	for i := range s {
		s[i] = ^uint64(0)
	}
}

// table adds the slots that applying a table reads, and those that are live at its targets.
func (l *liveness) table(t *program.Table, s slotSet) {
	s.addAll(l.in[t.MissPC])
	if t.HitMiss {
		s.addAll(l.in[t.OnHit])
		s.addAll(l.in[t.OnMiss])
	}
	for _, pc := range t.Next { // of an empty group
		s.addAll(l.in[pc])
	}
	for _, a := range t.ActionByID {
		s.addAll(l.in[a.PC])
	}
	if t.Profile >= 0 {
		d := l.b.Prog.Profiles[t.Profile]
		for _, a := range d.Actions {
			s.addAll(l.in[a.PC])
		}
		if d.Hash != nil {
			for _, x := range d.Hash.Reads() {
				s.add(x)
			}
		}
	}
	for i := range t.Pieces {
		s.add(t.Pieces[i].Slot)
	}
}

// droppable reports whether the instruction has no effect but writing D.
func (b *Builder) droppable(in *program.Instr) bool {
	return in.Pure() || in.Op == program.OpHash && b.Prog.Hashes[in.A].Func != nil
}

// Eliminate removes instructions whose result is not read.
func (b *Builder) Eliminate() {
	l := b.live(false)
	if l == nil {
		return
	}
	for pc := range b.Code {
		if in := &b.Code[pc]; b.droppable(in) && !l.in[pc+1].has(in.D) {
			*in = program.Instr{Op: program.OpJmp, D: uint32(pc + 1)}
		}
	}
	for n := 0; n != len(b.Code); { // a jump over what is removed leads to the next instruction then
		n = len(b.Code)
		b.Compact()
	}
}

// Clearing finds the slots that must be zero when a packet enters.
func (b *Builder) Clearing() {
	p := b.Prog
	p.Zero = []program.Span{{First: 0, N: p.Fields}}
	l := b.live(true)
	if l == nil {
		return
	}
	p.Zero = nil
	const gap = 16 // shorter gaps are cleared with their neighbors
	l.in[p.ParserPC].each(func(s uint32) {
		if int(s) >= p.Fields {
			return
		}
		if n := len(p.Zero) - 1; n >= 0 && int(s)-(int(p.Zero[n].First)+p.Zero[n].N) <= gap {
			p.Zero[n].N = int(s) - int(p.Zero[n].First) + 1
			return
		}
		p.Zero = append(p.Zero, program.Slot(s))
	})
}
