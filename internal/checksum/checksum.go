// SPDX-License-Identifier: Apache-2.0

// Package checksum adds up the 16-bit words of packets, as the Internet checksum does (RFC 1071).
package checksum

import (
	"encoding/binary"
	"math/bits"
)

// Sum returns s plus the words of b in one's complement; an odd last byte is the upper half of a
// word. A checksum is the complement of the sum of bytes in which it is 0. Bytes with a right
// checksum have the sum 0xffff.
func Sum(s uint64, b []byte) uint16 {
	var carry uint64
	for ; len(b) >= 8; b = b[8:] {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), 0)
		s += carry
	}
	s = s>>32 + s&0xffffffff
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
