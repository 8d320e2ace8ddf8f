// SPDX-License-Identifier: Apache-2.0

package countsketch

import (
	"math"
	"testing"

	"github.com/netsketch/netsketch/internal/test/golden"
	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch/family"
)

func build[F family.Hash](tb testing.TB, c Config) *Sketch[F] {
	s, err := New[F](c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestUnbiased: over all keys, the signed errors average out, and few exceed the bound. With a
// probability of 1 - 10^-6, the mean of 30,000 errors is within 5 standard errors. The signs of a
// key are independent of other keys' signs, as its rows are.
func TestUnbiased(t *testing.T) {
	t.Run("fast", func(t *testing.T) { unbiased[family.Fast](t) })
	t.Run("p4", func(t *testing.T) { unbiased[family.P4](t) })
}

func unbiased[F family.Hash](t *testing.T) {
	for _, rows := range []int{1, 3, 4, 5} {
		tr := zipf.New(4, 200_000, 50_000, 1, 13)
		s := build[F](t, Config{Rows: rows, Width: 4096})
		if err := s.InsertBatch(tr.Keys, tr.Size); err != nil {
			t.Fatal(err)
		}
		sum, squares, above, f2 := 0.0, 0.0, 0, 0.0
		b := s.Bound()
		for k, n := range tr.Count {
			e := float64(s.Query([]byte(k))) - float64(n)
			sum += e
			squares += e * e
			f2 += float64(n) * float64(n)
			if math.Abs(e) > b.Over {
				above++
			}
		}
		n := float64(len(tr.Count))
		if z := sum / math.Sqrt(squares); math.Abs(z) > 5 {
			t.Errorf("%d rows: the mean error is %.1f standard errors from 0", rows, z)
		}
		if share := float64(above) / n; share > b.Failure {
			t.Errorf("%d rows: %.4f of the keys are off by more than the bound, which promises %.4f", rows, share,
				b.Failure)
		}
		// The variance of a row's estimate is 2 F2²/width.
		if e := math.Abs(s.Moment2()-f2) / f2; e > 5*math.Sqrt(2./4096) {
			t.Errorf("%d rows: second moment off by %.3f", rows, e)
		}
	}
}

func TestLimit(t *testing.T) {
	s := build[family.Fast](t, Config{Width: 1, Rows: 1})
	for _, n := range []int32{math.MaxInt32, math.MinInt32} {
		s.Reset()
		s.Add([]byte{1}, n)
		s.Add([]byte{1}, n)
		if got := s.Query([]byte{1}); got != max(n, -math.MaxInt32) || !math.IsInf(s.Bound().Over, 1) {
			t.Errorf("%d twice: %d, %+v", n, got, s.Bound())
		}
	}
}

func TestBytes(t *testing.T) {
	s := build[family.Fast](t, Config{Width: 7, Seed: 3})
	for i := range 40 {
		s.Insert([]byte{byte(i * i)})
	}
	golden.Check(t, "countsketch", s, build[family.Fast](t, Config{Width: 1}))
}

func FuzzBytes(f *testing.F) {
	golden.Fuzz(f, []golden.Sketch{build[family.Fast](f, Config{Width: 3})},
		func() golden.Sketch { return build[family.Fast](f, Config{Width: 1}) }, func(s golden.Sketch) {
			cs := s.(*Sketch[family.Fast])
			cs.Insert([]byte("key"))
			cs.Query([]byte("key"))
			cs.Bound()
		})
}
