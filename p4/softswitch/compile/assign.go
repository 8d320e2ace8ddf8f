// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// assign stores the value of src in the field that dst names.
func (b *builder) assign(dst, src *bmv2json.Expr) {
	if b.kind(src) == kindBool { // not accepted by BMv2; p4c always converts
		src = &bmv2json.Expr{Type: "expression", Op: "b2d", Right: src}
	}
	b.store(dst, func(f *program.Field) operand {
		v := src
		if f.Saturating {
			op := "usat_cast"
			if f.Signed {
				op = "sat_cast"
			}
			v = &bmv2json.Expr{Type: "expression", Op: op, Left: src,
				Right: &bmv2json.Expr{Type: "hexstr", Int: big.NewInt(int64(f.Width))}}
		}
		return b.value(v, f.Words)
	})
}

// store evaluates value for the field that dst names, and stores it there.
func (b *builder) store(dst *bmv2json.Expr, value func(*program.Field) operand) {
	switch {
	case dst.Type == "field":
		if dst.Field == validField {
			b.unsupportedf("an assignment to a header's validity")
			return
		}
		h, f, ok := b.fieldAt(dst)
		if !ok {
			return
		}
		if h.Type.Variable >= 0 && f == &h.Type.Fields[h.Type.Variable] {
			b.unsupportedf("an assignment to variable-length field %s.%s by %q", dst.Name, dst.Field, "assign")
			return
		}
		b.put(uint32(h.Base+f.Slot), value(f), f.Width, f.Words)
	case dst.Type == "stack_field":
		s := b.stacks[dst.Name]
		if s == nil {
			b.failf("header stack %q is not declared", dst.Name)
			return
		}
		f, ok := s.Type.Field(dst.Field)
		if !ok {
			b.failf("header stack %q has no field %q", dst.Name, dst.Field)
			return
		}
		b.storeFound(f, value, program.HeaderRef{Stack: s, Last: true})
	case dst.Type == "expression" && dst.Op == "access_field":
		r, ok := b.headerRef(dst.Left)
		if !ok {
			return
		}
		if dst.Index >= len(r.t.Fields) || dst.Index == r.t.Variable {
			b.failf("field %d of a header that has no such field", dst.Index)
			return
		}
		f := &r.t.Fields[dst.Index]
		switch {
		case r.Header != nil:
			b.put(uint32(r.Header.Base+f.Slot), value(f), f.Width, f.Words)
		case r.Stack != nil && f.Words == 1:
			o := value(f)
			t := b.Temp(1)
			b.Emit(program.Instr{Op: program.OpMov, D: t, A: o.slot, Imm: wide.Mask(f.Width)})
			b.Emit(program.Instr{Op: program.OpStore, D: t, A: uint32(r.Stack.Base + f.Slot), B: r.Index,
				C: uint32(r.Stack.Stride), Imm: uint64(len(r.Stack.Elements))})
		default:
			b.storeFound(f, value, r.HeaderRef)
		}
	default:
		b.failf("cannot assign to %s", describe(dst))
	}
}

func (b *builder) storeFound(f *program.Field, value func(*program.Field) operand, to program.HeaderRef) {
	b.Call(program.StoreField{To: to, Offset: f.Slot, A: value(f).slot, N: f.Words, Width: f.Width})
}

// put stores a value in a field, cut off at its width.
func (b *builder) put(dst uint32, o operand, width, words int) {
	if b.err != nil {
		return
	}
	if words > 1 {
		b.Call(program.WideStore{D: dst, A: o.slot, N: words, Width: width})
		return
	}
	mask := wide.Mask(width)
	if n := len(b.Code) - 1; n >= 0 && b.IsTemp(o.slot) && b.Code[n].D == o.slot && b.Code[n].Retargetable() {
		b.Code[n].D = dst
		b.Code[n].Imm &= mask
		return
	}
	if o.slot == dst {
		return
	}
	b.Emit(program.Instr{Op: program.OpMov, D: dst, A: o.slot, Imm: mask})
}

