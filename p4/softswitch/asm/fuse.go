// SPDX-License-Identifier: Apache-2.0

package asm

import (
	"math"

	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// Fuse turns pairs of adjacent instructions into one if nothing else reads the result of the first
// one: to go on to the next instruction costs the machine more than the arithmetic of most.
func (b *Builder) Fuse() {
	l := b.live(false)
	if l == nil {
		return
	}
	targets := b.targets()
	for pc := 0; pc+2 < len(b.Code); pc++ {
		first, second := &b.Code[pc], &b.Code[pc+1]
		if targets[pc+1] || !first.Pure() {
			continue
		}
		fused, ok := b.fuse(first, second)
		switch {
		case !ok:
			continue
		case second.Jumps():
			ok = !l.in[second.D].has(first.D) && !l.in[pc+2].has(first.D)
		default:
			ok = first.D == second.D || !l.in[pc+2].has(first.D)
		}
		if ok {
			*first, *second = program.Instr{Op: program.OpJmp, D: uint32(pc + 1)}, fused
		}
	}
	b.Compact()
}

// fuse returns an instruction that does the work of two; false if there is no such instruction.
func (b *Builder) fuse(first, second *program.Instr) (fused program.Instr, ok bool) {
	t := first.D
	switch {
	case first.Op == program.OpMul && second.Op == program.OpCRC32M:
		return program.Instr{Op: program.OpMulCRC, D: second.D, A: first.A, B: first.B, Imm: second.Imm},
			second.A == t && first.Imm&math.MaxUint32 == math.MaxUint32
	case first.Op == program.OpShlI && second.Op == program.OpAdd:
		other := second.B
		if other == t {
			other = second.A
		}
		// The low bits of a sum do not depend on the high ones.
		return program.Instr{Op: program.OpShlAdd, D: second.D, A: first.A, B: other, C: first.B, Imm: second.Imm},
			(second.A == t || second.B == t) && other != t && first.Imm&second.Imm == second.Imm &&
				second.Imm&(second.Imm+1) == 0
	case first.Op == program.OpAnd && (second.Op == program.OpJEq || second.Op == program.OpJNe):
		other := second.B
		if other == t {
			other = second.A
		}
		fused = program.Instr{Op: program.OpJNone, D: second.D, A: first.A, B: first.B}
		if second.Op == program.OpJNe {
			fused.Op = program.OpJAny
		}
		zero, isConst := b.ConstOf(other)
		return fused, (second.A == t || second.B == t) && isConst && zero == 0 && b.within(first)
	}
	return fused, false
}

// within reports whether the mask of an OpAnd changes nothing, because an operand is a constant
// within it.
func (b *Builder) within(in *program.Instr) bool {
	if in.Imm == math.MaxUint64 {
		return true
	}
	for _, s := range []uint32{in.A, in.B} {
		if v, ok := b.ConstOf(s); ok && v&^in.Imm == 0 {
			return true
		}
	}
	return false
}

// targets marks the instructions that can be entered by a jump.
func (b *Builder) targets() []bool {
	p := b.Prog
	out := make([]bool, len(b.Code)+1)
	for i := range b.Code {
		if b.Code[i].Jumps() {
			out[b.Code[i].D] = true
		}
	}
	for _, s := range p.Selects {
		out[s.Default] = true
		for i := range s.Cases {
			out[s.Cases[i].Next] = true
		}
	}
	for _, t := range p.Tables {
		out[t.OnHit], out[t.OnMiss], out[t.MissPC] = true, true, true
		for _, pc := range t.Next {
			out[pc] = true
		}
	}
	for _, a := range p.Actions {
		out[a.PC] = true
	}
	for _, pc := range []uint32{p.ParserPC, p.IngressPC, p.EgressPC, p.DeparserPC} {
		out[pc] = true
	}
	return out
}
