// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// Conditions: truth values in a slot, and jumps on them.

// boolean computes a truth value, 0 or 1.
func (b *builder) boolean(e *bmv2json.Expr) uint32 {
	if e == nil || b.kind(e) != kindBool {
		b.failf("expected a condition, have %s", describe(e))
		return 0
	}
	if e.Type == "bool" {
		if e.Bool {
			return b.constU(1)
		}
		return b.constU(0)
	}
	if b.err != nil {
		return 0
	}
	switch e.Op {
	case "and", "or":
		x, y := b.boolean(e.Left), b.boolean(e.Right)
		d := b.temp(1)
		op := opAnd
		if e.Op == "or" {
			op = opOr
		}
		b.emit(instr{op: op, d: d, a: x, b: y, imm: 1})
		return d
	case "not":
		x := b.boolean(e.Right)
		d := b.temp(1)
		b.emit(instr{op: opXor, d: d, a: x, b: b.constU(1), imm: 1})
		return d
	case "d2b":
		o := b.exact(e.Right)
		if o.lo.Sign() == 0 && o.hi.Cmp(bigOne) <= 0 {
			return o.slot
		}
		return b.compare("!=", o, operand{b.constant(bigZero, 1), 1, bigZero, bigZero})
	case "valid":
		return b.validOf(e.Right)
	case "valid_union":
		return b.unionValid(e.Right)
	case "?":
		c := b.boolean(e.Cond)
		x, y := b.boolean(e.Left), b.boolean(e.Right)
		d := b.temp(1)
		b.emit(instr{op: opSel, d: d, a: x, b: y, c: c, imm: 1})
		return d
	case "==", "!=":
		switch b.kind(e.Left) {
		case kindBool:
			x, y := b.boolean(e.Left), b.boolean(e.Right)
			d := b.temp(1)
			op := opEq
			if e.Op == "!=" {
				op = opNe
			}
			b.emit(instr{op: op, d: d, a: x, b: y})
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

// compareOp brings two whole values to one form and returns the instruction for x op y.
func (b *builder) compareOp(op string, x, y operand) (code opcode, a, c uint32, nw int, signed bool) {
	lo, hi := minBig(x.lo, y.lo), maxBig(x.hi, y.hi)
	nw = max(wordsFor(lo, hi), x.nw, y.nw)
	signed = lo.Sign() < 0
	x, y = b.whole(x, nw), b.whole(y, nw)
	a, c = x.slot, y.slot
	switch op {
	case "==":
		return opEq, a, c, nw, signed
	case "!=":
		return opNe, a, c, nw, signed
	case ">":
		a, c = c, a
		code = opLtU
	case "<":
		code = opLtU
	case ">=":
		a, c = c, a
		code = opLeU
	default:
		code = opLeU
	}
	if signed {
		code += opLtS - opLtU
	}
	return code, a, c, nw, signed
}

func (b *builder) compare(op string, x, y operand) uint32 {
	code, xs, ys, nw, signed := b.compareOp(op, x, y)
	d := b.temp(1)
	if nw == 1 {
		b.emit(instr{op: code, d: d, a: xs, b: ys})
		return d
	}
	b.callUsing(using(slotSpan{xs, nw}, slotSpan{ys, nw}).writing(slot1(d)), func(p *packet) {
		var r bool
		switch code {
		case opEq:
			r = wideEqual(p.f, xs, ys, nw)
		case opNe:
			r = !wideEqual(p.f, xs, ys, nw)
		case opLtU, opLtS:
			r = wideLess(p.f, xs, ys, nw, signed)
		default:
			r = !wideLess(p.f, ys, xs, nw, signed)
		}
		p.f[d] = bit(r)
	})
	return d
}

// jumpIfFalse emits a jump, taken when e is false, and returns the places to patch.
func (b *builder) jumpIfFalse(e *bmv2json.Expr) []int {
	if e != nil && e.Type == "expression" {
		switch e.Op {
		case "and":
			return append(b.jumpIfFalse(e.Left), b.jumpIfFalse(e.Right)...)
		case "or":
			t := b.jumpIfTrue(e.Left)
			f := b.jumpIfFalse(e.Right)
			b.patch(t)
			return f
		case "not":
			return b.jumpIfTrue(e.Right)
		}
	}
	return b.jump(e, false)
}

func (b *builder) jumpIfTrue(e *bmv2json.Expr) []int {
	if e != nil && e.Type == "expression" {
		switch e.Op {
		case "or":
			return append(b.jumpIfTrue(e.Left), b.jumpIfTrue(e.Right)...)
		case "and":
			f := b.jumpIfFalse(e.Left)
			t := b.jumpIfTrue(e.Right)
			b.patch(f)
			return t
		case "not":
			return b.jumpIfFalse(e.Right)
		}
	}
	return b.jump(e, true)
}

// jump emits a jump taken when e is as wanted.
func (b *builder) jump(e *bmv2json.Expr, want bool) []int {
	if e != nil && e.Type == "expression" && e.Op == "d2b" {
		if o := b.exact(e.Right); o.nw == 1 && b.err == nil {
			return []int{b.emit(instr{op: pick(want, opJnz, opJz), a: o.slot})}
		}
	}
	s := b.boolean(e)
	if b.err != nil {
		return nil
	}
	if n := len(b.code) - 1; n >= 0 && b.code[n].d == s && b.isTemp(s) {
		in := b.code[n]
		op := opEnd
		switch in.op {
		case opEq:
			op = pick(want, opJEq, opJNe)
		case opNe:
			op = pick(want, opJNe, opJEq)
		case opLtU:
			op = pick(want, opJLtU, opJGeU)
		case opLtS:
			op = pick(want, opJLtS, opJGeS)
		case opLeU: // a <= b is not b < a
			op, in.a, in.b = pick(want, opJGeU, opJLtU), in.b, in.a
		case opLeS:
			op, in.a, in.b = pick(want, opJGeS, opJLtS), in.b, in.a
		}
		if op != opEnd {
			b.code[n] = instr{op: op, a: in.a, b: in.b}
			return []int{n}
		}
	}
	return []int{b.emit(instr{op: pick(want, opJnz, opJz), a: s})}
}

func pick(c bool, x, y opcode) opcode {
	if c {
		return x
	}
	return y
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
