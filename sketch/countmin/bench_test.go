// SPDX-License-Identifier: Apache-2.0

package countmin

import (
	"fmt"
	"testing"

	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch/family"
)

// BenchmarkInsert measures the speed on the figures' trace with 500 KB; the authors' programs
// reach 48 (Count-Min) and 37 (CU) million packets a second.
func BenchmarkInsert(b *testing.B) {
	t := zipf.T1()
	b.Logf("%d flows", len(t.Count))
	b.Run("CM/fast", func(b *testing.B) { insert[family.Fast](b, t, Config{Memory: 500 << 10}) })
	b.Run("CU/fast", func(b *testing.B) { insert[family.Fast](b, t, Config{Memory: 500 << 10, Conservative: true}) })
	b.Run("CM/p4", func(b *testing.B) { insert[family.P4](b, t, Config{Memory: 500 << 10}) })
	b.Run("CU/p4", func(b *testing.B) { insert[family.P4](b, t, Config{Memory: 500 << 10, Conservative: true}) })
}

// insert measures the speed of single and batch insertion.
func insert[F family.Hash](b *testing.B, t *zipf.Trace, c Config) {
	s, err := New[F](c)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("one", func(b *testing.B) {
		zipf.Speed(b, t.Len(), func() {
			for i := range t.Len() {
				s.Insert(t.Key(i))
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
		for _, conservative := range []bool{false, true} {
			b.Run(fmt.Sprintf("%.1f MB, conservative %v", float64(memory)/1e6, conservative), func(b *testing.B) {
				insert[family.Fast](b, t, Config{Memory: memory, Conservative: conservative})
			})
		}
	}
}
