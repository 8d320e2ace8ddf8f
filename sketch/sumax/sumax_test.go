// SPDX-License-Identifier: Apache-2.0

package sumax

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/internal/test/golden"
	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/family"
)

func build[F family.Hash](tb testing.TB, c Config) *Sketch[F] {
	s, err := New[F](c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestPaperExample is Figure 2 of the paper: buckets [6, 3], [9, 7] and [3, 5], and a packet with
// sum 3 and maximum 4.
func TestPaperExample(t *testing.T) {
	s := build[family.Fast](t, Config{Width: 1, Intervals: true})
	copy(s.cells, []uint32{6, 3, 0, 9, 7, 0, 3, 5, 0})
	s.Add([]byte("f"), 3)
	if got := []uint32{s.cells[0], s.cells[3], s.cells[6]}; !slices.Equal(got, []uint32{9, 9, 6}) {
		t.Errorf("sums %v, want 9 9 6", got)
	}
	if n, ok := s.Query([]byte("f")); n != 6 || !ok {
		t.Errorf("the smallest sum is %d, %v; want 6", n, ok)
	}
}

// TestBetweenCMAndCU: with the same counters, SuMax's error is between those of CM and CU, closer
// to CU's, for Zipf 0.8 to 1.4, and no size is too low (§4.3).
func TestBetweenCMAndCU(t *testing.T) {
	for _, skew := range []float64{0.8, 1.1, 1.4} {
		tr := zipf.New(3, 200_000, 50_000, skew, 13)
		s := build[family.P4](t, Config{Width: 8000})
		var are []float64
		for _, cu := range []bool{false, true} {
			c, err := countmin.New[family.P4](countmin.Config{Width: 8000, Conservative: cu})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.InsertBatch(tr.Keys, tr.Size); err != nil {
				t.Fatal(err)
			}
			e, _ := tr.Errors(func(k []byte) float64 { return float64(c.Query(k)) })
			are = append(are, e)
		}
		if err := s.InsertBatch(tr.Keys, tr.Size); err != nil {
			t.Fatal(err)
		}
		above := 0
		bound := s.Bound(uint64(tr.Len()))
		mine, _ := tr.Errors(func(k []byte) float64 {
			v, _ := s.Query(k)
			if v < tr.Count[string(k)] {
				t.Fatalf("%x: %d, truth %d", k, v, tr.Count[string(k)])
			}
			if float64(v-tr.Count[string(k)]) > bound.Over {
				above++
			}
			return float64(v)
		})
		t.Logf("Zipf %.1f: ARE of CM %.3f, SuMax %.3f, CU %.3f", skew, are[0], mine, are[1])
		if mine >= (are[0]+are[1])/2 || mine <= are[1] {
			t.Errorf("Zipf %.1f: ARE of CM %.3f, SuMax %.3f, CU %.3f", skew, are[0], mine, are[1])
		}
		if float64(above) > bound.Failure*float64(len(tr.Count)) {
			t.Errorf("%d of %d keys above the bound", above, len(tr.Count))
		}
	}
}

// TestDelaysAndIntervals: a sketch with room for all flows has the exact ranges and gaps.
func TestDelaysAndIntervals(t *testing.T) {
	s := build[family.Fast](t, Config{Width: 20_000, Ranges: []uint32{10, 100, 1000}, Intervals: true})
	r := rand.New(rand.NewPCG(4, 4))
	type truth struct{ delays, gap, last [4]uint32 }
	want := map[string]*truth{}
	for i := range 5000 {
		key := []byte{byte(r.IntN(20)), 7}
		delay := uint32(1) << r.IntN(14)
		at := uint32(100 + 10*i)
		w := want[string(key)]
		if w == nil {
			w = &truth{}
			want[string(key)] = w
		} else {
			w.gap[0] = max(w.gap[0], at-w.last[0])
		}
		w.last[0] = at
		switch {
		case delay < 10:
			w.delays[0]++
		case delay < 100:
			w.delays[1]++
		case delay < 1000:
			w.delays[2]++
		default:
			w.delays[3]++
		}
		s.Record(key, Packet{Delay: delay, At: at})
	}
	for k, w := range want {
		d, ok := s.Delays(nil, []byte(k))
		gap, last, ok2 := s.MaxInterval([]byte(k))
		if !ok || !ok2 || !slices.Equal(d, w.delays[:]) || gap != w.gap[0] || last != w.last[0] {
			t.Fatalf("%x: delays %v, gap %d, last %d; want %+v", k, d, gap, last, w)
		}
	}
}

// TestAccuracyOfFigures uses the figures' trace with 8 delay ranges. With 500 KB, 1.5 MB and 6 MB
// (in powers of two), the authors' program has an ARE of 33.6, 6.28 and 0.407, and of 0.0007, 0
// and 0 for flows above 500 packets. It has no size cell. Random traces differ by 1 %, and no size
// is too low.
func TestAccuracyOfFigures(t *testing.T) {
	tr := zipf.T1()
	for _, tc := range []struct {
		memory     int
		are, large float64
	}{{512_000, 33.6, 0.0007}, {3 << 19, 6.28, 1e-4}, {6 << 20, 0.407, 1e-5}} {
		s := build[family.Fast](t, Config{Memory: tc.memory, Ranges: []uint32{1, 2, 3, 4, 5, 6, 7}, NoSizes: true})
		for i := range tr.Len() {
			s.Record(tr.Key(i), Packet{Delay: uint32(i) & 7})
		}
		large, n := 0.0, 0
		are, _ := tr.Errors(func(k []byte) float64 {
			v, ok := s.Query(k)
			truth := tr.Count[string(k)]
			if !ok || v < truth {
				t.Fatalf("%x: %d, truth %d", k, v, truth)
			}
			if truth > 500 {
				large += float64(v-truth) / float64(truth)
				n++
			}
			return float64(v)
		})
		t.Logf("%d bytes: ARE %.3f, of the %d flows above 500 packets %.6f", tc.memory, are, n, large/float64(n))
		if are > 1.03*tc.are || large > tc.large*float64(n) {
			t.Errorf("%d bytes: ARE %.3f, of the flows above 500 packets %.6f; the figures are %v and %v", tc.memory,
				are, large/float64(n), tc.are, tc.large)
		}
	}
}

// TestPartial: with a share θ of the columns, 1-(1-θ)^3 of the keys have a result, within five
// standard errors (10^-6), and it is never too low.
func TestPartial(t *testing.T) {
	tr := zipf.New(3, 100_000, 40_000, 0.9, 13)
	c := Config{Width: 5000, Ranges: []uint32{5}, Intervals: true}
	s := build[family.Fast](t, c)
	if err := s.InsertBatch(tr.Keys, tr.Size); err != nil {
		t.Fatal(err)
	}
	p, err := NewPartial[family.Fast](c)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.Query(tr.Key(0)); ok || p.Bound(5).Failure != 1 {
		t.Error("an answer from no column")
	}
	order := rand.New(rand.NewPCG(7, 7)).Perm(s.cfg.Width)
	for i, col := range order {
		cells, err := s.Column(nil, col)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.SetColumn(col, cells); err != nil {
			t.Fatal(err)
		}
		if (i+1)%1000 != 0 {
			continue
		}
		valid := 0
		for k, n := range tr.Count {
			v, ok := p.Query([]byte(k))
			if ok {
				valid++
				if v < n {
					t.Fatalf("%x: %d, truth %d", k, v, n)
				}
			} else if d, ok := p.Delays(nil, []byte(k)); ok || d != nil {
				t.Fatal("delays without a column")
			}
		}
		theta, n := float64(i+1)/float64(s.cfg.Width), float64(len(tr.Count))
		missing := 1 - theta
		want := 1 - missing*missing*missing
		got := float64(valid) / n
		// Keys of the same column arrive together, so the columns are independent, not the keys.
		if limit := 5 * math.Sqrt(want*(1-want)/float64(s.cfg.Width)); math.Abs(got-want) > limit+1e-9 ||
			p.Received() != theta {
			t.Errorf("%.1f of the columns: %.4f of the keys have an answer, want %.4f ± %.4f", theta, got, want, limit)
		}
	}
	if b := p.Bound(10); math.Abs(b.Failure-math.Exp(-3)) > 1e-12 {
		t.Errorf("%+v", b)
	}
	_, err1 := p.SetColumn(-1, nil)
	_, err2 := p.SetColumn(0, nil)
	_, err3 := p.SetColumn(5000, make([]uint32, 15))
	for _, err := range []error{err1, err2, err3, p.Merge(s), s.Merge(p)} {
		if !errors.Is(err, sketch.ErrMismatch) {
			t.Error(err)
		}
	}
	if _, err := s.Column(nil, 5000); !errors.Is(err, sketch.ErrMismatch) {
		t.Error(err)
	}
}

func TestMerge(t *testing.T) {
	c := Config{Width: 50, Intervals: true, Ranges: []uint32{3}}
	a, b := build[family.Fast](t, c), build[family.Fast](t, c)
	a.Record([]byte("x"), Packet{Delay: 1, At: 10})
	a.Record([]byte("x"), Packet{Delay: 1, At: 15})
	b.Record([]byte("x"), Packet{Delay: 9, At: 20})
	if err := a.Merge(b); err != nil {
		t.Fatal(err)
	}
	size, _ := a.Query([]byte("x"))
	d, _ := a.Delays(nil, []byte("x"))
	gap, last, _ := a.MaxInterval([]byte("x"))
	if size != 3 || !slices.Equal(d, []uint32{2, 1}) || gap != 5 || last != 20 {
		t.Errorf("%d %v %d %d", size, d, gap, last)
	}
	if err := a.Merge(a); err != nil {
		t.Error(err)
	}
	for _, o := range []Config{{Width: 50}, {Width: 50, Intervals: true, Ranges: []uint32{4}},
		{Width: 51, Intervals: true, Ranges: []uint32{3}}, {Width: 50, Intervals: true, Ranges: []uint32{3}, Seed: 1}} {
		if err := a.Merge(build[family.Fast](t, o)); !errors.Is(err, sketch.ErrMismatch) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if a.Merge(nil) == nil {
		t.Error("nil merged")
	}
}

func TestLimits(t *testing.T) {
	s := build[family.Fast](t, Config{Width: 1})
	s.Add([]byte{1}, math.MaxUint32)
	s.Insert([]byte{1})
	if v, _ := s.Query([]byte{1}); v != math.MaxUint32 {
		t.Errorf("%d", v)
	}
	if err := s.Merge(s); err != nil {
		t.Error(err)
	}
	if v, _ := s.Query([]byte{1}); v != math.MaxUint32 {
		t.Errorf("%d", v)
	}
	for _, c := range []Config{{}, {Width: -1}, {Memory: 11}, {Rows: 9, Width: 1}, {Width: 5, Memory: 100},
		{Width: math.MaxInt}, {Width: 1, Ranges: []uint32{0}}, {Width: 1, Ranges: []uint32{5, 5}},
		{Width: 1, Ranges: make([]uint32, 64)}} {
		if _, err := New[family.Fast](c); !errors.Is(err, sketch.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := s.InsertBatch([]byte{1}, 2); !errors.Is(err, sketch.ErrMismatch) {
		t.Error(err)
	}
}

func TestBytes(t *testing.T) {
	s := build[family.P4](t, Config{Width: 5, Ranges: []uint32{2, 4}, Intervals: true})
	for i := range 30 {
		s.Record([]byte{byte(i * i)}, Packet{Delay: uint32(i % 6), At: uint32(i + 1)})
	}
	golden.Check(t, "sumax", s, build[family.P4](t, Config{Width: 1}))
	p, err := NewPartial[family.Fast](Config{Width: 5, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.SetColumn(3, []uint32{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "partial", p, build[family.Fast](t, Config{Width: 1}))
}

func FuzzBytes(f *testing.F) {
	p, err := NewPartial[family.Fast](Config{Width: 5})
	if err != nil {
		f.Fatal(err)
	}
	golden.Fuzz(f, []golden.Sketch{p, build[family.Fast](f, Config{Width: 3, Ranges: []uint32{}, Intervals: true})},
		func() golden.Sketch { return build[family.Fast](f, Config{Width: 1}) }, func(g golden.Sketch) {
			s := g.(*Sketch[family.Fast])
			s.Record([]byte("key"), Packet{Delay: 7, At: 9})
			s.Query([]byte("key"))
			s.Delays(nil, []byte("key"))
			s.MaxInterval([]byte("key"))
			s.Bound(1)
		})
}

func TestNoAllocations(t *testing.T) {
	s := build[family.Fast](t, Config{Width: 100, Ranges: []uint32{1}, Intervals: true})
	if n := testing.AllocsPerRun(100, func() {
		var key [13]byte
		s.Record(key[:], Packet{At: 5})
		s.Query(key[:])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRecord measures the speed on the figures' trace with 8 delay ranges; the authors'
// program reaches 5.0 million packets a second with 0.5 MB, 4.6 with 1.5 MB and 2.2 with 6 MB.
func BenchmarkRecord(b *testing.B) {
	tr := zipf.T1()
	for name, memory := range map[string]int{"0.5 MB": 500_000, "1.5 MB": 1_500_000, "6 MB": 6_000_000} {
		b.Run(name, func(b *testing.B) {
			s := build[family.Fast](b, Config{Memory: memory, Ranges: []uint32{1, 2, 3, 4, 6, 8, 12}, Intervals: true})
			zipf.Speed(b, tr.Len(), func() {
				for i := range tr.Len() {
					s.Record(tr.Key(i), Packet{Delay: uint32(i) % 16, At: uint32(i + 1)})
				}
			})
		})
	}
}
