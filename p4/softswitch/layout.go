// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// A packet's header and metadata fields live in one slice of 64-bit slots. A header is a run of slots: its validity (0 or
// 1), then its fields, each in one slot, or in several, least significant first, when it is wider than 64 bits. The value of a
// field is kept without sign, below 2^width: that is an invariant every instruction maintains. Neighbouring fields that the
// program only carries from parser to deparser share a slot.

// fieldLayout is one field of a header type.
type fieldLayout struct {
	name   string
	width  int // bits; of a variable-length field its greatest
	signed bool
	sat    bool
	slot   int // offset from the header's first slot; -1: shares a slot and cannot be named
	words  int
	used   bool
}

// headerLayout is a header type.
type headerLayout struct {
	name   string
	fields []fieldLayout
	byName map[string]int
	slots  int // with the validity slot
	bytes  int // on the wire, without the variable-length field
	bits   int
	vl     int // index of the variable-length field, or -1
	vlLen  int // offset of the slot with its length in bits
	maxVL  int // its greatest length, bits

	parts  []part  // all slots in wire order; positions count from the end of the variable-length field on from its begin
	pieces []piece // extraction of headers without variable-length field
	emits  []emit  // their deparsing
}

// part is one slot's place on the wire.
type part struct {
	slot  int // offset from the header's first slot
	bit   int
	width int
	vl    bool // the variable-length field, of all its words
}

// piece is how one slot is filled from a header's bytes: the 64 bits at byte off, shifted right, masked. With spill, the field begins
// in the middle of a byte and ends in the ninth.
type piece struct {
	slot  uint32 // offset from the header's first slot
	off   uint32
	shift uint8
	spill uint8 // bits of the first byte to skip, when nine bytes are touched
	mask  uint64
}

// emit adds one slot to the 8-byte window being assembled; flush writes the window to byte off.
type emit struct {
	slot  uint32
	off   uint32
	shift uint8
	right bool
	flush bool
}

type header struct {
	id       int
	index    int
	name     string
	t        *headerLayout
	base     int // validity slot
	metadata bool
	siblings []int // validity slots of the other members of its union
}

type stack struct {
	name   string
	next   int // slot of the index of the first free element
	elems  []*header
	base   int // first element's base
	stride int
	t      *headerLayout
}

type union struct {
	name    string
	members []*header
	names   []string
}

type unionStack struct {
	name   string
	next   int
	elems  []*union
	stride int
}

func (t *headerLayout) field(name string) (*fieldLayout, bool) {
	i, ok := t.byName[name]
	if !ok {
		return nil, false
	}
	return &t.fields[i], true
}

