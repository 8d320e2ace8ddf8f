// SPDX-License-Identifier: Apache-2.0

package sumax

import (
	"errors"
	"math"
	"testing"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// TestResultsFollowInsertions: results that a sketch keeps are computed anew after each insertion.
func TestResultsFollowInsertions(t *testing.T) {
	for name, insert := range map[string]func(s *Sketch[family.P4], key []byte){
		"Add":    func(s *Sketch[family.P4], key []byte) { s.Add(key, 1) },
		"Record": func(s *Sketch[family.P4], key []byte) { s.Record(key, Packet{At: 50}) },
	} {
		s := build[family.P4](t, Config{Width: 4096, Intervals: true})
		one, other := []byte("one"), []byte("other")
		insert(s, one)
		before, _ := s.Cardinality()
		_, seen, _ := s.Gap(one, 1, 90, 110, 0.1)
		for range 200 {
			insert(s, other)
		}
		after, _ := s.Cardinality()
		if _, now, _ := s.Gap(one, 1, 90, 110, 0.1); before >= after || name == "Record" && now >= seen+1e-9 {
			t.Errorf("%s: %v and %v flows, gap seen with %v and %v", name, before, after, seen, now)
		}
	}
}

// TestFullCells: cells stop at the largest number.
func TestFullCells(t *testing.T) {
	s := build[family.P4](t, Config{Width: 16})
	s.Add([]byte("key"), math.MaxUint32-3)
	s.Add([]byte("key"), 5)
	if n, ok := s.Query([]byte("key")); !ok || n != math.MaxUint32 {
		t.Errorf("size %d", n)
	}
}

// TestWithoutCells: a sketch has no results for cells that it lacks, or has not received.
func TestWithoutCells(t *testing.T) {
	key := []byte("key")
	s := build[family.P4](t, Config{Width: 16})
	s.Add(key, 7)
	if d, ok := s.Delays(nil, key); ok || len(d) > 0 {
		t.Errorf("delays %v of a sketch without them", d)
	}
	if _, _, ok := s.MaxInterval(key); ok {
		t.Error("an interval of a sketch without them")
	}
	if _, _, ok := s.OwnInterval(key, 7); ok {
		t.Error("an own interval of a sketch without them")
	}
	p := partial[family.P4](t, Config{Width: 1 << 14, Intervals: true})
	d := family.Digest[family.P4](0, key)
	if _, _, ok := p.OwnInterval(key, 7); ok || p.Whole(key) {
		t.Error("an interval of columns that were not received")
	}
	for r := 1; r < 3; r++ {
		cells := make([]uint32, 3*p.n)
		copy(cells[r*p.n:], []uint32{4, 30, 900})
		if _, err := p.SetColumn(int(family.Column[family.P4](d, r, &p.cols)), cells); err != nil {
			t.Fatal(err)
		}
	}
	if gap, alone, ok := p.OwnInterval(key, 0); gap != 30 || alone || !ok || p.Whole(key) {
		t.Errorf("without the first row: gap %d, alone %v, whole %v", gap, alone, p.Whole(key))
	}
	for _, least := range []uint32{29, 30} {
		if gap, _, ok := p.Gap(key, 4, least, least+1, 0.1); gap != 30 || !ok {
			t.Errorf("a gap of 30 is not found from %d to %d", least, least+1)
		}
	}
	if _, ok := p.Cardinality(); !ok {
		t.Error("flows of two columns are unknown")
	}
	empty := partial[family.P4](t, Config{Width: 16})
	if n, ok := empty.Cardinality(); ok {
		t.Errorf("%v flows without columns", n)
	}
	for limit, want := range map[uint32]error{1: sketch.ErrConfig, 2: nil} {
		if _, _, err := s.Distribution(limit); !errors.Is(err, want) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}
