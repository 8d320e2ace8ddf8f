// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// headerRef is a header that an expression names, known now or only when a packet is there.
type headerRef struct {
	t    *headerLayout
	h    *header               // known now
	find func(*packet) *header // else; nil when an index is out of range

	// an element of a header stack: base of the first, slot of the index
	stk *stack
	idx uint32
}

// element is the element of a stack whose index is in a slot.
func (s *stack) element(idx uint32) headerRef {
	return headerRef{t: s.t, stk: s, idx: idx, find: func(p *packet) *header {
		if i := p.f[idx]; i < uint64(len(s.elems)) {
			return s.elems[i]
		}
		p.lane.stats.IndexErrors++
		return nil
	}}
}

func (r *headerRef) at(p *packet) *header {
	if r.h != nil {
		return r.h
	}
	return r.find(p)
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
		return headerRef{t: h.t, h: h}, true
	case e.Type == "expression" && (e.Op == "dereference_header_stack" || e.Op == "dereference_stack"):
		if e.Left == nil || b.stacks[e.Left.Name] == nil {
			b.failf("expected a header stack, have %s", describe(e.Left))
			return headerRef{}, false
		}
		s := b.stacks[e.Left.Name]
		if e.Right != nil && e.Right.Type == "hexstr" {
			if i := e.Right.Int; i.IsInt64() && i.Int64() >= 0 && i.Int64() < int64(len(s.elems)) {
				h := s.elems[i.Int64()]
				return headerRef{t: h.t, h: h}, true
			}
			b.failf("index %v is outside of header stack %q of %d", e.Right.Int, s.name, len(s.elems))
			return headerRef{}, false
		}
		return s.element(b.index(e.Right)), true
	case e.Type == "stack_field" && e.Field == "last" && b.stacks[e.Name] != nil: // the whole of it, in a parser
		s := b.stacks[e.Name]
		idx := b.temp(1)
		b.emit(instr{op: opSub, d: idx, a: uint32(s.next), b: b.constU(1), imm: ^uint64(0)})
		return s.element(idx), true
	case e.Type == "expression" && e.Op == "access_union_header":
		return b.unionMember(e)
	}
	b.failf("expected a header, have %s", describe(e))
	return headerRef{}, false
}

func (b *builder) unionMember(e *bmv2json.Expr) (headerRef, bool) {
	u, find, ok := b.unionRef(e.Left)
	if !ok {
		return headerRef{}, false
	}
	if e.Index >= len(u.members) {
		b.failf("header union %q has no member %d", u.name, e.Index)
		return headerRef{}, false
	}
	i := e.Index
	if find == nil {
		return headerRef{t: u.members[i].t, h: u.members[i]}, true
	}
	return headerRef{t: u.members[i].t, find: func(p *packet) *header {
		if v := find(p); v != nil {
			return v.members[i]
		}
		return nil
	}}, true
}

// unionRef finds a union; find is nil when it is known now. Otherwise the union returned stands for its type.
func (b *builder) unionRef(e *bmv2json.Expr) (*union, func(*packet) *union, bool) {
	if e != nil && (e.Type == "header_union" || e.Type == "header") && b.unions[e.Name] != nil { // p4c calls a stack's element a header
		return b.unions[e.Name], nil, true
	}
	if e != nil && e.Type == "expression" && e.Op == "dereference_union_stack" && e.Left != nil && b.unionStacks[e.Left.Name] != nil {
		s := b.unionStacks[e.Left.Name]
		idx := b.index(e.Right)
		return s.elems[0], func(p *packet) *union {
			if i := p.f[idx]; i < uint64(len(s.elems)) {
				return s.elems[i]
			}
			p.lane.stats.IndexErrors++
			return nil
		}, true
	}
	b.failf("expected a header union, have %s", describe(e))
	return nil, nil, false
}

// index computes an index as one word; what does not fit is out of every range.
func (b *builder) index(e *bmv2json.Expr) uint32 {
	if e == nil {
		b.failf("an index is missing")
		return 0
	}
	o := b.exact(e)
	if o.nw == 1 {
		return o.slot // a negative one is huge without its sign
	}
	return b.oneWord(o.slot, o.nw)
}

