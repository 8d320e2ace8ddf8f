// SPDX-License-Identifier: Apache-2.0

package sumax

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
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
