// SPDX-License-Identifier: Apache-2.0

// Package family holds the hash families of the sketches, chosen by type parameter: Fast for
// hosts, and P4 and P4Wide, which equal the hashes of the P4 programs bit for bit (package
// rowhash).
//
// A key is hashed once to a digest; a row's hash is a cheap, non-linear function of the digest, so
// that rows are independent. All families accept keys of any length. The functions are pure and
// safe for concurrent use.
package family

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// Fast is the family for structures in a host: it takes two to five multiplications per key, and
// has a 64-bit digest and a seed.
type Fast [0]struct{}

// P4 is the family of p4/programs: CRC-32 of the key, then CRC-32 of the digest times the row's
// odd constant. A seed is an odd factor of the digest. Keys with equal CRC-32 cannot be
// distinguished.
type P4 [1]struct{}

// P4Wide is P4 with an additional CRC-16 of the key, as in ChameleMon's encoders. Keys cannot be
// distinguished if both hashes are equal. The lower 32 bits of a digest are the digest of P4.
type P4Wide [2]struct{}

// Hash is a hash family, for use as a type parameter. The set is closed, so that the
// compiler resolves and inlines every call and no key escapes to the heap.
type Hash interface{ Fast | P4 | P4Wide }

// MaxRows is the largest number of rows of any family.
const MaxRows = 8

// isP4 and isWide are constants for a given F.
func isP4[F Hash]() bool {
	var f F
	return len(f) > 0
}

func isWide[F Hash]() bool {
	var f F
	return len(f) == len(P4Wide{})
}

// ID identifies the family in serialized sketches.
func ID[F Hash]() uint8 {
	var f F
	return uint8(1 + len(f))
}

// Name returns "fast", "p4" or "p4-wide".
func Name[F Hash]() string {
	var f F
	return [...]string{"fast", "p4", "p4-wide"}[len(f)]
}

// Rows returns the number of independent rows of the family.
func Rows[F Hash]() int {
	switch {
	case isWide[F]():
		return len(rowhash.Step)
	case isP4[F]():
		return len(rowhash.Odd)
	}
	return MaxRows
}

// Check returns an error if the family does not have this number of rows or this seed.
func Check[F Hash](rows int, seed uint64) error {
	if rows < 1 || rows > Rows[F]() {
		return fmt.Errorf("%w: rows: %d; hash family %s has 1 to %d", sketch.ErrConfig, rows, Name[F](), Rows[F]())
	}
	switch {
	case seed == 0 || !isP4[F]():
	case isWide[F]():
		return fmt.Errorf("%w: seed: %d; hash family %s has no seed; expected 0", sketch.ErrConfig, seed, Name[F]())
	case seed%2 == 0 || seed > math.MaxUint32:
		return fmt.Errorf("%w: seed: %d; hash family %s has odd seeds of 32 bits, and 0 for none", sketch.ErrConfig, seed,
			Name[F]())
	}
	return nil
}

// Constants of Fast: bits from the fractional parts of square roots of primes, made odd.
const (
	mixA uint64 = 0x6a09e667f3bcc909
	mixB uint64 = 0xbb67ae8584caa73b
)

// odd are the multipliers of Fast's rows. Never written.
var odd = [MaxRows]uint64{
	0x9e3779b97f4a7c15, 0xd1342543de82ef95, 0xaef17502108ef2d9, 0xf1357aea2e62a9c5,
	0xda942042e4dd58b5, 0xc2b2ae3d27d4eb4f, 0x8ebc6af09c88c6e3, 0xe7037ed1a0b428db,
}

// Digest hashes a key, of any length. The seed of P4 is a factor of the key's hash, as in
// LightGuardian's program; 0 and 1 are the same.
func Digest[F Hash](seed uint64, key []byte) uint64 {
	if isWide[F]() {
		return uint64(rowhash.Key(key)) | uint64(rowhash.Check(key))<<32
	}
	if isP4[F]() {
		return uint64(rowhash.Key(key) * max(uint32(seed), 1))
	}
	n := len(key)
	var a, b uint64
	switch {
	case n > 16:
		return long(seed, key)
	case n >= 8:
		a, b = binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[n-8:])
	case n >= 4:
		a, b = uint64(binary.LittleEndian.Uint32(key)), uint64(binary.LittleEndian.Uint32(key[n-4:]))
	default:
		for i, v := range key {
			a |= uint64(v) << (8 * i)
		}
	}
	return FastDigest(seed, a, b, uint64(n))
}

// long hashes keys of more than 16 bytes.
func long(seed uint64, key []byte) uint64 {
	n, acc, b := len(key), seed, key
	for ; len(b) > 16; b = b[16:] {
		hi, lo := bits.Mul64(binary.LittleEndian.Uint64(b)^mixA, binary.LittleEndian.Uint64(b[8:])^acc^mixB)
		acc = hi ^ lo
	}
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(key[n-16:])^mixB, binary.LittleEndian.Uint64(key[n-8:])^acc^mixA)
	hi, lo = bits.Mul64(hi^mixB^uint64(n), lo^mixA^seed)
	return hi ^ lo
}

// Value returns the 32-bit hash of a row, which must be less than Rows.
func Value[F Hash](digest uint64, row int) uint32 {
	if isP4[F]() {
		return p4Value[F](digest, row)
	}
	return uint32(digest * odd[row&(MaxRows-1)] >> 32)
}

// p4Value is Value for the P4 programs' families.
func p4Value[F Hash](digest uint64, row int) uint32 {
	if isWide[F]() {
		return rowhash.Mix(uint32(digest)*rowhash.Odd[row]+uint32(digest>>32)*rowhash.Step[row], 1)
	}
	return rowhash.Mix(uint32(digest), rowhash.Odd[row])
}

// Range reduces row hashes to columns 0 to n-1 in the way of each family: Fast takes the high word
// of value × n, the others take the remainder (as v1model's hash does with a maximum).
type Range struct {
	n     uint64
	magic uint64
}

// NewRange returns the range of n columns; n must be at least 1.
func NewRange(n uint32) Range {
	return Range{n: uint64(n), magic: math.MaxUint64/uint64(max(n, 1)) + 1}
}

// Len returns the number of columns.
func (r *Range) Len() uint32 { return uint32(r.n) }

// Column returns the column of a digest in a row.
func Column[F Hash](digest uint64, row int, r *Range) uint32 {
	return Reduce[F](Value[F](digest, row), r)
}

// Reduce returns the column for a row hash.
func Reduce[F Hash](value uint32, r *Range) uint32 {
	if isP4[F]() {
		if r.n == 1 {
			return 0
		}
		// Computes the remainder without a division, exactly for 32-bit operands (Lemire, Kaser, Kurz
		// 2019).
		hi, _ := bits.Mul64(r.magic*uint64(value), r.n)
		return uint32(hi)
	}
	return uint32(uint64(value) * r.n >> 32)
}

// Fingerprint returns bits of a digest that are independent of the rows.
func Fingerprint[F Hash](digest uint64) uint32 {
	if isP4[F]() {
		return rowhash.Mix(uint32(digest), rowhash.OddWay[0])
	}
	return uint32((digest ^ digest>>32) * mixA >> 32)
}
