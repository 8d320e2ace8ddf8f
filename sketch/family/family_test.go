// SPDX-License-Identifier: Apache-2.0

package family

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// TestP4BitForBit compares the family with the standard library's CRC-32, and its columns with
// plain remainders, for keys of every length in use.
func TestP4BitForBit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		key := make([]byte, []int{4, 13, 16, 37}[r.IntN(4)])
		for i := range key {
			key[i] = byte(r.Uint32())
		}
		d := Digest[P4](0, key)
		n := 1 + r.Uint32N(1<<uint(1+r.IntN(31)))
		cols := NewRange(n)
		for row, odd := range rowhash.Odd {
			h := crc32.ChecksumIEEE(key) * odd
			want := crc32.ChecksumIEEE(binary.BigEndian.AppendUint32(nil, h)) % n
			if got := Column[P4](d, row, &cols); got != want {
				t.Fatalf("key %x, row %d of %d columns: %d, want %d", key, row, n, got, want)
			}
			if row >= len(rowhash.Step) {
				continue
			}
			h += uint32(crc16(key)) * rowhash.Step[row]
			want = crc32.ChecksumIEEE(binary.BigEndian.AppendUint32(nil, h)) % n
			if got := Column[P4Wide](Digest[P4Wide](0, key), row, &cols); got != want {
				t.Fatalf("wide, key %x, row %d of %d columns: %d, want %d", key, row, n, got, want)
			}
		}
	}
}

// crc16 computes CRC-16/ARC bit by bit.
func crc16(b []byte) (crc uint16) {
	for _, v := range b {
		crc ^= uint16(v)
		for range 8 {
			crc = crc>>1 ^ crc&1*0xa001
		}
	}
	return crc
}

// keySets are keys as they occur in networks; the second set has sequential addresses.
var keySets = map[string]func(i int) []byte{
	"random": func(i int) []byte {
		r := rand.New(rand.NewPCG(9, uint64(i)))
		return tuple(r.Uint32(), r.Uint32(), uint16(r.Uint32()))
	},
	"sequential hosts":  func(i int) []byte { return binary.BigEndian.AppendUint32(nil, 0x0a000000+uint32(i)) },
	"one port each":     func(i int) []byte { return tuple(0x0a000001, 0x0a000002, uint16(i)) },
	"hosts by networks": func(i int) []byte { return tuple(0x0a000000+uint32(i%64), uint32(i/64)<<8, 443) },
	"IPv6, sequential": func(i int) []byte {
		b := make([]byte, 37)
		b[0], b[32] = 0x20, 6
		binary.BigEndian.PutUint64(b[24:], uint64(i))
		return b
	},
}

func tuple(src, dst uint32, port uint16) []byte {
	b := binary.BigEndian.AppendUint32(nil, src)
	b = binary.BigEndian.AppendUint32(b, dst)
	b = append(b, 6)
	b = binary.BigEndian.AppendUint16(b, port)
	return binary.BigEndian.AppendUint16(b, 80)
}

// chi returns by how many standard deviations the distribution of columns differs from uniform.
func chi(cols []uint32, width int) float64 {
	n := make([]float64, width)
	for _, c := range cols {
		n[c]++
	}
	want, sum := float64(len(cols))/float64(width), 0.0
	for _, x := range n {
		sum += (x - want) * (x - want) / want
	}
	return (sum - float64(width-1)) / math.Sqrt(2*float64(width-1))
}

// TestUniformAndIndependent: every row's columns are uniform, and so are the pairs of columns of
// two rows. A sound family fails each of the 5 × 57 checks, which allow 6 deviations, with a
// probability of about 10^-8 (a chi-square of many degrees is close to a normal distribution, with
// a somewhat heavier upper tail). The test thus fails by chance for fewer than one in 10,000 sets
// of keys, and the keys are fixed.
func TestUniformAndIndependent(t *testing.T) {
	t.Run("fast", func(t *testing.T) { independent[Fast](t, 12345) })
	t.Run("p4", func(t *testing.T) { independent[P4](t, 0) })
	t.Run("p4-wide", func(t *testing.T) { independent[P4Wide](t, 0) })
}

