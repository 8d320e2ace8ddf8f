// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// BMv2 computes with integers of any size and cuts a value off where it is stored. The low bits of
// most operators (+ - * & | ^ ~ <<) depend on low bits alone, so they are computed modulo 2^64, or
// modulo 2^(64·nw) for wider results. The other operators (comparison, >>, /, %, saturation) need
// exact operands: the compiler computes the range of every expression, and from it the number of
// words that hold it.

const maxShiftRange = 1 << 12

type exprKind uint8

const (
	kindData exprKind = iota
	kindBool
	kindHeader
	kindStack
	kindUnion
	kindUnionStack
)

func (b *builder) kind(e *bmv2json.Expr) exprKind {
	if e == nil {
		return kindData
	}
	switch e.Type {
	case "bool":
		return kindBool
	case "header":
		return kindHeader
	case "header_stack":
		return kindStack
	case "header_union":
		return kindUnion
	case "header_union_stack":
		return kindUnionStack
	case "expression":
		switch e.Op {
		case "==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "valid", "valid_union", "d2b":
			return kindBool
		case "?":
			return b.kind(e.Left)
		case "dereference_header_stack", "dereference_stack", "access_union_header":
			return kindHeader
		case "dereference_union_stack":
			return kindUnion
		}
	}
	return kindData
}

// fieldAt returns the header and field of a reference.
func (b *builder) fieldAt(e *bmv2json.Expr) (*program.Header, *program.Field, bool) {
	h := b.headerNamed[e.Name]
	if h == nil {
		b.failf("header %q is not declared", e.Name)
		return nil, nil, false
	}
	f, ok := h.Type.Field(e.Field)
	if !ok {
		b.failf("header %q has no field %q", e.Name, e.Field)
		return nil, nil, false
	}
	if f.Slot < 0 {
		b.failf("field %s.%s has no place of its own (an error of this compiler)", e.Name, e.Field)
		return nil, nil, false
	}
	return h, f, true
}

// wordsFor returns the number of words that hold every number of a range, unsigned if it has no
// negative numbers.
func wordsFor(lo, hi *big.Int) int {
	if lo.Sign() >= 0 {
		return max(1, (hi.BitLen()+63)/64)
	}
	n := max(new(big.Int).Not(lo).BitLen(), hi.BitLen()) + 1
	return max(1, (n+63)/64)
}

// exact computes e without loss.
func (b *builder) exact(e *bmv2json.Expr) operand {
	lo, hi := b.rangeOf(e)
	return b.value(e, wordsFor(lo, hi))
}

// value computes e modulo 2^(64·nw).
func (b *builder) value(e *bmv2json.Expr, nw int) operand {
	if e == nil {
		return operand{b.Constant(wide.Zero, nw), nw, wide.Zero, wide.Zero}
	}
	if k := b.kind(e); k != kindData {
		b.failf("expected a number in an expression, have %s", describe(e))
		return operand{b.Constant(wide.Zero, nw), nw, wide.Zero, wide.Zero}
	}
	lo, hi := b.rangeOf(e)
	if b.err != nil {
		return operand{b.Constant(wide.Zero, nw), nw, lo, hi}
	}
	switch e.Type {
	case "hexstr":
		return operand{b.Constant(e.Int, nw), nw, lo, hi}
	case "field":
		if e.Field == validField {
			h := b.headerNamed[e.Name]
			if h == nil {
				b.failf("header %q is not declared", e.Name)
				return operand{0, nw, lo, hi}
			}
			return b.extend(operand{b.validSlot(h), 1, lo, hi}, 1, false, nw)
		}
		h, f, _ := b.fieldAt(e)
		return b.extend(operand{uint32(h.Base + f.Slot), f.Words, lo, hi}, f.Width, f.Signed, nw)
	case "local", "runtime_data":
		if e.Index >= len(b.locals) {
			b.failf("parameter %d of an action with %d", e.Index, len(b.locals))
			return operand{0, nw, lo, hi}
		}
		o := b.locals[e.Index]
		return b.extend(o, hi.BitLen(), false, nw)
	case "stack_field":
		return b.stackField(e, nw)
	case "register":
		i, ok := b.regs[e.Name]
		if !ok {
			b.failf("register array %q is not declared", e.Name)
			return operand{0, nw, lo, hi}
		}
		return b.registerValue(i, e.Right, nw)
	case "expression":
		return b.operation(e, nw, lo, hi)
	}
	b.unsupportedf("%s in an expression", describe(e))
	return operand{b.Constant(wide.Zero, nw), nw, lo, hi}
}

const validField = "$valid$"

// validSlot returns the slot of a header's validity.
func (b *builder) validSlot(h *program.Header) uint32 {
	if h.Metadata {
		return b.ConstU(1)
	}
	return uint32(h.Base)
}

