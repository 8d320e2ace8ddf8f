// SPDX-License-Identifier: Apache-2.0

package p4values

import "fmt"

// HeaderField is one field of a controller header: the metadata of a packet-in or packet-out.
type HeaderField struct {
	ID     uint32
	Name   string
	Width  int  // bits; 0 for a string
	String bool // the type is translated to a string (@p4runtime_translation with sdn_string)
}

// Header is the layout of a controller header: its fields lie one after another, first field first,
// most significant bit first.
type Header struct {
	Object
	Fields []HeaderField
	bits   int
	starts []int // first bit of each field
	byID   map[uint32]int
}

func newHeader(o Object, fields []HeaderField) *Header {
	h := &Header{Object: o, Fields: fields, byID: map[uint32]int{}}
	for i, f := range fields {
		h.starts = append(h.starts, h.bits)
		h.byID[f.ID] = i
		h.bits += f.Width
	}
	return h
}

// Len returns the header's length in bytes.
func (h *Header) Len() int { return Bytes(h.bits) }

// ByID returns the position in Fields of the field with this id, or -1.
func (h *Header) ByID(id uint32) int {
	if i, ok := h.byID[id]; ok {
		return i
	}
	return -1
}

// ByName returns the position in Fields of the field with this name, or -1.
func (h *Header) ByName(name string) int {
	for i, f := range h.Fields {
		if f.Name == name {
			return i
		}
	}
	return -1
}

// Put writes the number in value into field i of a serialized header, which must be zero there. The
// value must fit the field (see [Encode]).
func (h *Header) Put(hdr []byte, i int, value []byte) error {
	f := h.Fields[i]
	c, err := Encode(value, f.Width)
	if err != nil {
		return fmt.Errorf("metadata %q: %w", f.Name, err)
	}
	start, end := h.starts[i], h.starts[i]+f.Width
	if start%8 == 0 && end%8 == 0 {
		copy(hdr[end/8-len(c):end/8], c)
		return nil
	}
	for bit := range len(c) * 8 {
		if c[len(c)-1-bit/8]&(1<<(bit%8)) != 0 {
			at := end - 1 - bit
			hdr[at/8] |= 0x80 >> (at % 8)
		}
	}
	return nil
}

// Get returns field i of a serialized header in canonical form. The result shares memory with hdr
// if the field lies on byte boundaries.
func (h *Header) Get(hdr []byte, i int) []byte {
	start, end := h.starts[i], h.starts[i]+h.Fields[i].Width
	if start%8 == 0 && end%8 == 0 {
		return Canonical(hdr[start/8 : end/8])
	}
	out := make([]byte, Bytes(end-start))
	for bit := range end - start {
		at := end - 1 - bit
		if hdr[at/8]&(0x80>>(at%8)) != 0 {
			out[len(out)-1-bit/8] |= 1 << (bit % 8)
		}
	}
	return Canonical(out)
}
