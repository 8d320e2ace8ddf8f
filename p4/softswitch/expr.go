// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// BMv2 computes with integers of any size and cuts a value off where it is stored. Most operators ("ring" ones: + - * & | ^ ~
// <<) have low bits that depend on low bits alone, so they are computed modulo 2^64, or modulo 2^(64·nw) where more is wanted. The
// others (comparison, >>, /, %, saturation) need their operands whole: the range of every expression is known here, and with it
// how many words hold it.

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

// fieldAt finds header and field of a reference.
func (b *builder) fieldAt(e *bmv2json.Expr) (*header, *fieldLayout, bool) {
	h := b.headerNamed[e.Name]
	if h == nil {
		b.failf("header %q is not declared", e.Name)
		return nil, nil, false
	}
	f, ok := h.t.field(e.Field)
	if !ok {
		b.failf("header %q has no field %q", e.Name, e.Field)
		return nil, nil, false
	}
	if f.slot < 0 {
		b.failf("field %s.%s has no place of its own (an error of this compiler)", e.Name, e.Field)
		return nil, nil, false
	}
	return h, f, true
}

// wordsFor returns how many words hold every number of a range, without sign if there are no negative ones.
func wordsFor(lo, hi *big.Int) int {
	if lo.Sign() >= 0 {
		return max(1, (hi.BitLen()+63)/64)
	}
	n := max(new(big.Int).Not(lo).BitLen(), hi.BitLen()) + 1
	return max(1, (n+63)/64)
}

// exact computes e whole.
func (b *builder) exact(e *bmv2json.Expr) operand {
	lo, hi := b.rangeOf(e)
	return b.value(e, wordsFor(lo, hi))
}

