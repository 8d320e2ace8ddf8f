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
// No row distinguishes two keys with the same h: about n(n-1)/2^33 pairs of n keys. If that is too
// many, as in ChameleMon's encoders, rows use 48 bits of hash: also g = crc16(key), and row i uses
// crc32 over the bytes of h × Odd[i] + g × Step[i]. CRC-16 is v1model's crc16: polynomial 0x8005,
// reflected, initial value 0. The two polynomials have no common factor, so keys with both hashes
// equal differ by a multiple of a polynomial of degree 48: one pair in 2^48, and none that differs
// only within 48 consecutive bits.
//
// The package has no state; everything in it is safe for concurrent use.
package rowhash

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Key returns h, the hash of a key's canonical bytes. Unlike with hash/crc32, b does not escape,
// so that a key on the stack needs no allocation.
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

// Next returns the hash of a key that is followed by the four big-endian bytes of a word; h is the
// hash of the key.
func Next(h, word uint32) uint32 {
	x := bits.ReverseBytes32(word) ^ ^h
	return ^(tables[3][x&0xff] ^ tables[2][x>>8&0xff] ^ tables[1][x>>16&0xff] ^ tables[0][x>>24])
}

// Check returns g, the second hash of a key's canonical bytes.
func Check(b []byte) uint16 {
	var crc uint16
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b) ^ uint64(crc)
		crc = tables16[7][x&0xff] ^ tables16[6][x>>8&0xff] ^ tables16[5][x>>16&0xff] ^ tables16[4][x>>24&0xff] ^
			tables16[3][x>>32&0xff] ^ tables16[2][x>>40&0xff] ^ tables16[1][x>>48&0xff] ^ tables16[0][x>>56]
		b = b[8:]
	}
	if len(b) >= 4 {
		x := binary.LittleEndian.Uint32(b) ^ uint32(crc)
		crc = tables16[3][x&0xff] ^ tables16[2][x>>8&0xff] ^ tables16[1][x>>16&0xff] ^ tables16[0][x>>24]
		b = b[4:]
	}
	for _, v := range b {
		crc = crc>>8 ^ tables16[0][byte(crc)^v]
	}
	return crc
}

// Mix returns crc32 over the big-endian bytes of h × odd, which is the hash of a row if odd is the
// row's constant. For a fixed odd constant, it is a bijection.
func Mix(h, odd uint32) uint32 {
	x := ^bits.ReverseBytes32(h * odd)
	return ^(tables[3][x&0xff] ^ tables[2][x>>8&0xff] ^ tables[1][x>>16&0xff] ^ tables[0][x>>24])
}

// tables[k][b] is the CRC register after byte b and k zero bytes ("slicing by 8").
// Never written after initialization.
var tables = func() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < len(t); k++ {
		for b, v := range t[k-1] {
			t[k][b] = v>>8 ^ t[0][v&0xff]
		}
	}
	return t
}()

// tables16 holds the tables of CRC-16.
var tables16 = func() (t [8][256]uint16) {
	for b := range t[0] {
		v := uint16(b)
		for range 8 {
			v = v>>1 ^ v&1*0xa001
		}
		t[0][b] = v
	}
	for k := 1; k < len(t); k++ {
		for b, v := range t[k-1] {
			t[k][b] = v>>8 ^ t[0][v&0xff]
		}
	}
	return t
}()

// The odd constants, as in p4/programs/include/univmon.p4 and chamelemon.p4.
var (
	// Odd are the constants of a sketch's rows.
	Odd = [...]uint32{0x9e3779b1, 0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f, 0x165667b1}
	// Step are the multipliers of the second hash, for rows that use it.
	Step = [...]uint32{0xff51afd7, 0xed558ccd, 0x1a85ec53}
	// OddWay are the constants of the ways of a heavy-key table.
	OddWay = [...]uint32{0x7feb352d, 0x846ca68b, 0xd6e8feb9, 0xb5297a4d}
)

// OddLevel is the constant of the hash whose leading ones determine a key's sampling level.
const OddLevel uint32 = 0x2545f491