// extend extends a value of width bits to nw words.
func (b *builder) extend(o operand, width int, signed bool, nw int) operand {
	if signed {
		sign := width - 1
		if o.nw == 1 && width < 64 {
			t := b.Temp(1)
			b.Emit(program.Instr{Op: program.OpSext, D: t, A: o.slot, B: uint32(width), Imm: ^uint64(0)})
			o.slot = t
		}
		if nw <= o.nw && (width%64 == 0 || o.nw == 1 || nw < o.nw) {
			o.nw = nw
			return o
		}
		d, a, have := b.Temp(max(nw, o.nw)), o.slot, o.nw
		total := max(nw, o.nw)
		b.Call(program.WideSignExtend{D: d, A: a, Have: have, Sign: sign, N: total})
		return operand{d, nw, o.lo, o.hi}
	}
	if nw <= o.nw {
		o.nw = nw
		return o
	}
	d, a, have := b.Temp(nw), o.slot, o.nw
	b.Call(program.WideZeroExtend{D: d, A: a, Have: have, N: nw})
	return operand{d, nw, o.lo, o.hi}
}

// whole extends an exact value to nw words, by the sign of its range.
func (b *builder) whole(o operand, nw int) operand {
	if nw <= o.nw {
		o.nw = nw
		return o
	}
	if o.lo.Cmp(o.hi) == 0 {
		return operand{b.Constant(o.lo, nw), nw, o.lo, o.hi}
	}
	if o.lo.Sign() >= 0 {
		return b.extend(o, 64*o.nw, false, nw)
	}
	return b.extend(o, 64*o.nw, true, nw)
}

func describe(e *bmv2json.Expr) string {
	if e == nil {
		return "nothing"
	}
	if e.Type == "expression" {
		return fmt.Sprintf("operator %q", e.Op)
	}
	if e.Name != "" {
		return fmt.Sprintf("%s %q", e.Type, e.Name)
	}
	return e.Type
}

var ringOps = map[string]program.Opcode{"+": program.OpAdd, "-": program.OpSub, "*": program.OpMul, "&": program.OpAnd,
	"|": program.OpOr, "^": program.OpXor}

func (b *builder) operation(e *bmv2json.Expr, nw int, lo, hi *big.Int) operand {
	all := ^uint64(0)
	result := func(slot uint32) operand { return operand{slot, nw, lo, hi} }
	switch e.Op {
	case "+", "-", "*", "&", "|", "^":
		if e.Op == "&" && nw == 1 {
			if o, ok := b.maskLast(e.Left, e.Right, lo, hi); ok {
				return o
			}
		}
		x, y := b.value(e.Left, nw), b.value(e.Right, nw)
		d := b.Temp(nw)
		if nw == 1 && e.Op == "+" && b.mulAdd(d, x.slot, y.slot) {
			return result(d)
		}
		if nw == 1 {
			b.Emit(program.Instr{Op: ringOps[e.Op], D: d, A: x.slot, B: y.slot, Imm: all})
		} else {
			b.Call(program.WideArith{Op: e.Op, D: d, A: x.slot, B: y.slot, N: nw})
		}
		return result(d)
	case "~":
		x := b.value(e.Right, nw)
		d := b.Temp(nw)
		if nw == 1 {
			b.Emit(program.Instr{Op: program.OpNot, D: d, A: x.slot, Imm: all})
		} else {
			b.Call(program.WideNot{D: d, A: x.slot, N: nw})
		}
		return result(d)
	case "<<":
		return b.shiftLeft(e, nw, lo, hi)
	case ">>":
		return b.shiftRight(e, nw, lo, hi)
	case "/", "%":
		return b.divide(e, nw, lo, hi)
	case "?":
		c := b.boolean(e.Cond)
		x, y := b.value(e.Left, nw), b.value(e.Right, nw)
		d := b.Temp(nw)
		if nw == 1 {
			b.Emit(program.Instr{Op: program.OpSel, D: d, A: x.slot, B: y.slot, C: c, Imm: all})
		} else {
			b.Call(program.WideSelect{D: d, A: x.slot, B: y.slot, Cond: c, N: nw})
		}
		return result(d)
	case "b2d":
		return b.extend(operand{b.boolean(e.Right), 1, lo, hi}, 1, false, nw)
	case "two_comp_mod":
		w, ok := b.constWidth(e.Right)
		if !ok {
			return result(0)
		}
		x := b.value(e.Left, (w+63)/64)
		return b.extend(operand{x.slot, x.nw, lo, hi}, w, true, nw)
	case "usat_cast", "sat_cast":
		return b.saturate(e, nw, lo, hi)
	case "last_stack_index", "size_stack":
		at, ok := b.stackNext(e.Right)
		if !ok {
			return result(0)
		}
		if e.Op == "size_stack" {
			return b.extend(operand{at, 1, lo, hi}, 64, false, nw)
		}
		d := b.Temp(1)
		b.Emit(program.Instr{Op: program.OpSub, D: d, A: at, B: b.ConstU(1), Imm: all})
		return b.whole(operand{d, 1, lo, hi}, nw)
	case "access_field":
		return b.accessField(e, nw)
	}
	b.unsupportedf("operator %q", e.Op)
	return result(b.Constant(wide.Zero, nw))
}

