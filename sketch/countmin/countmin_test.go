// SPDX-License-Identifier: Apache-2.0

package countmin

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/golden"
	"github.com/netsketch/netsketch/sketch/internal/zipf"
)

func build[F family.Hash](tb testing.TB, c Config) *Sketch[F] {
	s, err := New[F](c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestNeverTooLow: both variants, both families, keys of all lengths; and the mean error
// is within the bound, which fails for a key with probability e^-3.
func TestNeverTooLow(t *testing.T) {
	t.Run("fast", func(t *testing.T) { neverTooLow[family.Fast](t) })
	t.Run("p4", func(t *testing.T) { neverTooLow[family.P4](t) })
}

func neverTooLow[F family.Hash](t *testing.T) {
	for _, size := range []int{4, 13, 37} {
		tr := zipf.New(2, 200_000, 30_000, 1.1, size)
		cm, cu := build[F](t, Config{Memory: 100_000}), build[F](t, Config{Memory: 100_000, Conservative: true})
		for i := range tr.Len() {
			cm.Insert(tr.Key(i))
			cu.Insert(tr.Key(i))
		}
		for _, one := range []*Sketch[F]{cm, cu} {
			batch := build[F](t, Config{Memory: 100_000, Conservative: one.cfg.Conservative})
			if err := batch.InsertBatch(tr.Keys, tr.Size); err != nil || !slices.Equal(batch.cells, one.cells) || batch.total != one.total {
				t.Errorf("a batch gives other counters (%v)", err)
			}
		}
		above := 0
		for k, n := range tr.Count {
			a, b := cm.Query([]byte(k)), cu.Query([]byte(k))
			if b < n || a < b {
				t.Fatalf("%x: %d packets, CU %d, CM %d", k, n, b, a)
			}
			if float64(a-n) > cm.Bound().Over {
				above++
			}
		}
		if share := float64(above) / float64(len(tr.Count)); share > cm.Bound().Failure {
			t.Errorf("%.4f of the keys are off by more than the bound, which promises %.4f", share, cm.Bound().Failure)
		}
		if cm.Total() != 200_000 {
			t.Errorf("total %d", cm.Total())
		}
	}
}

// TestAccuracyOfFigures: on the figures' trace 500 KiB give an ARE of at most 2.14 (CM) and
// 1.26 (CU), the authors' programs', on 124,172 flows. The algorithm leaves no room to be better, so ours must
// be within 5 %.
func TestAccuracyOfFigures(t *testing.T) {
	tr := zipf.T1()
	for name, tc := range map[string]struct {
		c   Config
		are float64
	}{"CM": {Config{Memory: 500 << 10}, 2.14}, "CU": {Config{Memory: 500_000, Conservative: true}, 1.26}} {
		s := build[family.Fast](t, tc.c)
		if err := s.InsertBatch(tr.Keys, tr.Size); err != nil {
			t.Fatal(err)
		}
		are, aae := tr.Errors(func(k []byte) float64 { return float64(s.Query(k)) })
		t.Logf("%s: %d flows, ARE %.3f, AAE %.3f", name, len(tr.Count), are, aae)
		if are > 1.05*tc.are || are < 0.95*tc.are {
			t.Errorf("%s: ARE %.3f, the figure is %.2f", name, are, tc.are)
		}
	}
}

func TestMergeSubtract(t *testing.T) {
	tr := zipf.New(3, 50_000, 9000, 1, 13)
	c := Config{Width: 1000, Seed: 5}
	all, a, b := build[family.Fast](t, c), build[family.Fast](t, c), build[family.Fast](t, c)
	for i := range tr.Len() {
		all.Insert(tr.Key(i))
		if i%3 == 0 {
			a.Insert(tr.Key(i))
		} else {
			b.Insert(tr.Key(i))
		}
	}
	onlyA := slices.Clone(a.cells)
	if err := a.Merge(b); err != nil || !slices.Equal(a.cells, all.cells) {
		t.Errorf("the sum is not what one sketch holds (%v)", err)
	}
	if err := a.Subtract(b); err != nil || !slices.Equal(a.cells, onlyA) {
		t.Errorf("the difference is not what was there (%v)", err)
	}
	if err := a.Subtract(b); !errors.Is(err, sketch.ErrMismatch) || !slices.Equal(a.cells, onlyA) {
		t.Errorf("subtracting what is not in it: %v", err)
	}
	if err := a.Merge(a); err != nil || a.cells[7] != 2*onlyA[7] {
		t.Errorf("merged with itself: %v", err)
	}
	if err := a.Subtract(a); err != nil || slices.Max(a.cells) != 0 || a.Total() != 0 {
		t.Errorf("subtracted from itself: %v, total %d", err, a.Total())
	}
	other := []Config{{Width: 1000, Seed: 6}, {Width: 999, Seed: 5}, {Width: 1000, Rows: 2, Seed: 5}, {Width: 1000, Seed: 5, Conservative: true}}
	for _, o := range other {
		if err := a.Merge(build[family.Fast](t, o)); !errors.Is(err, sketch.ErrMismatch) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if a.Merge(nil) == nil || a.Subtract(nil) == nil {
		t.Error("nil merged")
	}
	cu := build[family.Fast](t, other[3])
	if err := cu.Subtract(cu); !errors.Is(err, sketch.ErrMismatch) {
		t.Errorf("CU subtracted: %v", err)
	}
}

func TestLimit(t *testing.T) {
	for _, cu := range []bool{false, true} {
		s := build[family.Fast](t, Config{Width: 4, Conservative: cu})
		key := []byte{1}
		s.Add(key, math.MaxUint32-1)
		s.Insert(key)
		if got := s.Query(key); got != math.MaxUint32 {
			t.Errorf("%d", got)
		}
		if err := s.InsertBatch(key, 1); err != nil {
			t.Error(err)
		}
		if got := s.Query(key); got != math.MaxUint32 || !math.IsInf(s.Bound().Under, 1) {
			t.Errorf("past the limit: %d, %+v", got, s.Bound())
		}
		if !cu && !errors.Is(s.Subtract(s), sketch.ErrLimit) {
			t.Error("subtracted a counter at its limit")
		}
		s.Reset()
		if s.Query(key) != 0 || s.Bound().Over != 0 || s.Bound().Under != 0 {
			t.Error("not empty after Reset")
		}
	}
}

func TestBadConfig(t *testing.T) {
	for _, c := range []Config{{}, {Width: -1}, {Memory: 11}, {Rows: 9, Width: 1}, {Rows: -1, Width: 1}, {Width: 5, Memory: 100}, {Memory: -4}, {Width: math.MaxInt}, {Memory: math.MaxInt}} {
		if _, err := New[family.Fast](c); !errors.Is(err, sketch.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	s := build[family.Fast](t, Config{Memory: 12})
	for _, size := range []int{0, -1, 2} {
		if err := s.InsertBatch([]byte{1, 2, 3}, size); !errors.Is(err, sketch.ErrMismatch) {
			t.Errorf("keys of %d bytes: %v", size, err)
		}
	}
}

func TestBytes(t *testing.T) {
	s, fresh := build[family.P4](t, Config{Width: 7}), build[family.P4](t, Config{Width: 1})
	for i := range 40 {
		s.Insert([]byte{byte(i * i)})
	}
	golden.Check(t, "countmin", s, fresh)
	b, _ := s.MarshalBinary()
	if err := build[family.Fast](t, Config{Width: 1}).UnmarshalBinary(b); !errors.Is(err, sketch.ErrMismatch) {
		t.Errorf("read by another hash family: %v", err)
	}
	b[3]++
	if err := fresh.UnmarshalBinary(b); err == nil || !bytes.Contains([]byte(err.Error()), []byte("version")) {
		t.Errorf("another version: %v", err)
	}
}

func FuzzBytes(f *testing.F) {
	s := build[family.Fast](f, Config{Width: 3, Conservative: true})
	golden.Fuzz(f, []golden.Sketch{s, build[family.Fast](f, Config{Width: 5})}, func() golden.Sketch { return build[family.Fast](f, Config{Width: 1}) }, func(s golden.Sketch) {
		cm := s.(*Sketch[family.Fast])
		cm.Insert([]byte("key"))
		cm.Query([]byte("key"))
		cm.Bound()
	})
}

func TestNoAllocations(t *testing.T) {
	s, cu := build[family.Fast](t, Config{Width: 100}), build[family.P4](t, Config{Width: 100, Conservative: true})
	keys := make([]byte, 37*40)
	if n := testing.AllocsPerRun(100, func() {
		var key [13]byte
		s.Insert(key[:])
		cu.Insert(key[:])
		_ = s.InsertBatch(keys, 37)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