// layout lays out all headers.
func (b *builder) layout() error {
	if err := b.headerTypes(); err != nil {
		return err
	}
	byID := map[int]*header{}
	for i := range b.file.Headers {
		d := &b.file.Headers[i]
		t := b.types[d.Type]
		if t == nil {
			return refuse(fmt.Sprintf("header %q", d.Name), nil, "header type %q is not declared", d.Type)
		}
		h := &header{id: d.ID, index: len(b.headers), name: d.Name, t: t, base: -1, metadata: d.Metadata}
		if b.headerNamed[d.Name] != nil || byID[d.ID] != nil {
			return refuse(fmt.Sprintf("header %q", d.Name), nil, "name or id %d is declared twice", d.ID)
		}
		if !d.Metadata && t.bits%8 != 0 {
			return refuse(fmt.Sprintf("header %q", d.Name), nil, "is %d bits long: packet headers are whole bytes", t.bits)
		}
		b.headers = append(b.headers, h)
		b.headerNamed[d.Name], byID[d.ID] = h, h
	}
	if err := b.unionsAndStacks(byID); err != nil {
		return err
	}
	for _, h := range b.headers {
		if h.base < 0 {
			h.base = b.takeSlots(h.t.slots)
		}
	}
	if b.slots > maxSlots {
		return refuse("program", nil, "its headers take %d slots of 64 bits; at most %d are supported", b.slots, maxSlots)
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
		t := &headerLayout{name: d.Name, byName: map[string]int{}, vl: -1}
		for j, fd := range d.Fields {
			f := fieldLayout{name: fd.Name, width: fd.Width, signed: fd.Signed, sat: fd.Saturating, slot: -1}
			if _, dup := t.byName[fd.Name]; dup {
				return refuse(what, nil, "field %q is declared twice", fd.Name)
			}
			if fd.Signed && fd.Width < 2 {
				return refuse(what, nil, "field %q: a signed field has 2 bits or more", fd.Name)
			}
			if fd.Variable {
				if t.vl >= 0 {
					return refuse(what, nil, "has two variable-length fields")
				}
				t.vl = j
			} else {
				t.bits += fd.Width
			}
			t.byName[fd.Name] = j
			t.fields = append(t.fields, f)
		}
		t.bytes = t.bits / 8
		if total += t.bits; t.bits > maxHeaderBits || total > 64*maxSlots {
			return refuse(what, nil, "is %d bits long; at most %d are supported", t.bits, maxHeaderBits)
		}
		if t.vl >= 0 {
			if d.LengthExp != nil {
				return refuse(what, nil, "length_exp (P4_14's length expression) is not supported: extract with a length")
			}
			t.maxVL = d.MaxLength*8 - t.bits
			if t.maxVL <= 0 || t.maxVL > maxHeaderBits || t.bits%8 != 0 {
				return refuse(what, nil, "variable-length field %q: max_length %d bytes leaves it no room or too much", t.fields[t.vl].name, d.MaxLength)
			}
			t.fields[t.vl].width = t.maxVL
		}
		b.types[d.Name] = t
	}
	b.markUsed()
	for i := range b.file.HeaderTypes {
		b.types[b.file.HeaderTypes[i].Name].place()
	}
	return nil
}

// place gives the fields their slots.
func (t *headerLayout) place() {
	t.slots = 1
	if t.vl >= 0 {
		t.vlLen, t.slots = 1, 2
	}
	bit := 0
	for i := 0; i < len(t.fields); {
		f := &t.fields[i]
		if f.used || f.width > 64 || t.vl >= 0 {
			f.slot, f.words = t.slots, (f.width+63)/64
			t.slots += f.words
			t.wire(f.slot, bit, f.width)
			if i != t.vl {
				bit += f.width
			}
			i++
			continue
		}
		// A run of fields nobody names: one slot for as many as fit.
		run := 0
		for i < len(t.fields) && !t.fields[i].used && t.fields[i].width <= 64 && run+t.fields[i].width <= 64 {
			t.fields[i].words = 0
			run += t.fields[i].width
			i++
		}
		t.wire(t.slots, bit, run)
		t.slots++
		bit += run
	}
	if t.vl >= 0 {
		t.pieces, t.emits = nil, nil
		return
	}
	t.finishEmits()
}

// wire adds the pieces for a field of width bits at bit, in the slots from slot on.
func (t *headerLayout) wire(slot, bit, width int) {
	if t.vl >= 0 && slot == t.fields[t.vl].slot {
		t.parts = append(t.parts, part{slot: slot, bit: bit, width: width, vl: true})
		return
	}
	for word := (width+63)/64 - 1; word >= 0; word-- {
		w := width - 64*word
		if w > 64 {
			w = 64
		}
		// the word's bits are the w bits that end 64*word bits before the field's end
		at := bit + width - 64*word - w
		t.parts = append(t.parts, part{slot: slot + word, bit: at, width: w})
		p := piece{slot: uint32(slot + word), off: uint32(at / 8), mask: maskOf(w)}
		if at%8+w <= 64 {
			p.shift = uint8(64 - at%8 - w)
		} else {
			p.spill, p.shift = uint8(at%8), uint8(64-w)
		}
		t.pieces = append(t.pieces, p)
		t.emitAt(p.slot, at, w)
	}
}

