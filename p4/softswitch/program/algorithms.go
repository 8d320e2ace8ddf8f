// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Algorithms are BMv2's hash algorithms by name, bit for bit; a test checks each against published
// values.

type HashFunc func(b []byte) uint64

var Algorithms = map[string]HashFunc{
	"crc32":        func(b []byte) uint64 { return uint64(crc32.ChecksumIEEE(b)) },
	"crc32_custom": func(b []byte) uint64 { return uint64(crc32.ChecksumIEEE(b)) }, // default polynomial
	"crc16":        crc16,
	"crc16_custom": crc16,
	"crcCCITT":     crcCCITT,
	"csum16":       csum16,
	"cksum16":      csum16,
	"xor16":        xor16,
	"identity":     identity,
}

var (
	crc16Table    = makeCRC16()
	crcCCITTTable = makeCCITT()
	crc32Slices   = makeCRC32Slices()
)

func makeCRC16() (t [256]uint16) {
	for i := range t {
		c := uint16(i)
		for range 8 {
			if c&1 == 1 {
				c = c>>1 ^ 0xa001
			} else {
				c >>= 1
			}
		}
		t[i] = c
	}
	return t
}

func crc16(b []byte) uint64 {
	var c uint16
	for _, x := range b {
		c = crc16Table[byte(c)^x] ^ c>>8
	}
	return uint64(c)
}

func makeCCITT() (t [256]uint16) {
	for i := range t {
		c := uint16(i) << 8
		for range 8 {
			if c&0x8000 != 0 {
				c = c<<1 ^ 0x1021
			} else {
				c <<= 1
			}
		}
		t[i] = c
	}
	return t
}

func crcCCITT(b []byte) uint64 {
	c := uint16(0xffff)
	for _, x := range b {
		c = crcCCITTTable[byte(c>>8)^x] ^ c<<8
	}
	return uint64(c)
}

// csum16 is the Internet checksum (RFC 1071).
func csum16(b []byte) uint64 {
	var sum, carry uint64
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	if len(b) > 0 {
		var tail [8]byte
		copy(tail[:], b)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(tail[:]), carry)
	}
	sum, carry = bits.Add64(sum, carry, 0)
	sum += carry
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return ^sum & 0xffff
}

func xor16(b []byte) uint64 {
	var v uint16
	for len(b) >= 2 {
		v ^= binary.BigEndian.Uint16(b)
		b = b[2:]
	}
	if len(b) == 1 {
		v ^= uint16(b[0]) << 8
	}
	return uint64(v)
}

func identity(b []byte) uint64 {
	var v uint64
	for _, x := range b[:min(len(b), 8)] {
		v = v<<8 | uint64(x)
	}
	return v
}

func makeCRC32Slices() (t [4][256]uint32) {
	ieee := crc32.MakeTable(crc32.IEEE)
	for i := range 256 {
		c := ieee[i]
		t[0][i] = c
		for k := 1; k < 4; k++ {
			c = ieee[byte(c)] ^ c>>8
			t[k][i] = c
		}
	}
	return t
}

// CRC32Word is crc32 of the four big-endian bytes of v.
func CRC32Word(v uint32) uint32 {
	c := ^bits.ReverseBytes32(v)
	return ^(crc32Slices[3][byte(c)] ^ crc32Slices[2][byte(c>>8)] ^ crc32Slices[1][byte(c>>16)] ^ crc32Slices[0][c>>24])
}
