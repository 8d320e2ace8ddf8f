// SPDX-License-Identifier: Apache-2.0

package asm

import (
	"slices"

	"github.com/netsketch/netsketch/p4/softswitch/program"
)

const (
	maxDeferredWords = 48
	maxAhead         = 8
)

// DeferActions replaces the OpLock of each part that can be deferred by an OpDefer. What an action
// does to registers can be deferred if the packet does not depend on it: if no slot that the action
// writes is read afterwards. Counting in a sketch is of this kind, reading a sketch out is not.
// With several lanes this action logs its operands, and a lane executes many log entries at once
// (machine/log.go). Each part is cut in two: values that depend on the packet alone, above all the
// indices of register cells, are computed with the packet, the rest later.
func (b *Builder) DeferActions() {
	l := b.live(false)
	if l == nil {
		return
	}
	first, last := make([]int, len(b.Code)), make([]int, len(b.Code)) // first and last jump to each instruction
	for i := range first {
		first[i], last[i] = len(b.Code), -1
	}
	for i := range b.Code {
		if in := &b.Code[i]; in.Jumps() {
			first[in.D], last[in.D] = min(first[in.D], i), max(last[in.D], i)
		}
	}
	for at, end := 0, len(b.Code); at < end; at++ {
		if b.Code[at].Op != program.OpLock {
			continue
		}
		to := at + 1
		for b.Code[to].Op != program.OpUnlock {
			to++
		}
		if b.canDefer(at, to, l.in[to+1]) && entered(first, last, at, to) {
			b.deferPart(at, to)
		}
	}
}

// entered reports whether the code between two instructions is entered at the first one only.
func entered(first, last []int, at, to int) bool {
	for i := at + 1; i <= to; i++ {
		if first[i] < at || last[i] > to {
			return false
		}
	}
	return true
}

