// SPDX-License-Identifier: Apache-2.0

package family

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"testing"
)

// TestDigests: keys of a batch have the same digests as single keys.
func TestDigests(t *testing.T) {
	t.Run("fast", func(t *testing.T) { digests[Fast](t, 99) })
	t.Run("p4", func(t *testing.T) { digests[P4](t, 0) })
	t.Run("p4-wide", func(t *testing.T) { digests[P4Wide](t, 0) })
}

func digests[F Hash](t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(7, 1))
	for size := 1; size <= 40; size++ {
		for _, n := range []int{0, 1, 3, 4, 5, 11} {
			keys := make([]byte, n*size)
			for i := range keys {
				keys[i] = byte(r.Uint32())
			}
			for _, room := range []int{0, 2, 4, 6, 16} {
				out := make([]uint64, room)
				if got := Digests[F](seed, keys, size, out); got != min(n, room) {
					t.Fatalf("%d digests of %d keys with room for %d", got, n, room)
				}
				for i := range min(n, room) {
					if want := Digest[F](seed, keys[i*size:][:size]); out[i] != want {
						t.Fatalf("key %d of %d with %d bytes: %#x, want %#x", i, n, size, out[i], want)
					}
				}
			}
		}
	}
}

// TestSumBatch: a batch counts the packets of its keys, whether it is short or skewed, has one key
// more often than a sum can count, has no equal keys, or first has one kind of keys and then
// another.
func TestSumBatch(t *testing.T) {
	source := rand.NewPCG(8, 1)
	r := rand.New(source)
	kinds := map[string]func(i int) uint32{
		"skewed":    func(int) uint32 { return uint32(r.ExpFloat64() * 300) },
		"one":       func(int) uint32 { return 5 },
		"different": func(i int) uint32 { return uint32(i) },
		"mixed":     func(i int) uint32 { return uint32(r.IntN(1 + i/4%3000)) },
	}
	for name, key := range kinds {
		for _, n := range []int{0, 1, Block - 1, 8*Block - 1, 8 * Block, 40*Block + 17} {
			t.Run(name, func(t *testing.T) { sumBatch[Fast](t, n, key) })
			t.Run(name+", P4", func(t *testing.T) { sumBatch[P4](t, n, key) })
		}
	}
}

func sumBatch[F Hash](t *testing.T, n int, key func(i int) uint32) {
	var keys []byte
	want, got := map[uint64]int{}, map[uint64]int{}
	for i := range n {
		keys = binary.BigEndian.AppendUint32(keys, key(i))
		want[Digest[F](0, keys[4*i:])]++
	}
	SumBatch[F](0, keys, 4, func(digests []uint64, numbers []uint32) {
		if len(digests) != len(numbers) || len(digests) > Block {
			t.Fatalf("%d digests, %d numbers", len(digests), len(numbers))
		}
		for i, d := range digests {
			got[d] += int(numbers[i])
		}
	})
	maps.DeleteFunc(got, func(_ uint64, n int) bool { return n == 0 })
	if !maps.Equal(got, want) {
		t.Errorf("%d packets of %d digests; expected %d of %d", sum(got), len(got), sum(want), len(want))
	}
}

func sum(numbers map[uint64]int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}
