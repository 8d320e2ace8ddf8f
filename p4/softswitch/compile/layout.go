// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// layout assigns slots to all headers.
func (b *builder) layout() error {
	if err := b.headerTypes(); err != nil {
		return err
	}
	byID := map[int]*program.Header{}
	for i := range b.file.Headers {
		d := &b.file.Headers[i]
		t := b.types[d.Type]
		if t == nil {
			return refuse(fmt.Sprintf("header %q", d.Name), nil, "header type %q is not declared", d.Type)
		}
		h := &program.Header{ID: d.ID, Index: len(b.Prog.Headers), Name: d.Name, Type: t, Base: -1,
			Metadata: d.Metadata}
		if b.headerNamed[d.Name] != nil || byID[d.ID] != nil {
			return refuse(fmt.Sprintf("header %q", d.Name), nil, "name or id %d is declared twice", d.ID)
		}
		if !d.Metadata && t.Bits%8 != 0 {
			return refuse(fmt.Sprintf("header %q", d.Name), nil, "is %d bits long: packet headers are whole bytes",
				t.Bits)
		}
		b.Prog.Headers = append(b.Prog.Headers, h)
		b.headerNamed[d.Name], byID[d.ID] = h, h
	}
	if err := b.unionsAndStacks(byID); err != nil {
		return err
	}
	for _, h := range b.Prog.Headers {
		if h.Base < 0 {
			h.Base = b.takeSlots(h.Type.Slots)
		}
	}
	if b.slots > maxSlots {
		return refuse("program", nil, "its headers take %d slots of 64 bits; at most %d are supported", b.slots,
			maxSlots)
	}
	if b.loops() {
		b.rounds = uint32(b.takeSlots(1))
	}
	b.phv = b.slots
	return nil
}

func (b *builder) takeSlots(n int) int {
	at := b.slots
	b.slots += n
	return at
}

func (b *builder) headerTypes() error {
	total := 0
	for i := range b.file.HeaderTypes {
		d := &b.file.HeaderTypes[i]
		what := fmt.Sprintf("header type %q", d.Name)
		if b.types[d.Name] != nil {
			return refuse(what, nil, "is declared twice")
		}
		t := &program.HeaderType{Name: d.Name, ByName: map[string]int{}, Variable: -1}
		for j, fd := range d.Fields {
			f := program.Field{Name: fd.Name, Width: fd.Width, Signed: fd.Signed, Saturating: fd.Saturating, Slot: -1}
			if _, dup := t.ByName[fd.Name]; dup {
				return refuse(what, nil, "field %q is declared twice", fd.Name)
			}
			if fd.Signed && fd.Width < 2 {
				return refuse(what, nil, "field %q: a signed field has 2 bits or more", fd.Name)
			}
			if fd.Variable {
				if t.Variable >= 0 {
					return refuse(what, nil, "has two variable-length fields")
				}
				t.Variable = j
			} else {
				t.Bits += fd.Width
			}
			t.ByName[fd.Name] = j
			t.Fields = append(t.Fields, f)
		}
		t.Bytes = t.Bits / 8
		if total += t.Bits; t.Bits > program.MaxHeaderBits || total > 64*maxSlots {
			return refuse(what, nil, "is %d bits long; at most %d are supported", t.Bits, program.MaxHeaderBits)
		}
		if t.Variable >= 0 {
			if d.LengthExp != nil {
				return refuse(what, nil,
					"length_exp (P4_14's length expression) is not supported: extract with a length")
			}
			t.MaxVariable = d.MaxLength*8 - t.Bits
			if t.MaxVariable <= 0 || t.MaxVariable > program.MaxHeaderBits || t.Bits%8 != 0 {
				return refuse(what, nil, "variable-length field %q: max_length %d bytes leaves it no room or too much",
					t.Fields[t.Variable].Name, d.MaxLength)
			}
			t.Fields[t.Variable].Width = t.MaxVariable
		}
		b.types[d.Name] = t
	}
	b.markUsed()
	for i := range b.file.HeaderTypes {
		b.types[b.file.HeaderTypes[i].Name].Place()
	}
	return nil
}

