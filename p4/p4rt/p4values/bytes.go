// SPDX-License-Identifier: Apache-2.0

package p4values

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
)

// Reasons why a byte string is refused.
var (
	// ErrEmpty: a byte string of no bytes is not a number in P4Runtime.
	ErrEmpty = errors.New("empty byte string")
	// ErrRange: the number does not fit the width that P4Info gives it.
	ErrRange = errors.New("out of range")
)

// Canonical returns the number in b in its shortest form: big-endian, without leading zero bytes,
// never empty; zero is one zero byte. The result shares memory with b if possible.
func Canonical(b []byte) []byte {
	for len(b) > 1 && b[0] == 0 {
		b = b[1:]
	}
	if len(b) == 0 {
		return []byte{0}
	}
	return b
}

// Encode checks that b is a number of at most width bits and returns it in canonical form. Leading
// zero bytes are accepted; an empty string ([ErrEmpty]) and a number that does not fit ([ErrRange])
// are errors.
func Encode(b []byte, width int) ([]byte, error) {
	if len(b) == 0 {
		return nil, ErrEmpty
	}
	c := Canonical(b)
	if n := BitLen(c); n > width {
		return nil, fmt.Errorf("%w: 0x%x needs %d bits and there are %d", ErrRange, c, n, width)
	}
	return c, nil
}

// Pad returns the number in b in the full ceil(width/8) bytes, or the error of [Encode].
func Pad(b []byte, width int) ([]byte, error) {
	c, err := Encode(b, width)
	if err != nil {
		return nil, err
	}
	out := make([]byte, Bytes(width))
	copy(out[len(out)-min(len(c), len(out)):], c)
	return out, nil
}

// Bytes returns the number of bytes of a number of width bits.
func Bytes(width int) int { return (width + 7) / 8 }

// BitLen returns the number of significant bits of the number in b; 0 for zero.
func BitLen(b []byte) int {
	for i, v := range b {
		if v != 0 {
			return (len(b)-i-1)*8 + bits.Len8(v)
		}
	}
	return 0
}

// Uint returns v in canonical form.
func Uint(v uint64) []byte {
	n := max((bits.Len64(v)+7)/8, 1)
	b := make([]byte, n)
	for i := n - 1; i >= 0; i-- {
		b[i] = byte(v)
		v >>= 8
	}
	return b
}

// Uint64 reads the number in b, of any length; it fails above 64 bits.
func Uint64(b []byte) (uint64, error) {
	c, err := Encode(b, 64)
	if err != nil {
		return 0, err
	}
	var v uint64
	for _, x := range c {
		v = v<<8 | uint64(x)
	}
	return v, nil
}

// CanonicalSigned returns the two's complement number in b in its shortest form, sign bit included.
func CanonicalSigned(b []byte) []byte {
	if len(b) == 0 {
		return []byte{0}
	}
	for len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
		b = b[1:]
	}
	return b
}

// EncodeSigned checks that b is a two's complement number of at most width bits and returns it in
// canonical form.
func EncodeSigned(b []byte, width int) ([]byte, error) {
	if len(b) == 0 {
		return nil, ErrEmpty
	}
	c := CanonicalSigned(b)
	if n := signedBitLen(c); n > width {
		return nil, fmt.Errorf("%w: 0x%x needs %d bits signed and there are %d", ErrRange, c, n, width)
	}
	return c, nil
}

// PadSigned returns the two's complement number in b in ceil(width/8) bytes whose unused top bits
// are zero, which is how a switch stores it.
func PadSigned(b []byte, width int) ([]byte, error) {
	c, err := EncodeSigned(b, width)
	if err != nil {
		return nil, err
	}
	out := make([]byte, Bytes(width))
	if c[0] >= 0x80 {
		for i := range out {
			out[i] = 0xff
		}
	}
	copy(out[len(out)-min(len(c), len(out)):], c)
	if r := width % 8; r != 0 {
		out[0] &= 1<<r - 1
	}
	return out, nil
}

// FromSignedBits is the inverse of [PadSigned]: it takes the width bits that a switch stores and
// returns the canonical form.
func FromSignedBits(b []byte, width int) []byte {
	out := bytes.Clone(b)
	if len(out) == 0 || width <= 0 {
		return []byte{0}
	}
	if r := width % 8; r != 0 && out[0]&(1<<(r-1)) != 0 {
		out[0] |= ^byte(1<<r - 1)
	}
	return CanonicalSigned(out)
}

// signedBitLen counts the bits of a canonical two's complement number, its sign bit included.
func signedBitLen(c []byte) int {
	first := c[0]
	if first >= 0x80 {
		first = ^first
	}
	return (len(c)-1)*8 + bits.Len8(first) + 1
}

// Mask returns the mask of the first prefix bits of a number of width bits, in full bytes.
func Mask(prefix, width int) []byte {
	out := make([]byte, Bytes(width))
	for bit := width - prefix; bit < width; bit++ {
		out[len(out)-1-bit/8] |= 1 << (bit % 8)
	}
	return out
}

// Ones returns the greatest number of width bits, in full bytes.
func Ones(width int) []byte { return Mask(width, width) }

// And returns the bitwise AND of a and b, aligned at the last byte, in the length of the longer
// one.
func And(a, b []byte) []byte {
	out := make([]byte, max(len(a), len(b)))
	for i := 1; i <= len(out); i++ {
		if i <= len(a) && i <= len(b) {
			out[len(out)-i] = a[len(a)-i] & b[len(b)-i]
		}
	}
	return out
}

// Equal reports whether a and b are the same number, whatever their lengths.
func Equal(a, b []byte) bool { return bytes.Equal(Canonical(a), Canonical(b)) }

// Compare orders numbers of any length.
func Compare(a, b []byte) int {
	a, b = Canonical(a), Canonical(b)
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return bytes.Compare(a, b)
}

// IsZero reports whether b is the number zero.
func IsZero(b []byte) bool { return BitLen(b) == 0 }
