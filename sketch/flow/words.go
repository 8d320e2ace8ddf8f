// SPDX-License-Identifier: Apache-2.0

package flow

import "encoding/binary"

// Words returns the number of 32-bit cells in which programs of switches keep a key with these
// fields: one for family << 8 | protocol, one for source port << 16 | destination port if the key
// has a port, and four for each address that it has. An IPv4 address is in the first of its four
// cells; fields that the key does not have are 0.
func (f Fields) Words() int {
	n := 1 + 4*(f&(Src|Dst)).Count()
	if f&(SrcPort|DstPort) != 0 {
		n++
	}
	return n
}

// PutWords writes the fields f of a key into cells, f.Words() of them.
func (k *Key) PutWords(f Fields, cells []uint32) {
	kind := uint32(4 << 8)
	if k.V6 {
		kind = 6 << 8
	}
	if f&Proto != 0 {
		kind |= uint32(k.Proto)
	}
	cells[0], cells = kind, cells[1:]
	if f&(SrcPort|DstPort) != 0 {
		cells[0] = 0
		if f&SrcPort != 0 {
			cells[0] = uint32(k.SrcPort) << 16
		}
		if f&DstPort != 0 {
			cells[0] |= uint32(k.DstPort)
		}
		cells = cells[1:]
	}
	if f&Src != 0 {
		putAddress(cells, &k.Src)
		cells = cells[4:]
	}
	if f&Dst != 0 {
		putAddress(cells, &k.Dst)
	}
}

func putAddress(cells []uint32, a *[16]byte) {
	for i := range 4 {
		cells[i] = binary.BigEndian.Uint32(a[4*i:])
	}
}

// FromWords returns the key with the fields f in cells. It returns false if there are fewer cells
// than f.Words(), or if the family is neither 4 nor 6: a program never writes such cells.
func FromWords(f Fields, cells []uint32) (k Key, ok bool) {
	if len(cells) < f.Words() {
		return k, false
	}
	k.Mask = f
	switch cells[0] >> 8 {
	case 4:
	case 6:
		k.V6 = f&(Src|Dst) != 0 // keys without addresses have no family
	default:
		return k, false
	}
	if f&Proto != 0 {
		k.Proto = uint8(cells[0])
	}
	cells = cells[1:]
	if f&(SrcPort|DstPort) != 0 {
		if f&SrcPort != 0 {
			k.SrcPort = uint16(cells[0] >> 16)
		}
		if f&DstPort != 0 {
			k.DstPort = uint16(cells[0])
		}
		cells = cells[1:]
	}
	if f&Src != 0 {
		k.Src, cells = address(cells), cells[4:]
	}
	if f&Dst != 0 {
		k.Dst = address(cells)
	}
	return k, true
}

func address(cells []uint32) (a [16]byte) {
	for i := range 4 {
		binary.BigEndian.PutUint32(a[4*i:], cells[i])
	}
	return a
}
