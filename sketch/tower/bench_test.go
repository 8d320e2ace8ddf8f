// SPDX-License-Identifier: Apache-2.0

package tower

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch/family"
)

// BenchmarkInsert measures the speed on the figures' trace with 2 MB in 5 rows; the authors'
// program reaches 31.5 (CM insertion) and 23.8 (CU insertion) million packets a second.
func BenchmarkInsert(b *testing.B) {
	t := zipf.T1()
	b.Run("CM/fast", func(b *testing.B) { insert[family.Fast](b, t, Config{Memory: 2 << 20}) })
	b.Run("CU/fast", func(b *testing.B) { insert[family.Fast](b, t, Config{Memory: 2 << 20, Conservative: true}) })
	b.Run("CM/p4", func(b *testing.B) { insert[family.P4](b, t, Config{Memory: 2 << 20}) })
	b.Run("CU/p4", func(b *testing.B) { insert[family.P4](b, t, Config{Memory: 2 << 20, Conservative: true}) })
}

// insert measures the speed of single and batch insertion.
func insert[F family.Hash](b *testing.B, t *zipf.Trace, c Config) {
	s, err := New[F](c)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("one", func(b *testing.B) {
		zipf.Speed(b, t.Len(), func() {
			s.Reset()
			for i := range t.Len() {
				s.Insert(t.Key(i))
			}
		})
	})
	b.Run("batch", func(b *testing.B) {
		zipf.Speed(b, t.Len(), func() {
			s.Reset()
			if err := s.InsertBatch(t.Keys, t.Size); err != nil {
				b.Fatal(err)
			}
		})
	})
}

// BenchmarkInsertQuery measures ChameleMon's classifier, which each packet queries.
func BenchmarkInsertQuery(b *testing.B) {
	t := zipf.T1()
	s, err := New[family.Fast](Config{Memory: 450_000, Bits: []int{8, 16}})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("one", func(b *testing.B) {
		zipf.Speed(b, t.Len(), func() {
			for i := range t.Len() {
				s.InsertQuery(t.Key(i))
			}
		})
	})
	b.Run("batch", func(b *testing.B) {
		above := make([]byte, 0, len(t.Keys))
		zipf.Speed(b, t.Len(), func() {
			if _, err := s.InsertBatchAbove(t.Keys, t.Size, 200, above); err != nil {
				b.Fatal(err)
			}
		})
	})
}

// BenchmarkMemory measures the speed beyond the caches, for single and batch insertion.
func BenchmarkMemory(b *testing.B) {
	t := zipf.T1()
	for _, mb := range []float64{0.5, 8, 64} {
		for _, conservative := range []bool{false, true} {
			b.Run(fmt.Sprintf("%v MB/conservative %v", mb, conservative), func(b *testing.B) {
				insert[family.Fast](b, t, Config{Memory: int(mb * (1 << 20)), Conservative: conservative})
			})
		}
	}
}

// BenchmarkShared measures the lock-free tower of 2 MB with n writers. Each writer inserts its
// share of the figures' trace and flushes, so that handing over is included. The aim is that two
// writers reach 1.9 times the speed of one. Mpackets/s needs as many idle cores as writers; the
// other metric divides packets by processor time and adds up the writers, each of which has its
// own thread.
func BenchmarkShared(b *testing.B) {
	t := zipf.T1()
	for _, conservative := range []bool{false, true} {
		shared, err := NewShared[family.Fast](Config{Memory: 2 << 20, Conservative: conservative})
		if err != nil {
			b.Fatal(err)
		}
		for _, writers := range []int{1, 2} {
			b.Run(fmt.Sprintf("conservative %v/%d writers", conservative, writers), func(b *testing.B) {
				wall, speed := time.Duration(1<<62), 0.0
				for range b.N {
					shared.Reset()
					runtime.GC()
					start := time.Now()
					speeds := make([]float64, writers)
					var wg sync.WaitGroup
					for n := range writers {
						wg.Go(func() {
							runtime.LockOSThread()
							defer runtime.UnlockOSThread()
							used := zipf.ThreadTime()
							w := shared.Writer()
							from, to := n*t.Len()/writers, (n+1)*t.Len()/writers
							for i := from; i < to; i++ {
								w.Insert(t.Key(i))
							}
							w.Flush()
							speeds[n] = float64(to-from) / (zipf.ThreadTime() - used).Seconds()
						})
					}
					wg.Wait()
					wall = min(wall, time.Since(start))
					sum := 0.0
					for _, s := range speeds {
						sum += s
					}
					speed = max(speed, sum)
				}
				b.ReportMetric(float64(t.Len())/wall.Seconds()/1e6, "Mpackets/s")
				b.ReportMetric(speed/1e6, "Mpackets/cpu-s")
			})
		}
	}
}

// BenchmarkLatency measures recording a packet's latency at one switch.
func BenchmarkLatency(b *testing.B) {
	t := zipf.T1()
	l, err := NewLatency[family.Fast](Config{Memory: 3 << 20})
	if err != nil {
		b.Fatal(err)
	}
	zipf.Speed(b, t.Len(), func() {
		l.Reset()
		for i := range t.Len() {
			l.Insert(t.Key(i), uint32(i)&0xffff)
		}
	})
}
