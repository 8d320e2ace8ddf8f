// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"math/bits"
)

// Sum returns the sum of the 16-bit words of b modulo 2^16-1, as the Internet checksum (RFC 1071)
// uses it. An odd last byte is left out.
func Sum(b []byte) uint64 {
	// A sum of words in the other byte order is the sum with its bytes exchanged (RFC 1071, section
	// 2), and longer words have the same sum.
	var s, carry uint64
	for ; len(b) >= 32; b = b[32:] {
		s, carry = bits.Add64(s, binary.LittleEndian.Uint64(b), 0)
		s, carry = bits.Add64(s, binary.LittleEndian.Uint64(b[8:]), carry)
		s, carry = bits.Add64(s, binary.LittleEndian.Uint64(b[16:]), carry)
		s, carry = bits.Add64(s, binary.LittleEndian.Uint64(b[24:]), carry)
		s, carry = bits.Add64(s, 0, carry)
		s += carry
	}
	s = s>>32 + s&0xffffffff
	for ; len(b) >= 8; b = b[8:] {
		v := binary.LittleEndian.Uint64(b)
		s += v>>32 + v&0xffffffff
	}
	if len(b) >= 4 {
		s += uint64(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		s += uint64(binary.LittleEndian.Uint16(b))
	}
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint64(bits.ReverseBytes16(uint16(s)))
}

// AddChecksum adds n, below 2^63, to a checksum. Removing bytes that a checksum covers adds their
// sum. Of the two forms of zero, the checksum never becomes never.
func AddChecksum(checksum []byte, n uint64, never uint16) {
	s := (n + uint64(binary.BigEndian.Uint16(checksum))) % 0xffff
	if uint16(s) == never {
		s = ^s
	}
	binary.BigEndian.PutUint16(checksum, uint16(s))
}
