// SPDX-License-Identifier: Apache-2.0

package rowhash

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"
)

// A family hashes a key to one 32-bit value per row; a column is the value modulo a
// power of two.
type family func(key []byte) [3]uint32

// rows returns the family under test with three of its constants.
func rows(odd [3]uint32) family {
	return func(key []byte) (v [3]uint32) {
		h := Key(key)
		for i := range v {
			v[i] = Mix(h, odd[i])
		}
		return v
	}
}

// The families below look like a cheap way to three hashes, but are not independent. The control
// test shows that the checks detect them.
var (
	// A different prefix per row: by linearity, this is the same CRC XOR a constant.
	prefixes family = func(key []byte) (v [3]uint32) {
		for i := range v {
			v[i] = crc32.ChecksumIEEE(append([]byte{byte(i)}, key...))
		}
		return v
	}
	// A different initial value per row has the same effect.
	seeds family = func(key []byte) (v [3]uint32) {
		for i := range v {
			v[i] = crc32.Update(uint32(i)*0x9e3779b9, crc32.IEEETable, key)
		}
		return v
	}
	// A different polynomial per row: on random keys, the rows are independent pair by pair, but they
	// are linear, and so they fail on sequential keys.
	koopman            = crc32.MakeTable(crc32.Koopman)
	castagnoli         = crc32.MakeTable(crc32.Castagnoli)
	polynomials family = func(key []byte) [3]uint32 {
		return [3]uint32{crc32.ChecksumIEEE(key), crc32.Checksum(key, castagnoli), crc32.Checksum(key, koopman)}
	}
)

// keySets are the kinds of keys that occur in networks, each with n different keys.
var keySets = []struct {
	name string
	gen  func(r *rand.Rand, n int) [][]byte
}{
	{"sequential addresses", func(r *rand.Rand, n int) [][]byte {
		base := r.Uint32()
		return generate(n, func(i int) []byte { return be32(base + uint32(i)) })
	}},
	{"one host in each of many networks", func(r *rand.Rand, n int) [][]byte {
		base := r.Uint32()
		return generate(n, func(i int) []byte { return be32(base + uint32(i)<<8) })
	}},
	{"5-tuples, sequential source ports", func(r *rand.Rand, n int) [][]byte {
		src, dst, port := r.Uint32(), r.Uint32(), r.Uint32()
		return generate(n, func(i int) []byte { return tuple(src, dst, uint16(port)+uint16(i), 80) })
	}},
	{"5-tuples, addresses by ports", func(r *rand.Rand, n int) [][]byte {
		src, dst, port := r.Uint32(), r.Uint32(), r.Uint32()
		return generate(n, func(i int) []byte { return tuple(src+uint32(i%64), dst, uint16(port)+uint16(i/64), 443) })
	}},
	{"random 5-tuples", func(r *rand.Rand, n int) [][]byte {
		return generate(n, func(int) []byte {
			return tuple(r.Uint32(), r.Uint32(), uint16(r.Uint32()),
				uint16(r.Uint32()))
		})
	}},
}

func generate(n int, key func(i int) []byte) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = key(i)
	}
	return keys
}

func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func tuple(src, dst uint32, sport, dport uint16) []byte {
	b := append(be32(src), be32(dst)...)
	b = append(b, 6)
	b = binary.BigEndian.AppendUint16(b, sport)
	return binary.BigEndian.AppendUint16(b, dport)
}

const (
	width = 4096
	// 0.7 flows per bucket; random hashing can peel up to 0.818 with three rows.
	load = width * 3 * 7 / 10
	// A few flows may be inseparable by chance: two flows share all three buckets once in 1,900
	// trials, and three such pairs occur in one trial once in 10^10.
	inseparable = 4
)

