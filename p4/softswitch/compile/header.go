// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// headerRef is a header that an expression names, with its type.
type headerRef struct {
	program.HeaderRef
	t *program.HeaderType
}

func fixedHeader(h *program.Header) headerRef { return headerRef{program.HeaderRef{Header: h}, h.Type} }

// elementOf returns the element of a stack whose index is in a slot.
func elementOf(s *program.Stack, idx uint32) headerRef {
	return headerRef{program.HeaderRef{Stack: s, Index: idx}, s.Type}
}

// unionRef is a header union that an expression names; of stands for its type.
type unionRef struct {
	program.UnionRef
	of *program.Union
}

func (b *builder) headerRef(e *bmv2json.Expr) (headerRef, bool) {
	if e == nil {
		b.failf("expected a header")
		return headerRef{}, false
	}
	switch {
	case e.Type == "header":
		h := b.headerNamed[e.Name]
		if h == nil {
			b.failf("header %q is not declared", e.Name)
			return headerRef{}, false
		}
		return fixedHeader(h), true
	case e.Type == "expression" && (e.Op == "dereference_header_stack" || e.Op == "dereference_stack"):
		if e.Left == nil || b.stacks[e.Left.Name] == nil {
			b.failf("expected a header stack, have %s", describe(e.Left))
			return headerRef{}, false
		}
		s := b.stacks[e.Left.Name]
		if e.Right != nil && e.Right.Type == "hexstr" {
			if i := e.Right.Int; i.IsInt64() && i.Int64() >= 0 && i.Int64() < int64(len(s.Elements)) {
				h := s.Elements[i.Int64()]
				return fixedHeader(h), true
			}
			b.failf("index %v is outside of header stack %q, which has %d headers", e.Right.Int, s.Name, len(s.Elements))
			return headerRef{}, false
		}
		return elementOf(s, b.index(e.Right)), true
	case e.Type == "stack_field" && e.Field == "last" && b.stacks[e.Name] != nil: // the whole header, in a parser
		s := b.stacks[e.Name]
		idx := b.Temp(1)
		b.Emit(program.Instr{Op: program.OpSub, D: idx, A: uint32(s.Next), B: b.ConstU(1), Imm: ^uint64(0)})
		return elementOf(s, idx), true
	case e.Type == "expression" && e.Op == "access_union_header":
		return b.unionMember(e)
	}
	b.failf("expected a header, have %s", describe(e))
	return headerRef{}, false
}

func (b *builder) unionMember(e *bmv2json.Expr) (headerRef, bool) {
	u, ok := b.unionRef(e.Left)
	if !ok {
		return headerRef{}, false
	}
	if e.Index >= len(u.of.Members) {
		b.failf("header union %q has no member %d", u.of.Name, e.Index)
		return headerRef{}, false
	}
	h := u.of.Members[e.Index]
	if u.Union != nil {
		return fixedHeader(h), true
	}
	return headerRef{program.HeaderRef{Union: u.UnionRef, Member: e.Index}, h.Type}, true
}

func (b *builder) unionRef(e *bmv2json.Expr) (unionRef, bool) {
	// p4c writes an element of a stack as a header
	if e != nil && (e.Type == "header_union" || e.Type == "header") && b.unions[e.Name] != nil {
		return unionRef{program.UnionRef{Union: b.unions[e.Name]}, b.unions[e.Name]}, true
	}
	if e != nil && e.Type == "expression" && e.Op == "dereference_union_stack" && e.Left != nil &&
		b.unionStacks[e.Left.Name] != nil {
		s := b.unionStacks[e.Left.Name]
		return unionRef{program.UnionRef{Stack: s, Index: b.index(e.Right)}, s.Elements[0]}, true
	}
	b.failf("expected a header union, have %s", describe(e))
	return unionRef{}, false
}

// index computes an index as one word; a value that does not fit becomes an index out of range.
func (b *builder) index(e *bmv2json.Expr) uint32 {
	if e == nil {
		b.failf("an index is missing")
		return 0
	}
	o := b.exact(e)
	if o.nw == 1 {
		return o.slot // as an unsigned number a negative index is out of range
	}
	return b.oneWord(o.slot, o.nw)
}

