// SPDX-License-Identifier: Apache-2.0

package fermat

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch/family"
)

// BenchmarkInsert measures the speed on the figures' trace with 3 rows of 833 buckets; the
// authors' program reaches 27 to 30 million packets a second.
func BenchmarkInsert(b *testing.B) {
	t := zipf.T1()
	b.Run("fast", func(b *testing.B) { insert[family.Fast, Mersenne61](b, t) })
	b.Run("fast 4 bytes", func(b *testing.B) {
		insert[family.Fast, Mersenne61](b, zipf.New(1, 2_000_000, 200_000, 1.1, 4))
	})
	b.Run("fast 31-bit fragments", func(b *testing.B) { insert[family.Fast, Prime32](b, t) })
	b.Run("p4", func(b *testing.B) { insert[family.P4, Prime32](b, t) })
}

func insert[F family.Hash, E Field](b *testing.B, t *zipf.Trace) {
	s, err := New[F, E](Config{Width: 833, KeyBytes: t.Size})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("one", func(b *testing.B) {
		zipf.Speed(b, t.Len(), func() {
			for i := range t.Len() {
				if err := s.Insert(t.Key(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("batch", func(b *testing.B) {
		zipf.Speed(b, t.Len(), func() {
			if err := s.InsertBatch(t.Keys, t.Size); err != nil {
				b.Fatal(err)
			}
		})
	})
}

// BenchmarkMemory compares batches with single insertion within the caches and beyond them.
func BenchmarkMemory(b *testing.B) {
	t := zipf.T1()
	for _, memory := range []int{500_000, 8 << 20, 64 << 20} {
		s, err := New[family.Fast, Mersenne61](Config{Memory: memory, KeyBytes: t.Size})
		if err != nil {
			b.Fatal(err)
		}
		name := fmt.Sprintf("%.1f MB", float64(memory)/1e6)
		b.Run(name+"/one", func(b *testing.B) {
			zipf.Speed(b, t.Len(), func() {
				for i := range t.Len() {
					_ = s.Insert(t.Key(i))
				}
			})
		})
		b.Run(name+"/batch", func(b *testing.B) {
			zipf.Speed(b, t.Len(), func() { _ = s.InsertBatch(t.Keys, t.Size) })
		})
	}
}

// BenchmarkDecode decodes 10,000 flows from 1.3 buckets each; the aim is 4 ms, the
// authors' program takes 7 to 9.
func BenchmarkDecode(b *testing.B) {
	b.Run("fast", decode[family.Fast, Mersenne61])
	b.Run("fast 31-bit fragments", decode[family.Fast, Prime32])
	b.Run("p4", decode[family.P4, Prime32])
	b.Run("p4 32-bit fragments", func(b *testing.B) { decodeBits[family.P4, Prime32](b, 32) })
}

func decode[F family.Hash, E Field](b *testing.B) { decodeBits[F, E](b, 0) }

func decodeBits[F family.Hash, E Field](b *testing.B, fragment int) {
	s, err := New[F, E](Config{Width: 13000 / 3, KeyBytes: 13, FragmentBits: fragment})
	if err != nil {
		b.Fatal(err)
	}
	var key [13]byte
	for i := range 10_000 {
		binary.LittleEndian.PutUint64(key[:], uint64(i)*0x9e3779b97f4a7c15)
		if err := s.Add(key[:], int64(1+i%50)); err != nil {
			b.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wall, cpu := time.Hour, time.Hour
	for b.Loop() {
		start, used := time.Now(), zipf.ThreadTime()
		r, err := s.Decode()
		if err != nil || !r.Complete || len(r.Flows) != 10_000 {
			b.Fatalf("%d flows, %d buckets left, %v", len(r.Flows), r.Left, err)
		}
		wall, cpu = min(wall, time.Since(start)), min(cpu, zipf.ThreadTime()-used)
	}
	b.ReportMetric(wall.Seconds()*1e3, "best-ms")
	b.ReportMetric(cpu.Seconds()*1e3, "best-cpu-ms")
}
