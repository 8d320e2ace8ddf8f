// SPDX-License-Identifier: Apache-2.0

package family

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"

	"github.com/netsketch/netsketch/sketch"
)

// Block is the number of keys that InsertBatch hashes before it accesses the structure's memory:
// enough for accesses to overlap, and few enough for the first-level cache.
const Block = 256

// CheckBatch returns an error unless keys are a whole number of keys of the given size.
func CheckBatch(what string, keys []byte, size int) error {
	if size < 1 || len(keys)%size != 0 {
		return fmt.Errorf("%w: %s: %d bytes are not a whole number of keys of %d bytes", sketch.ErrMismatch, what,
			len(keys), size)
	}
	return nil
}

// Digests fills out with the digests of concatenated keys, and returns their number. The size must
// be above 0.
func Digests[F Hash](seed uint64, keys []byte, size int, out []uint64) int {
	n := min(len(keys)/size, len(out))
	out = out[:n]
	if isP4[F]() || size != 13 && size != 4 {
		for i := range out {
			out[i] = Digest[F](seed, keys[i*size:][:size])
		}
		return n
	}
	rest := out
	if size == 13 { // four keys per iteration, with one bounds check
		for ; len(rest) >= 4; rest, keys = rest[4:], keys[4*13:] {
			k := (*[4 * 13]byte)(keys)
			rest[0] = FastDigest(seed, binary.LittleEndian.Uint64(k[0:]), binary.LittleEndian.Uint64(k[5:]), 13)
			rest[1] = FastDigest(seed, binary.LittleEndian.Uint64(k[13:]), binary.LittleEndian.Uint64(k[18:]), 13)
			rest[2] = FastDigest(seed, binary.LittleEndian.Uint64(k[26:]), binary.LittleEndian.Uint64(k[31:]), 13)
			rest[3] = FastDigest(seed, binary.LittleEndian.Uint64(k[39:]), binary.LittleEndian.Uint64(k[44:]), 13)
		}
	} else {
		for ; len(rest) >= 4; rest, keys = rest[4:], keys[4*4:] {
			k := (*[4 * 4]byte)(keys)
			for i := range 4 {
				v := uint64(binary.LittleEndian.Uint32(k[4*i:]))
				rest[i] = FastDigest(seed, v, v, 4)
			}
		}
	}
	for i := range rest {
		rest[i] = Digest[F](seed, keys[i*size:][:size])
	}
	return n
}

// sums is the reusable memory of SumBatch.
type sums struct {
	// held holds numbers of packets by digest. A word is a digest whose lower bits, which its place
	// implies, are replaced by the number. held fills half of a typical first-level cache, and is 0
	// between batches.
	held    [2048]uint64
	packets [Block]uint64
	ones    [Block]uint32
	// digests and numbers are sums that were displaced from held.
	digests [2 * Block]uint64
	numbers [2 * Block]uint32
}

const (
	numberBits = uint64(len(sums{}.held) - 1)
	// sumsFrom is the number of keys from which on a batch is worth emptying held.
	sumsFrom = 8 * Block
	// sumsPause is the number of blocks that are processed without sums after a block in which few
	// packets had equal digests.
	sumsPause = 16
)

var sumsPool = sync.Pool{New: func() any {
	s := new(sums)
	for i := range s.ones {
		s.ones[i] = 1
	}
	return s
}}

// Blocks passes the packets of a batch to add, block by block and in order, as digests and numbers
// of packets, which are all 1. The keys are concatenated, size bytes each.
func Blocks[F Hash](seed uint64, keys []byte, size int, add func(digests []uint64, numbers []uint32)) {
	s := sumsPool.Get().(*sums)
	for len(keys) > 0 {
		n := Digests[F](seed, keys, size, s.packets[:])
		add(s.packets[:n], s.ones[:n])
		keys = keys[n*size:]
	}
	sumsPool.Put(s)
}