// mulAdd fuses a product that was just computed into a temporary with the sum that uses it. A
// product with a mask is not fused.
func (b *builder) mulAdd(d, x, y uint32) bool {
	n := len(b.Code) - 1
	if n < 0 || b.Code[n].Op != program.OpMul || b.Code[n].Imm != ^uint64(0) {
		return false
	}
	last := &b.Code[n]
	switch {
	case !b.IsTemp(last.D):
		return false
	case last.D == y && x != y:
		*last = program.Instr{Op: program.OpMulAdd, D: d, A: last.A, B: last.B, C: x, Imm: ^uint64(0)}
	case last.D == x && x != y:
		*last = program.Instr{Op: program.OpMulAdd, D: d, A: last.A, B: last.B, C: y, Imm: ^uint64(0)}
	default:
		return false
	}
	return true
}

// maskLast computes x & constant with the mask of the instruction that computes x.
func (b *builder) maskLast(x, c *bmv2json.Expr, lo, hi *big.Int) (operand, bool) {
	if x != nil && x.Type == "hexstr" {
		x, c = c, x
	}
	if x == nil || c == nil || c.Type != "hexstr" || c.Int.Sign() < 0 || c.Int.BitLen() > 64 || b.kind(x) != kindData {
		return operand{}, false
	}
	if xlo, xhi := b.rangeOf(x); xlo.Sign() >= 0 && c.Int.Cmp(wide.Ones(c.Int.BitLen())) == 0 && xhi.Cmp(c.Int) <= 0 {
		return b.value(x, 1), true // every value passes the mask
	}
	if x.Type != "expression" {
		return operand{}, false
	}
	v := b.value(x, 1)
	if n := len(b.Code) - 1; n >= 0 && b.Code[n].Maskable() && b.Code[n].D == v.slot && b.IsTemp(v.slot) {
		b.Code[n].Imm &= c.Int.Uint64()
		return operand{v.slot, 1, lo, hi}, true
	}
	d := b.Temp(1)
	b.Emit(program.Instr{Op: program.OpAnd, D: d, A: v.slot, B: b.Constant(c.Int, 1), Imm: ^uint64(0)})
	return operand{d, 1, lo, hi}, true
}

func (b *builder) stackNext(e *bmv2json.Expr) (uint32, bool) {
	if e != nil {
		if s := b.stacks[e.Name]; s != nil {
			return uint32(s.Next), true
		}
		if s := b.unionStacks[e.Name]; s != nil {
			return uint32(s.Next), true
		}
	}
	b.failf("expected a header stack, have %s", describe(e))
	return 0, false
}

// amount computes the amount of a shift as one word; larger numbers shift out everything.
func (b *builder) amount(e *bmv2json.Expr) (slot uint32, constant int) {
	o := b.exact(e)
	if o.lo.Sign() < 0 {
		b.unsupportedf("a shift by a signed amount")
		return 0, 0
	}
	if o.lo.Cmp(o.hi) == 0 {
		n := program.MaxHeaderBits * 2
		if o.lo.IsInt64() && o.lo.Int64() < int64(n) {
			n = int(o.lo.Int64())
		}
		return o.slot, n
	}
	if o.nw > 1 {
		return b.oneWord(o.slot, o.nw), -1
	}
	return o.slot, -1
}

func (b *builder) shiftLeft(e *bmv2json.Expr, nw int, lo, hi *big.Int) operand {
	n, c := b.amount(e.Right)
	x := b.value(e.Left, nw)
	d := b.Temp(nw)
	switch {
	case nw == 1 && c >= 64:
		return operand{b.Constant(wide.Zero, 1), 1, lo, hi}
	case nw == 1 && c >= 0:
		b.Emit(program.Instr{Op: program.OpShlI, D: d, A: x.slot, B: uint32(c), Imm: ^uint64(0)})
	case nw == 1:
		b.Emit(program.Instr{Op: program.OpShl, D: d, A: x.slot, B: n, Imm: ^uint64(0)})
	default:
		b.Call(program.WideShift{D: d, A: x.slot, Amount: n, N: nw})
	}
	return operand{d, nw, lo, hi}
}

