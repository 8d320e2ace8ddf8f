// SPDX-License-Identifier: Apache-2.0

package fermat

import "math/bits"

// Field is the prime field of the identifiers' sums, a type parameter.
type Field interface{ Mersenne61 | Prime32 }

// Mersenne61 is the field of 2^61-1, for fragments of up to 60 bits: two for an IPv4 5-tuple, five
// for an IPv6 one. They take as much memory as the paper's four and ten fragments of 31 bits, with
// half the additions. It is meant for hosts.
type Mersenne61 uint64

// Prime32 is the field of 4294967291 = 2^32-5, the largest prime of 32 bits. With 31-bit
// fragments, it is the field in the paper (App. D.1); with 32-bit fragments, the field of the P4
// programs: the prime is subtracted from fragments of 4294967291 and more, and decoding tries both
// values.
type Prime32 uint32

const (
	mersenne61 = 1<<61 - 1
	prime32    = 1<<32 - 5
)

// wide is constant for a given E.
func wide[E Field]() bool { return ^E(0)>>31>>1 != 0 }

func prime[E Field]() E {
	if wide[E]() {
		p := uint64(mersenne61)
		return E(p)
	}
	p := uint64(prime32)
	return E(p)
}

// add returns a+b. Both must be below the prime.
func add[E Field](a, b E) E {
	y := uint64(a) + uint64(b)
	// There is no branch, because whether the sum exceeds the prime is not predictable. If it does
	// not, the difference wraps around and is the larger number.
	return E(min(y, y-uint64(prime[E]())))
}

// sub returns a-b.
func sub[E Field](a, b E) E {
	if a >= b {
		return a - b
	}
	return a + (prime[E]() - b)
}

// mul returns a×b. Both primes are just below a power of two, so that folding the high part onto
// the low one replaces Barrett's two multiplications.
func mul[E Field](a, b E) E {
	if wide[E]() {
		return E(mul61(uint64(a), uint64(b)))
	}
	return E(mul32(uint64(a), uint64(b)))
}

// mul61 is mul for Mersenne61.
func mul61(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	sum := lo&mersenne61 + (lo>>61 | hi<<3) // below twice the prime
	return min(sum, sum-mersenne61)
}

// mul32 is mul for Prime32.
func mul32(a, b uint64) uint64 {
	x := a * b
	x = x&(1<<32-1) + 5*(x>>32)
	x = x&(1<<32-1) + 5*(x>>32)
	return min(x, x-prime32)
}

// reduce returns a 64-bit number as an element of the field.
func reduce[E Field](x uint64) E {
	if wide[E]() {
		x = x&mersenne61 + x>>61
		if x >= mersenne61 {
			x -= mersenne61
		}
		return E(x)
	}
	// 2^32 equals 5 in the field: after folding twice, the number is below 2^32+30.
	x = x&(1<<32-1) + 5*(x>>32)
	x = x&(1<<32-1) + 5*(x>>32)
	if x >= prime32 {
		x -= prime32
	}
	return E(x)
}

// invert returns 1/a by Euclid's algorithm; a must not be 0. Counts are small, and so are the
// remainders after the first step, so a few divisions replace a power of 30 or 60 squarings.
func invert[E Field](a E) E {
	p := uint64(prime[E]())
	r0, r1 := p, uint64(a)
	var t0, t1 E = 0, 1
	for r1 > 1 {
		q := r0 / r1
		r0, r1 = r1, r0-q*r1
		t0, t1 = t1, sub(t0, mul(reduce[E](q), t1))
	}
	return t1
}
