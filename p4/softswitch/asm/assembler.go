// SPDX-License-Identifier: Apache-2.0

package asm

import (
	"encoding/binary"
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// Limits of a program, far above what a compiler produces for a real one.
const (
	maxCode  = 1 << 22
	maxWords = 1 << 19 // words of constants
)

// Builder collects the instructions, temporaries and constants of a program.
type Builder struct {
	Prog *program.Program
	Fail func(format string, args ...any) // receives limits that the program exceeds

	Code []program.Instr
	// Temporaries follow the parameters of actions; constants follow the temporaries.
	Temps    int
	TempCap  int
	TempNext int
	ConstAt  int
	ConstVal []uint64
	Consts   map[string]uint32
	MaxKey   int // words of the longest table key
}

func (b *Builder) Emit(in program.Instr) int {
	if len(b.Code) >= maxCode {
		b.Fail("program is longer than %d instructions", maxCode)
		return 0
	}
	b.Code = append(b.Code, in)
	return len(b.Code) - 1
}

// Call emits one of the operations of program/ops.go.
func (b *Builder) Call(op any) {
	b.Prog.Calls = append(b.Prog.Calls, op)
	b.Emit(program.Instr{Op: program.OpCall, A: uint32(len(b.Prog.Calls) - 1)})
}

// Temp allocates n temporary slots until the next FreeTemps.
func (b *Builder) Temp(n int) uint32 {
	if b.TempNext+n > b.TempCap {
		b.Fail("an expression needs more than %d words of temporaries", b.TempCap)
		return uint32(b.Temps)
	}
	at := b.Temps + b.TempNext
	b.TempNext += n
	return uint32(at)
}

func (b *Builder) FreeTemps() { b.TempNext = 0 }

func (b *Builder) IsTemp(slot uint32) bool {
	return int(slot) >= b.Temps && int(slot) < b.Temps+b.TempCap
}

// Constant returns slots that hold v in nw words.
func (b *Builder) Constant(v *big.Int, nw int) uint32 {
	words := wide.Of(v, nw)
	key := make([]byte, 0, 8*nw)
	for _, w := range words {
		key = binary.LittleEndian.AppendUint64(key, w)
	}
	if at, ok := b.Consts[string(key)]; ok {
		return at
	}
	at := uint32(b.ConstAt + len(b.ConstVal))
	b.ConstVal = append(b.ConstVal, words...)
	b.Consts[string(key)] = at
	if len(b.ConstVal) > maxWords {
		b.Fail("too many constants")
	}
	return at
}

func (b *Builder) ConstU(v uint64) uint32 { return b.Constant(new(big.Int).SetUint64(v), 1) }

// ConstOf returns the value of a slot that holds a constant.
func (b *Builder) ConstOf(slot uint32) (uint64, bool) {
	if i := int(slot) - b.ConstAt; i >= 0 && i < len(b.ConstVal) {
		return b.ConstVal[i], true
	}
	return 0, false
}

func (b *Builder) Here() uint32 { return uint32(len(b.Code)) }

// Patch makes the jumps at the given places go to here.
func (b *Builder) Patch(at []int) {
	for _, i := range at {
		b.Code[i].D = b.Here()
	}
}

// CallP emits an operation that may end the parser with an error. It returns the index of the
// instruction, whose jump Patch directs to the end of the parser.
func (b *Builder) CallP(op any) int {
	b.Prog.Calls = append(b.Prog.Calls, op)
	return b.Emit(program.Instr{Op: program.OpCallP, A: uint32(len(b.Prog.Calls) - 1)})
}

// Compact redirects jumps to jumps, removes jumps to the next instruction, and closes the gaps.
func (b *Builder) Compact() {
	p := b.Prog
	code := b.Code
	final := func(pc uint32) uint32 {
		for range 64 {
			if code[pc].Op != program.OpJmp {
				break
			}
			pc = code[pc].D
		}
		return pc
	}
	for i := range code {
		if code[i].Jumps() {
			code[i].D = final(code[i].D)
		}
	}
	moved := make([]uint32, len(code)+1)
	n := uint32(0)
	for i := range code {
		moved[i] = n
		if code[i].Op == program.OpJmp && code[i].D == uint32(i+1) {
			continue
		}
		n++
	}
	moved[len(code)] = n
	to := func(pc uint32) uint32 { return moved[final(pc)] }
	out := make([]program.Instr, 0, n)
	for i := range code {
		in := code[i]
		if in.Op == program.OpJmp && in.D == uint32(i+1) {
			continue
		}
		if in.Jumps() {
			in.D = moved[in.D]
		}
		out = append(out, in)
	}
	for _, s := range p.Selects {
		s.Default = to(s.Default)
		for i := range s.Cases {
			s.Cases[i].Next = to(s.Cases[i].Next)
		}
	}
	for _, t := range p.Tables {
		t.OnHit, t.OnMiss, t.MissPC = to(t.OnHit), to(t.OnMiss), to(t.MissPC)
		for id, pc := range t.Next {
			t.Next[id] = to(pc)
		}
	}
	for _, a := range p.Actions {
		a.PC = to(a.PC)
	}
	p.ParserPC, p.IngressPC, p.EgressPC, p.DeparserPC = to(p.ParserPC), to(p.IngressPC), to(p.EgressPC),
		to(p.DeparserPC)
	b.Code = out
}
