// SPDX-License-Identifier: Apache-2.0

package family

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/netsketch/netsketch/sketch"
)

// Block is the number of keys that InsertBatch hashes before it accesses the structure's memory:
// enough for accesses to overlap, and few enough for the first cache.
const Block = 256

// CheckBatch returns an error unless keys are a whole number of keys of the given size.
func CheckBatch(what string, keys []byte, size int) error {
	if size < 1 || len(keys)%size != 0 {
		return fmt.Errorf("%w: %s: %d bytes are not a whole number of keys of %d bytes", sketch.ErrMismatch, what,
			len(keys), size)
	}
	return nil
}

// Digests is Digest for concatenated keys. It fills out with the digests of the keys and returns
// their number. The size must be above 0.
func Digests[F Hash](seed uint64, keys []byte, size int, out []uint64) int {
	n := min(len(keys)/size, len(out))
	out = out[:n]
	if !isP4[F]() && size >= 8 && size <= 16 {
		seedA, seedB := mixA^seed, mixB^seed
		for i := range out {
			key := keys[i*size:][:size]
			a, b := binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[size-8:])
			hi, lo := bits.Mul64(a^mixA, b^seedB)
			hi, lo = bits.Mul64(hi^mixB^uint64(size), lo^seedA)
			out[i] = hi ^ lo
		}
		return n
	}
	for i := range out {
		out[i] = Digest[F](seed, keys[i*size:][:size])
	}
	return n
}

// FastValue is Value for Fast. It is small enough for the compiler to inline.
func FastValue(digest uint64, row int) uint32 {
	return uint32(digest * odd[row&(MaxRows-1)] >> 32)
}

// Columns is Column for rows 0 to len(out)-1, which all have the range r.
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

// RowColumns is Column for many digests and one row. out must be as long as digests.
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
