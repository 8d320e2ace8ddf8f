// SPDX-License-Identifier: Apache-2.0

package program

import "github.com/netsketch/netsketch/p4/softswitch/wide"

// Field is one field of a header type.
type Field struct {
	Name       string
	Width      int // bits; the greatest width of a variable-length field
	Signed     bool
	Saturating bool
	Slot       int // offset from the header's first slot; -1: shares a slot and cannot be named
	Words      int
	Used       bool
}

// HeaderType is a header type.
type HeaderType struct {
	Name        string
	Fields      []Field
	ByName      map[string]int
	Slots       int // slots, including the validity slot
	Bytes       int // on the wire, without the variable-length field
	Bits        int
	Variable    int // index of the variable-length field, or -1
	VariableLen int // offset of the slot with the field's length in bits
	MaxVariable int // greatest length of the variable-length field, in bits

	// all slots in wire order; after the variable-length field, positions count from the field's
	// beginning
	Parts  []Part
	Pieces []Piece // extraction of headers without variable-length field
	Emits  []Emit  // emits that deparse the header
}

// Part is one slot's place on the wire.
type Part struct {
	Slot     int // offset from the header's first slot
	Bit      int
	Width    int
	Variable bool // emits all words of the variable-length field
}

// Piece is how one slot is filled from a header's bytes: the 64 bits at byte off, shifted right,
// masked. With spill, the field begins in the middle of a byte and ends in the ninth.
type Piece struct {
	Slot  uint32 // offset from the header's first slot
	Off   uint32
	Shift uint8
	Spill uint8 // bits of the first byte to skip, when nine bytes are touched
	Mask  uint64
}

// Emit adds one slot to the 8-byte window being assembled; flush writes the window to byte off.
type Emit struct {
	Slot  uint32
	Off   uint32
	Shift uint8
	Right bool
	Flush bool
}

type Header struct {
	ID       int
	Index    int
	Name     string
	Type     *HeaderType
	Base     int // validity slot
	Metadata bool
	Siblings []int // validity slots of the other members of the header's union
}

type Stack struct {
	Name     string
	Next     int // slot of the index of the first free element
	Elements []*Header
	Base     int // first element's base
	Stride   int
	Type     *HeaderType
}

type Union struct {
	Name    string
	Members []*Header
	Names   []string
}

type UnionStack struct {
	Name     string
	Next     int
	Elements []*Union
	Stride   int
}

func (t *HeaderType) Field(name string) (*Field, bool) {
	i, ok := t.ByName[name]
	if !ok {
		return nil, false
	}
	return &t.Fields[i], true
}

// Place gives the fields their slots.
func (t *HeaderType) Place() {
	t.Slots = 1
	if t.Variable >= 0 {
		t.VariableLen, t.Slots = 1, 2
	}
	bit := 0
	for i := 0; i < len(t.Fields); {
		f := &t.Fields[i]
		if f.Used || f.Width > 64 || t.Variable >= 0 {
			f.Slot, f.Words = t.Slots, (f.Width+63)/64
			t.Slots += f.Words
			t.Wire(f.Slot, bit, f.Width)
			if i != t.Variable {
				bit += f.Width
			}
			i++
			continue
		}
		// A run of unnamed fields: one slot for as many as fit.
		run := 0
		for i < len(t.Fields) && !t.Fields[i].Used && t.Fields[i].Width <= 64 && run+t.Fields[i].Width <= 64 {
			t.Fields[i].Words = 0
			run += t.Fields[i].Width
			i++
		}
		t.Wire(t.Slots, bit, run)
		t.Slots++
		bit += run
	}
	if t.Variable >= 0 {
		t.Pieces, t.Emits = nil, nil
		return
	}
	t.FinishEmits()
}

// Wire adds the pieces for a field of width bits at bit, in the slots from slot on.
func (t *HeaderType) Wire(slot, bit, width int) {
	if t.Variable >= 0 && slot == t.Fields[t.Variable].Slot {
		t.Parts = append(t.Parts, Part{Slot: slot, Bit: bit, Width: width, Variable: true})
		return
	}
	for word := (width+63)/64 - 1; word >= 0; word-- {
		w := width - 64*word
		if w > 64 {
			w = 64
		}
		// the word's bits are the w bits that end 64*word bits before the field's end
		at := bit + width - 64*word - w
		t.Parts = append(t.Parts, Part{Slot: slot + word, Bit: at, Width: w})
		p := Piece{Slot: uint32(slot + word), Off: uint32(at / 8), Mask: wide.Mask(w)}
		if at%8+w <= 64 {
			p.Shift = uint8(64 - at%8 - w)
		} else {
			p.Spill, p.Shift = uint8(at%8), uint8(64-w)
		}
		t.Pieces = append(t.Pieces, p)
		t.emitAt(p.Slot, at, w)
	}
}

func (t *HeaderType) emitAt(slot uint32, bit, width int) {
	window, local := bit/64, bit%64
	if local+width <= 64 {
		t.Emits = append(t.Emits, Emit{Slot: slot, Off: uint32(window * 8), Shift: uint8(64 - local - width)})
		return
	}
	t.Emits = append(t.Emits,
		Emit{Slot: slot, Off: uint32(window * 8), Shift: uint8(local + width - 64), Right: true},
		Emit{Slot: slot, Off: uint32(window*8 + 8), Shift: uint8(128 - local - width)})
}

// FinishEmits marks the last emit of each window.
func (t *HeaderType) FinishEmits() {
	for i := range t.Emits {
		if i+1 == len(t.Emits) || t.Emits[i+1].Off != t.Emits[i].Off {
			t.Emits[i].Flush = true
		}
	}
}