// canDefer reports whether the code between two instructions only computes and uses registers, ends
// at the second one, and writes no slot that is live there.
func (b *Builder) canDefer(at, to int, live slotSet) bool {
	for i := at + 1; i < to; i++ {
		in := &b.Code[i]
		switch {
		case in.Pure(), in.Op == program.OpRegRd:
			if live.has(in.D) {
				return false
			}
		case in.Op == program.OpRegWr:
		case in.Op >= program.OpJmp && in.Op <= program.OpJGeS:
			if int(in.D) <= i || int(in.D) > to {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// deferPart defers the code between an OpLock and an OpUnlock.
func (b *Builder) deferPart(at, to int) {
	part := append([]program.Instr(nil), b.Code[at+1:to]...)
	early, ahead := b.split(part, at+1)
	mark := len(b.Code)
	for i := range part {
		if part[i].Jumps() {
			part[i].D += uint32(mark - at - 1)
		}
	}
	b.Code = append(b.Code, part...)
	b.Optimize(mark)
	needs := b.sweepPart(mark)
	b.Emit(program.Instr{Op: program.OpEnd})
	d := program.Deferred{Lock: int(b.Code[at].A), PC: uint32(mark)}
	places := map[uint32]int{}
	needs.each(func(s uint32) {
		if _, constant := b.ConstOf(s); !constant {
			places[s] = len(d.Live)
			d.Live = append(d.Live, s)
		}
	})
	if len(d.Live) > maxDeferredWords {
		b.Code = b.Code[:mark]
		return
	}
	for _, c := range ahead {
		if w, ok := places[c.slot]; ok {
			if a := (program.CellAhead{Register: c.reg, Word: 1 + w, Shift: c.shift}); len(d.Ahead) < maxAhead &&
				!slices.Contains(d.Ahead, a) {
				d.Ahead = append(d.Ahead, a)
			}
		}
	}
	start := b.Here()
	for i := range early {
		b.Emit(early[i])
	}
	b.Emit(program.Instr{Op: program.OpCapture, A: uint32(len(b.Prog.Deferred)), D: uint32(to + 1)})
	b.Code[at] = program.Instr{Op: program.OpDefer, A: uint32(len(b.Prog.Deferred)), D: start}
	b.Prog.Deferred = append(b.Prog.Deferred, d)
}

// slotAhead is a CellAhead whose slot has no place in the log entry yet.
type slotAhead struct {
	reg   int
	slot  uint32
	shift uint8
}

// split moves the computation of register indices out of a part that begins at instruction start,
// if it does not depend on registers. It returns the moved code, leaves moves in its place, and
// returns the slots that hold cell indices.
func (b *Builder) split(part []program.Instr, start int) (early []program.Instr, ahead []slotAhead) {
	const unknown = -1
	over := coverage(part, start)
	now := map[uint32]int{} // slots written so far: the candidate that wrote them, or unknown
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
	top := uint32(b.Temps)
	for i := range part {
		in := &part[i]
		for _, s := range append(in.Operands(), &in.D) {
			if b.IsTemp(*s) {
				top = max(top, *s+1)
			}
		}
		always := over[i] <= i
		if in.Op == program.OpRegRd || in.Op == program.OpRegWr {
			if k, written := now[in.B]; always && (!written || k != unknown) {
				x := index{reg: int(in.A), cand: unknown, slot: in.B}
				if written {
					x.cand = k
				}
				indices = append(indices, x)
			}
		}
		if in.Op == program.OpRegRd || !always && in.Pure() {
			now[in.D] = unknown
		}
		if !always || !in.Pure() {
			continue
		}
		c := candidate{at: i, from: [3]int{unknown, unknown, unknown}}
		ok := true
		for j, s := range in.Operands() {
			if k, written := now[*s]; written {
				ok = ok && k != unknown
				c.from[j] = k
			}
		}
		now[in.D] = unknown
		if ok {
			now[in.D] = len(all)
			all = append(all, c)
		}
	}
	// An index that is a shifted value, or a neighbor of another index, needs no slot of its own.
	for _, x := range indices {
		if x.cand == unknown {
			ahead = append(ahead, slotAhead{reg: x.reg, slot: x.slot})
			continue
		}
		c := &all[x.cand]
		in := &part[c.at]
		switch {
		case in.Op == program.OpShrI && c.from[0] == unknown:
			ahead = append(ahead, slotAhead{x.reg, in.A, uint8(in.B & 63)})
		case in.Op == program.OpShrI:
			all[c.from[0]].needed = true
		case in.Op == program.OpAdd && b.isConst(in.B):
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
		if top >= uint32(b.Temps+b.TempCap) {
			return early, ahead
		}
		in := part[c.at]
		part[c.at] = program.Instr{Op: program.OpMov, D: in.D, A: top, Imm: ^uint64(0)}
		for j, s := range in.Operands() {
			if k := c.from[j]; k != unknown {
				*s = all[k].to
			}
		}
		in.D, c.to = top, top
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
		} else if in.Op == program.OpShrI && c.from[0] != unknown && all[c.from[0]].needed {
			ahead = append(ahead, slotAhead{x.reg, all[c.from[0]].to, uint8(in.B & 63)})
		}
	}
	return early, ahead
}

func (b *Builder) isConst(slot uint32) bool {
	_, ok := b.ConstOf(slot)
	return ok
}

// sweepPart removes dead computations from the code from start on, after which no slot is live, and
// returns the slots that the code reads.
func (b *Builder) sweepPart(start int) slotSet {
	code := b.Code[start:]
	words := (b.ConstAt+len(b.ConstVal))/64 + 1
	live := make([]slotSet, len(code)+1)
	live[len(code)] = make(slotSet, words)
	keep := make([]bool, len(code))
	for i := len(code) - 1; i >= 0; i-- {
		in := &code[i]
		s := make(slotSet, words)
		if in.Op != program.OpJmp {
			s.addAll(live[i+1])
		}
		live[i] = s
		if in.Jumps() {
			s.addAll(live[int(in.D)-start])
		}
		if keep[i] = !in.Pure() || s.has(in.D); !keep[i] {
			continue
		}
		if in.Pure() || in.Op == program.OpRegRd {
			s.drop(in.D)
		}
		for _, x := range in.Operands() {
			s.add(*x)
		}
	}
	b.pack(start, keep)
	return live[0]
}
