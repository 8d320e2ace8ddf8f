// SPDX-License-Identifier: Apache-2.0

// Package rowhash is the family of hash functions that netsketch's P4 programs use
// for the rows of their sketches, bit for bit.
//
// A key is hashed once, h = crc32(key), over the key's canonical bytes
// (flow.Key.AppendBinary). Row i then uses crc32 over the four big-endian bytes of
// h × Odd[i] modulo 2^32. The multiplication carries, so it is not linear over GF(2)
// as a CRC is; without it every row would be the same hash XOR a constant, and flows
// that collide in one row would collide in all. CRC-32 is the one v1model names
// crc32 and BMv2 computes: polynomial 0x04C11DB7, reflected, initial value and final
// XOR all ones, as in Ethernet and zlib.
//
// Two keys with the same h cannot be told apart by any row: of n keys about
// n(n-1)/2^33 pairs.
//
// The package has no state; everything in it is safe for concurrent use.
package rowhash

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Key returns h, the hash of a key's canonical bytes. Unlike hash/crc32 it leaves b where
// it is, so that a key on the stack costs no allocation.
func Key(b []byte) uint32 {
	crc := ^uint32(0)
	for len(b) >= 8 {
		lo := binary.LittleEndian.Uint32(b) ^ crc
		hi := binary.LittleEndian.Uint32(b[4:])
		crc = tables[7][lo&0xff] ^ tables[6][lo>>8&0xff] ^ tables[5][lo>>16&0xff] ^ tables[4][lo>>24] ^
			tables[3][hi&0xff] ^ tables[2][hi>>8&0xff] ^ tables[1][hi>>16&0xff] ^ tables[0][hi>>24]
		b = b[8:]
	}
	if len(b) >= 4 {
		x := binary.LittleEndian.Uint32(b) ^ crc
		crc = tables[3][x&0xff] ^ tables[2][x>>8&0xff] ^ tables[1][x>>16&0xff] ^ tables[0][x>>24]
		b = b[4:]
	}
	for _, v := range b {
		crc = crc>>8 ^ tables[0][byte(crc)^v]
	}
	return ^crc
}

// Mix returns crc32 over the big-endian bytes of h × odd: the hash of one row when
// odd is that row's constant. For a fixed odd constant it is a bijection.
func Mix(h, odd uint32) uint32 {
	x := ^bits.ReverseBytes32(h * odd)
	return ^(tables[3][x&0xff] ^ tables[2][x>>8&0xff] ^ tables[1][x>>16&0xff] ^ tables[0][x>>24])
}

// tables[k][b] is the CRC register after byte b and k zero bytes ("slicing by 8").
// Never written after initialisation.
var tables = func() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < len(t); k++ {
		for b, v := range t[k-1] {
			t[k][b] = v>>8 ^ t[0][v&0xff]
		}
	}
	return t
}()

// The odd constants, as in p4/programs/include/univmon.p4.
var (
	// Odd are the constants of a sketch's rows.
	Odd = [...]uint32{0x9e3779b1, 0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f, 0x165667b1}
	// OddWay are those of the ways of a heavy-key table.
	OddWay = [...]uint32{0x7feb352d, 0x846ca68b, 0xd6e8feb9, 0xb5297a4d}
)

// OddLevel is the constant of the hash whose leading ones are a key's sampling level.
const OddLevel uint32 = 0x2545f491
