// SPDX-License-Identifier: Apache-2.0

package sumax

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// TestConfig: a sketch has the shape that its configuration asks for, and keeps no part of the
// caller's.
func TestConfig(t *testing.T) {
	limits := make([]uint32, maxRanges+1)
	for i := range limits {
		limits[i] = uint32(i + 1)
	}
	for _, c := range []struct {
		config  Config
		problem string
	}{
		{Config{Width: 4, Ranges: limits}, "64 limits"},
		{Config{Width: 4, Ranges: limits[:maxRanges]}, ""},
		{Config{Width: 4, NoSizes: true}, "nothing is counted"},
		{Config{Width: 4, Ranges: []uint32{1, 5, 5}}, "range 3 begins at 5"},
		{Config{Width: 4, Ranges: []uint32{0, 5}}, "range 1 begins at 0"},
		{Config{Width: 4, Ranges: []uint32{1, 5}}, ""},
	} {
		for _, build := range []func(Config) (*Sketch[family.P4], error){New[family.P4], NewPartial[family.P4]} {
			_, err := build(c.config)
			if (err == nil) != (c.problem == "") || err != nil && (!errors.Is(err, sketch.ErrConfig) ||
				!strings.Contains(err.Error(), c.problem)) {
				t.Errorf("%+v: %v, want %q", c.config, err, c.problem)
			}
		}
	}
	ranges := []uint32{10, 20}
	s := build[family.P4](t, Config{Rows: 2, Memory: 2 * 100 * 6 * cellBytes, Ranges: ranges, Intervals: true})
	if c := s.Config(); c.Width != 100 || c.Memory != 0 || s.Memory() != 2*100*6*cellBytes {
		t.Errorf("%+v with %d bytes", c, s.Memory())
	}
	ranges[0] = 5
	s.Config().Ranges[1] = 7
	if c := s.Config(); !slices.Equal(c.Ranges, []uint32{10, 20}) {
		t.Errorf("ranges %v, though no more than copies were changed", c.Ranges)
	}
}