// oneWord reduces a wide value to one word, all ones if it does not fit.
func (b *builder) oneWord(slot uint32, words int) uint32 {
	d := b.Temp(1)
	b.Call(program.OneWord{D: d, A: slot, N: words})
	return d
}

func (b *builder) accessField(e *bmv2json.Expr, nw int) operand {
	r, ok := b.headerRef(e.Left)
	if !ok || e.Index >= len(r.t.Fields) {
		b.failf("field %d of a header that has fewer", e.Index)
		return operand{0, nw, wide.Zero, wide.Zero}
	}
	f := &r.t.Fields[e.Index]
	lo, hi := b.fieldRange(f)
	if r.Header != nil {
		return b.extend(operand{uint32(r.Header.Base + f.Slot), f.Words, lo, hi}, f.Width, f.Signed, nw)
	}
	d := b.Temp(f.Words)
	if r.Stack != nil && f.Words == 1 {
		b.Emit(program.Instr{Op: program.OpLoad, D: d, A: uint32(r.Stack.Base + f.Slot), B: r.Index,
			C: uint32(r.Stack.Stride), Imm: uint64(len(r.Stack.Elements))})
	} else {
		b.Call(program.LoadField{D: d, From: r.HeaderRef, Offset: f.Slot, N: f.Words})
	}
	return b.extend(operand{d, f.Words, lo, hi}, f.Width, f.Signed, nw)
}

// stackField reads a field of the element of a stack that was extracted last; zero for an empty
// stack.
func (b *builder) stackField(e *bmv2json.Expr, nw int) operand {
	s := b.stacks[e.Name]
	if s == nil {
		b.failf("header stack %q is not declared", e.Name)
		return operand{0, nw, wide.Zero, wide.Zero}
	}
	f, ok := s.Type.Field(e.Field)
	if !ok {
		b.failf("header stack %q has no field %q", e.Name, e.Field)
		return operand{0, nw, wide.Zero, wide.Zero}
	}
	lo, hi := b.fieldRange(f)
	d := b.Temp(f.Words)
	b.Call(program.LoadField{D: d, From: program.HeaderRef{Stack: s, Last: true}, Offset: f.Slot, N: f.Words})
	return b.extend(operand{d, f.Words, lo, hi}, f.Width, f.Signed, nw)
}

func (b *builder) validOf(e *bmv2json.Expr) uint32 {
	r, ok := b.headerRef(e)
	if !ok {
		return 0
	}
	if r.Header != nil {
		return b.validSlot(r.Header)
	}
	d := b.Temp(1)
	b.Call(program.HeaderValid{D: d, Of: r.HeaderRef})
	return d
}

func (b *builder) unionValid(e *bmv2json.Expr) uint32 {
	u, ok := b.unionRef(e)
	if !ok {
		return 0
	}
	d := b.Temp(1)
	b.Call(program.UnionValid{D: d, Of: u.UnionRef})
	return d
}

func (b *builder) compareHeaders(e *bmv2json.Expr) uint32 {
	x, ok1 := b.headerRef(e.Left)
	y, ok2 := b.headerRef(e.Right)
	if !ok1 || !ok2 {
		return 0
	}
	d := b.Temp(1)
	b.Call(program.HeadersEqual{D: d, X: x.HeaderRef, Y: y.HeaderRef, Not: e.Op == "!="})
	return d
}

func (b *builder) compareUnions(e *bmv2json.Expr) uint32 {
	x, ok1 := b.unionRef(e.Left)
	y, ok2 := b.unionRef(e.Right)
	if !ok1 || !ok2 || len(x.of.Members) != len(y.of.Members) {
		b.failf("comparison of unions of different types")
		return 0
	}
	d := b.Temp(1)
	b.Call(program.UnionsEqual{D: d, X: x.UnionRef, Y: y.UnionRef, Not: e.Op == "!="})
	return d
}
