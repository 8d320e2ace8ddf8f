// SPDX-License-Identifier: Apache-2.0

package family

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// sameCRC sets the last four bytes of b so that its CRC-32 is sum.
func sameCRC(b []byte, sum uint32) {
	register := ^sum // the register at the end, and then four bytes before the end
	for range 4 {
		for i, v := range crc32.IEEETable {
			if v>>24 == register>>24 {
				register = (register^v)<<8 | uint32(i)
				break
			}
		}
	}
	n := len(b) - 4
	binary.LittleEndian.PutUint32(b[n:], register^^crc32.ChecksumIEEE(b[:n]))
}

// pairs generate two keys that differ as keys in networks do, or in ways against which linear
// hashes are weak.
var pairs = map[string]func(r *rand.Rand) (a, b []byte){
	"same CRC-32": func(r *rand.Rand) (a, b []byte) {
		a, b = tuple(r.Uint32(), r.Uint32(), uint16(r.Uint32())), tuple(r.Uint32(), r.Uint32(), 0)
		sameCRC(b, crc32.ChecksumIEEE(a))
		return a, b
	},
	"same CRC-32, neighbors": func(r *rand.Rand) (a, b []byte) {
		host := r.Uint32() &^ 7
		a, b = tuple(host+r.Uint32N(8), 0x0a000001, uint16(r.Uint32())), tuple(host+r.Uint32N(8), 0x0a000001, 0)
		for b[3] == a[3] {
			b[3] = byte(host + r.Uint32N(8))
		}
		sameCRC(b, crc32.ChecksumIEEE(a))
		return a, b
	},
	"same CRC-32, IPv6": func(r *rand.Rand) (a, b []byte) {
		a, b = make([]byte, 37), make([]byte, 37)
		for i := range a {
			a[i], b[i] = byte(r.Uint32()), byte(r.Uint32())
		}
		sameCRC(b, crc32.ChecksumIEEE(a))
		return a, b
	},
	"a bit": func(r *rand.Rand) (a, b []byte) {
		a, b = tuple(r.Uint32(), r.Uint32(), uint16(r.Uint32())), make([]byte, 13)
		copy(b, a)
		b[r.IntN(13)] ^= 1 << r.IntN(8)
		return a, b
	},
	"the next port": func(r *rand.Rand) (a, b []byte) {
		host, port := r.Uint32(), uint16(r.Uint32())
		return tuple(host, 0x0a000001, port), tuple(host, 0x0a000001, port+1)
	},
	"both ways": func(r *rand.Rand) (a, b []byte) {
		x, y := r.Uint32(), r.Uint32()
		return tuple(x, y, 80), tuple(y, x, 80)
	},
	"hosts and ports exchanged": func(r *rand.Rand) (a, b []byte) {
		x, y := r.Uint32N(256), r.Uint32N(256)
		for x == y {
			y = r.Uint32N(256)
		}
		return tuple(0x0a000000+x, 7, uint16(y)), tuple(0x0a000000+y, 7, uint16(x))
	},
}

// TestWideRows: pairs of keys share columns in one, two and three rows as often as by chance,
// including pairs with the same CRC-32. For a sound family, each of 98 counts exceeds the
// expectation by 6 deviations and 6 pairs with a probability below 10^-8.
func TestWideRows(t *testing.T) {
	const n = 200_000
	for name, pair := range pairs {
		for _, width := range []uint32{64, 97} {
			r, cols := rand.New(rand.NewPCG(5, uint64(width))), NewRange(width)
			var shared [8]float64 // by set of rows
			same := 0
			for range n {
				a, b := pair(r)
				x, y := Digest[P4Wide](0, a), Digest[P4Wide](0, b)
				if strings.HasPrefix(name, "same CRC-32") && Digest[P4](0, a) != Digest[P4](0, b) {
					t.Fatalf("%s: %x and %x have not", name, a, b)
				}
				if x == y {
					same++
					continue
				}
				var rows int
				for row := range 3 {
					if Column[P4Wide](x, row, &cols) == Column[P4Wide](y, row, &cols) {
						rows |= 1 << row
					}
				}
				for set := 1; set < 8; set++ {
					if rows&set == set {
						shared[set]++
					}
				}
			}
			for set := 1; set < 8; set++ {
				number := float64(set&1 + set>>1&1 + set>>2)
				want := n * math.Pow(float64(width), -number)
				if more := shared[set] - want; more > 6*math.Sqrt(want)+6 {
					t.Errorf("%s, %d columns: %.0f of %d pairs share rows %03b, expected are %.0f", name, width,
						shared[set], n, set, want)
				}
			}
			// 3 are expected for pairs with the same CRC-32; more than 20 occur with a probability below
			// 10^-10
			if same > 20 {
				t.Errorf("%s: %d of %d pairs have the same digest", name, same, n)
			}
		}
	}
}

// TestWideIsNotP4: keys that share a column of a row in P4 share one in P4Wide only as often as by
// chance, even if one number of columns divides the other; in P4's own rows, they always do. For a
// sound family, each of the 15 pairs of rows has an excess of 6 deviations with a probability of
// 10^-8.
func TestWideIsNotP4(t *testing.T) {
	const n, counters, buckets = 100_000, 16384, 1024
	r := rand.New(rand.NewPCG(6, 1))
	digests := make([]uint64, n)
	for i := range digests {
		digests[i] = Digest[P4Wide](0, tuple(r.Uint32(), r.Uint32(), uint16(r.Uint32())))
	}
	large, small := NewRange(counters), NewRange(buckets)
	excess := func(column func(d uint64, row int) uint32, row, other int) float64 {
		first, both := make(map[uint32]int), make(map[uint64]int)
		for _, d := range digests {
			c := Column[P4](d, other, &large)
			first[c]++
			both[uint64(c)<<32|uint64(column(d, row))]++
		}
		pairs, shared := 0, 0
		for _, k := range first {
			pairs += k * (k - 1) / 2
		}
		for _, k := range both {
			shared += k * (k - 1) / 2
		}
		want := float64(pairs) / buckets
		return (float64(shared) - want) / math.Sqrt(want)
	}
	for other := range Rows[P4]() {
		for row := range Rows[P4Wide]() {
			if z := excess(func(d uint64, row int) uint32 { return Column[P4Wide](d, row, &small) }, row,
				other); z > 6 {
				t.Errorf("row %d of P4Wide and row %d of P4: %.1f deviations too many shared", row, other, z)
			}
		}
	}
	if z := excess(func(d uint64, row int) uint32 { return Column[P4](d, row, &small) }, 0, 0); z < 1000 {
		t.Errorf("a row of P4 with itself: %.1f deviations, so this shows nothing", z)
	}
}
