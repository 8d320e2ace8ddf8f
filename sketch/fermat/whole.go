// SPDX-License-Identifier: Apache-2.0

package fermat

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/sketch/family"
)

// words returns a key of 13 or 4 bytes in two words, of which the second has 40 bits.
func words(key []byte) (lo, hi uint64) {
	if len(key) == 13 {
		return binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[5:]) >> 24
	}
	return uint64(binary.LittleEndian.Uint32(key)), 0
}

// insertWhole is insert for keys that Sketch.whole describes.
func (s *Sketch[F, E]) insertWhole(d uint64, key []byte) {
	lo, hi := words(key)
	if s.addWhole(d, lo, hi, 1, false) {
		s.full = true
	}
}

// addWhole adds n packets of a key in two words; n is 1 unless there may be many. It reports
// whether a count stopped at its maximum.
func (s *Sketch[F, E]) addWhole(d, lo, hi uint64, n E, many bool) (full bool) {
	switch s.fragments {
	case 4:
		f := [4]E{E(lo & (1<<31 - 1)), E(lo >> 31 & (1<<31 - 1)), E((lo>>62 | hi<<2) & (1<<31 - 1)), E(hi >> 29)}
		if many {
			for i := range f {
				f[i] = mul(f[i], n)
			}
		}
		a, b, c := s.five(d)
		full = add5(a, n, &f)
		full = add5(b, n, &f) || full
		return add5(c, n, &f) || full
	case 2:
		f0, f1 := E(lo&(1<<60-1)), E(lo>>60|hi<<4)
		if !wide[E]() {
			f0, f1 = E(lo&(1<<31-1)), E(lo>>31)
		}
		if many {
			f0, f1 = mul(f0, n), mul(f1, n)
		}
		a, b, c := s.three(d)
		full = add3(a, n, f0, f1)
		full = add3(b, n, f0, f1) || full
		return add3(c, n, f0, f1) || full
	default:
		f := E(lo)
		if many {
			f = mul(f, n)
		}
		a, b, c := s.two(d)
		full = add2(a, n, f)
		full = add2(b, n, f) || full
		return add2(c, n, f) || full
	}
}

// three returns the buckets of a digest, of a count and two sums each.
func (s *Sketch[F, E]) three(d uint64) (a, b, c *[3]E) {
	n, step, cells := uint64(s.cfg.Width), s.stride, s.cells
	i := s.offset + int(uint64(family.FastValue(d, 0))*n>>32)
	j := s.offset + step + int(uint64(family.FastValue(d, 1))*n>>32)
	k := s.offset + 2*step + int(uint64(family.FastValue(d, 2))*n>>32)
	return (*[3]E)(cells[3*i:]), (*[3]E)(cells[3*j:]), (*[3]E)(cells[3*k:])
}

// two is three for buckets of a count and one sum.
func (s *Sketch[F, E]) two(d uint64) (a, b, c *[2]E) {
	n, step, cells := uint64(s.cfg.Width), s.stride, s.cells
	i := s.offset + int(uint64(family.FastValue(d, 0))*n>>32)
	j := s.offset + step + int(uint64(family.FastValue(d, 1))*n>>32)
	k := s.offset + 2*step + int(uint64(family.FastValue(d, 2))*n>>32)
	return (*[2]E)(cells[2*i:]), (*[2]E)(cells[2*j:]), (*[2]E)(cells[2*k:])
}

// five is three for buckets of a count and four sums.
func (s *Sketch[F, E]) five(d uint64) (a, b, c *[5]E) {
	n, step, cells := uint64(s.cfg.Width), s.stride, s.cells
	i := s.offset + int(uint64(family.FastValue(d, 0))*n>>32)
	j := s.offset + step + int(uint64(family.FastValue(d, 1))*n>>32)
	k := s.offset + 2*step + int(uint64(family.FastValue(d, 2))*n>>32)
	return (*[5]E)(cells[5*i:]), (*[5]E)(cells[5*j:]), (*[5]E)(cells[5*k:])
}

