// SPDX-License-Identifier: Apache-2.0

package wide

// ReadBits returns width bits (at most 64) of b from bit on; b is long enough.
func ReadBits(b []byte, bit, width int) uint64 {
	var v uint64
	for width > 0 {
		n := min(8-bit%8, width)
		v = v<<n | uint64(b[bit/8]>>(8-bit%8-n))&(1<<n-1)
		bit += n
		width -= n
	}
	return v
}

// WriteBits stores the low width bits of v (at most 64) in b from bit on; other bits are unchanged.
func WriteBits(b []byte, bit, width int, v uint64) {
	for width > 0 {
		n := min(8-bit%8, width)
		shift := 8 - bit%8 - n
		mask := byte(1<<n-1) << shift
		b[bit/8] = b[bit/8]&^mask | byte(v>>(width-n))<<shift&mask
		bit += n
		width -= n
	}
}

// Read reads width bits from bit on into words, least significant first, and clears the remaining
// words.
func Read(words []uint64, b []byte, bit, width int) {
	for i := range words {
		switch left := width - 64*i; {
		case left <= 0:
			words[i] = 0
		case left < 64:
			words[i] = ReadBits(b, bit, left)
		default:
			words[i] = ReadBits(b, bit+left-64, 64)
		}
	}
}

// Write is the reverse of Read.
func Write(b []byte, bit, width int, words []uint64) {
	for i := range words {
		switch left := width - 64*i; {
		case left <= 0:
		case left < 64:
			WriteBits(b, bit, left, words[i])
		default:
			WriteBits(b, bit+left-64, 64, words[i])
		}
	}
}
