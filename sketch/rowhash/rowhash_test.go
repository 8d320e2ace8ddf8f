// SPDX-License-Identifier: Apache-2.0

package rowhash

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMixIsCRCOfTheProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		h, odd := r.Uint32(), r.Uint32()|1
		want := crc32.ChecksumIEEE(binary.BigEndian.AppendUint32(nil, h*odd))
		if got := Mix(h, odd); got != want {
			t.Fatalf("Mix(%#x, %#x) = %#x, want %#x", h, odd, got, want)
		}
	}
}

func TestKeyIsCRC(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, 64)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for n := range b {
		if got, want := Key(b[:n]), crc32.ChecksumIEEE(b[:n]); got != want {
			t.Errorf("Key of %d bytes = %#x, want %#x", n, got, want)
		}
		var want uint16 // CRC-16, computed byte by byte
		for i := range n {
			want = want>>8 ^ Check([]byte{byte(want) ^ b[i]})
		}
		if got := Check(b[:n]); got != want {
			t.Errorf("Check of %d bytes = %#x, want %#x", n, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		var key [13]byte
		key[0] = b[0]
		Key(key[:])
		Check(key[:])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestKnownAnswers compares with the check value of the CRC catalog for CRC-32, so that the tables
// are not only compared with themselves.
func TestKnownAnswers(t *testing.T) {
	if got := Key([]byte("123456789")); got != 0xcbf43926 {
		t.Errorf("Key = %#x, want CRC-32's check value 0xcbf43926", got)
	}
	if got := Check([]byte("123456789")); got != 0xbb3d {
		t.Errorf("Check = %#x, want CRC-16/ARC's check value 0xbb3d", got)
	}
	if got := Mix(1, 0x31323334); got != 0x9be3e0a3 { // crc32("1234")
		t.Errorf("Mix = %#x, want crc32 of \"1234\"", got)
	}
}

func BenchmarkMix(b *testing.B) {
	h := uint32(1)
	for range b.N {
		h = Mix(h, 0x9e3779b1)
	}
	if h == 0 {
		b.Log(h)
	}
}

// TestNext: the hash of a key continues with a word.
func TestNext(t *testing.T) {
	for _, key := range [][]byte{nil, {1}, tuple(1, 2, 3, 4)} {
		for _, word := range []uint32{0, 1, 0x01020304, 1<<32 - 1} {
			if got, want := Next(Key(key), word), Key(append(slices.Clone(key), be32(word)...)); got != want {
				t.Errorf("%x, %#x: %#x, want %#x", key, word, got, want)
			}
		}
	}
}