// TestInsertions: all ways to insert a packet count the same, and results are computed anew.
func TestInsertions(t *testing.T) {
	key := []byte("key1")
	for name, insert := range map[string]func(s *Sketch[family.P4]) error{
		"Insert":      func(s *Sketch[family.P4]) error { s.Insert(key); return nil },
		"InsertBatch": func(s *Sketch[family.P4]) error { return s.InsertBatch(key, len(key)) },
		"Add":         func(s *Sketch[family.P4]) error { s.Add(key, 1); return nil },
		"Record":      func(s *Sketch[family.P4]) error { s.Record(key, Packet{}); return nil },
	} {
		s := build[family.P4](t, Config{Width: 64})
		if flows, ok := s.Cardinality(); !ok || flows != 0 {
			t.Errorf("%s: %v flows before", name, flows)
		}
		if p := s.Excess([]byte("other"), 1); p != 0 {
			t.Errorf("%s: other flows add a packet with probability %v before", name, p)
		}
		if err := insert(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n, valid := s.Query(key)
		flows, ok := s.Cardinality()
		if n != 1 || !valid || !ok || flows < 0.9 || flows > 1.1 || s.Excess([]byte("other"), 1) == 0 {
			t.Errorf("%s: size %d, %v flows, excess %v", name, n, flows, s.Excess([]byte("other"), 1))
		}
	}
}

// TestNothingReceived: a sketch without columns has no number of flows, and no distribution.
func TestNothingReceived(t *testing.T) {
	s, err := NewPartial[family.P4](Config{Width: 64})
	if err != nil {
		t.Fatal(err)
	}
	if flows, ok := s.Cardinality(); ok || flows != 0 {
		t.Errorf("%v flows, %v", flows, ok)
	}
	for _, limit := range []uint32{0, 1, 2} {
		_, _, err := s.Distribution(limit)
		if !errors.Is(err, sketch.ErrConfig) || strings.Contains(err.Error(), "sizes below") != (limit < 2) {
			t.Errorf("sizes below %d: %v", limit, err)
		}
	}
}

// TestTheorem: the bound of theorem 6.1 for a whole sketch, and for a share of its columns: a key
// with r of three rows exceeds it with probability e^-r.
func TestTheorem(t *testing.T) {
	const width, total = 40, 1000
	s, err := NewPartial[family.P4](Config{Width: width})
	if err != nil {
		t.Fatal(err)
	}
	if b := s.Bound(total); b.Failure != 1 || !math.IsInf(b.Over, 1) || !math.IsInf(b.Under, 1) {
		t.Errorf("without columns: %+v", b)
	}
	for col := range width {
		if _, err := s.SetColumn(col, make([]uint32, 3)); err != nil {
			t.Fatal(err)
		}
		share := float64(col+1) / width
		one, two, three := 3*share*(1-share)*(1-share), 3*share*share*(1-share), share*share*share
		want := (one*math.Exp(-1) + two*math.Exp(-2) + three*math.Exp(-3)) / (one + two + three)
		if b := s.Bound(total); math.Abs(b.Failure-want) > 1e-12 || math.Abs(b.Over-math.E/width*total) > 1e-9 ||
			b.Under != 0 {
			t.Errorf("%d columns: %+v, expected a failure of %v", col+1, b, want)
		}
	}
}

// TestSetColumnOfWhole: a column of a whole sketch replaces the cells, and results follow it. Reset
// empties the sketch.
func TestSetColumnOfWhole(t *testing.T) {
	s := build[family.P4](t, Config{Width: 64})
	if flows, _ := s.Cardinality(); flows != 0 || s.Excess([]byte("key"), 1) != 0 {
		t.Errorf("%v flows in an empty sketch", flows)
	}
	if receipt, err := s.SetColumn(5, []uint32{1, 1, 1}); receipt != First || err != nil {
		t.Errorf("receipt %v, %v", receipt, err)
	}
	if flows, ok := s.Cardinality(); !ok || flows < 0.9 || flows > 1.1 || s.Excess([]byte("key"), 1) == 0 {
		t.Errorf("%v flows, excess %v", flows, s.Excess([]byte("key"), 1))
	}
	_, err := s.SetColumn(5, []uint32{1, 1})
	if !errors.Is(err, sketch.ErrMismatch) || !strings.Contains(err.Error(), "2 cells; there are 64 columns of 3") {
		t.Error(err)
	}
	s.Reset()
	if cells, _ := s.Column(nil, 5); !slices.Equal(cells, []uint32{0, 0, 0}) {
		t.Errorf("cells %v after Reset", cells)
	}
	if flows, ok := s.Cardinality(); !ok || flows != 0 {
		t.Errorf("%v flows after Reset", flows)
	}
}

// TestMergedMaxima: a merged sketch has the sums of the sizes and the larger maxima, and its
// results follow.
func TestMergedMaxima(t *testing.T) {
	key, other := []byte("key"), []byte("other")
	config := Config{Width: 64, Ranges: []uint32{10}, Intervals: true}
	s, o := build[family.P4](t, config), build[family.P4](t, config)
	for at := range uint32(3) {
		s.Record(key, Packet{At: 100 + 7*at})
		o.Record(key, Packet{At: 200 + 5*at})
	}
	o.Record(other, Packet{At: 300})
	before, _ := s.Cardinality()
	if err := s.Merge(o); err != nil {
		t.Fatal(err)
	}
	after, _ := s.Cardinality()
	n, _ := s.Query(key)
	gap, last, _ := s.MaxInterval(key)
	if n != 6 || gap != 7 || last != 210 || before > 1.1 || after < 1.9 {
		t.Errorf("size %d, gap %d, last %d, %v and %v flows", n, gap, last, before, after)
	}
}

// TestHeaders: a serialized sketch of an impossible shape is refused.
func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		flags, rows, width, ranges uint32
		cells                      int
		problem                    string
	}{
		{0, 2, 3, 0, 6, ""}, {4, 2, 3, 1, 1 + 18, ""}, {15 - 2, 1, 1, 1, 1 + 4, ""}, {0, family.MaxRows, 1, 0, 8, ""},
		{4, 1, 1, maxRanges, 2*maxRanges + 2, ""},
		{16, 2, 3, 0, 6, "rows of"}, {8, 2, 3, 0, 6, "rows of"}, {0, 0, 3, 0, 0, "rows of"},
		{0, family.MaxRows + 1, 1, 0, 9, "rows of"}, {0, 2, 0, 0, 0, "rows of"},
		{4, 1, 1, maxRanges + 1, 2*maxRanges + 4, "rows of"}, {0, 2, 3, 1, 7, "rows of"},
		{0, 2, 3, 0, 5, "bytes"}, {0, 2, 3, 0, 7, "bytes"},
	} {
		cells := make([]uint32, c.cells)
		for i := range cells {
			cells[i] = uint32(i + 1)
		}
		err := read(c.flags, c.rows, c.width, c.ranges, cells...)
		if (c.problem == "") != (err == nil) || err != nil && (!errors.Is(err, sketch.ErrFormat) ||
			!strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := read(4, 1, 1, 2, 7, 7, 1, 2, 3, 4); !errors.Is(err, sketch.ErrFormat) {
		t.Errorf("two equal ranges: %v", err)
	}
	if err := read(2, 1, 3, 0, 0b0111, 0, 1, 2, 3); err != nil {
		t.Errorf("three of three columns: %v", err)
	}
	if err := read(2, 1, 3, 0, 0b1111, 0, 1, 2, 3); !errors.Is(err, sketch.ErrFormat) {
		t.Errorf("four of three columns: %v", err)
	}
	if err := read(2, 1, 64, 0, append([]uint32{math.MaxUint32, math.MaxUint32}, make([]uint32, 64)...)...); err != nil {
		t.Errorf("64 of 64 columns: %v", err)
	}
}

// read reads a serialized sketch.
func read(flags, rows, width, ranges uint32, words ...uint32) error {
	w := wire.NewWriter(wire.SuMax, family.ID[family.Fast](), 0, 4*len(words))
	w.U32(flags, rows, width, ranges)
	w.U32(words...)
	return new(Sketch[family.Fast]).UnmarshalBinary(w.Bytes())
}