// value computes e modulo 2^(64·nw).
func (b *builder) value(e *bmv2json.Expr, nw int) operand {
	if e == nil {
		return operand{b.constant(bigZero, nw), nw, bigZero, bigZero}
	}
	if k := b.kind(e); k != kindData {
		b.failf("expected a number in an expression, have %s", describe(e))
		return operand{b.constant(bigZero, nw), nw, bigZero, bigZero}
	}
	lo, hi := b.rangeOf(e)
	if b.err != nil {
		return operand{b.constant(bigZero, nw), nw, lo, hi}
	}
	switch e.Type {
	case "hexstr":
		return operand{b.constant(e.Int, nw), nw, lo, hi}
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
		return b.extend(operand{uint32(h.base + f.slot), f.words, lo, hi}, f.width, f.signed, nw)
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
	return operand{b.constant(bigZero, nw), nw, lo, hi}
}

const validField = "$valid$"

// validSlot returns a slot with a header's validity.
func (b *builder) validSlot(h *header) uint32 {
	if h.metadata {
		return b.constU(1)
	}
	return uint32(h.base)
}

// extend brings a value that its words hold as width bits to nw words.
func (b *builder) extend(o operand, width int, signed bool, nw int) operand {
	if signed {
		sign := width - 1
		if o.nw == 1 && width < 64 {
			t := b.temp(1)
			b.emit(instr{op: opSext, d: t, a: o.slot, b: uint32(width), imm: ^uint64(0)})
			o.slot = t
		}
		if nw <= o.nw && (width%64 == 0 || o.nw == 1 || nw < o.nw) {
			o.nw = nw
			return o
		}
		d, a, have := b.temp(max(nw, o.nw)), o.slot, o.nw
		total := max(nw, o.nw)
		b.callUsing(using(slotSpan{a, have}).writing(slotSpan{d, total}), func(p *packet) { wideSignExtend(p.f, d, a, have, sign, total) })
		return operand{d, nw, o.lo, o.hi}
	}
	if nw <= o.nw {
		o.nw = nw
		return o
	}
	d, a, have := b.temp(nw), o.slot, o.nw
	b.callUsing(using(slotSpan{a, have}).writing(slotSpan{d, nw}), func(p *packet) {
		f := p.f
		copy(f[d:int(d)+have], f[a:int(a)+have])
		clear(f[int(d)+have : int(d)+nw])
	})
	return operand{d, nw, o.lo, o.hi}
}

// whole brings a whole value to nw words by its range's sign.
func (b *builder) whole(o operand, nw int) operand {
	if nw <= o.nw {
		o.nw = nw
		return o
	}
	if o.lo.Cmp(o.hi) == 0 {
		return operand{b.constant(o.lo, nw), nw, o.lo, o.hi}
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

var ringOps = map[string]opcode{"+": opAdd, "-": opSub, "*": opMul, "&": opAnd, "|": opOr, "^": opXor}

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
		d := b.temp(nw)
		if nw == 1 && e.Op == "+" && b.mulAdd(d, x.slot, y.slot) {
			return result(d)
		}
		if nw == 1 {
			b.emit(instr{op: ringOps[e.Op], d: d, a: x.slot, b: y.slot, imm: all})
		} else {
			f := wideRing[e.Op]
			xs, ys := x.slot, y.slot
			b.callUsing(using(slotSpan{xs, nw}, slotSpan{ys, nw}).writing(slotSpan{d, nw}), func(p *packet) { f(p.f, d, xs, ys, nw) })
		}
		return result(d)
	case "~":
		x := b.value(e.Right, nw)
		d := b.temp(nw)
		if nw == 1 {
			b.emit(instr{op: opNot, d: d, a: x.slot, imm: all})
		} else {
			xs := x.slot
			b.callUsing(using(slotSpan{xs, nw}).writing(slotSpan{d, nw}), func(p *packet) { wideNot(p.f, d, xs, nw) })
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
		d := b.temp(nw)
		if nw == 1 {
			b.emit(instr{op: opSel, d: d, a: x.slot, b: y.slot, c: c, imm: all})
		} else {
			xs, ys := x.slot, y.slot
			b.callUsing(using(slot1(c), slotSpan{xs, nw}, slotSpan{ys, nw}).writing(slotSpan{d, nw}), func(p *packet) {
				from := ys
				if p.f[c] != 0 {
					from = xs
				}
				copy(p.f[d:int(d)+nw], p.f[from:int(from)+nw])
			})
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
		d := b.temp(1)
		b.emit(instr{op: opSub, d: d, a: at, b: b.constU(1), imm: all})
		return b.whole(operand{d, 1, lo, hi}, nw)
	case "access_field":
		return b.accessField(e, nw)
	}
	b.unsupportedf("operator %q", e.Op)
	return result(b.constant(bigZero, nw))
}

// mulAdd makes one instruction of a product, just computed into a temporary, and a sum it is part of. A product that is cut off by a
// mask stays by itself.
func (b *builder) mulAdd(d, x, y uint32) bool {
	n := len(b.code) - 1
	if n < 0 || b.code[n].op != opMul || b.code[n].imm != ^uint64(0) {
		return false
	}
	last := &b.code[n]
	switch {
	case !b.isTemp(last.d):
		return false
	case last.d == y && x != y:
		*last = instr{op: opMulAdd, d: d, a: last.a, b: last.b, c: x, imm: ^uint64(0)}
	case last.d == x && x != y:
		*last = instr{op: opMulAdd, d: d, a: last.a, b: last.b, c: y, imm: ^uint64(0)}
	default:
		return false
	}
	return true
}

// maskLast computes x & constant by a mask on the instruction that makes x.
func (b *builder) maskLast(x, c *bmv2json.Expr, lo, hi *big.Int) (operand, bool) {
	if x != nil && x.Type == "hexstr" {
		x, c = c, x
	}
	if x == nil || c == nil || c.Type != "hexstr" || c.Int.Sign() < 0 || c.Int.BitLen() > 64 || b.kind(x) != kindData {
		return operand{}, false
	}
	if xlo, xhi := b.rangeOf(x); xlo.Sign() >= 0 && c.Int.Cmp(ones(c.Int.BitLen())) == 0 && xhi.Cmp(c.Int) <= 0 {
		return b.value(x, 1), true // every value passes the mask
	}
	if x.Type != "expression" {
		return operand{}, false
	}
	v := b.value(x, 1)
	if n := len(b.code) - 1; n >= 0 && b.code[n].maskable() && b.code[n].d == v.slot && b.isTemp(v.slot) {
		b.code[n].imm &= c.Int.Uint64()
		return operand{v.slot, 1, lo, hi}, true
	}
	d := b.temp(1)
	b.emit(instr{op: opAnd, d: d, a: v.slot, b: b.constant(c.Int, 1), imm: ^uint64(0)})
	return operand{d, 1, lo, hi}, true
}

func (b *builder) stackNext(e *bmv2json.Expr) (uint32, bool) {
	if e != nil {
		if s := b.stacks[e.Name]; s != nil {
			return uint32(s.next), true
		}
		if s := b.unionStacks[e.Name]; s != nil {
			return uint32(s.next), true
		}
	}
	b.failf("expected a header stack, have %s", describe(e))
	return 0, false
}

// amount computes a shift's amount as one word; numbers that do not fit stand for "everything".
func (b *builder) amount(e *bmv2json.Expr) (slot uint32, constant int) {
	o := b.exact(e)
	if o.lo.Sign() < 0 {
		b.unsupportedf("a shift by a signed amount")
		return 0, 0
	}
	if o.lo.Cmp(o.hi) == 0 {
		n := maxHeaderBits * 2
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
	d := b.temp(nw)
	switch {
	case nw == 1 && c >= 64:
		return operand{b.constant(bigZero, 1), 1, lo, hi}
	case nw == 1 && c >= 0:
		b.emit(instr{op: opShlI, d: d, a: x.slot, b: uint32(c), imm: ^uint64(0)})
	case nw == 1:
		b.emit(instr{op: opShl, d: d, a: x.slot, b: n, imm: ^uint64(0)})
	default:
		xs := x.slot
		b.callUsing(using(slot1(n), slotSpan{xs, nw}).writing(slotSpan{d, nw}), func(p *packet) { wideShl(p.f, d, xs, p.f[n], nw) })
	}
	return operand{d, nw, lo, hi}
}

func (b *builder) shiftRight(e *bmv2json.Expr, nw int, lo, hi *big.Int) operand {
	n, c := b.amount(e.Right)
	x := b.exact(e.Left)
	signed := x.lo.Sign() < 0
	d := b.temp(x.nw)
	o := operand{d, x.nw, lo, hi}
	switch {
	case x.nw == 1 && c >= 64 && !signed, c >= 64*x.nw && !signed:
		return operand{b.constant(bigZero, nw), nw, lo, hi}
	case x.nw == 1 && c >= 0:
		op := opShrI
		if signed {
			op, c = opSarI, min(c, 63)
		}
		b.emit(instr{op: op, d: d, a: x.slot, b: uint32(c), imm: ^uint64(0)})
	case x.nw == 1:
		op := opShr
		if signed {
			op = opSar
		}
		b.emit(instr{op: op, d: d, a: x.slot, b: n, imm: ^uint64(0)})
	case nw == 1 && c >= 0 && !signed:
		// One word out of a long field, as in ipv6.src[63:32].
		word := uint32(c / 64)
		switch {
		case c%64 == 0:
			return operand{x.slot + word, 1, lo, hi}
		case int(word)+1 == x.nw:
			b.emit(instr{op: opShrI, d: d, a: x.slot + word, b: uint32(c % 64), imm: ^uint64(0)})
		default:
			b.emit(instr{op: opFunnel, d: d, a: x.slot + word, b: x.slot + word + 1, c: uint32(c % 64), imm: ^uint64(0)})
		}
		return operand{d, 1, lo, hi}
	default:
		xs, m := x.slot, x.nw
		b.callUsing(using(slot1(n), slotSpan{xs, m}).writing(slotSpan{d, m}), func(p *packet) { wideShr(p.f, d, xs, p.f[n], m, signed) })
	}
	// the words hold the whole of the shifted number, which has the sign of what was shifted
	if nw <= o.nw {
		return operand{o.slot, nw, lo, hi}
	}
	return b.extend(o, 64*o.nw, signed, nw)
}

func (b *builder) divide(e *bmv2json.Expr, nw int, lo, hi *big.Int) operand {
	x, y := b.exact(e.Left), b.exact(e.Right)
	if x.lo.Sign() < 0 || y.lo.Sign() < 0 {
		b.unsupportedf("operator %q with an operand that can be negative", e.Op)
		return operand{b.constant(bigZero, nw), nw, lo, hi}
	}
	m := max(x.nw, y.nw)
	x, y = b.whole(x, m), b.whole(y, m)
	d := b.temp(m)
	if m == 1 {
		op := opDiv
		if e.Op == "%" {
			op = opMod
		}
		b.emit(instr{op: op, d: d, a: x.slot, b: y.slot, imm: ^uint64(0)})
	} else {
		xs, ys, mod := x.slot, y.slot, e.Op == "%"
		b.callUsing(using(slotSpan{xs, m}, slotSpan{ys, m}).writing(slotSpan{d, m}), func(p *packet) { wideDiv(p.f, d, xs, ys, m, mod) })
	}
	return b.extend(operand{d, m, lo, hi}, 64*m, false, nw)
}

func (b *builder) saturate(e *bmv2json.Expr, nw int, lo, hi *big.Int) operand {
	x := b.exact(e.Left)
	m := max(x.nw, wordsFor(lo, hi))
	if x.lo.Sign() < 0 && lo.Sign() >= 0 || lo.Sign() < 0 && x.lo.Sign() >= 0 { // compare with a sign on both sides
		m = max(m, wordsFor(minBig(x.lo, lo), maxBig(x.hi, hi)))
	}
	x = b.whole(x, m)
	signed := x.lo.Sign() < 0 || lo.Sign() < 0
	lows, highs := b.constant(lo, m), b.constant(hi, m)
	d := b.temp(m)
	if m == 1 {
		lt := opLtU
		if signed {
			lt = opLtS
		}
		t := b.temp(1)
		b.emit(instr{op: lt, d: t, a: highs, b: x.slot})
		b.emit(instr{op: opSel, d: d, a: highs, b: x.slot, c: t, imm: ^uint64(0)})
		if signed {
			b.emit(instr{op: lt, d: t, a: x.slot, b: lows})
			b.emit(instr{op: opSel, d: d, a: lows, b: d, c: t, imm: ^uint64(0)})
		}
	} else {
		xs := x.slot
		b.callUsing(using(slotSpan{xs, m}, slotSpan{highs, m}, slotSpan{lows, m}).writing(slotSpan{d, m}), func(p *packet) {
			from := xs
			if wideLess(p.f, highs, xs, m, signed) {
				from = highs
			} else if signed && wideLess(p.f, xs, lows, m, true) {
				from = lows
			}
			copy(p.f[d:int(d)+m], p.f[from:int(from)+m])
		})
	}
	return b.whole(operand{d, m, lo, hi}, nw)
}