// SumBatch passes the packets of a batch to add, block by block, as digests with their numbers of
// packets, some of which may be 0. In skewed traffic, most packets belong to few flows, so SumBatch
// adds up the packets of equal keys first. It may pass a digest several times and in any order. The
// keys are concatenated, size bytes each.
func SumBatch[F Hash](seed uint64, keys []byte, size int, add func(digests []uint64, numbers []uint32)) {
	s := sumsPool.Get().(*sums)
	most := len(keys) >= sumsFrom*size
	out, pause := 0, 0
	for len(keys) > 0 {
		n := Digests[F](seed, keys, size, s.packets[:])
		keys = keys[n*size:]
		if !most || pause > 0 {
			pause--
			add(s.packets[:n], s.ones[:n])
			continue
		}
		before := out
		out = s.hold(s.packets[:n], out)
		if out-before > n/4*3 {
			pause = sumsPause
		}
		if out > Block {
			out -= Block
			add(s.digests[out:out+Block], s.numbers[out:out+Block])
		}
	}
	if most {
		add(s.digests[:out], s.numbers[:out])
		s.empty(add)
	}
	sumsPool.Put(s) // not deferred: after a panic, held may not be empty
}

// hold adds packets to held. It appends displaced sums to the first out ones, and returns their
// new number.
func (s *sums) hold(packets []uint64, out int) int {
	held, digests, numbers := s.held[:], s.digests[:], s.numbers[:]
	for _, d := range packets { // no branch, because whether digests are equal is not predictable
		old, place := held[d&numberBits], d&^numberBits
		digests[out&(2*Block-1)] = old&^numberBits | d&numberBits
		numbers[out&(2*Block-1)] = uint32(old) & uint32(numberBits)
		sum, leaves := place|1, 1
		if old^place < numberBits { // the digests are equal and the number has room
			sum = old + 1
		}
		if old^place < numberBits {
			leaves = 0
		}
		held[d&numberBits] = sum
		out += leaves
	}
	return out
}

// empty passes all held sums to add, and forgets them.
func (s *sums) empty(add func(digests []uint64, numbers []uint32)) {
	for first := 0; first < len(s.held); first += Block {
		for i, sum := range s.held[first : first+Block] {
			s.digests[i], s.numbers[i] = sum&^numberBits|uint64(first+i), uint32(sum&numberBits)
		}
		add(s.digests[:Block], s.numbers[:Block])
	}
	clear(s.held[:])
}

// FastDigest is the hash of Fast for a key of up to 16 bytes, given as two words.
func FastDigest(seed, first, last, size uint64) uint64 {
	hi, lo := bits.Mul64(first^mixA, last^mixB^seed)
	hi, lo = bits.Mul64(hi^mixB^size, lo^mixA^seed)
	return hi ^ lo
}

// FastValue returns the row's hash for Fast. It is small enough for the compiler to inline.
func FastValue(digest uint64, row int) uint32 {
	return uint32(digest * odd[row&(MaxRows-1)] >> 32)
}

// Columns returns the columns of a digest in rows 0 to len(out)-1, which all have the range r.
func Columns[F Hash](digest uint64, r *Range, out []uint32) {
	if isP4[F]() {
		for row := range out {
			out[row] = Reduce[P4](p4Value[F](digest, row), r)
		}
		return
	}
	n := r.n
	for row := range out {
		out[row] = uint32(digest * odd[row&(MaxRows-1)] >> 32 * n >> 32)
	}
}

// RowColumns returns the columns of many digests in one row. out must be as long as digests.
func RowColumns[F Hash](digests []uint64, row int, r *Range, out []uint32) {
	out = out[:len(digests)]
	if isP4[F]() {
		for i, d := range digests {
			out[i] = Reduce[P4](p4Value[F](d, row), r)
		}
		return
	}
	n, m := r.n, odd[row&(MaxRows-1)]
	for i, d := range digests {
		out[i] = uint32(d * m >> 32 * n >> 32)
	}
}

// RowProducts returns the hashes of many digests in one row of Fast, each multiplied by n: the
// upper 32 bits are the column for the range n. out must be as long as digests.
func RowProducts(digests []uint64, row int, n uint64, out []uint64) {
	out = out[:len(digests)]
	m := odd[row&(MaxRows-1)]
	for i, d := range digests {
		out[i] = d * m >> 32 * n
	}
}