func (b *builder) shiftRight(e *bmv2json.Expr, nw int, lo, hi *big.Int) operand {
	n, c := b.amount(e.Right)
	x := b.exact(e.Left)
	signed := x.lo.Sign() < 0
	d := b.Temp(x.nw)
	o := operand{d, x.nw, lo, hi}
	switch {
	case x.nw == 1 && c >= 64 && !signed, c >= 64*x.nw && !signed:
		return operand{b.Constant(wide.Zero, nw), nw, lo, hi}
	case x.nw == 1 && c >= 0:
		op := program.OpShrI
		if signed {
			op, c = program.OpSarI, min(c, 63)
		}
		b.Emit(program.Instr{Op: op, D: d, A: x.slot, B: uint32(c), Imm: ^uint64(0)})
	case x.nw == 1:
		op := program.OpShr
		if signed {
			op = program.OpSar
		}
		b.Emit(program.Instr{Op: op, D: d, A: x.slot, B: n, Imm: ^uint64(0)})
	case nw == 1 && c >= 0 && !signed:
		// One word out of a long field, as in ipv6.src[63:32].
		word := uint32(c / 64)
		switch {
		case c%64 == 0:
			return operand{x.slot + word, 1, lo, hi}
		case int(word)+1 == x.nw:
			b.Emit(program.Instr{Op: program.OpShrI, D: d, A: x.slot + word, B: uint32(c % 64), Imm: ^uint64(0)})
		default:
			b.Emit(program.Instr{Op: program.OpFunnel, D: d, A: x.slot + word, B: x.slot + word + 1, C: uint32(c % 64),
				Imm: ^uint64(0)})
		}
		return operand{d, 1, lo, hi}
	default:
		shift := program.WideShift{D: d, A: x.slot, Amount: n, N: x.nw, Right: true, Signed: signed}
		b.Call(shift)
	}
	// the words hold the shifted number exactly, with the sign of its operand
	if nw <= o.nw {
		return operand{o.slot, nw, lo, hi}
	}
	return b.extend(o, 64*o.nw, signed, nw)
}

func (b *builder) divide(e *bmv2json.Expr, nw int, lo, hi *big.Int) operand {
	x, y := b.exact(e.Left), b.exact(e.Right)
	if x.lo.Sign() < 0 || y.lo.Sign() < 0 {
		b.unsupportedf("operator %q with an operand that can be negative", e.Op)
		return operand{b.Constant(wide.Zero, nw), nw, lo, hi}
	}
	m := max(x.nw, y.nw)
	x, y = b.whole(x, m), b.whole(y, m)
	d := b.Temp(m)
	if m == 1 {
		op := program.OpDiv
		if e.Op == "%" {
			op = program.OpMod
		}
		b.Emit(program.Instr{Op: op, D: d, A: x.slot, B: y.slot, Imm: ^uint64(0)})
	} else {
		b.Call(program.WideDivide{D: d, A: x.slot, B: y.slot, N: m, Mod: e.Op == "%"})
	}
	return b.extend(operand{d, m, lo, hi}, 64*m, false, nw)
}

func (b *builder) saturate(e *bmv2json.Expr, nw int, lo, hi *big.Int) operand {
	x := b.exact(e.Left)
	m := max(x.nw, wordsFor(lo, hi))
	if x.lo.Sign() < 0 && lo.Sign() >= 0 || lo.Sign() < 0 && x.lo.Sign() >= 0 { // a signed comparison
		m = max(m, wordsFor(minBig(x.lo, lo), maxBig(x.hi, hi)))
	}
	x = b.whole(x, m)
	signed := x.lo.Sign() < 0 || lo.Sign() < 0
	lows, highs := b.Constant(lo, m), b.Constant(hi, m)
	d := b.Temp(m)
	if m == 1 {
		lt := program.OpLtU
		if signed {
			lt = program.OpLtS
		}
		t := b.Temp(1)
		b.Emit(program.Instr{Op: lt, D: t, A: highs, B: x.slot})
		b.Emit(program.Instr{Op: program.OpSel, D: d, A: highs, B: x.slot, C: t, Imm: ^uint64(0)})
		if signed {
			b.Emit(program.Instr{Op: lt, D: t, A: x.slot, B: lows})
			b.Emit(program.Instr{Op: program.OpSel, D: d, A: lows, B: d, C: t, Imm: ^uint64(0)})
		}
	} else {
		b.Call(program.WideClamp{D: d, A: x.slot, Low: lows, High: highs, N: m, Signed: signed})
	}
	return b.whole(operand{d, m, lo, hi}, nw)
}
