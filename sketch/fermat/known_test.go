// SPDX-License-Identifier: Apache-2.0

package fermat

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/sketch/family"
)

// columnsOf returns the columns of a key's buckets.
func columnsOf[F family.Hash, E Field](s *Sketch[F, E], key []byte) (at [3]uint32) {
	family.Columns[F](family.Digest[F](s.cfg.Seed, key), &s.cols, at[:])
	return at
}

func randomKey(r *rand.Rand, size int) []byte {
	key := make([]byte, size)
	for i := range key {
		key[i] = byte(r.Uint32())
	}
	return key
}

// twins finds two keys that share all buckets.
func twins[F family.Hash, E Field](r *rand.Rand, s *Sketch[F, E]) (a, b []byte) {
	seen := make(map[[3]uint32][]byte)
	for {
		key := randomKey(r, s.cfg.KeyBytes)
		at := columnsOf(s, key)
		if other, ok := seen[at]; ok {
			return other, key
		}
		seen[at] = key
	}
}

func TestDecodeWithKeys(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) {
		withKeys[family.P4Wide, Prime32](t, Config{Width: 61, KeyBytes: 13, FragmentBits: 32})
	})
	t.Run("IPv6", func(t *testing.T) {
		withKeys[family.P4Wide, Prime32](t, Config{Width: 61, KeyBytes: 37, FragmentBits: 32})
	})
	t.Run("host", func(t *testing.T) { withKeys[family.Fast, Mersenne61](t, Config{Width: 61, KeyBytes: 13}) })
}

func withKeys[F family.Hash, E Field](t *testing.T, c Config) {
	r := rand.New(rand.NewPCG(1, uint64(c.KeyBytes)))
	for _, counts := range [][2]int64{{1, 1}, {25, 1}, {1, 25}, {700, 699}, {100_000, 3}} {
		t.Run(fmt.Sprint(counts), func(t *testing.T) {
			s := build[F, E](t, c)
			a, b := twins(r, s)
			all := map[string]int64{string(a): counts[0], string(b): counts[1], string(randomKey(r, c.KeyBytes)): -4}
			for range 40 {
				all[string(randomKey(r, c.KeyBytes))] = 1 + r.Int64N(50)
			}
			fill(t, s, all, 1)
			stranger := randomKey(r, c.KeyBytes)
			for name, known := range map[string][][]byte{"first": {stranger, a}, "second": {b, stranger},
				"both": {b, a, a}} {
				got, err := s.DecodeWithKeys(slices.Values(known))
				if err != nil || !got.Complete || !maps.Equal(countsOf(got), all) {
					t.Errorf("%s known: %v, complete %v, %d of %d flows", name, err, got.Complete, len(got.Flows),
						len(all))
				}
			}
			plain, _ := s.Decode()
			got, err := s.DecodeWithKeys(slices.Values([][]byte{stranger, nil, a[:3]}))
			if err != nil || got.Complete || got.Left != plain.Left || !maps.Equal(countsOf(got), countsOf(plain)) {
				t.Errorf("none known: %v, %+v, want %+v", err, got, plain)
			}
		})
	}
}

func countsOf(r Result) map[string]int64 {
	m := make(map[string]int64)
	for _, f := range r.Flows {
		m[string(f.Key)] = f.Count
	}
	return m
}

// Four flows share buckets in pairs, with different pairs in each row.
func TestFourInPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	s := build[family.P4Wide, Prime32](t, Config{Width: 7, KeyBytes: 13, FragmentBits: 32})
	// by row: index of the flow with which each flow shares a bucket
	with := [3][4]int{{1, 0, 3, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}}
	var keys [4][]byte
search:
	for {
		var at [4][3]uint32
		for i := range keys {
			keys[i] = randomKey(r, 13)
			at[i] = columnsOf(s, keys[i])
		}
		for row := range with {
			for i := range keys {
				for j := range i {
					if (at[i][row] == at[j][row]) != (with[row][i] == j) {
						continue search
					}
				}
			}
		}
		break
	}
	want := make(map[string]int64)
	for i, key := range keys {
		want[string(key)] = int64(3 + 2*i)
	}
	fill(t, s, want, 1)
	if plain, err := s.Decode(); err != nil || plain.Complete {
		t.Fatalf("decoded without keys: %v", err)
	}
	for i := range keys {
		if got, err := s.DecodeWithKeys(slices.Values(keys[i : i+1])); err != nil || !got.Complete ||
			!maps.Equal(countsOf(got), want) {
			t.Errorf("flow %d known: %v, complete %v, %v", i, err, got.Complete, got.Flows)
		}
	}
}

