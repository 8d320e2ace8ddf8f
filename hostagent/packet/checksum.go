// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"math/bits"
)

// Sum returns the sum of the 16-bit words of b modulo 2^16-1, as the Internet checksum (RFC 1071)
// uses it. An odd last byte is left out.
func Sum(b []byte) uint64 {
	var s, carry uint64
	for len(b) >= 8 {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	s, carry = bits.Add64(s, 0, carry)
	s += carry
	s = s>>32 + s&0xffffffff
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	return s
}

// AddChecksum adds n, below 2^48, to a checksum. Removing bytes from what a checksum covers adds
// their sum. Zero has two forms, of which never becomes the other one.
func AddChecksum(checksum []byte, n uint64, never uint16) {
	s := n + uint64(binary.BigEndian.Uint16(checksum))
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	if uint16(s) == never {
		s = ^s
	}
	binary.BigEndian.PutUint16(checksum, uint16(s))
}
