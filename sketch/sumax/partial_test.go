// SPDX-License-Identifier: Apache-2.0

package sumax

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
)

// receive copies the given columns of s to p.
func receive[F family.Hash](tb testing.TB, p, s *Sketch[F], columns []int) {
	tb.Helper()
	var cells []uint32
	for _, col := range columns {
		var err error
		if cells, err = s.Column(cells[:0], col); err != nil {
			tb.Fatal(err)
		}
		if _, err := p.SetColumn(col, cells); err != nil {
			tb.Fatal(err)
		}
	}
}

func partial[F family.Hash](tb testing.TB, c Config) *Sketch[F] {
	tb.Helper()
	p, err := NewPartial[F](c)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestReceipts: a column counts once. If two versions disagree, in whichever row, the later one
// counts.
func TestReceipts(t *testing.T) {
	p := partial[family.P4](t, Config{Width: 2})
	for i, tc := range []struct {
		col     int
		cells   []uint32
		receipt Receipt
		columns int
	}{
		{1, []uint32{1, 2, 3}, First, 1},
		{1, []uint32{1, 2, 3}, Again, 1},
		{1, []uint32{1, 2, 4}, Replaced, 1},
		{1, []uint32{0, 2, 4}, Replaced, 1},
		{0, []uint32{0, 0, 0}, First, 2},
		{0, []uint32{0, 0, 0}, Again, 2},
	} {
		receipt, err := p.SetColumn(tc.col, tc.cells)
		cells, _ := p.Column(nil, tc.col)
		if err != nil || receipt != tc.receipt || p.ReceivedColumns() != tc.columns || !slices.Equal(cells, tc.cells) {
			t.Errorf("%d: %v, %d columns, cells %d (%v); want %+v", i, receipt, p.ReceivedColumns(), cells, err, tc)
		}
	}
	p.Reset()
	if n, row := p.ReceivedColumns(), p.Row(0); n != 0 || len(row) != 0 {
		t.Errorf("after Reset: %d columns, a row of %d", n, len(row))
	}
	if receipt, err := p.SetColumn(1, []uint32{1, 2, 3}); err != nil || receipt != First || p.Received() != 0.5 {
		t.Errorf("after Reset: %v (%v), received %v", receipt, err, p.Received())
	}
	full := build[family.P4](t, Config{Width: 2})
	if receipt, err := full.SetColumn(1, []uint32{1, 2, 3}); err != nil || receipt != First || full.Received() != 1 {
		t.Errorf("of a whole sketch: %v (%v), received %v", receipt, err, full.Received())
	}
}

// TestPartialEstimates: with a share of the columns, the estimates of a device are close to those
// of all columns. The limits are about twice the largest errors of ten random orders of the
// columns. The entropy's errors are caused by the largest flows, whose buckets in the first row
// are received or not.
func TestPartialEstimates(t *testing.T) {
	tr := zipf.New(3, 200_000, 40_000, 1.1, 13)
	var sizes []uint32
	for _, n := range tr.Count {
		sizes = append(sizes, n)
	}
	truth := estimate.Sizes(sizes)
	for _, noSizes := range []bool{false, true} {
		c := Config{Width: 1 << 14, Ranges: []uint32{5}, Intervals: true, NoSizes: noSizes}
		s := build[family.P4](t, c)
		for i := range tr.Len() {
			s.Record(tr.Key(i), Packet{Delay: uint32(i) % 10, At: uint32(i) + 1})
		}
		order := rand.New(rand.NewPCG(7, 7)).Perm(c.Width)
		p := partial[family.P4](t, c)
		if _, ok := p.Cardinality(); ok {
			t.Error("a cardinality of no column")
		}
		if _, _, err := p.Distribution(1 << 20); !errors.Is(err, sketch.ErrConfig) {
			t.Errorf("a distribution of no column: %v", err)
		}
		for i, tc := range []struct{ flows, entropy, wmre float64 }{
			{0.03, 0.3, 0.22}, {0.015, 0.3, 0.17}, {0.002, 0.0005, 0.12}} {
			share := []float64{0.3, 0.6, 1}[i]
			from, to := p.ReceivedColumns(), int(share*float64(c.Width))
			receive(t, p, s, order[from:to])
			flows, ok := p.Cardinality()
			d, omitted, err := p.Distribution(1 << 20)
			if !ok || err != nil || omitted != 0 {
				t.Fatalf("share %v: %v, %v, %d omitted", share, ok, err, omitted)
			}
			x, h := math.Abs(flows/truth.Flows()-1), math.Abs(d.Entropy()/truth.Entropy()-1)
			w := estimate.WMRE(truth, d)
			t.Logf("share %v: cardinality off by %.4f, entropy by %.4f, WMRE %.4f", share, x, h, w)
			if x > tc.flows || h > tc.entropy || w > tc.wmre {
				t.Errorf("share %v: cardinality off by %.4f, entropy by %.4f, WMRE %.4f", share, x, h, w)
			}
		}
		// A column with impossible cells, such as a forged one, must not allocate memory.
		before, _, _ := p.Distribution(1 << 16)
		honest, _ := p.Column(nil, 9)
		cells := slices.Repeat([]uint32{math.MaxUint32}, c.cells()*3)
		if _, err := p.SetColumn(9, cells); err != nil {
			t.Fatal(err)
		}
		if d, omitted, err := p.Distribution(1 << 16); err != nil || omitted != 1 || len(d) > 1<<16 {
			t.Errorf("a forged column: %d sizes, %d omitted (%v)", len(d), omitted, err)
		}
		if receipt, _ := p.SetColumn(9, honest); receipt != Replaced {
			t.Errorf("the column after a forged one: %v", receipt)
		}
		b, err := p.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back Sketch[family.P4]
		if err := back.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*Sketch[family.P4]{p, &back} { // back counts all columns again
			d, omitted, err := p.Distribution(1 << 16)
			flows, _ := p.Cardinality()
			if x, _ := s.Cardinality(); err != nil || omitted != 0 || !slices.Equal(d, before) || flows != x {
				t.Errorf("after the forged column: %d sizes, %d omitted (%v); %v flows, want %v", len(d), omitted, err,
					flows, x)
			}
		}
		if _, _, err := p.Distribution(1); !errors.Is(err, sketch.ErrConfig) {
			t.Errorf("sizes below 1: %v", err)
		}
	}
	full := partial[family.P4](t, Config{Width: 1})
	if _, err := full.SetColumn(0, []uint32{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	if n, ok := full.Cardinality(); ok {
		t.Errorf("%v flows without an empty bucket", n)
	}
	if _, _, err := full.Distribution(9); !errors.Is(err, sketch.ErrLimit) {
		t.Errorf("a distribution without an empty bucket: %v", err)
	}
}

// TestGaps: the gap of a key is the smallest one of the received rows, and its last arrival the
// earliest one. Its own gap is that of the first row if its bucket has the key's packets, even if
// other rows have shorter gaps; otherwise the smallest gap of the rows with the estimated size;
// otherwise of all rows.
func TestGaps(t *testing.T) {
	key := []byte("key")
	d := family.Digest[family.P4](0, key)
	for _, noSizes := range []bool{false, true} {
		for _, tc := range []struct{ first, others, last, gap uint32 }{{0, 0, 0, 700}, {0, 1, 0, 300},
			{1, 0, 0, 300}, {1, 0, 5, 200}} {
			p := partial[family.P4](t, Config{Width: 100, Ranges: []uint32{5}, NoSizes: noSizes, Intervals: true})
			columns := map[uint32][]uint32{}
			// By row: size, two ranges, gap and last arrival; the size of the key is 4, or 3+1.
			for r, b := range [3][]uint32{{4 + tc.others, 3 + tc.others, 1, 700, 900}, {5, 4, 2, 200, 950},
				{4 + tc.last, 3 + tc.last, 1, 300, 980}} {
				if noSizes {
					b = b[1:]
				}
				col := family.Column[family.P4](d, r, &p.cols)
				if columns[col] == nil {
					columns[col] = make([]uint32, 3*p.n)
				}
				copy(columns[col][r*p.n:], b)
			}
			for r := int(tc.first); r < 3; r++ {
				col := family.Column[family.P4](d, r, &p.cols)
				if _, err := p.SetColumn(int(col), columns[col]); err != nil {
					t.Fatal(err)
				}
			}
			if got, last, ok := p.MaxInterval(key); !ok || got != 200 || last != []uint32{900, 950}[tc.first] {
				t.Errorf("without sizes %v, %+v: gap %d, last %d", noSizes, tc, got, last)
			}
			if got, alone, ok := p.OwnInterval(key, 4); !ok || got != tc.gap || alone != (tc.gap == 700) {
				t.Errorf("without sizes %v, %+v: own gap %d, alone %v", noSizes, tc, got, alone)
			}
		}
	}
}

// TestGap: a bucket without other packets shows a gap of a tenth of the interval, and one with n
// others shows it with a probability of 0.9^n, or 1 if they are too few to divide it into the gaps
// of the bucket. In rows behind the first one, whose sizes hide small flows, the probability is at
// most the mean of the first row. The gap of a single bucket is returned, but is not sure.
func TestGap(t *testing.T) {
	key := []byte("key")
	d := family.Digest[family.P4](0, key)
	for _, tc := range []struct {
		name        string
		sizes, gaps []uint32 // by row
		gap         uint32
		seen        float64
		ok          bool
	}{
		{"alone", []uint32{4}, []uint32{40}, 0, 1, false},
		{"one row has it", []uint32{4}, []uint32{95}, 95, 0, false},
		{"rows have others", []uint32{14, 5}, []uint32{94, 95}, 95, 0, false},
		{"others in the only row", []uint32{14}, []uint32{40}, 0, math.Pow(0.9, 10), false},
		{"too few others", []uint32{14}, []uint32{8}, 0, 1, false},
		{"too long a gap, of another flow", []uint32{14}, []uint32{140}, 0, math.Pow(0.9, 10), false},
		{"no row has it", []uint32{14, 4}, []uint32{40, 40}, 0,
			1 - (1-math.Pow(0.9, 10))*(1-(math.Pow(0.9, 14)+1)/2), false},
		{"two rows have it", []uint32{14, 14, 5}, []uint32{98, 40, 98}, 98, 0, true},
	} {
		p := partial[family.P4](t, Config{Width: 1 << 14, Intervals: true})
		columns := map[uint32][]uint32{}
		for r := range tc.sizes {
			col := family.Column[family.P4](d, r, &p.cols)
			if columns[col] == nil {
				columns[col] = make([]uint32, 3*p.n)
			}
			copy(columns[col][r*p.n:], []uint32{tc.sizes[r], tc.gaps[r], 900})
		}
		for col, cells := range columns {
			if _, err := p.SetColumn(int(col), cells); err != nil {
				t.Fatal(err)
			}
		}
		gap, seen, ok := p.Gap(key, 4, 90, 110, 0.1)
		if gap != tc.gap || ok != tc.ok || math.Abs(seen-tc.seen) > 1e-9 {
			t.Errorf("%s: gap %d, sure %v, seen with %v, want %d, %v with %v", tc.name, gap, ok, seen, tc.gap, tc.ok, tc.seen)
		}
	}
	if _, _, ok := build[family.P4](t, Config{Width: 16}).Gap(key, 4, 0, 110, 0.1); ok {
		t.Error("a gap of a sketch without gaps")
	}
}

// TestReordered: a packet that arrived before the newest one does not move the last arrival back.
func TestReordered(t *testing.T) {
	s := build[family.P4](t, Config{Width: 16, Intervals: true})
	for _, at := range []uint32{10, 100, 90, 120} {
		s.Record([]byte("key"), Packet{At: at})
	}
	if gap, last, ok := s.MaxInterval([]byte("key")); !ok || gap != 90 || last != 120 {
		t.Errorf("gap %d, last %d", gap, last)
	}
	s.Record([]byte("key"), Packet{At: 110})
	if _, last, _ := s.MaxInterval([]byte("key")); last != 120 {
		t.Errorf("last arrival %d behind a packet of an earlier time", last)
	}
}

// TestExcess: the probability that other flows add a number of packets to a key is the product of
// the shares of received buckets with as many, over the rows of the key that were received.
func TestExcess(t *testing.T) {
	key := []byte("key")
	d := family.Digest[family.P4](0, key)
	p := partial[family.P4](t, Config{Width: 100})
	own := map[uint32]bool{}
	for r := range 3 {
		own[family.Column[family.P4](d, r, &p.cols)] = true
	}
	first := int(family.Column[family.P4](d, 0, &p.cols))
	for col := range 100 {
		if !own[uint32(col)] || col == first {
			// A tenth of the buckets of the first row has 50 packets, the other rows have 7.
			if _, err := p.SetColumn(col, []uint32{50 * uint32((col%10)/9), 7, 7}); err != nil {
				t.Fatal(err)
			}
		}
	}
	share := float64(0)
	for _, n := range p.Row(0) {
		if n == 50 {
			share++
		}
	}
	share /= float64(p.ReceivedColumns())
	for n, want := range map[uint32]float64{0: 1, 1: share, 50: share, 51: 0} {
		if got := p.Excess(key, n); got != want {
			t.Errorf("%d packets: %v, want %v", n, got, want)
		}
	}
	for col := range own {
		if int(col) != first {
			if _, err := p.SetColumn(int(col), []uint32{0, 0, 0}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := p.Excess(key, 8); got != 0 {
		t.Errorf("8 packets in all rows: %v", got)
	}
	if got := p.Excess(key, 7); got <= 0 || got >= share {
		t.Errorf("7 packets in all rows: %v of %v", got, share)
	}
}

// device returns a sketch with 3 × 2^16 buckets as the P4 program fills it, and its columns in the
// order of arrival.
func device(tb testing.TB) (s *Sketch[family.P4], columns [][]uint32, order []int) {
	tb.Helper()
	s = build[family.P4](tb, Config{Width: 1 << 16, Ranges: []uint32{50, 100, 200}, Intervals: true})
	tr := zipf.New(3, 500_000, 50_000, 1.1, 13)
	for i := range tr.Len() {
		s.Record(tr.Key(i), Packet{Delay: uint32(i) % 256, At: uint32(i) + 1})
	}
	order = rand.New(rand.NewPCG(7, 7)).Perm(s.cfg.Width)
	for _, col := range order {
		cells, err := s.Column(nil, col)
		if err != nil {
			tb.Fatal(err)
		}
		columns = append(columns, cells)
	}
	return s, columns, order
}

// BenchmarkReconstruct measures the reconstruction of one device, with 3 × 2^16 buckets of seven
// cells, from its columns in random order. The aim is 20 ms.
func BenchmarkReconstruct(b *testing.B) {
	s, columns, order := device(b)
	p := partial[family.P4](b, s.Config())
	zipf.Time(b, func() {
		p.Reset()
		for i, col := range order {
			if _, err := p.SetColumn(col, columns[i]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRefine measures one more batch of 350 columns with the queries after it: sizes, delays
// and gaps of a thousand flows, the cardinality and the distribution. The aim is 2 ms.
func BenchmarkRefine(b *testing.B) {
	s, columns, order := device(b)
	p := partial[family.P4](b, s.Config())
	var flows [1000][13]byte
	for i := range flows {
		flows[i][0], flows[i][1] = byte(i), byte(i>>8)
	}
	const batch = 350
	at := 0
	next := func(b *testing.B) {
		for range batch {
			if _, err := p.SetColumn(order[at], columns[at]); err != nil {
				b.Fatal(err)
			}
			at = (at + 1) % len(order)
		}
	}
	for range len(order) / 2 / batch {
		next(b)
	}
	var delays []uint32
	for _, answers := range []bool{false, true} {
		b.Run(map[bool]string{false: "columns", true: "answers"}[answers], func(b *testing.B) {
			zipf.Time(b, func() {
				next(b)
				if !answers {
					return
				}
				for i := range flows {
					p.Query(flows[i][:])
					delays, _ = p.Delays(delays[:0], flows[i][:])
					p.MaxInterval(flows[i][:])
				}
				if _, ok := p.Cardinality(); !ok {
					b.Fatal("no cardinality")
				}
				if _, _, err := p.Distribution(1 << 20); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