// A complete result is correct whatever keys are given. By the bound of DecodeWithKeys, a wrong
// one occurs for fewer than one in 100 seeds with as few buckets as here.
func TestDecodeWithKeysIsCorrect(t *testing.T) {
	const trials, width = 3000, 31
	helped := 0
	for trial := range trials {
		r := rand.New(rand.NewPCG(3, uint64(trial)))
		s := build[family.P4Wide, Prime32](t, Config{Width: width, KeyBytes: 13, FragmentBits: 32})
		want := make(map[string]int64)
		known := [][]byte{randomKey(r, 13)}
		for range 30 + r.IntN(50) {
			key := randomKey(r, 13)
			want[string(key)] = 1 + r.Int64N(20)
			if r.IntN(3) == 0 {
				known = append(known, key)
			}
		}
		fill(t, s, want, 1)
		plain, _ := s.Decode()
		got, err := s.DecodeWithKeys(slices.Values(known))
		if err != nil || got.Complete && !maps.Equal(countsOf(got), want) {
			t.Errorf("trial %d: %v, complete, but not what was recorded", trial, err)
		}
		if plain.Complete && !got.Complete {
			t.Errorf("trial %d: Decode is complete and DecodeWithKeys is not", trial)
		}
		if got.Complete && !plain.Complete {
			helped++
		}
	}
	t.Logf("%d of %d sketches were decoded with known flows", helped, trials)
	if helped < 20 {
		t.Errorf("the keys helped in only %d of %d trials", helped, trials)
	}
}

// TestPairNeedsTheBucket: a known key is no part of a bucket in which it does not belong, even if
// the rest of the bucket is a flow; and the rest is no flow if its other buckets are empty.
func TestPairNeedsTheBucket(t *testing.T) {
	for _, belongs := range []bool{false, true} {
		s := build[family.Fast, Prime32](t, Config{Width: 50, KeyBytes: 13})
		r := rand.New(rand.NewPCG(1, 2))
		flow, known := randomKey(r, 13), randomKey(r, 13)
		at := columnsOf(s, flow)
		for (columnsOf(s, known)[0] == at[0]) != belongs {
			known = randomKey(r, 13)
		}
		for _, key := range [][]byte{flow, known} {
			if err := s.Add(key, 1); err != nil {
				t.Fatal(err)
			}
		}
		if belongs {
			clear(s.at(1, at[1]))
		}
		d := newDecoder(s)
		if d.load(string(known)); !belongs {
			d.s.put(d.s.at(0, at[0]), d.id, 1)
		}
		tries := 10
		if pair, ok := d.pair(int(at[0]), [][]byte{known}, &tries); ok {
			t.Errorf("%+v", pair)
		}
	}
}

// TestSecondRound: pairs of flows share their first buckets with another pair. The buckets with one
// pair come last.
func TestSecondRound(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	s := build[family.P4Wide, Prime32](t, Config{Width: 7, KeyBytes: 13, FragmentBits: 32})
	want := make(map[string]int64)
	var known [][]byte
	for i, at := range [][3]uint32{{0, 0, 3}, {0, 0, 5}, {1, 1, 3}, {1, 1, 6}} {
		for n := range int64(2) {
			key := randomKey(r, 13)
			for columnsOf(s, key) != at {
				key = randomKey(r, 13)
			}
			want[string(key)] = int64(2+i) + 5*n
			if n == 0 {
				known = append(known, key)
			}
		}
	}
	fill(t, s, want, 1)
	got, err := s.DecodeWithKeys(slices.Values(known))
	if err != nil || !got.Complete || !maps.Equal(countsOf(got), want) {
		t.Errorf("%v, complete %v, %v", err, got.Complete, got.Flows)
	}
}
