// SPDX-License-Identifier: Apache-2.0

package softswitch

import "slices"

// What an action does to registers can be put off when the packet goes on the same without it: when no slot that it writes is read afterwards.
// Counting in a sketch is of this kind, reading a sketch out is not. With several lanes such an action writes down what it needs, and a lane
// runs many of them at once; see oplog.go. This file finds them, and cuts each in two: what can be computed from the packet alone runs with the
// packet (above all where in the registers it will read and write), the rest later.

// deferred is an action's part that can be put off.
type deferred struct {
	lock  int         // of its registers
	pc    uint32      // the part, up to an opEnd
	live  []uint32    // the slots it needs
	ahead []cellAhead // cells that it will surely use
}

// cellAhead is a cell of a register whose index is known before: a word of the entry, which is live[word-1], shifted right.
type cellAhead struct {
	reg   int
	word  int
	shift uint8
}

const (
	maxDeferredWords = 48
	maxAhead         = 8
)

// deferActions replaces the opLock of parts that can be put off by opDefer.
func (b *builder) deferActions() {
	l := b.live(false)
	if l == nil {
		return
	}
	first, last := make([]int, len(b.code)), make([]int, len(b.code)) // jumps to each place: the first and the last
	for i := range first {
		first[i], last[i] = len(b.code), -1
	}
	for i := range b.code {
		if in := &b.code[i]; in.jumps() {
			first[in.d], last[in.d] = min(first[in.d], i), max(last[in.d], i)
		}
	}
	for at, end := 0, len(b.code); at < end; at++ {
		if b.code[at].op != opLock {
			continue
		}
		to := at + 1
		for b.code[to].op != opUnlock {
			to++
		}
		if b.canDefer(at, to, l.in[to+1]) && entered(first, last, at, to) {
			b.deferPart(at, to)
		}
	}
}

// entered tells whether code between two places is entered from the first of them only.
func entered(first, last []int, at, to int) bool {
	for i := at + 1; i <= to; i++ {
		if first[i] < at || last[i] > to {
			return false
		}
	}
	return true
}