func independent[F Hash](t *testing.T, seed uint64) {
	const n, width = 60_000, 97
	for name, key := range keySets {
		digests := make([]uint64, n)
		for i := range digests {
			digests[i] = Digest[F](seed, key(i))
		}
		cols := NewRange(width)
		of := make([][]uint32, Rows[F]())
		for row := range of {
			of[row] = make([]uint32, n)
			for i, d := range digests {
				of[row][i] = Column[F](d, row, &cols)
			}
			// CRC spreads sequential keys more evenly than chance would, so there is no lower limit.
			if z := chi(of[row], width); z > 6 {
				t.Errorf("%s: row %d is %.1f deviations from uniform", name, row, z)
			}
			for other := range row {
				joint := make([]uint32, n)
				for i := range joint {
					joint[i] = of[row][i]*width + of[other][i]
				}
				if z := chi(joint, width*width); z > 6 {
					t.Errorf("%s: rows %d and %d are %.1f deviations from independent", name, other, row, z)
				}
			}
		}
	}
}

// TestThreeRowsPeel: 0.7 keys per bucket can be peeled completely, as Fermat's decoding does; of
// 8,400 keys, more than four remain with a probability below 10^-6 (see rowhash).
func TestThreeRowsPeel(t *testing.T) {
	t.Run("fast", func(t *testing.T) { peel[Fast](t) })
	t.Run("p4", func(t *testing.T) { peel[P4](t) })
	t.Run("p4-wide", func(t *testing.T) { peel[P4Wide](t) })
}

func peel[F Hash](t *testing.T) {
	const width, n = 4000, 8400
	cols := NewRange(width)
	for name, key := range keySets {
		for first := 0; first+3 <= Rows[F](); first++ {
			var count, xor [3 * width]int
			where := make([][3]int, n)
			for i := range where {
				d := Digest[F](0, key(i))
				for r := range 3 {
					b := r*width + int(Column[F](d, first+r, &cols))
					where[i][r], count[b], xor[b] = b, count[b]+1, xor[b]^i
				}
			}
			left := n
			for again := true; again; {
				again = false
				for b := range count {
					if count[b] != 1 {
						continue
					}
					again = true
					left--
					i := xor[b]
					for _, w := range where[i] {
						count[w]--
						xor[w] ^= i
					}
				}
			}
			if left > 4 {
				t.Errorf("%s, rows %d to %d: %d of %d keys are left", name, first, first+2, left, n)
			}
		}
	}
}

// TestKnownDigests pins the digests of Fast, so that sketches of different versions can be merged.
func TestKnownDigests(t *testing.T) {
	for key, want := range map[string]uint64{
		"":                                      0xf9a90c678b53b35f,
		"abc":                                   0x843c36a9738855fd,
		"abcd":                                  0x7b384c4036286595,
		"abcdefghijklm":                         0x5587159b9f86e58f,
		"abcdefghijklmnopqrstuvwxyz0123456789A": 0x27a5bbf764229a39,
	} {
		if got := Digest[Fast](7, []byte(key)); got != want {
			t.Errorf("Digest(%q) = %#x, want %#x", key, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, err := range map[string]error{
		"no rows": Check[Fast](0, 0), "negative": Check[Fast](-1, 0), "too many": Check[Fast](9, 0),
		"too many for P4": Check[P4](6, 0), "even seed of P4": Check[P4](3, 2), "long seed of P4": Check[P4](3, 1<<32|1),
		"too many for P4Wide": Check[P4Wide](4, 0), "P4Wide has no seed": Check[P4Wide](3, 1),
	} {
		if !errors.Is(err, sketch.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(Check[Fast](8, 99), Check[P4](5, 0), Check[P4](5, 1<<32-1), Check[P4Wide](3, 0)); err != nil {
		t.Error(err)
	}
}

func TestNoAllocations(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		var key [37]byte
		Digest[Fast](1, key[:])
		Digest[P4](0, key[:13])
		Digest[P4Wide](0, key[:13])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