func (b *builder) assignVL(dst, src *bmv2json.Expr) {
	if dst.Type != "field" || src.Type != "field" {
		b.unsupportedf("assign_VL of anything but fields")
		return
	}
	d, df, ok1 := b.fieldAt(dst)
	s, sf, ok2 := b.fieldAt(src)
	if !ok1 || !ok2 {
		return
	}
	if d.Type.Variable < 0 || s.Type.Variable < 0 || df != &d.Type.Fields[d.Type.Variable] ||
		sf != &s.Type.Fields[s.Type.Variable] || df.Width < sf.Width {
		b.failf("assign_VL needs two variable-length fields, the target no shorter")
		return
	}
	op := program.CopyVariable{
		To: d.Base + df.Slot, From: s.Base + sf.Slot, ToLength: d.Base + d.Type.VariableLen,
		FromLength: s.Base + s.Type.VariableLen,
		N:          sf.Words, Room: df.Words,
	}
	b.Call(op)
}

func (b *builder) headerPrimitive(pr *bmv2json.Primitive) {
	dst, ok := b.headerRef(pr.Params[0])
	if !ok {
		return
	}
	switch pr.Op {
	case "add_header", "add_header_fast":
		if dst.Header != nil && pr.Op == "add_header" {
			b.Emit(program.Instr{Op: program.OpAddHdr, A: uint32(dst.Header.Index)})
			return
		}
		b.Call(program.AddHeader{To: dst.HeaderRef})
	case "remove_header":
		if dst.Header != nil {
			b.Emit(program.Instr{Op: program.OpRmHdr, A: uint32(dst.Header.Index)})
			return
		}
		b.Call(program.RemoveHeader{To: dst.HeaderRef})
	default:
		src, ok := b.headerRef(pr.Params[1])
		if !ok {
			return
		}
		if src.t != dst.t {
			b.failf("headers of types %q and %q", dst.t.Name, src.t.Name)
			return
		}
		op := program.AssignHeader{To: dst.HeaderRef, From: src.HeaderRef}
		if h := src.Header; dst.Header != nil && h != nil {
			b.Call(op)
			return
		}
		b.Call(op)
	}
}

func (b *builder) stackPrimitive(pr *bmv2json.Primitive) {
	x, y := pr.Params[0], pr.Params[1]
	switch pr.Op {
	case "push", "pop":
		n := b.index(y)
		pop := pr.Op == "pop"
		if s := b.stacks[x.Name]; s != nil && x.Type == "header_stack" {
			b.Call(program.ShiftStack{Stack: s, Count: n, Pop: pop})
			return
		}
		if s := b.unionStacks[x.Name]; s != nil && x.Type == "header_union_stack" {
			b.Call(program.ShiftUnionStack{Stack: s, Count: n, Pop: pop})
			return
		}
	case "assign_header_stack":
		d, s := b.stacks[x.Name], b.stacks[y.Name]
		if d != nil && s != nil && d.Type == s.Type && len(d.Elements) == len(s.Elements) {
			b.Call(program.AssignStack{To: d, From: s})
			return
		}
	case "assign_union":
		d, ok1 := b.unionRef(x)
		s, ok2 := b.unionRef(y)
		if ok1 && ok2 && sameUnion(d.of, s.of) {
			b.Call(program.AssignUnion{To: d.UnionRef, From: s.UnionRef})
			return
		}
	case "assign_union_stack":
		d, s := b.unionStacks[x.Name], b.unionStacks[y.Name]
		if d != nil && s != nil && len(d.Elements) == len(s.Elements) && sameUnion(d.Elements[0], s.Elements[0]) {
			b.Call(program.AssignUnionStack{To: d, From: s})
			return
		}
	}
	b.failf("operands %s and %s do not fit", describe(x), describe(y))
}

func sameUnion(a, c *program.Union) bool {
	if len(a.Members) != len(c.Members) {
		return false
	}
	for i := range a.Members {
		if a.Members[i].Type != c.Members[i].Type {
			return false
		}
	}
	return true
}
