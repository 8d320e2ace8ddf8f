// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// assign stores the value of src in the field that dst names.
func (b *builder) assign(dst, src *bmv2json.Expr) {
	if b.kind(src) == kindBool { // BMv2 does not take these; p4c always converts
		src = &bmv2json.Expr{Type: "expression", Op: "b2d", Right: src}
	}
	b.store(dst, func(f *fieldLayout) operand {
		v := src
		if f.sat {
			op := "usat_cast"
			if f.signed {
				op = "sat_cast"
			}
			v = &bmv2json.Expr{Type: "expression", Op: op, Left: src, Right: &bmv2json.Expr{Type: "hexstr", Int: big.NewInt(int64(f.width))}}
		}
		return b.value(v, f.words)
	})
}

// store evaluates value for the field dst names, and puts it there.
func (b *builder) store(dst *bmv2json.Expr, value func(*fieldLayout) operand) {
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
		if h.t.vl >= 0 && f == &h.t.fields[h.t.vl] {
			b.unsupportedf("an assignment to variable-length field %s.%s by %q", dst.Name, dst.Field, "assign")
			return
		}
		b.put(uint32(h.base+f.slot), value(f), f.width, f.words)
	case dst.Type == "stack_field":
		s := b.stacks[dst.Name]
		if s == nil {
			b.failf("header stack %q is not declared", dst.Name)
			return
		}
		f, ok := s.t.field(dst.Field)
		if !ok {
			b.failf("header stack %q has no field %q", dst.Name, dst.Field)
			return
		}
		b.storeFound(f, value, func(p *packet) *header {
			if n := p.f[s.next]; n > 0 && n <= uint64(len(s.elems)) {
				return s.elems[n-1]
			}
			return nil
		})
	case dst.Type == "expression" && dst.Op == "access_field":
		r, ok := b.headerRef(dst.Left)
		if !ok {
			return
		}
		if dst.Index >= len(r.t.fields) || dst.Index == r.t.vl {
			b.failf("field %d of a header that has no such field", dst.Index)
			return
		}
		f := &r.t.fields[dst.Index]
		switch {
		case r.h != nil:
			b.put(uint32(r.h.base+f.slot), value(f), f.width, f.words)
		case r.stk != nil && f.words == 1:
			o := value(f)
			t := b.temp(1)
			b.emit(instr{op: opMov, d: t, a: o.slot, imm: maskOf(f.width)})
			b.emit(instr{op: opStore, d: t, a: uint32(r.stk.base + f.slot), b: r.idx, c: uint32(r.stk.stride), imm: uint64(len(r.stk.elems))})
		default:
			b.storeFound(f, value, r.find)
		}
	default:
		b.failf("cannot assign to %s", describe(dst))
	}
}

func (b *builder) storeFound(f *fieldLayout, value func(*fieldLayout) operand, find func(*packet) *header) {
	o := value(f)
	at, words, width := f.slot, f.words, f.width
	b.call(func(p *packet) {
		if h := find(p); h != nil {
			copy(p.f[h.base+at:h.base+at+words], p.f[o.slot:])
			wideMask(p.f, uint32(h.base+at), width)
		}
	})
}

// put moves a value into a field, cut off at its width.
func (b *builder) put(dst uint32, o operand, width, words int) {
	if b.err != nil {
		return
	}
	if words > 1 {
		from := int(o.slot)
		b.callUsing(using(slotSpan{o.slot, words}).writing(slotSpan{dst, words}), func(p *packet) {
			copy(p.f[dst:int(dst)+words], p.f[from:from+words])
			wideMask(p.f, dst, width)
		})
		return
	}
	mask := maskOf(width)
	if n := len(b.code) - 1; n >= 0 && b.isTemp(o.slot) && b.code[n].d == o.slot && b.code[n].retargetable() {
		b.code[n].d = dst
		b.code[n].imm &= mask
		return
	}
	if o.slot == dst {
		return
	}
	b.emit(instr{op: opMov, d: dst, a: o.slot, imm: mask})
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
	if d.t.vl < 0 || s.t.vl < 0 || df != &d.t.fields[d.t.vl] || sf != &s.t.fields[s.t.vl] || df.width < sf.width {
		b.failf("assign_VL needs two variable-length fields, the target no shorter")
		return
	}
	to, from, words := d.base+df.slot, s.base+sf.slot, sf.words
	all := df.words
	toLen, fromLen := d.base+d.t.vlLen, s.base+s.t.vlLen
	b.call(func(p *packet) {
		copy(p.f[to:to+words], p.f[from:from+words])
		clear(p.f[to+words : to+all])
		p.f[toLen] = p.f[fromLen]
	})
}