// add3 adds packets and their identifiers to a bucket.
func add3[E Field](b *[3]E, n, f0, f1 E) (full bool) {
	full = addCount(&b[0], n)
	b[1], b[2] = add(b[1], f0), add(b[2], f1)
	return full
}

// addCount adds to a count. full reports that it would pass the maximum, where it stops.
func addCount[E Field](c *E, n E) (full bool) {
	most, sum := ^E(0)>>1, *c+n
	if full = sum > most && *c <= most; full {
		sum = most
	}
	*c = sum
	return full
}

const (
	// numberBits are those of a packet count next to the 40 bits of a key's second word.
	numberBits = 1<<24 - 1
	// sumsFrom is the number of keys from which a batch is worth the memory of sums.
	sumsFrom = 8 * family.Block
)

// insertSums is InsertBatch for keys of 13 or 4 bytes. In skewed traffic most packets
// belong to few flows; their packets are added up first. There are at most numberBits keys.
func (s *Sketch[F, E]) insertSums(keys []byte, size int) {
	var held [1024][2]uint64 // a key in two words, the second with the number of its packets
	var digests [family.Block]uint64
	var left [family.Block][2]uint64
	for len(keys) > 0 {
		n := family.Digests[F](s.cfg.Seed, keys, size, digests[:])
		out := 0
		for i, d := range digests[:n] { // no branch: whether keys are equal is not predictable
			lo, hi := words(keys[i*size:][:size])
			h := &held[d%uint64(len(held))]
			left[out%family.Block] = *h
			other := h[0] ^ lo | h[1]>>24 ^ hi
			sum, leaves := hi<<24|1, 1
			if other == 0 {
				sum = h[1] + 1
			}
			if other == 0 {
				leaves = 0
			}
			h[0], h[1] = lo, sum
			out += leaves
		}
		for i := range left[:out] {
			s.addSum(left[i][0], left[i][1], size)
		}
		keys = keys[n*size:]
	}
	for i := range held {
		if held[i][1]&numberBits > 0 {
			s.addSum(held[i][0], held[i][1], size)
		}
	}
}

// addSum inserts packets of a key in two words, the second with their number.
func (s *Sketch[F, E]) addSum(lo, hi uint64, size int) {
	n := E(hi & numberBits)
	hi >>= 24
	full := false
	switch {
	case !s.whole:
		full = s.addSplit(lo, hi, size, n)
	case size == 13:
		full = s.addWhole(family.FastDigest(s.cfg.Seed, lo, lo>>40|hi<<24, 13), lo, hi, n, true)
	default:
		full = s.addWhole(family.FastDigest(s.cfg.Seed, lo, lo, 4), lo, hi, n, true)
	}
	if full {
		s.full = true
	}
}

// addSplit is addSum for other shapes.
func (s *Sketch[F, E]) addSplit(lo, hi uint64, size int, n E) (full bool) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], lo)
	binary.LittleEndian.PutUint64(b[8:], hi)
	key := b[:size]
	d := family.Digest[F](s.cfg.Seed, key)
	var many [maxFragments]E
	frags := many[:s.fragments]
	s.split(d, key, frags)
	for i, x := range frags {
		frags[i] = mul(x, n)
	}
	for r := range s.cfg.Rows {
		b := s.at(r, family.Column[F](d, r, &s.cols))
		full = addCount(&b[0], n) || full
		b = b[1:]
		for i, x := range frags[:len(b)] {
			b[i] = add(b[i], x)
		}
	}
	return full
}

// add2 is add3 for a bucket of one sum.
func add2[E Field](b *[2]E, n, f E) (full bool) {
	full = addCount(&b[0], n)
	b[1] = add(b[1], f)
	return full
}

// add5 is add3 for a bucket of four sums.
func add5[E Field](b *[5]E, n E, f *[4]E) (full bool) {
	full = addCount(&b[0], n)
	b[1], b[2] = add(b[1], f[0]), add(b[2], f[1])
	b[3], b[4] = add(b[3], f[2]), add(b[4], f[3])
	return full
}
