// SPDX-License-Identifier: Apache-2.0

package asm

import (
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// An action's accesses to registers are one atomic step, as in BMv2. Registers that some action
// uses together share a lock, so that no action takes two: with several cores the cost of a lock is
// the transfer of its cache line. An action holds the lock from its first access to its last, and
// computes beforehand what needs no register, above all hashes.

// LockRegisters inserts OpLock and OpUnlock around the part of an action's code, which begins at
// start, that accesses registers.
func (b *Builder) LockRegisters(start, lock int) {
	if !b.Plain {
		early := b.hoist(start)
		if len(early) > 0 {
			rest := append([]program.Instr(nil), b.Code[start:]...)
			for i := range rest {
				if rest[i].Op >= program.OpJmp && rest[i].Op <= program.OpJGeS {
					rest[i].D += uint32(len(early))
				}
			}
			b.Code = append(append(b.Code[:start], early...), rest...)
			b.Optimize(start)
		}
	}
	code := b.Code[start:]
	ahead := coverage(code, start)
	first, last := len(code), 0
	for i := range code {
		switch code[i].Op {
		case program.OpRegRd, program.OpRegWr, program.OpCall: // a call may use registers
			first, last = min(first, i), i+1
		}
	}
	if first == len(code) { // it accesses none of its registers
		return
	}
	for ahead[first] > first {
		first--
	}
	for ahead[last] > last {
		last++
	}
	moved := func(i int) uint32 { // new place of an instruction, or of the lock before it
		switch i += start; {
		case i > start+last:
			return uint32(i + 2)
		case i > start+first:
			return uint32(i + 1)
		}
		return uint32(i)
	}
	out := make([]program.Instr, 0, len(code)+2)
	for i := 0; i <= len(code); i++ {
		switch i {
		case first:
			out = append(out, program.Instr{Op: program.OpLock, A: uint32(lock)})
		case last:
			out = append(out, program.Instr{Op: program.OpUnlock, A: uint32(lock)})
		}
		if i == len(code) {
			break
		}
		in := code[i]
		if in.Op >= program.OpJmp && in.Op <= program.OpJGeS {
			in.D = moved(int(in.D) - start)
		}
		out = append(out, in)
	}
	b.Code = append(b.Code[:start], out...)
}

// coverage returns, for each instruction and for the end, the farthest target of jumps before it:
// an instruction that no jump passes is always executed.
func coverage(code []program.Instr, start int) []int {
	ahead := make([]int, len(code)+1)
	far := 0
	for i := range code {
		ahead[i] = far
		if code[i].Op >= program.OpJmp && code[i].Op <= program.OpJGeS {
			far = max(far, int(code[i].D)-start)
		}
	}
	ahead[len(code)] = far
	return ahead
}

// hoisted is an instruction that can run before the action's first access to a register.
type hoisted struct {
	in     program.Instr
	at     int // index of the instruction
	from   [3]int
	needed bool
}

// hoist moves computations that depend only on slots at the start of the action in front of the
// first register access, if hashes and divisions need them. It returns the moved code and leaves
// moves in its place.
func (b *Builder) hoist(start int) []program.Instr {
	code := b.Code[start:]
	ahead := coverage(code, start)
	const unknown = -1
	now := map[uint32]int{} // slots written so far: the hoisted instruction that wrote them, or unknown
	var all []hoisted
	top := uint32(b.Temps)
scan:
	for i := range code {
		in := &code[i]
		for _, s := range append(in.Operands(), &in.D) {
			if b.IsTemp(*s) {
				top = max(top, *s+1)
			}
		}
		switch {
		case in.Pure() || in.Op == program.OpHash && b.Prog.Hashes[in.A].Func != nil:
		case in.Op == program.OpRegRd:
			now[in.D] = unknown
			continue
		case in.Op >= program.OpJmp && in.Op <= program.OpJGeS, in.Op == program.OpRegWr, in.Op == program.OpCount,
			in.Op == program.OpExit:
			continue
		default: // may write any slot
			break scan
		}
		h := hoisted{in: *in, at: i, from: [3]int{unknown, unknown, unknown}}
		ok := ahead[i] <= i
		if in.Op == program.OpHash { // its inputs are not operands
			for _, s := range b.Prog.Hashes[in.A].Reads() {
				if _, written := now[s]; written {
					ok = false
				}
			}
		} else {
			for j, s := range h.in.Operands() {
				if k, written := now[*s]; written {
					ok = ok && k != unknown
					h.from[j] = k
				}
			}
		}
		now[in.D] = unknown
		if ok {
			now[in.D] = len(all)
			all = append(all, h)
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		h := &all[i]
		switch h.in.Op {
		case program.OpCRC32M, program.OpHash, program.OpMod, program.OpDiv:
			h.needed = true
		}
		for _, k := range h.from {
			if h.needed && k != unknown {
				all[k].needed = true
			}
		}
	}
	var early []program.Instr
	for i := range all {
		h := &all[i]
		if !h.needed {
			continue
		}
		if top >= uint32(b.Temps+b.TempCap) {
			return nil
		}
		code[h.at] = program.Instr{Op: program.OpMov, D: h.in.D, A: top, Imm: ^uint64(0)}
		if h.in.Op != program.OpHash {
			for j, s := range h.in.Operands() {
				if k := h.from[j]; k != unknown {
					*s = all[k].in.D
				}
			}
		}
		h.in.D = top
		top++
		early = append(early, h.in)
	}
	return early
}