// oneWord is a wide value in one word: all ones where it has more than one.
func (b *builder) oneWord(slot uint32, words int) uint32 {
	d := b.temp(1)
	b.call(func(p *packet) {
		v := p.f[slot]
		for i := 1; i < words; i++ {
			if p.f[int(slot)+i] != 0 {
				v = ^uint64(0)
			}
		}
		p.f[d] = v
	})
	return d
}

func (b *builder) accessField(e *bmv2json.Expr, nw int) operand {
	r, ok := b.headerRef(e.Left)
	if !ok || e.Index >= len(r.t.fields) {
		b.failf("field %d of a header that has fewer", e.Index)
		return operand{0, nw, bigZero, bigZero}
	}
	f := &r.t.fields[e.Index]
	lo, hi := b.fieldRange(f)
	if r.h != nil {
		return b.extend(operand{uint32(r.h.base + f.slot), f.words, lo, hi}, f.width, f.signed, nw)
	}
	d := b.temp(f.words)
	if r.stk != nil && f.words == 1 {
		b.emit(instr{op: opLoad, d: d, a: uint32(r.stk.base + f.slot), b: r.idx, c: uint32(r.stk.stride), imm: uint64(len(r.stk.elems))})
	} else {
		words, at := f.words, f.slot
		b.call(func(p *packet) {
			h := r.find(p)
			if h == nil {
				clear(p.f[d : int(d)+words])
				return
			}
			copy(p.f[d:int(d)+words], p.f[h.base+at:])
		})
	}
	return b.extend(operand{d, f.words, lo, hi}, f.width, f.signed, nw)
}

// stackField is a field of a stack's last element that was extracted. Of an empty stack it is zero.
func (b *builder) stackField(e *bmv2json.Expr, nw int) operand {
	s := b.stacks[e.Name]
	if s == nil {
		b.failf("header stack %q is not declared", e.Name)
		return operand{0, nw, bigZero, bigZero}
	}
	f, ok := s.t.field(e.Field)
	if !ok {
		b.failf("header stack %q has no field %q", e.Name, e.Field)
		return operand{0, nw, bigZero, bigZero}
	}
	lo, hi := b.fieldRange(f)
	d := b.temp(f.words)
	words, at := f.words, f.slot
	b.call(func(p *packet) {
		n := int(p.f[s.next])
		if n == 0 || n > len(s.elems) {
			clear(p.f[d : int(d)+words])
			return
		}
		copy(p.f[d:int(d)+words], p.f[s.elems[n-1].base+at:])
	})
	return b.extend(operand{d, f.words, lo, hi}, f.width, f.signed, nw)
}

func (b *builder) validOf(e *bmv2json.Expr) uint32 {
	r, ok := b.headerRef(e)
	if !ok {
		return 0
	}
	if r.h != nil {
		return b.validSlot(r.h)
	}
	d := b.temp(1)
	b.call(func(p *packet) {
		p.f[d] = 0
		if h := r.find(p); h != nil {
			p.f[d] = p.f[h.base]
		}
	})
	return d
}

func (b *builder) unionValid(e *bmv2json.Expr) uint32 {
	u, find, ok := b.unionRef(e)
	if !ok {
		return 0
	}
	d := b.temp(1)
	b.call(func(p *packet) {
		v := u
		if find != nil {
			v = find(p)
		}
		p.f[d] = 0
		if v != nil {
			for _, h := range v.members {
				p.f[d] |= p.f[h.base]
			}
		}
	})
	return d
}

// sameHeaders: both valid and all fields alike (BMv2's comparison: two invalid headers are not equal).
func sameHeaders(p *packet, x, y *header) bool {
	if x == nil || y == nil || x.t != y.t || !x.metadata && (p.f[x.base] == 0 || p.f[y.base] == 0) {
		return false
	}
	return wideEqual(p.f, uint32(x.base+1), uint32(y.base+1), x.t.slots-1)
}