// canDefer tells whether the code between two places does nothing but compute and use registers, ends where it should, and leaves nothing that is live.
func (b *builder) canDefer(at, to int, live slotSet) bool {
	for i := at + 1; i < to; i++ {
		in := &b.code[i]
		switch {
		case in.pure(), in.op == opRegRd:
			if live.has(in.d) {
				return false
			}
		case in.op == opRegWr:
		case in.op >= opJmp && in.op <= opJGeS:
			if int(in.d) <= i || int(in.d) > to {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// deferPart puts off the code between an opLock and an opUnlock.
func (b *builder) deferPart(at, to int) {
	part := append([]instr(nil), b.code[at+1:to]...)
	early, ahead := b.split(part, at+1)
	mark := len(b.code)
	for i := range part {
		if part[i].jumps() {
			part[i].d += uint32(mark - at - 1)
		}
	}
	b.code = append(b.code, part...)
	b.optimize(mark)
	needs := b.sweepPart(mark)
	b.emit(instr{op: opEnd})
	d := deferred{lock: int(b.code[at].a), pc: uint32(mark)}
	places := map[uint32]int{}
	needs.each(func(s uint32) {
		if _, constant := b.constOf(s); !constant {
			places[s] = len(d.live)
			d.live = append(d.live, s)
		}
	})
	if len(d.live) > maxDeferredWords {
		b.code = b.code[:mark]
		return
	}
	for _, c := range ahead {
		if w, ok := places[c.slot]; ok {
			if a := (cellAhead{c.reg, 1 + w, c.shift}); len(d.ahead) < maxAhead && !slices.Contains(d.ahead, a) {
				d.ahead = append(d.ahead, a)
			}
		}
	}
	start := b.here()
	for i := range early {
		b.emit(early[i])
	}
	b.emit(instr{op: opCapture, a: uint32(len(b.prog.deferred)), d: uint32(to + 1)})
	b.code[at] = instr{op: opDefer, a: uint32(len(b.prog.deferred)), d: start}
	b.prog.deferred = append(b.prog.deferred, d)
}

// slotAhead is a cellAhead before its slot has a place.
type slotAhead struct {
	reg   int
	slot  uint32
	shift uint8
}

// split takes out of a part, whose first instruction is at the given place, what the indices of registers come from, as far as that does not depend
// on registers. It returns the code for it, leaves moves in its places, and says where cells' indices can be found.
func (b *builder) split(part []instr, start int) (early []instr, ahead []slotAhead) {
	const unknown = -1
	over := coverage(part, start)
	now := map[uint32]int{} // slots that were written: by which candidate, or unknown
	type candidate struct {
		at     int
		from   [3]int
		needed bool
		to     uint32
	}
	var all []candidate
	type index struct {
		reg, cand int
		slot      uint32
	}
	var indices []index
	top := uint32(b.temps)
	for i := range part {
		in := &part[i]
		for _, s := range append(in.operands(), &in.d) {
			if b.isTemp(*s) {
				top = max(top, *s+1)
			}
		}
		always := over[i] <= i
		if in.op == opRegRd || in.op == opRegWr {
			if k, written := now[in.b]; always && (!written || k != unknown) {
				x := index{reg: int(in.a), cand: unknown, slot: in.b}
				if written {
					x.cand = k
				}
				indices = append(indices, x)
			}
		}
		if in.op == opRegRd || !always && in.pure() {
			now[in.d] = unknown
		}
		if !always || !in.pure() {
			continue
		}
		c := candidate{at: i, from: [3]int{unknown, unknown, unknown}}
		ok := true
		for j, s := range in.operands() {
			if k, written := now[*s]; written {
				ok = ok && k != unknown
				c.from[j] = k
			}
		}
		now[in.d] = unknown
		if ok {
			now[in.d] = len(all)
			all = append(all, c)
		}
	}
	// An index that is a shifted value, or one next to another, need not be kept apart from that.
	for _, x := range indices {
		if x.cand == unknown {
			ahead = append(ahead, slotAhead{reg: x.reg, slot: x.slot})
			continue
		}
		c := &all[x.cand]
		in := &part[c.at]
		switch {
		case in.op == opShrI && c.from[0] == unknown:
			ahead = append(ahead, slotAhead{x.reg, in.a, uint8(in.b & 63)})
		case in.op == opShrI:
			all[c.from[0]].needed = true
		case in.op == opAdd && b.isConst(in.b):
		default:
			c.needed = true
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		for _, k := range all[i].from {
			if all[i].needed && k != unknown {
				all[k].needed = true
			}
		}
	}
	for i := range all {
		c := &all[i]
		if !c.needed {
			continue
		}
		if top >= uint32(b.temps+b.tempCap) {
			return early, ahead
		}
		in := part[c.at]
		part[c.at] = instr{op: opMov, d: in.d, a: top, imm: ^uint64(0)}
		for j, s := range in.operands() {
			if k := c.from[j]; k != unknown {
				*s = all[k].to
			}
		}
		in.d, c.to = top, top
		top++
		early = append(early, in)
	}
	for _, x := range indices {
		if x.cand == unknown {
			continue
		}
		c := &all[x.cand]
		if in := &part[c.at]; c.needed {
			ahead = append(ahead, slotAhead{reg: x.reg, slot: c.to})
		} else if in.op == opShrI && c.from[0] != unknown && all[c.from[0]].needed {
			ahead = append(ahead, slotAhead{x.reg, all[c.from[0]].to, uint8(in.b & 63)})
		}
	}
	return early, ahead
}

func (b *builder) isConst(slot uint32) bool {
	_, ok := b.constOf(slot)
	return ok
}

// sweepPart drops from the code from start on, which leaves nothing, what only computes, and returns the slots that it reads.
func (b *builder) sweepPart(start int) slotSet {
	code := b.code[start:]
	words := (b.constAt+len(b.constVal))/64 + 1
	live := make([]slotSet, len(code)+1)
	live[len(code)] = make(slotSet, words)
	keep := make([]bool, len(code))
	for i := len(code) - 1; i >= 0; i-- {
		in := &code[i]
		s := make(slotSet, words)
		if in.op != opJmp {
			s.addAll(live[i+1])
		}
		live[i] = s
		if in.jumps() {
			s.addAll(live[int(in.d)-start])
		}
		if keep[i] = !in.pure() || s.has(in.d); !keep[i] {
			continue
		}
		if in.pure() || in.op == opRegRd {
			s.drop(in.d)
		}
		for _, x := range in.operands() {
			s.add(*x)
		}
	}
	b.pack(start, keep)
	return live[0]
}
