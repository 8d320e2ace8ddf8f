// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// header finds the header that a reference names; nil if there is none.
func (p *Packet) header(r *program.HeaderRef) *program.Header {
	switch {
	case r.Header != nil:
		return r.Header
	case r.Stack == nil:
		if u := p.union(&r.Union); u != nil {
			return u.Members[r.Member]
		}
		return nil
	}
	if i, ok := p.element(r.Stack.Next, len(r.Stack.Elements), r.Last, r.Index); ok {
		return r.Stack.Elements[i]
	}
	return nil
}

// union finds the header union that a reference names; nil if there is none.
func (p *Packet) union(r *program.UnionRef) *program.Union {
	if r.Union != nil {
		return r.Union
	}
	if i, ok := p.element(r.Stack.Next, len(r.Stack.Elements), r.Last, r.Index); ok {
		return r.Stack.Elements[i]
	}
	return nil
}

// element returns the place of a stack's element: the element extracted last or, unless last is
// set, the element whose number is in slot index.
func (p *Packet) element(next, size int, last bool, index uint32) (uint64, bool) {
	if last {
		n := p.f[next]
		return n - 1, n > 0 && n <= uint64(size)
	}
	i := p.f[index]
	if i >= uint64(size) {
		p.Lane.Stats.IndexErrors++
		return 0, false
	}
	return i, true
}

// headersEqual compares as BMv2 does: both headers are valid and all their fields are equal.
func (p *Packet) headersEqual(x, y *program.Header) bool {
	if x == nil || y == nil || x.Type != y.Type || !x.Metadata && (p.f[x.Base] == 0 || p.f[y.Base] == 0) {
		return false
	}
	return wide.Equal(p.f, uint32(x.Base+1), uint32(y.Base+1), x.Type.Slots-1)
}

func (p *Packet) unionsEqual(x, y *program.Union) bool {
	same := false
	if x != nil && y != nil {
		for i := range x.Members {
			if p.f[x.Members[i].Base] == 1 {
				same = p.headersEqual(x.Members[i], y.Members[i])
			}
		}
	}
	return same
}

// setValid makes a header valid; in a union it makes the others invalid.
func (p *Packet) setValid(h *program.Header) {
	if h.Metadata {
		return
	}
	p.f[h.Base] = 1
	for _, s := range h.Siblings {
		p.f[s] = 0
	}
}

// headerBytes returns the header's length on the wire.
func (p *Packet) headerBytes(h *program.Header) int {
	n := h.Type.Bytes
	if h.Type.Variable >= 0 {
		n += int(p.f[h.Base+h.Type.VariableLen]) / 8
	}
	return n
}

// addHeader is setValid() of P4: the fields of an invalid header become zero.
func (p *Packet) addHeader(h *program.Header) {
	if h == nil || h.Metadata || p.f[h.Base] != 0 {
		return
	}
	clear(p.f[h.Base : h.Base+h.Type.Slots])
	p.setValid(h)
	p.length += p.headerBytes(h)
}

// removeHeader is setInvalid() of P4.
func (p *Packet) removeHeader(h *program.Header) {
	if h == nil || h.Metadata || p.f[h.Base] == 0 {
		return
	}
	p.length -= p.headerBytes(h)
	p.f[h.Base] = 0
}

// assignHeader copies a header with its validity.
func (p *Packet) assignHeader(dst, src *program.Header) {
	if dst == nil || src == nil || dst == src {
		return
	}
	if !src.Metadata && p.f[src.Base] == 0 {
		p.f[dst.Base] = 0
		return
	}
	n := src.Type.Slots
	copy(p.f[dst.Base+1:dst.Base+n], p.f[src.Base+1:src.Base+n])
	p.setValid(dst)
}

func (p *Packet) assignUnion(dst, src *program.Union) {
	if dst == src {
		return
	}
	for _, h := range dst.Members {
		p.f[h.Base] = 0
	}
	for i, h := range src.Members {
		if p.f[h.Base] != 0 {
			p.assignHeader(dst.Members[i], h)
		}
	}
}

// shift moves a stack's elements up by n, or down with pop; new elements are invalid.
func (p *Packet) shift(next, base, stride, size int, n uint64, pop bool) {
	n = min(n, uint64(size))
	all := p.f[base : base+size*stride]
	moved := int(n) * stride
	if pop {
		p.f[next] -= min(p.f[next], n)
		copy(all, all[moved:])
		clear(all[len(all)-moved:])
		return
	}
	p.f[next] = min(uint64(size), p.f[next]+n)
	copy(all[moved:], all[:len(all)-moved])
	clear(all[:moved])
}
