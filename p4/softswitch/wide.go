// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"math/big"
	"math/bits"
)

// Arithmetic on numbers of several words: slots d, a, b of f are the least significant of n words each, in two's complement.
// A result may overwrite its operands unless said otherwise.

type wideOp func(f []uint64, d, a, b uint32, n int)

var wideRing = map[string]wideOp{
	"+": func(f []uint64, d, a, b uint32, n int) {
		var carry uint64
		for i := range uint32(n) {
			f[d+i], carry = bits.Add64(f[a+i], f[b+i], carry)
		}
	},
	"-": func(f []uint64, d, a, b uint32, n int) {
		var borrow uint64
		for i := range uint32(n) {
			f[d+i], borrow = bits.Sub64(f[a+i], f[b+i], borrow)
		}
	},
	"*": wideMul,
	"&": func(f []uint64, d, a, b uint32, n int) {
		for i := range uint32(n) {
			f[d+i] = f[a+i] & f[b+i]
		}
	},
	"|": func(f []uint64, d, a, b uint32, n int) {
		for i := range uint32(n) {
			f[d+i] = f[a+i] | f[b+i]
		}
	},
	"^": func(f []uint64, d, a, b uint32, n int) {
		for i := range uint32(n) {
			f[d+i] = f[a+i] ^ f[b+i]
		}
	},
}

// wideMul needs d apart from a and b.
func wideMul(f []uint64, d, a, b uint32, n int) {
	clear(f[d : int(d)+n])
	for i := range uint32(n) {
		var carry uint64
		x := f[a+i]
		for j := uint32(0); i+j < uint32(n); j++ {
			hi, lo := bits.Mul64(x, f[b+j])
			var c uint64
			lo, c = bits.Add64(lo, carry, 0)
			hi += c
			f[d+i+j], c = bits.Add64(f[d+i+j], lo, 0)
			carry = hi + c
		}
	}
}

func wideNot(f []uint64, d, a uint32, n int) {
	for i := range uint32(n) {
		f[d+i] = ^f[a+i]
	}
}

// wideShl needs d apart from a.
func wideShl(f []uint64, d, a uint32, amount uint64, n int) {
	if amount >= uint64(64*n) {
		clear(f[d : int(d)+n])
		return
	}
	word, bit := int(amount/64), amount%64
	for i := n - 1; i >= 0; i-- {
		var v uint64
		if j := i - word; j >= 0 {
			v = f[int(a)+j] << bit
			if bit != 0 && j > 0 {
				v |= f[int(a)+j-1] >> (64 - bit)
			}
		}
		f[int(d)+i] = v
	}
}

// wideShr needs d apart from a.
func wideShr(f []uint64, d, a uint32, amount uint64, n int, signed bool) {
	var fill uint64
	if signed && f[int(a)+n-1]>>63 == 1 {
		fill = ^uint64(0)
	}
	amount = min(amount, uint64(64*n))
	word, bit := int(amount/64), amount%64
	at := func(i int) uint64 {
		if i < n {
			return f[int(a)+i]
		}
		return fill
	}
	for i := range n {
		v := at(i+word) >> bit
		if bit != 0 {
			v |= at(i+word+1) << (64 - bit)
		}
		f[int(d)+i] = v
	}
}

func wideEqual(f []uint64, a, b uint32, n int) bool {
	for i := range uint32(n) {
		if f[a+i] != f[b+i] {
			return false
		}
	}
	return true
}

func wideLess(f []uint64, a, b uint32, n int, signed bool) bool {
	for i := n - 1; i >= 0; i-- {
		x, y := f[int(a)+i], f[int(b)+i]
		if x == y {
			continue
		}
		if signed && i == n-1 {
			return int64(x) < int64(y)
		}
		return x < y
	}
	return false
}

// wideSignExtend copies have words whose sign is bit sign and fills up to total words with the sign.
func wideSignExtend(f []uint64, d, a uint32, have, sign, total int) {
	negative := f[int(a)+sign/64]>>(sign%64)&1 == 1
	for i := range total {
		var v uint64
		if i < have {
			v = f[int(a)+i]
		}
		if negative {
			switch {
			case i > sign/64:
				v = ^uint64(0)
			case i == sign/64 && sign%64 < 63:
				v |= ^uint64(0) << (sign%64 + 1)
			}
		}
		f[int(d)+i] = v
	}
}

// wideMask cuts a value off at width bits.
func wideMask(f []uint64, d uint32, width int) {
	if width%64 != 0 {
		f[int(d)+width/64] &= maskOf(width % 64)
	}
}

// wideDiv divides numbers without sign; division by zero gives zero. It allocates: compilers leave no such division in programs.
func wideDiv(f []uint64, d, a, b uint32, n int, mod bool) {
	x, y := wideBig(f[a:int(a)+n]), wideBig(f[b:int(b)+n])
	if y.Sign() == 0 {
		clear(f[d : int(d)+n])
		return
	}
	q, r := new(big.Int).QuoRem(x, y, new(big.Int))
	if mod {
		q = r
	}
	copy(f[d:int(d)+n], wordsOf(q, n))
}

func wideBig(words []uint64) *big.Int {
	v := new(big.Int)
	for i := len(words) - 1; i >= 0; i-- {
		v.Lsh(v, 64)
		v.Or(v, new(big.Int).SetUint64(words[i]))
	}
	return v
}

// bytesOf writes width bits as big-endian bytes.
func bytesOf(words []uint64, width int) []byte {
	return putWords(make([]byte, (width+7)/8), words)
}

// putWords fills out with a number, big-endian.
func putWords(out []byte, words []uint64) []byte {
	n := len(out)
	for i := range n {
		at := n - 1 - i
		out[at] = byte(words[i/8] >> (8 * (i % 8)))
	}
	return out
}

// wordsFrom reads a big-endian number into n words; ok is false when it does not fit width bits.
func wordsFrom(b []byte, width int) (words []uint64, ok bool) {
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
