// SPDX-License-Identifier: Apache-2.0

package asm

import (
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// p4c repeats the expression of a variable wherever the variable is used, so the same product is
// computed again and again. Optimize finds values in the code of one action that were computed
// before from slots that have not changed since, and removes instructions whose results are not
// read. It assumes that jumps lead forward only.

// value is a slot after a certain definition of it.
type value struct {
	slot    uint32
	version int
}

type computation struct {
	op      program.Opcode
	a, b, c value
	imm     uint64
}

type optimizer struct {
	b       *Builder
	code    []program.Instr
	start   uint32
	version map[uint32]int
	fresh   int
	known   map[computation]value
	copies  map[value]value
	pending map[uint32][]map[uint32]int // versions at jumps, by their target
}

// Optimize rewrites the code from start on.
func (b *Builder) Optimize(start int) {
	o := &optimizer{
		b: b, code: b.Code[start:], start: uint32(start), version: map[uint32]int{}, known: map[computation]value{},
		copies: map[value]value{}, pending: map[uint32][]map[uint32]int{},
	}
	for i := range o.code {
		o.join(uint32(i) + o.start)
		o.rewrite(&o.code[i])
	}
	o.sweep()
}

// join drops, at a jump target, what is not the same on all paths to it.
func (o *optimizer) join(pc uint32) {
	for _, other := range o.pending[pc] {
		for slot, v := range o.version {
			if other[slot] != v {
				o.define(slot)
			}
		}
		for slot, v := range other {
			if o.version[slot] != v {
				o.define(slot)
			}
		}
	}
	delete(o.pending, pc)
}

func (o *optimizer) define(slot uint32) value {
	o.fresh++
	o.version[slot] = o.fresh
	return value{slot, o.fresh}
}

func (o *optimizer) forget() {
	clear(o.known)
	clear(o.copies)
	for slot := range o.version {
		o.define(slot)
	}
}

// now returns a slot's current value, or an earlier slot that still holds it.
func (o *optimizer) now(slot uint32) value {
	v := value{slot, o.version[slot]}
	if c, ok := o.copies[v]; ok && o.version[c.slot] == c.version {
		return c
	}
	return v
}

func (o *optimizer) rewrite(in *program.Instr) {
	for _, s := range in.Operands() {
		*s = o.now(*s).slot
	}
	switch {
	case in.Pure():
		key := computation{op: in.Op, imm: in.Imm, a: value{slot: in.A}, b: value{slot: in.B}, c: value{slot: in.C}}
		for _, s := range in.Operands() {
			switch s {
			case &in.A:
				key.a = o.now(in.A)
			case &in.B:
				key.b = o.now(in.B)
			case &in.C:
				key.c = o.now(in.C)
			}
		}
		if v, ok := o.known[key]; ok && o.version[v.slot] == v.version {
			*in = program.Instr{Op: program.OpMov, D: in.D, A: v.slot, Imm: ^uint64(0)}
			if d := o.define(in.D); v.slot != in.D {
				o.copies[d] = v
			}
			return
		}
		from := o.now(in.A)
		d := o.define(in.D)
		if in.Op == program.OpMov && in.Imm == ^uint64(0) && from.slot != in.D {
			o.copies[d] = from
		} else if key.a.slot != in.D && key.b.slot != in.D && key.c.slot != in.D {
			o.known[key] = d
		}
	case in.Op == program.OpRegRd, in.Op == program.OpLoad, in.Op == program.OpHash:
		o.define(in.D)
	case in.Op >= program.OpJmp && in.Op <= program.OpJGeS:
		at := make(map[uint32]int, len(o.version))
		for s, v := range o.version {
			at[s] = v
		}
		o.pending[in.D] = append(o.pending[in.D], at)
	case in.Op == program.OpLock, in.Op == program.OpUnlock, in.Op == program.OpRegWr, in.Op == program.OpCount,
		in.Op == program.OpExit:
	default: // an operation may change any slot
		o.forget()
	}
}

// sweep removes pure instructions whose result is a temporary that is not read.
func (o *optimizer) sweep() {
	read := map[uint32]bool{}
	keep := make([]bool, len(o.code))
	for i := len(o.code) - 1; i >= 0; i-- {
		in := &o.code[i]
		dead := in.Pure() && o.b.IsTemp(in.D) && !read[in.D] && !read[anySlot]
		dead = dead || in.Op == program.OpMov && in.D == in.A && in.Imm == ^uint64(0)
		if keep[i] = !dead; dead {
			continue
		}
		for _, s := range in.Operands() {
			read[*s] = true
		}
		if in.Op == program.OpCall || in.Op == program.OpCallP {
			read[anySlot] = true
		}
	}
	o.b.pack(int(o.start), keep)
}

// anySlot stands for the slots that operations read.
const anySlot = ^uint32(0)
