// SPDX-License-Identifier: Apache-2.0

package wide

import (
	"math/big"
	"math/bits"
)

var (
	Zero = new(big.Int)
	One  = big.NewInt(1)
)

func Ones(width int) *big.Int {
	v := new(big.Int).Lsh(One, uint(width))
	return v.Sub(v, One)
}

// Of returns the low nw words of v in two's complement.
func Of(v *big.Int, nw int) []uint64 {
	words := make([]uint64, nw)
	m := new(big.Int).And(v, Ones(64*nw)) // a negative number has infinitely many leading ones
	for i := range words {
		words[i] = new(big.Int).And(new(big.Int).Rsh(m, uint(64*i)), Ones(64)).Uint64()
	}
	return words
}

func Mask(width int) uint64 {
	if width >= 64 {
		return ^uint64(0)
	}
	return 1<<width - 1
}

func BigInt(words []uint64) *big.Int {
	v := new(big.Int)
	for i := len(words) - 1; i >= 0; i-- {
		v.Lsh(v, 64)
		v.Or(v, new(big.Int).SetUint64(words[i]))
	}
	return v
}

// Bytes writes width bits as big-endian bytes.
func Bytes(words []uint64, width int) []byte {
	return PutBytes(make([]byte, (width+7)/8), words)
}

// PutBytes fills out with a big-endian number and returns it.
func PutBytes(out []byte, words []uint64) []byte {
	n := len(out)
	for i := range n {
		at := n - 1 - i
		out[at] = byte(words[i/8] >> (8 * (i % 8)))
	}
	return out
}

// Parse reads a big-endian number; ok is false if it does not fit width bits.
func Parse(b []byte, width int) (words []uint64, ok bool) {
	for len(b) > 0 && b[0] == 0 {
		b = b[1:]
	}
	if len(b) > 0 && (len(b)-1)*8+bits.Len8(b[0]) > width {
		return nil, false
	}
	words = make([]uint64, max(1, (width+63)/64))
	for i := range b {
		words[i/8] |= uint64(b[len(b)-1-i]) << (8 * (i % 8))
	}
	return words, true
}

// LessUnsigned compares unsigned numbers of equally many words.
func LessUnsigned(a, b []uint64) bool {
	for i := len(a) - 1; i >= 0; i-- {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// OnesCount returns the number of one bits.
func OnesCount(words []uint64) int {
	n := 0
	for _, w := range words {
		n += bits.OnesCount64(w)
	}
	return n
}
