// SPDX-License-Identifier: Apache-2.0

package fermat

import (
	"encoding/binary"
	"unsafe"

	"github.com/netsketch/netsketch/sketch/family"
)

// words returns a key of 13 or 4 bytes as two words; the second one has 40 bits.
func words(key []byte) (lo, hi uint64) {
	if len(key) == 13 {
		return binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[5:]) >> 24
	}
	return uint64(binary.LittleEndian.Uint32(key)), 0
}

// insertWhole inserts keys for which Sketch.whole is set.
func (s *Sketch[F, E]) insertWhole(key []byte) {
	full := false
	if len(key) == 13 {
		lo, last := binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[5:])
		d, hi := family.FastDigest(s.cfg.Seed, lo, last, 13), last>>24
		if wide[E]() {
			full = s.addTwo(d, 1, E(lo&(1<<60-1)), E(lo>>60|hi<<4))
		} else {
			f := fourth(lo, hi)
			full = s.addFour(d, 1, f[0]|f[1]<<32, f[2]|f[3]<<32)
		}
	} else {
		x := uint64(binary.LittleEndian.Uint32(key))
		d := family.FastDigest(s.cfg.Seed, x, x, 4)
		if wide[E]() {
			full = s.addOne(d, 1, E(x))
		} else {
			full = s.addTwo(d, 1, E(x&(1<<31-1)), E(x>>31))
		}
	}
	if full {
		s.full = true
	}
}

// fourth returns the four 31-bit fragments of a 13-byte key given as two words.
func fourth(lo, hi uint64) [4]uint64 {
	const m = 1<<31 - 1
	return [4]uint64{lo & m, lo >> 31 & m, (lo>>62 | hi<<2) & m, hi >> 29}
}

// addOne adds n packets with one fragment to the buckets of a digest; addTwo does so for two
// fragments, and addFour for four. They report whether a count stopped at its maximum. Each is one
// function without calls.
func (s *Sketch[F, E]) addOne(d uint64, n, f E) (full bool) {
	w, step, cells := uint64(s.cfg.Width), s.stride, s.cells
	i := 2 * (s.offset + int(uint64(family.FastValue(d, 0))*w>>32))
	j := 2 * (s.offset + step + int(uint64(family.FastValue(d, 1))*w>>32))
	k := 2 * (s.offset + 2*step + int(uint64(family.FastValue(d, 2))*w>>32))
	a, b, c := (*[2]E)(cells[i:i+2:i+2]), (*[2]E)(cells[j:j+2:j+2]), (*[2]E)(cells[k:k+2:k+2])
	a[1], b[1], c[1] = add(a[1], f), add(b[1], f), add(c[1], f)
	full = addCount(&a[0], n)
	full = addCount(&b[0], n) || full
	return addCount(&c[0], n) || full
}

func (s *Sketch[F, E]) addTwo(d uint64, n, f0, f1 E) (full bool) {
	w, step, cells := uint64(s.cfg.Width), s.stride, s.cells
	i := 3 * (s.offset + int(uint64(family.FastValue(d, 0))*w>>32))
	j := 3 * (s.offset + step + int(uint64(family.FastValue(d, 1))*w>>32))
	k := 3 * (s.offset + 2*step + int(uint64(family.FastValue(d, 2))*w>>32))
	a, b, c := (*[3]E)(cells[i:i+3:i+3]), (*[3]E)(cells[j:j+3:j+3]), (*[3]E)(cells[k:k+3:k+3])
	a[1], b[1], c[1] = add(a[1], f0), add(b[1], f0), add(c[1], f0)
	a[2], b[2], c[2] = add(a[2], f1), add(b[2], f1), add(c[2], f1)
	full = addCount(&a[0], n)
	full = addCount(&b[0], n) || full
	return addCount(&c[0], n) || full
}