// unpeeled returns how many keys remain after repeatedly removing keys that are alone in a bucket,
// as Fermat's decoding does (chamelemon §3.2).
func unpeeled(f family, keys [][]byte) int {
	type bucket struct{ n, xor int }
	buckets := make([]bucket, 3*width)
	where := make([][3]int, len(keys))
	for k, key := range keys {
		for row, v := range f(key) {
			b := row*width + int(v%width)
			where[k][row] = b
			buckets[b].n++
			buckets[b].xor ^= k
		}
	}
	left := len(keys)
	var pure []int
	for b := range buckets {
		pure = append(pure, b)
	}
	for len(pure) > 0 {
		b := pure[len(pure)-1]
		pure = pure[:len(pure)-1]
		if buckets[b].n != 1 {
			continue
		}
		left--
		k := buckets[b].xor
		for _, w := range where[k] {
			buckets[w].n--
			buckets[w].xor ^= k
			pure = append(pure, w)
		}
	}
	return left
}

// excess compares the number of pairs of keys that collide in two rows with the number expected
// from independent rows. It returns the difference in standard deviations, for the worst pair of
// rows.
func excess(f family, keys [][]byte) float64 {
	cols := make([][3]uint32, len(keys))
	for k, key := range keys {
		cols[k] = f(key)
	}
	worst := math.Inf(-1)
	for _, pair := range [][2]int{{0, 1}, {0, 2}, {1, 2}} {
		first := make(map[uint32]int)
		both := make(map[[2]uint32]int)
		for _, c := range cols {
			a, b := c[pair[0]]%width, c[pair[1]]%width
			first[a]++
			both[[2]uint32{a, b}]++
		}
		collisions, double := 0, 0
		for _, n := range first {
			collisions += n * (n - 1) / 2
		}
		for _, n := range both {
			double += n * (n - 1) / 2
		}
		want := float64(collisions) / width
		worst = max(worst, (float64(double)-want)/math.Sqrt(want+1))
	}
	return worst
}

// TestRowsAreIndependent decodes flows as Fermat does. With a sound family, each run leaves more
// than four flows with a probability below 10^-6, and has an excess of six deviations with a
// probability below 10^-8; the seeds are fixed.
func TestRowsAreIndependent(t *testing.T) {
	odd := append(append(Odd[:len(Odd):len(Odd)], OddWay[:]...), OddLevel)
	for first := 0; first+2 < len(odd); first++ {
		f := rows([3]uint32(odd[first : first+3]))
		for _, set := range keySets {
			for trial := range 5 {
				r := rand.New(rand.NewPCG(uint64(first), uint64(trial)))
				keys := set.gen(r, load)
				if left := unpeeled(f, keys); left > inseparable {
					t.Errorf("constants %d to %d, %s, trial %d: %d of %d flows cannot be decoded", first, first+2,
						set.name, trial, left, load)
				}
				if z := excess(f, keys); z > 6 {
					t.Errorf("constants %d to %d, %s, trial %d: %.1f deviations too many double collisions", first,
						first+2, set.name, trial, z)
				}
			}
		}
	}
}

// TestBrokenFamiliesAreCaught is the control: the same checks must fail for hashes that are one
// CRC with different prefixes or initial values and, on sequential keys, for different
// polynomials. If they passed, TestRowsAreIndependent would prove nothing.
func TestBrokenFamiliesAreCaught(t *testing.T) {
	tests := []struct {
		name       string
		f          family
		pairwise   bool // the check of pairs detects it, for every set of keys
		sequential bool // only sequential keys detect it
	}{
		{"prefixes", prefixes, true, false},
		{"seeds", seeds, true, false},
		{"polynomials", polynomials, false, true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			for _, set := range keySets {
				if tc.sequential && set.name != "5-tuples, sequential source ports" &&
					set.name != "5-tuples, addresses by ports" {
					continue
				}
				for trial := range 5 {
					keys := set.gen(rand.New(rand.NewPCG(7, uint64(trial))), load)
					left, z := unpeeled(tc.f, keys), excess(tc.f, keys)
					t.Logf("%s: %d of %d undecoded, %.1f deviations", set.name, left, load, z)
					if left <= inseparable {
						t.Errorf("%s, trial %d: decoded all but %d flows, so the check has no power", set.name, trial,
							left)
					}
					if tc.pairwise && z <= 6 {
						t.Errorf("%s, trial %d: only %.1f deviations, so the check has no power", set.name, trial, z)
					}
				}
			}
		})
	}
}
