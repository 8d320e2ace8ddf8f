// SPDX-License-Identifier: Apache-2.0

package asm

import (
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// FuseReadOut turns a long run of "read cell, write zero to it, add one to the index" into adjacent
// fields into one operation.
func (b *Builder) FuseReadOut(start int) {
	const shortest = 4
	out := b.Code[:start:start]
	code := b.Code[start:]
	var fused []program.Instr
	for i := 0; i < len(code); {
		n, ro := readOutAt(b, code[i:])
		if n < shortest {
			fused = append(fused, code[i])
			i++
			continue
		}
		b.Prog.Calls = append(b.Prog.Calls, program.Call{Do: ro, Known: true,
			Reads: program.Reads(program.Slot(uint32(ro.Index)))})
		fused = append(fused, program.Instr{Op: program.OpCall, A: uint32(len(b.Prog.Calls) - 1)})
		i += 3 * n
	}
	b.Code = append(out, fused...)
}

// readOutAt returns how many cells the code reads and clears from its start.
func readOutAt(b *Builder, code []program.Instr) (int, *program.ReadOut) {
	n := 0
	ro := &program.ReadOut{}
	for ; len(code) >= 3; code = code[3:] {
		rd, wr, add := &code[0], &code[1], &code[2]
		if rd.Op != program.OpRegRd || wr.Op != program.OpRegWr || add.Op != program.OpAdd || rd.A != wr.A ||
			rd.B != wr.B || add.D != rd.B || add.A != rd.B || rd.D == rd.B {
			break
		}
		zero, ok1 := b.ConstOf(wr.C)
		one, ok2 := b.ConstOf(add.B)
		if !ok1 || !ok2 || zero != 0 || one != 1 {
			break
		}
		switch {
		case n == 0:
			ro.Register, ro.Index, ro.First, ro.Mask, ro.IndexMask = int(rd.A), int(rd.B), int(rd.D), rd.Imm, add.Imm
		case int(rd.A) != ro.Register || int(rd.B) != ro.Index || rd.Imm != ro.Mask || add.Imm != ro.IndexMask:
			ro.Count = n
			return n, ro
		}
		if n == 1 {
			ro.Step = int(rd.D) - ro.First
		}
		if n > 0 && int(rd.D) != ro.First+n*ro.Step || n > 0 && ro.Step <= 0 {
			break
		}
		n++
	}
	ro.Count = n
	return n, ro
}