// addFour takes the four fragments as two words with two fragments each.
func (s *Sketch[F, E]) addFour(d uint64, n E, low, high uint64) (full bool) {
	w, step, cells := uint64(s.cfg.Width), s.stride, s.cells
	i := 5 * (s.offset + int(uint64(family.FastValue(d, 0))*w>>32))
	j := 5 * (s.offset + step + int(uint64(family.FastValue(d, 1))*w>>32))
	k := 5 * (s.offset + 2*step + int(uint64(family.FastValue(d, 2))*w>>32))
	a, b, c := (*[5]E)(cells[i:i+5:i+5]), (*[5]E)(cells[j:j+5:j+5]), (*[5]E)(cells[k:k+5:k+5])
	addSums((*uint32)(unsafe.Pointer(&a[1])), (*uint32)(unsafe.Pointer(&b[1])), (*uint32)(unsafe.Pointer(&c[1])),
		low, high)
	full = addCount(&a[0], n)
	full = addCount(&b[0], n) || full
	return addCount(&c[0], n) || full
}

// addSumsGo adds four fragments, each below the prime and two per word, to the four sums that
// begin at a, at b and at c.
func addSumsGo(a, b, c *uint32, low, high uint64) {
	for _, first := range []*uint32{a, b, c} {
		sums := (*[4]Prime32)(unsafe.Pointer(first))
		sums[0], sums[1] = add(sums[0], Prime32(low)), add(sums[1], Prime32(low>>32))
		sums[2], sums[3] = add(sums[2], Prime32(high)), add(sums[3], Prime32(high>>32))
	}
}

// addCount adds n to a count, which stops at its maximum. full reports that it would have exceeded
// the maximum.
func addCount[E Field](c *E, n E) (full bool) {
	most, sum := ^E(0)>>1, *c+n
	if full = sum > most && *c <= most; full {
		sum = most
	}
	*c = sum
	return full
}

const (
	// numberBits masks a packet count next to the 40 bits of a key's second word.
	numberBits = 1<<24 - 1
	// sumsFrom is the number of keys from which on a batch is worth the memory of sums.
	sumsFrom = 8 * family.Block
)

// insertSums does the work of InsertBatch for keys of 13 or 4 bytes. In skewed traffic, most
// packets belong to few flows, so their packets are added up first. There must be at most
// numberBits keys.
func (s *Sketch[F, E]) insertSums(keys []byte, size int) {
	var held [1024][2]uint64 // keys in two words; the second word also holds the number of packets
	var digests [family.Block]uint64
	var left [family.Block][2]uint64
	for len(keys) > 0 {
		n := family.Digests[F](s.cfg.Seed, keys, size, digests[:])
		out := 0
		for i, d := range digests[:n] { // no branch, because whether keys are equal is not predictable
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

// addSum inserts packets of a key in two words; the second word also holds the number of packets.
func (s *Sketch[F, E]) addSum(lo, hi uint64, size int) {
	n := E(hi & numberBits)
	hi >>= 24
	full := false
	switch {
	case !s.whole:
		full = s.addSplit(lo, hi, size, n)
	case size == 13 && wide[E]():
		d := family.FastDigest(s.cfg.Seed, lo, lo>>40|hi<<24, 13)
		full = s.addTwo(d, n, E(mul61(lo&(1<<60-1), uint64(n))), E(mul61(lo>>60|hi<<4, uint64(n))))
	case size == 13:
		d, f := family.FastDigest(s.cfg.Seed, lo, lo>>40|hi<<24, 13), fourth(lo, hi)
		full = s.addFour(d, n, mul32(f[0], uint64(n))|mul32(f[1], uint64(n))<<32,
			mul32(f[2], uint64(n))|mul32(f[3], uint64(n))<<32)
	case wide[E]():
		full = s.addOne(family.FastDigest(s.cfg.Seed, lo, lo, 4), n, E(mul61(lo, uint64(n))))
	default:
		full = s.addTwo(family.FastDigest(s.cfg.Seed, lo, lo, 4), n, E(mul32(lo&(1<<31-1), uint64(n))),
			E(mul32(lo>>31, uint64(n))))
	}
	if full {
		s.full = true
	}
}

// addSplit does the work of addSum for other shapes.
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