func (b *builder) headerPrimitive(pr *bmv2json.Primitive) {
	dst, ok := b.headerRef(pr.Params[0])
	if !ok {
		return
	}
	switch pr.Op {
	case "add_header", "add_header_fast":
		if dst.h != nil && pr.Op == "add_header" {
			b.emit(instr{op: opAddHdr, a: uint32(dst.h.index)})
			return
		}
		b.call(func(p *packet) { p.addHeader(dst.at(p)) })
	case "remove_header":
		if dst.h != nil {
			b.emit(instr{op: opRmHdr, a: uint32(dst.h.index)})
			return
		}
		b.call(func(p *packet) { p.removeHeader(dst.at(p)) })
	default:
		src, ok := b.headerRef(pr.Params[1])
		if !ok {
			return
		}
		if src.t != dst.t {
			b.failf("headers of types %q and %q", dst.t.name, src.t.name)
			return
		}
		b.call(func(p *packet) { p.assignHeader(dst.at(p), src.at(p)) })
	}
}

func (b *builder) stackPrimitive(pr *bmv2json.Primitive) {
	x, y := pr.Params[0], pr.Params[1]
	switch pr.Op {
	case "push", "pop":
		n := b.index(y)
		pop := pr.Op == "pop"
		if s := b.stacks[x.Name]; s != nil && x.Type == "header_stack" {
			b.call(func(p *packet) {
				if pop {
					p.pop(s, p.f[n])
				} else {
					p.push(s, p.f[n])
				}
			})
			return
		}
		if s := b.unionStacks[x.Name]; s != nil && x.Type == "header_union_stack" {
			b.call(func(p *packet) { p.pushUnions(s, p.f[n], pop) })
			return
		}
	case "assign_header_stack":
		d, s := b.stacks[x.Name], b.stacks[y.Name]
		if d != nil && s != nil && d.t == s.t && len(d.elems) == len(s.elems) {
			b.call(func(p *packet) {
				p.f[d.next] = p.f[s.next]
				for i := range d.elems {
					p.assignHeader(d.elems[i], s.elems[i])
				}
			})
			return
		}
	case "assign_union":
		d, findD, ok1 := b.unionRef(x)
		s, findS, ok2 := b.unionRef(y)
		if ok1 && ok2 && sameUnion(d, s) {
			b.call(func(p *packet) {
				to, from := d, s
				if findD != nil {
					to = findD(p)
				}
				if findS != nil {
					from = findS(p)
				}
				if to != nil && from != nil {
					p.assignUnion(to, from)
				}
			})
			return
		}
	case "assign_union_stack":
		d, s := b.unionStacks[x.Name], b.unionStacks[y.Name]
		if d != nil && s != nil && len(d.elems) == len(s.elems) && sameUnion(d.elems[0], s.elems[0]) {
			b.call(func(p *packet) {
				p.f[d.next] = p.f[s.next]
				for i := range d.elems {
					p.assignUnion(d.elems[i], s.elems[i])
				}
			})
			return
		}
	}
	b.failf("operands %s and %s do not fit", describe(x), describe(y))
}

func sameUnion(a, c *union) bool {
	if len(a.members) != len(c.members) {
		return false
	}
	for i := range a.members {
		if a.members[i].t != c.members[i].t {
			return false
		}
	}
	return true
}

func (p *packet) assignUnion(dst, src *union) {
	if dst == src {
		return
	}
	for _, h := range dst.members {
		p.f[h.base] = 0
	}
	for i, h := range src.members {
		if p.f[h.base] != 0 {
			p.assignHeader(dst.members[i], h)
		}
	}
}
