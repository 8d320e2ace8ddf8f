// SPDX-License-Identifier: Apache-2.0

package wide

import (
	"math/big"
	"math/bits"
)

// Operands d, a and b are the slots of f that hold the least significant of n words each. A result
// may overwrite its operands unless stated otherwise.

type wideOp func(f []uint64, d, a, b uint32, n int)

var Ring = map[string]wideOp{
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

// wideMul needs d disjoint from a and b.
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

func Not(f []uint64, d, a uint32, n int) {
	for i := range uint32(n) {
		f[d+i] = ^f[a+i]
	}
}

// ShiftLeft needs d disjoint from a.
func ShiftLeft(f []uint64, d, a uint32, amount uint64, n int) {
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

// ShiftRight needs d disjoint from a.
func ShiftRight(f []uint64, d, a uint32, amount uint64, n int, signed bool) {
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

func Equal(f []uint64, a, b uint32, n int) bool {
	for i := range uint32(n) {
		if f[a+i] != f[b+i] {
			return false
		}
	}
	return true
}

func Less(f []uint64, a, b uint32, n int, signed bool) bool {
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

// SignExtend copies the have words of a, whose sign is bit sign, and fills up to total words with
// the sign.
func SignExtend(f []uint64, d, a uint32, have, sign, total int) {
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

// Cut cuts a value off at width bits.
func Cut(f []uint64, d uint32, width int) {
	if width%64 != 0 {
		f[int(d)+width/64] &= Mask(width % 64)
	}
}

// Divide divides unsigned numbers; division by zero is zero. It allocates memory, which
// costs nothing in practice: p4c leaves no division of wide numbers in programs.
func Divide(f []uint64, d, a, b uint32, n int, mod bool) {
	x, y := BigInt(f[a:int(a)+n]), BigInt(f[b:int(b)+n])
	if y.Sign() == 0 {
		clear(f[d : int(d)+n])
		return
	}
	q, r := new(big.Int).QuoRem(x, y, new(big.Int))
	if mod {
		q = r
	}
	copy(f[d:int(d)+n], Of(q, n))
}