func (b *builder) compareHeaders(e *bmv2json.Expr) uint32 {
	x, ok1 := b.headerRef(e.Left)
	y, ok2 := b.headerRef(e.Right)
	if !ok1 || !ok2 {
		return 0
	}
	d, want := b.temp(1), e.Op == "=="
	b.call(func(p *packet) { p.f[d] = bit(sameHeaders(p, x.at(p), y.at(p)) == want) })
	return d
}

func (b *builder) compareUnions(e *bmv2json.Expr) uint32 {
	u, findU, ok1 := b.unionRef(e.Left)
	v, findV, ok2 := b.unionRef(e.Right)
	if !ok1 || !ok2 || len(u.members) != len(v.members) {
		b.failf("comparison of unions of different types")
		return 0
	}
	d, want := b.temp(1), e.Op == "=="
	b.call(func(p *packet) {
		x, y := u, v
		if findU != nil {
			x = findU(p)
		}
		if findV != nil {
			y = findV(p)
		}
		same := false
		if x != nil && y != nil {
			for i := range x.members {
				if p.f[x.members[i].base] == 1 {
					same = sameHeaders(p, x.members[i], y.members[i])
				}
			}
		}
		p.f[d] = bit(same == want)
	})
	return d
}

// setValid makes a header valid; in a union it makes the others invalid.
func (p *packet) setValid(h *header) {
	if h.metadata {
		return
	}
	p.f[h.base] = 1
	for _, s := range h.siblings {
		p.f[s] = 0
	}
}

// headerBytes is the header's length on the wire.
func (p *packet) headerBytes(h *header) int {
	n := h.t.bytes
	if h.t.vl >= 0 {
		n += int(p.f[h.base+h.t.vlLen]) / 8
	}
	return n
}

// addHeader is setValid() of P4: fields of a header that was invalid are zero.
func (p *packet) addHeader(h *header) {
	if h == nil || h.metadata || p.f[h.base] != 0 {
		return
	}
	clear(p.f[h.base : h.base+h.t.slots])
	p.setValid(h)
	p.length += p.headerBytes(h)
}

// removeHeader is setInvalid() of P4.
func (p *packet) removeHeader(h *header) {
	if h == nil || h.metadata || p.f[h.base] == 0 {
		return
	}
	p.length -= p.headerBytes(h)
	p.f[h.base] = 0
}

// assignHeader copies a header, validity included.
func (p *packet) assignHeader(dst, src *header) {
	if dst == nil || src == nil || dst == src {
		return
	}
	if !src.metadata && p.f[src.base] == 0 {
		p.f[dst.base] = 0
		return
	}
	n := src.t.slots
	copy(p.f[dst.base+1:dst.base+n], p.f[src.base+1:src.base+n])
	p.setValid(dst)
}

// push shifts a stack's elements up by n; those that come in are invalid.
func (p *packet) push(s *stack, n uint64) {
	size := uint64(len(s.elems))
	n = min(n, size)
	p.f[s.next] = min(size, p.f[s.next]+n)
	all := p.f[s.base : s.base+int(size)*s.stride]
	copy(all[int(n)*s.stride:], all[:int(size-n)*s.stride])
	clear(all[:int(n)*s.stride])
}

// pop shifts a stack's elements down by n.
func (p *packet) pop(s *stack, n uint64) {
	size := uint64(len(s.elems))
	n = min(n, size)
	p.f[s.next] -= min(p.f[s.next], n)
	all := p.f[s.base : s.base+int(size)*s.stride]
	copy(all, all[int(n)*s.stride:])
	clear(all[int(size-n)*s.stride:])
}

func (p *packet) pushUnions(s *unionStack, n uint64, down bool) {
	size := uint64(len(s.elems))
	n = min(n, size)
	base := s.elems[0].members[0].base
	all := p.f[base : base+int(size)*s.stride]
	if down {
		p.f[s.next] -= min(p.f[s.next], n)
		copy(all, all[int(n)*s.stride:])
		clear(all[int(size-n)*s.stride:])
		return
	}
	p.f[s.next] = min(size, p.f[s.next]+n)
	copy(all[int(n)*s.stride:], all[:int(size-n)*s.stride])
	clear(all[:int(n)*s.stride])
}