func (t *headerLayout) emitAt(slot uint32, bit, width int) {
	window, local := bit/64, bit%64
	if local+width <= 64 {
		t.emits = append(t.emits, emit{slot: slot, off: uint32(window * 8), shift: uint8(64 - local - width)})
		return
	}
	t.emits = append(t.emits,
		emit{slot: slot, off: uint32(window * 8), shift: uint8(local + width - 64), right: true},
		emit{slot: slot, off: uint32(window*8 + 8), shift: uint8(128 - local - width)})
}

// finishEmits marks the last emit of each window.
func (t *headerLayout) finishEmits() {
	for i := range t.emits {
		if i+1 == len(t.emits) || t.emits[i+1].off != t.emits[i].off {
			t.emits[i].flush = true
		}
	}
}

func maskOf(width int) uint64 {
	if width >= 64 {
		return ^uint64(0)
	}
	return 1<<width - 1
}

func (b *builder) unionsAndStacks(byID map[int]*header) error {
	unionByID := map[int]*union{}
	types := map[string]*bmv2json.HeaderUnionType{}
	for i := range b.file.HeaderUnionTypes {
		types[b.file.HeaderUnionTypes[i].Name] = &b.file.HeaderUnionTypes[i]
	}
	placed := map[*header]bool{}
	claim := func(what string, id int) (*header, error) {
		h := byID[id]
		switch {
		case h == nil:
			return nil, refuse(what, nil, "header id %d is not declared", id)
		case placed[h] || h.metadata:
			return nil, refuse(what, nil, "header %q belongs to another stack or union, or is metadata", h.name)
		}
		placed[h] = true
		return h, nil
	}
	for i := range b.file.HeaderUnions {
		d := &b.file.HeaderUnions[i]
		what := fmt.Sprintf("header union %q", d.Name)
		t := types[d.Type]
		if t == nil || len(t.Members) != len(d.HeaderIDs) || b.unions[d.Name] != nil || unionByID[d.ID] != nil {
			return refuse(what, nil, "union type %q is not declared, does not fit its members, or name or id is declared twice", d.Type)
		}
		u := &union{name: d.Name}
		for j, id := range d.HeaderIDs {
			h, err := claim(what, id)
			if err != nil {
				return err
			}
			if h.t.name != t.Members[j][1] {
				return refuse(what, nil, "member %q is of type %q, not %q", h.name, h.t.name, t.Members[j][1])
			}
			u.members, u.names = append(u.members, h), append(u.names, t.Members[j][0])
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
		s := &stack{name: d.Name, next: b.takeSlots(1), t: t, stride: t.slots}
		for _, id := range d.HeaderIDs {
			h, err := claim(what, id)
			if err != nil {
				return err
			}
			if h.t != t {
				return refuse(what, nil, "element %q is of type %q, not %q", h.name, h.t.name, t.name)
			}
			h.base = b.takeSlots(t.slots)
			s.elems = append(s.elems, h)
		}
		s.base = s.elems[0].base
		b.stacks[d.Name] = s
	}
	for i := range b.file.HeaderUnionStacks {
		d := &b.file.HeaderUnionStacks[i]
		what := fmt.Sprintf("header union stack %q", d.Name)
		if len(d.UnionIDs) == 0 || b.unionStacks[d.Name] != nil {
			return refuse(what, nil, "is empty or declared twice")
		}
		s := &unionStack{name: d.Name, next: b.takeSlots(1)}
		for _, id := range d.UnionIDs {
			u := unionByID[id]
			if u == nil || len(u.members) == 0 || u.members[0].base >= 0 {
				return refuse(what, nil, "union id %d is not declared, empty, or in another stack", id)
			}
			start := b.slots
			for _, h := range u.members {
				h.base = b.takeSlots(h.t.slots)
			}
			s.stride = b.slots - start
			s.elems = append(s.elems, u)
		}
		b.unionStacks[d.Name] = s
	}
	for i := range b.file.HeaderUnions {
		u := b.unions[b.file.HeaderUnions[i].Name]
		for _, h := range u.members {
			if h.base < 0 {
				h.base = b.takeSlots(h.t.slots)
			}
		}
		for _, h := range u.members {
			for _, o := range u.members {
				if o != h {
					h.siblings = append(h.siblings, o.base)
				}
			}
		}
	}
	return nil
}
