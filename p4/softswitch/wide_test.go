// SPDX-License-Identifier: Apache-2.0

package softswitch_test

import (
	"bytes"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// number returns n words: random, or with runs of zeros and ones.
func number(r *rand.Rand, n int) []uint64 {
	words := make([]uint64, n)
	for i := range words {
		words[i] = []uint64{0, ^uint64(0), 1, 1 << 63, r.Uint64(), r.Uint64()}[r.IntN(6)]
	}
	return words
}

func signed(words []uint64) *big.Int {
	v := wide.BigInt(words)
	if words[len(words)-1]>>63 == 1 {
		v.Sub(v, new(big.Int).Lsh(wide.One, uint(64*len(words))))
	}
	return v
}

// TestArithmetic compares every operation with math/big, modulo 2^(64·n).
func TestArithmetic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	reference := map[string]func(x, y *big.Int) *big.Int{
		"+": func(x, y *big.Int) *big.Int { return new(big.Int).Add(x, y) },
		"-": func(x, y *big.Int) *big.Int { return new(big.Int).Sub(x, y) },
		"*": func(x, y *big.Int) *big.Int { return new(big.Int).Mul(x, y) },
		"&": func(x, y *big.Int) *big.Int { return new(big.Int).And(x, y) },
		"|": func(x, y *big.Int) *big.Int { return new(big.Int).Or(x, y) },
		"^": func(x, y *big.Int) *big.Int { return new(big.Int).Xor(x, y) },
	}
	if len(reference) != len(wide.Ring) {
		t.Fatalf("%d operations, %d are compared", len(wide.Ring), len(reference))
	}
	for range 2000 {
		n := 1 + r.IntN(4)
		x, y := number(r, n), number(r, n)
		f := append(append(make([]uint64, n), x...), y...)
		d, a, b := uint32(0), uint32(n), uint32(2*n)
		bx, by := wide.BigInt(x), wide.BigInt(y)
		check := func(what string, want *big.Int) {
			t.Helper()
			if got := wide.BigInt(f[:n]); got.Cmp(wide.BigInt(wide.Of(want, n))) != 0 {
				t.Fatalf("%#x %s %#x, %d words: got %#x, want %#x", bx, what, by, n, got, want)
			}
		}
		for op, want := range reference {
			wide.Ring[op](f, d, a, b, n)
			check(op, want(bx, by))
		}
		wide.Not(f, d, a, n)
		check("~", new(big.Int).Not(bx))
		for _, mod := range []bool{false, true} {
			wide.Divide(f, d, a, b, n, mod)
			switch {
			case by.Sign() == 0:
				check("/", wide.Zero)
			case mod:
				check("%", new(big.Int).Rem(bx, by))
			default:
				check("/", new(big.Int).Quo(bx, by))
			}
		}
		shift := r.Uint64N(uint64(64*n) + 70)
		wide.ShiftLeft(f, d, a, shift, n)
		check("<<", new(big.Int).Lsh(bx, uint(shift)))
		wide.ShiftRight(f, d, a, shift, n, false)
		check(">>", new(big.Int).Rsh(bx, uint(shift)))
		wide.ShiftRight(f, d, a, shift, n, true)
		check(">> signed", new(big.Int).Rsh(signed(x), uint(shift)))
		if wide.Equal(f, a, b, n) != (bx.Cmp(by) == 0) || wide.Less(f, a, b, n, false) != (bx.Cmp(by) < 0) ||
			wide.Less(f, a, b, n, true) != (signed(x).Cmp(signed(y)) < 0) || wide.LessUnsigned(x, y) != (bx.Cmp(by) < 0) {
			t.Fatalf("comparison of %#x and %#x", bx, by)
		}
	}
}

// TestSignExtend extends numbers of any width to more words.
func TestSignExtend(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		have := 1 + r.IntN(3)
		sign := 64*(have-1) + r.IntN(64)
		total := have + r.IntN(3)
		v := new(big.Int).And(wide.BigInt(number(r, have)), wide.Ones(sign+1))
		f := append(make([]uint64, total), wide.Of(v, have)...)
		wide.SignExtend(f, 0, uint32(total), have, sign, total)
		want := new(big.Int).Set(v)
		if v.Bit(sign) == 1 {
			want.Sub(v, new(big.Int).Lsh(wide.One, uint(sign+1)))
		}
		if got := wide.BigInt(f[:total]); got.Cmp(wide.BigInt(wide.Of(want, total))) != 0 {
			t.Fatalf("%#x with sign bit %d to %d words: got %#x, want %#x", v, sign, total, got, want)
		}
		wide.Cut(f, 0, sign+1)
		if got := wide.BigInt(f[:have]); got.Cmp(v) != 0 {
			t.Fatalf("%#x cut to %d bits: %#x", v, sign+1, got)
		}
	}
}

// TestBits writes numbers at any bit of a buffer and reads them back; other bits do not change.
func TestBits(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		width := 1 + r.IntN(200)
		bit := r.IntN(40)
		before := make([]byte, (bit+width+7)/8+1)
		for i := range before {
			before[i] = byte(r.Uint32())
		}
		n := (width + 63) / 64
		v := wide.Of(new(big.Int).And(wide.BigInt(number(r, n)), wide.Ones(width)), n)
		b := bytes.Clone(before)
		wide.Write(b, bit, width, v)
		got := number(r, n+1)
		wide.Read(got, b, bit, width)
		if wide.BigInt(got).Cmp(wide.BigInt(v)) != 0 {
			t.Fatalf("%d bits from bit %d: got %#x, want %#x", width, bit, wide.BigInt(got), wide.BigInt(v))
		}
		old := make([]uint64, n)
		wide.Read(old, before, bit, width)
		wide.Write(b, bit, width, old)
		if !bytes.Equal(b, before) {
			t.Fatalf("%d bits from bit %d: other bits changed", width, bit)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		in    []byte
		width int
		out   []byte // nil if it does not fit
	}{
		{nil, 8, []byte{0}},
		{[]byte{0, 0, 5}, 3, []byte{5}},
		{[]byte{0, 0, 8}, 3, nil},
		{[]byte{1, 0xff}, 9, []byte{1, 0xff}},
		{[]byte{2, 0}, 9, nil},
		{bytes.Repeat([]byte{0xff}, 9), 72, bytes.Repeat([]byte{0xff}, 9)},
		{bytes.Repeat([]byte{0xff}, 9), 71, nil},
	} {
		words, ok := wide.Parse(tc.in, tc.width)
		if ok != (tc.out != nil) || ok && !bytes.Equal(wide.Bytes(words, tc.width), tc.out) {
			t.Errorf("%x in %d bits: %x %v, want %x", tc.in, tc.width, words, ok, tc.out)
		}
	}
}
