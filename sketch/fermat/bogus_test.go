// SPDX-License-Identifier: Apache-2.0

package fermat

import (
	"encoding/binary"
	"testing"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// flowOf returns a sketch that has one packet of a key, and the three buckets of the key.
func flowOf[F family.Hash, E Field](t *testing.T, c Config, key []byte) (*Sketch[F, E], [3][]E) {
	t.Helper()
	s := build[F, E](t, c)
	if err := s.Add(key, 1); err != nil {
		t.Fatal(err)
	}
	var buckets [3][]E
	for row, col := range columnsOf(s, key) {
		buckets[row] = s.at(row, col)
	}
	return s, buckets
}

// nothing checks that Decode finds no flow in a sketch, and leaves three buckets undecoded, because
// the sums in the buckets are no identifiers.
func nothing[F family.Hash, E Field](t *testing.T, s *Sketch[F, E]) {
	t.Helper()
	r, err := s.Decode()
	if err != nil || len(r.Flows) > 0 || r.Left != 3 {
		t.Errorf("%+v: %+v, %v", s.cfg, r, err)
	}
}

// TestWrongFingerprint: a key with another fingerprint is not decoded.
func TestWrongFingerprint(t *testing.T) {
	key := []byte("a key of thirteen")[:13]
	for bit := range 20 {
		c := Config{Width: 50, KeyBytes: 13, FragmentBits: 32, Fingerprint: 20}
		words, buckets := flowOf[family.P4, Prime32](t, c, key)
		for _, b := range buckets { // the last word has 8 bits of the key
			b[4] ^= 1 << (8 + bit)
		}
		nothing(t, words)
		c.FragmentBits = 31
		fragments, parts := flowOf[family.Fast, Prime32](t, c, key)
		for _, b := range parts {
			b[1+(104+bit)/31] ^= 1 << ((104 + bit) % 31)
		}
		nothing(t, fragments)
	}
}

// TestLargeFragment: a fragment that exceeds its bits is not decoded, even if the bits beyond are
// those that the next fragment has.
func TestLargeFragment(t *testing.T) {
	key := []byte{0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	s, buckets := flowOf[family.Fast, Prime32](t, Config{Width: 50, KeyBytes: 13, FragmentBits: 31}, key)
	for _, b := range buckets {
		if b[2]&1 == 0 {
			t.Fatalf("the second fragment is %x", b[2])
		}
		b[1] += 1 << 31
	}
	nothing(t, s)
}

// TestRaisedWords: of four words that may each be larger by the prime, one is. Every bucket of the
// sketch is in use, so only the fingerprint tells which of the keys was added.
func TestRaisedWords(t *testing.T) {
	for raised := range 4 {
		key := make([]byte, 16)
		for i := range 4 {
			binary.BigEndian.PutUint32(key[4*i:], uint32(i))
		}
		binary.BigEndian.PutUint32(key[4*raised:], uint32(prime32+raised))
		s := build[family.P4, Prime32](t, Config{Width: 1, KeyBytes: 16, FragmentBits: 32, Fingerprint: 20})
		if err := s.Add(key, 3); err != nil {
			t.Fatal(err)
		}
		same(t, s, map[string]int64{string(key): 3})
	}
	// A word of 5 is not 0 plus the prime, because the sum has 33 bits.
	five, buckets := flowOf[family.P4, Prime32](t, Config{Width: 50, KeyBytes: 16, FragmentBits: 32, Fingerprint: 20},
		make([]byte, 16))
	for _, b := range buckets {
		b[1] += 5
	}
	nothing(t, five)
	// Without a fingerprint, a wrong key must not belong in empty buckets: half of twelve words are
	// larger, and one in ten of up to 2,510 wrong keys belongs in the first bucket.
	key := make([]byte, 48)
	for i := range 6 {
		binary.BigEndian.PutUint32(key[8*i+4:], prime32)
	}
	s := build[family.P4, Prime32](t, Config{Width: 100, KeyBytes: 48, FragmentBits: 32})
	if err := s.Add(key, 3); err != nil {
		t.Fatal(err)
	}
	same(t, s, map[string]int64{string(key): 3})
}

// TestLastWord: the last word of a flow has only ones, so two packets of it exceed the prime.
func TestLastWord(t *testing.T) {
	key := []byte{0xff, 0xff, 0xff}
	for seed := range uint64(10_000) {
		s, buckets := flowOf[family.P4, Prime32](t, Config{Width: 50, KeyBytes: 3, FragmentBits: 32, Fingerprint: 7,
			Seed: 2*seed + 1}, key)
		if buckets[0][1] != 1<<31-1 {
			continue
		}
		if err := s.Add(key, 1); err != nil {
			t.Fatal(err)
		}
		same(t, s, map[string]int64{string(key): 2})
		return
	}
	t.Error("no seed gives a fingerprint of ones")
}

// TestRecord extracts more flows than the decoder expects, each of them twice, and two keys with
// the same digest.
func TestRecord(t *testing.T) {
	d := newDecoder(build[family.Fast, Mersenne61](t, Config{Width: 10, KeyBytes: 4}))
	record := func(digest uint64, key uint32, n int64) {
		binary.BigEndian.PutUint32(d.buf[:], key)
		d.record(digest, n)
	}
	for n := range int64(2) {
		for i := range uint32(1000) {
			record(uint64(i/2), i, 1+n)
		}
	}
	if len(d.counts) != 1000 {
		t.Fatalf("%d flows", len(d.counts))
	}
	for i, n := range d.counts {
		if key := binary.BigEndian.Uint32(d.keys[4*i:]); n != 3 || int(key) != i || d.digests[i] != uint64(i/2) {
			t.Errorf("flow %d: %d packets of %d, digest %d", i, n, key, d.digests[i])
		}
	}
}

// TestExactNeedsItsBuckets: if a decoding is not complete, a flow with more packets than one of its
// buckets is not exact. Two of three empty buckets are enough if 16 bits of a fragment are unused.
// One empty bucket of a single row is not.
func TestExactNeedsItsBuckets(t *testing.T) {
	t.Run("31", func(t *testing.T) {
		exactNeeds[Prime32](t, Config{KeyBytes: 13}, 2, false)
		exactNeeds[Prime32](t, Config{KeyBytes: 13}, 9, true)
		exactNeeds[Prime32](t, Config{KeyBytes: 14}, 9, true)
		exactNeeds[Prime32](t, Config{KeyBytes: 15}, 9, false)
		exactNeeds[Prime32](t, Config{KeyBytes: 13, Rows: 1}, 9, false)
	})
	t.Run("60", func(t *testing.T) {
		exactNeeds[Mersenne61](t, Config{KeyBytes: 13}, 9, true)
		exactNeeds[Mersenne61](t, Config{KeyBytes: 14}, 9, false)
	})
}

// exactNeeds adds a flow of five packets, spoils a bucket that then has a number of packets (the
// flow's last bucket, or another one of a single row), and checks whether the flow is exact.
func exactNeeds[E Field](t *testing.T, c Config, packets int, exact bool) {
	t.Helper()
	c.Width = 50
	s := build[family.Fast, E](t, c)
	k := append([]byte("a key of thirteen"), 0)[:c.KeyBytes]
	if err := s.Add(k, 5); err != nil {
		t.Fatal(err)
	}
	last := s.cfg.Rows - 1
	col := family.Column[family.Fast](family.Digest[family.Fast](0, k), last, &s.cols)
	if last == 0 {
		col = (col + 1) % 50
	}
	b := s.at(last, col)
	for i := range b {
		b[i] = 123_456_789 * E(i+1)
	}
	b[0] = E(packets)
	r, err := s.Decode()
	if err != nil || r.Complete || len(r.Flows) != 1 || r.Flows[0].Exact != exact {
		t.Errorf("%+v: %+v %v, spare %d", s.cfg, r, err, s.spare())
	}
	if b := s.Bound(); b != (sketch.Bound{Failure: 2. / 2500}) {
		t.Errorf("%+v", b)
	}
}
