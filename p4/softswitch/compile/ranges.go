// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// The range of an expression follows from the widths of its fields and its operators.

func (b *builder) fieldRange(f *program.Field) (lo, hi *big.Int) {
	if f.Signed {
		return new(big.Int).Neg(new(big.Int).Lsh(wide.One, uint(f.Width-1))), wide.Ones(f.Width - 1)
	}
	return wide.Zero, wide.Ones(f.Width)
}

// rangeOf returns the range of a data expression's value.
func (b *builder) rangeOf(e *bmv2json.Expr) (lo, hi *big.Int) {
	if e == nil {
		return wide.Zero, wide.Zero
	}
	switch e.Type {
	case "hexstr":
		return e.Int, e.Int
	case "field":
		if e.Field == validField {
			return wide.Zero, wide.One
		}
		if _, f, ok := b.fieldAt(e); ok {
			return b.fieldRange(f)
		}
		return wide.Zero, wide.Zero
	case "stack_field":
		if s := b.stacks[e.Name]; s != nil {
			if f, ok := s.Type.Field(e.Field); ok {
				return b.fieldRange(f)
			}
		}
		return wide.Zero, wide.Zero
	case "local", "runtime_data":
		if e.Index < len(b.locals) {
			return b.locals[e.Index].lo, b.locals[e.Index].hi
		}
		return wide.Zero, wide.Zero
	case "register":
		if i, ok := b.regs[e.Name]; ok {
			return wide.Zero, wide.Ones(b.Prog.Info.Registers[i].Width)
		}
		return wide.Zero, wide.Zero
	case "expression":
		return b.rangeOfOp(e)
	}
	return wide.Zero, wide.Zero
}

func minBig(a, c *big.Int) *big.Int {
	if a.Cmp(c) < 0 {
		return a
	}
	return c
}

func maxBig(a, c *big.Int) *big.Int {
	if a.Cmp(c) > 0 {
		return a
	}
	return c
}

// bitRange returns the range of bitwise operators: n bits, signed if an operand is.
func bitRange(llo, lhi, rlo, rhi *big.Int) (lo, hi *big.Int) {
	n := 0
	for _, v := range []*big.Int{llo, lhi, rlo, rhi} {
		if v.Sign() < 0 {
			v = new(big.Int).Not(v)
		}
		n = max(n, v.BitLen())
	}
	hi = wide.Ones(n)
	if llo.Sign() < 0 || rlo.Sign() < 0 {
		return new(big.Int).Sub(new(big.Int).Neg(hi), wide.One), hi
	}
	return wide.Zero, hi
}

func (b *builder) rangeOfOp(e *bmv2json.Expr) (lo, hi *big.Int) {
	switch e.Op {
	case "b2d":
		return wide.Zero, wide.One
	case "last_stack_index":
		return big.NewInt(-1), big.NewInt(int64(b.stackDepth(e.Right) - 1))
	case "size_stack":
		return wide.Zero, big.NewInt(int64(b.stackDepth(e.Right)))
	case "access_field":
		if r, ok := b.headerRef(e.Left); ok && e.Index < len(r.t.Fields) {
			return b.fieldRange(&r.t.Fields[e.Index])
		}
		return wide.Zero, wide.Zero
	case "two_comp_mod", "sat_cast":
		if w, ok := b.constWidth(e.Right); ok {
			return new(big.Int).Neg(new(big.Int).Lsh(wide.One, uint(w-1))), wide.Ones(w - 1)
		}
		return wide.Zero, wide.Zero
	case "usat_cast":
		if w, ok := b.constWidth(e.Right); ok {
			return wide.Zero, wide.Ones(w)
		}
		return wide.Zero, wide.Zero
	}
	llo, lhi := b.rangeOf(e.Left)
	rlo, rhi := b.rangeOf(e.Right)
	switch e.Op {
	case "+":
		return new(big.Int).Add(llo, rlo), new(big.Int).Add(lhi, rhi)
	case "-":
		return new(big.Int).Sub(llo, rhi), new(big.Int).Sub(lhi, rlo)
	case "*":
		p := [4]*big.Int{new(big.Int).Mul(llo, rlo), new(big.Int).Mul(llo, rhi), new(big.Int).Mul(lhi, rlo),
			new(big.Int).Mul(lhi, rhi)}
		lo, hi = p[0], p[0]
		for _, v := range p[1:] {
			lo, hi = minBig(lo, v), maxBig(hi, v)
		}
		return lo, hi
	case "&":
		switch {
		case llo.Sign() >= 0 && rlo.Sign() >= 0:
			return wide.Zero, minBig(lhi, rhi)
		case llo.Sign() >= 0:
			return wide.Zero, lhi
		case rlo.Sign() >= 0:
			return wide.Zero, rhi
		}
		return bitRange(llo, lhi, rlo, rhi)
	case "|", "^":
		return bitRange(llo, lhi, rlo, rhi)
	case "~":
		return new(big.Int).Not(rhi), new(big.Int).Not(rlo)
	case "<<":
		n := uint(maxShiftRange)
		if rhi.IsInt64() && rhi.Int64() < maxShiftRange {
			n = uint(max(rhi.Int64(), 0))
		}
		return minBig(llo, new(big.Int).Lsh(llo, n)), maxBig(lhi, new(big.Int).Lsh(lhi, n))
	case ">>":
		if rlo.Cmp(rhi) == 0 && rlo.Sign() >= 0 && rlo.IsInt64() {
			n := uint(min(rlo.Int64(), program.MaxHeaderBits))
			return new(big.Int).Rsh(llo, n), new(big.Int).Rsh(lhi, n)
		}
		return minBig(llo, wide.Zero), maxBig(lhi, wide.Zero)
	case "/":
		return wide.Zero, maxBig(lhi, wide.Zero)
	case "%":
		return wide.Zero, maxBig(minBig(lhi, new(big.Int).Sub(rhi, wide.One)), wide.Zero)
	case "?":
		return minBig(llo, rlo), maxBig(lhi, rhi)
	}
	return wide.Zero, wide.Zero
}

func (b *builder) stackDepth(e *bmv2json.Expr) int {
	if e != nil {
		if s := b.stacks[e.Name]; s != nil {
			return len(s.Elements)
		}
		if s := b.unionStacks[e.Name]; s != nil {
			return len(s.Elements)
		}
	}
	b.failf("expected a header stack")
	return 0
}

func (b *builder) constWidth(e *bmv2json.Expr) (int, bool) {
	if e != nil && e.Type == "hexstr" && e.Int.IsInt64() && e.Int.Int64() > 0 &&
		e.Int.Int64() <= program.MaxHeaderBits {
		return int(e.Int.Int64()), true
	}
	b.failf("the width of a cast has to be a constant from 1 to %d", program.MaxHeaderBits)
	return 0, false
}
