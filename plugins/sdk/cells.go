// SPDX-License-Identifier: Apache-2.0

// Cells: a packed array read from a device, with typed views.

package sdk

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Cells is one object's cells of one epoch, packed little-endian.
type Cells struct {
	// Object is the full P4Info name.
	Object string
	// Width is the number of bits per packed cell: 8, 16, 32 or 64.
	Width int
	// Packed holds the cells one after the other, Width/8 bytes each.
	Packed []byte
}

// CellsOf packs values of 8, 16, 32 or 64 bits. On little-endian machines the result shares memory
// with values.
func CellsOf[T uint8 | uint16 | uint32 | uint64](object string, values []T) Cells {
	var zero T
	size := int(unsafe.Sizeof(zero))
	c := Cells{Object: object, Width: 8 * size}
	if len(values) == 0 {
		return c
	}
	if nativeLittle {
		c.Packed = unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), size*len(values))
		return c
	}
	c.Packed = make([]byte, 0, size*len(values))
	for _, v := range values {
		for shift := 0; shift < 8*size; shift += 8 {
			c.Packed = append(c.Packed, byte(uint64(v)>>shift))
		}
	}
	return c
}

// Check returns an error if the width is invalid, or if the number of bytes is not a multiple of
// it.
func (c Cells) Check() error {
	switch c.Width {
	case 8, 16, 32, 64:
	default:
		return fmt.Errorf("object %s: cells of %d bits; packed cells have 8, 16, 32 or 64", c.Object, c.Width)
	}
	if len(c.Packed)%(c.Width/8) != 0 {
		return fmt.Errorf("object %s: %d bytes are not a whole number of %d-bit cells", c.Object, len(c.Packed),
			c.Width)
	}
	return nil
}

// Len returns the number of cells.
func (c Cells) Len() int {
	if c.Width < 8 {
		return 0
	}
	return len(c.Packed) / (c.Width / 8)
}

// At returns cell i. It panics if i is not less than Len.
func (c Cells) At(i int) uint64 {
	switch c.Width {
	case 8:
		return uint64(c.Packed[i])
	case 16:
		return uint64(binary.LittleEndian.Uint16(c.Packed[2*i:]))
	case 32:
		return uint64(binary.LittleEndian.Uint32(c.Packed[4*i:]))
	default:
		return binary.LittleEndian.Uint64(c.Packed[8*i:])
	}
}

// Uint8s, Uint16s, Uint32s and Uint64s return all cells. If the width matches, the machine is
// little-endian and the memory is aligned (as in every epoch that the SDK delivers), the result is
// a view that shares memory with Packed; otherwise it is a copy. Wider cells are truncated to the
// width of the result, narrower cells are zero-extended.

// Uint8s returns all cells as bytes.
func (c Cells) Uint8s() []uint8 { return view[uint8](c) }

// Uint16s returns all cells as 16-bit integers.
func (c Cells) Uint16s() []uint16 { return view[uint16](c) }

// Uint32s returns all cells as 32-bit integers.
func (c Cells) Uint32s() []uint32 { return view[uint32](c) }

// Uint64s returns all cells as 64-bit integers.
func (c Cells) Uint64s() []uint64 { return view[uint64](c) }

func view[T uint8 | uint16 | uint32 | uint64](c Cells) []T {
	n := c.Len()
	if n == 0 {
		return nil
	}
	var zero T
	size := unsafe.Sizeof(zero)
	start := unsafe.Pointer(&c.Packed[0])
	if nativeLittle && int(size)*8 == c.Width && uintptr(start)%size == 0 {
		return unsafe.Slice((*T)(start), n)
	}
	out := make([]T, n)
	for i := range out {
		out[i] = T(c.At(i))
	}
	return out
}

// nativeLittle reports whether the machine is little-endian.
var nativeLittle = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
