// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// Conditions are computed to a truth value in a slot, or compiled to jumps.

// boolean computes a condition to 0 or 1.
func (b *builder) boolean(e *bmv2json.Expr) uint32 {
	if e == nil || b.kind(e) != kindBool {
		b.failf("expected a condition, have %s", describe(e))
		return 0
	}
	if e.Type == "bool" {
		if e.Bool {
			return b.ConstU(1)
		}
		return b.ConstU(0)
	}
	if b.err != nil {
		return 0
	}
	switch e.Op {
	case "and", "or":
		x, y := b.boolean(e.Left), b.boolean(e.Right)
		d := b.Temp(1)
		op := program.OpAnd
		if e.Op == "or" {
			op = program.OpOr
		}
		b.Emit(program.Instr{Op: op, D: d, A: x, B: y, Imm: 1})
		return d
	case "not":
		x := b.boolean(e.Right)
		d := b.Temp(1)
		b.Emit(program.Instr{Op: program.OpXor, D: d, A: x, B: b.ConstU(1), Imm: 1})
		return d
	case "d2b":
		o := b.exact(e.Right)
		if o.lo.Sign() == 0 && o.hi.Cmp(wide.One) <= 0 {
			return o.slot
		}
		return b.compare("!=", o, operand{b.Constant(wide.Zero, 1), 1, wide.Zero, wide.Zero})
	case "valid":
		return b.validOf(e.Right)
	case "valid_union":
		return b.unionValid(e.Right)
	case "?":
		c := b.boolean(e.Cond)
		x, y := b.boolean(e.Left), b.boolean(e.Right)
		d := b.Temp(1)
		b.Emit(program.Instr{Op: program.OpSel, D: d, A: x, B: y, C: c, Imm: 1})
		return d
	case "==", "!=":
		switch b.kind(e.Left) {
		case kindBool:
			x, y := b.boolean(e.Left), b.boolean(e.Right)
			d := b.Temp(1)
			op := program.OpEq
			if e.Op == "!=" {
				op = program.OpNe
			}
			b.Emit(program.Instr{Op: op, D: d, A: x, B: y})
			return d
		case kindHeader:
			return b.compareHeaders(e)
		case kindUnion:
			return b.compareUnions(e)
		case kindStack, kindUnionStack:
			b.unsupportedf("comparison of header stacks")
			return 0
		}
		return b.compare(e.Op, b.exact(e.Left), b.exact(e.Right))
	case "<", "<=", ">", ">=":
		return b.compare(e.Op, b.exact(e.Left), b.exact(e.Right))
	}
	b.unsupportedf("operator %q", e.Op)
	return 0
}

// compareOp extends two exact values to one width and returns the instruction for x op y.
func (b *builder) compareOp(op string, x, y operand) (code program.Opcode, a, c uint32, nw int) {
	lo, hi := minBig(x.lo, y.lo), maxBig(x.hi, y.hi)
	nw = max(wordsFor(lo, hi), x.nw, y.nw)
	x, y = b.whole(x, nw), b.whole(y, nw)
	a, c = x.slot, y.slot
	switch op {
	case "==":
		return program.OpEq, a, c, nw
	case "!=":
		return program.OpNe, a, c, nw
	case ">":
		a, c = c, a
		code = program.OpLtU
	case "<":
		code = program.OpLtU
	case ">=":
		a, c = c, a
		code = program.OpLeU
	default:
		code = program.OpLeU
	}
	if lo.Sign() < 0 {
		code += program.OpLtS - program.OpLtU
	}
	return code, a, c, nw
}

func (b *builder) compare(op string, x, y operand) uint32 {
	code, xs, ys, nw := b.compareOp(op, x, y)
	d := b.Temp(1)
	if nw == 1 {
		b.Emit(program.Instr{Op: code, D: d, A: xs, B: ys})
		return d
	}
	b.Call(program.WideCompare{Op: code, D: d, A: xs, B: ys, N: nw})
	return d
}

// jumpIf emits jumps that are taken if e equals want, and returns the instructions to patch.
func (b *builder) jumpIf(e *bmv2json.Expr, want bool) []int {
	if e != nil && e.Type == "expression" {
		switch e.Op {
		case "and", "or":
			if (e.Op == "or") == want { // each operand decides by itself
				return append(b.jumpIf(e.Left, want), b.jumpIf(e.Right, want)...)
			}
			past := b.jumpIf(e.Left, !want)
			at := b.jumpIf(e.Right, want)
			b.Patch(past)
			return at
		case "not":
			return b.jumpIf(e.Right, !want)
		}
	}
	return b.jump(e, want)
}

// jump emits a jump that is taken if e equals want.
func (b *builder) jump(e *bmv2json.Expr, want bool) []int {
	if e != nil && e.Type == "expression" && e.Op == "d2b" {
		if o := b.exact(e.Right); o.nw == 1 && b.err == nil {
			return []int{b.Emit(program.Instr{Op: pick(want, program.OpJnz, program.OpJz), A: o.slot})}
		}
	}
	s := b.boolean(e)
	if b.err != nil {
		return nil
	}
	if n := len(b.Code) - 1; n >= 0 && b.Code[n].D == s && b.IsTemp(s) {
		in := b.Code[n]
		op := program.OpEnd
		switch in.Op {
		case program.OpEq:
			op = pick(want, program.OpJEq, program.OpJNe)
		case program.OpNe:
			op = pick(want, program.OpJNe, program.OpJEq)
		case program.OpLtU:
			op = pick(want, program.OpJLtU, program.OpJGeU)
		case program.OpLtS:
			op = pick(want, program.OpJLtS, program.OpJGeS)
		case program.OpLeU: // a <= b is not b < a
			op, in.A, in.B = pick(want, program.OpJGeU, program.OpJLtU), in.B, in.A
		case program.OpLeS:
			op, in.A, in.B = pick(want, program.OpJGeS, program.OpJLtS), in.B, in.A
		}
		if op != program.OpEnd {
			b.Code[n] = program.Instr{Op: op, A: in.A, B: in.B}
			return []int{n}
		}
	}
	return []int{b.Emit(program.Instr{Op: pick(want, program.OpJnz, program.OpJz), A: s})}
}

func pick(c bool, x, y program.Opcode) program.Opcode {
	if c {
		return x
	}
	return y
}