func (b *builder) unionsAndStacks(byID map[int]*program.Header) error {
	unionByID := map[int]*program.Union{}
	types := map[string]*bmv2json.HeaderUnionType{}
	for i := range b.file.HeaderUnionTypes {
		types[b.file.HeaderUnionTypes[i].Name] = &b.file.HeaderUnionTypes[i]
	}
	placed := map[*program.Header]bool{}
	claim := func(what string, id int) (*program.Header, error) {
		h := byID[id]
		switch {
		case h == nil:
			return nil, refuse(what, nil, "header id %d is not declared", id)
		case placed[h] || h.Metadata:
			return nil, refuse(what, nil, "header %q belongs to another stack or union, or is metadata", h.Name)
		}
		placed[h] = true
		return h, nil
	}
	for i := range b.file.HeaderUnions {
		d := &b.file.HeaderUnions[i]
		what := fmt.Sprintf("header union %q", d.Name)
		t := types[d.Type]
		if t == nil || len(t.Members) != len(d.HeaderIDs) || b.unions[d.Name] != nil || unionByID[d.ID] != nil {
			return refuse(what, nil,
				"union type %q is not declared, does not fit its members, or name or id is declared twice", d.Type)
		}
		u := &program.Union{Name: d.Name}
		for j, id := range d.HeaderIDs {
			h, err := claim(what, id)
			if err != nil {
				return err
			}
			if h.Type.Name != t.Members[j][1] {
				return refuse(what, nil, "member %q is of type %q, not %q", h.Name, h.Type.Name, t.Members[j][1])
			}
			u.Members, u.Names = append(u.Members, h), append(u.Names, t.Members[j][0])
		}
		b.unions[d.Name], unionByID[d.ID] = u, u
	}
	for i := range b.file.HeaderStacks {
		d := &b.file.HeaderStacks[i]
		what := fmt.Sprintf("header stack %q", d.Name)
		t := b.types[d.Type]
		if t == nil || len(d.HeaderIDs) == 0 || b.stacks[d.Name] != nil {
			return refuse(what, nil, "header type %q is not declared, the stack is empty, or declared twice", d.Type)
		}
		s := &program.Stack{Name: d.Name, Next: b.takeSlots(1), Type: t, Stride: t.Slots}
		for _, id := range d.HeaderIDs {
			h, err := claim(what, id)
			if err != nil {
				return err
			}
			if h.Type != t {
				return refuse(what, nil, "element %q is of type %q, not %q", h.Name, h.Type.Name, t.Name)
			}
			h.Base = b.takeSlots(t.Slots)
			s.Elements = append(s.Elements, h)
		}
		s.Base = s.Elements[0].Base
		b.stacks[d.Name] = s
	}
	for i := range b.file.HeaderUnionStacks {
		d := &b.file.HeaderUnionStacks[i]
		what := fmt.Sprintf("header union stack %q", d.Name)
		if len(d.UnionIDs) == 0 || b.unionStacks[d.Name] != nil {
			return refuse(what, nil, "is empty or declared twice")
		}
		s := &program.UnionStack{Name: d.Name, Next: b.takeSlots(1)}
		for _, id := range d.UnionIDs {
			u := unionByID[id]
			if u == nil || len(u.Members) == 0 || u.Members[0].Base >= 0 {
				return refuse(what, nil, "union id %d is not declared, empty, or in another stack", id)
			}
			start := b.slots
			for _, h := range u.Members {
				h.Base = b.takeSlots(h.Type.Slots)
			}
			s.Stride = b.slots - start
			s.Elements = append(s.Elements, u)
		}
		b.unionStacks[d.Name] = s
	}
	for i := range b.file.HeaderUnions {
		u := b.unions[b.file.HeaderUnions[i].Name]
		for _, h := range u.Members {
			if h.Base < 0 {
				h.Base = b.takeSlots(h.Type.Slots)
			}
		}
		for _, h := range u.Members {
			for _, o := range u.Members {
				if o != h {
					h.Siblings = append(h.Siblings, o.Base)
				}
			}
		}
	}
	return nil
}
