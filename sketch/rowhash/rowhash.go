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
	"hash/crc32"
	"math/bits"
)

// Key returns h, the hash of a key's canonical bytes.
func Key(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// Mix returns crc32 over the big-endian bytes of h × odd: the hash of one row when
// odd is that row's constant. For a fixed odd constant it is a bijection.
func Mix(h, odd uint32) uint32 {
	x := ^bits.ReverseBytes32(h * odd)
	return ^(tables[3][x&0xff] ^ tables[2][x>>8&0xff] ^ tables[1][x>>16&0xff] ^ tables[0][x>>24])
}

// tables[k][b] is the CRC register after byte b and k zero bytes ("slicing by 4").
// Never written after initialisation.
var tables = func() (t [4][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < len(t); k++ {
		for b, v := range t[k-1] {
			t[k][b] = v>>8 ^ t[0][v&0xff]
		}
	}
	return t
}()

// Odd are the constants of the rows.
var Odd = [...]uint32{0x9e3779b1, 0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f, 0x165667b1}
