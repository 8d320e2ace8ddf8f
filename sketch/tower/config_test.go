// SPDX-License-Identifier: Apache-2.0

package tower

import (
	"encoding"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// TestConfigMessages: a shape is refused for the first reason there is, and limits themselves are
// valid.
func TestConfigMessages(t *testing.T) {
	many := make([]Row, family.MaxRows+1)
	for i := range many {
		many[i] = Row{Bits: 2, Width: 5}
	}
	for _, c := range []struct {
		config  Config
		problem string
	}{
		{Config{}, "memory: 0 bytes for 5 rows"}, {Config{Memory: -1}, "memory: -1 bytes"}, {Config{Memory: 40}, ""},
		{Config{Memory: 1}, "less than a word"}, {Config{Memory: sketch.MaxMemory, Bits: []int{1}}, "a row of 1-bit"},
		{Config{Memory: 39}, "less than a word"}, {Config{Memory: 39, Bits: []int{}}, "for 0 rows"},
		{Config{Memory: sketch.MaxMemory + 1}, "memory: "}, {Config{Memory: 80, Bits: []int{1}}, "a row of 1-bit"},
		{Config{Memory: 80, Bits: []int{33}}, "a row of 33-bit"}, {Config{Memory: 80, Bits: []int{2, 32}}, ""},
		{Config{Memory: 80, Bits: []int{8, 4}}, "row 1: 4-bit counters above 8-bit ones"},
		{Config{Memory: 80, Bits: []int{8, 8}}, ""}, {Config{Rows: []Row{}}, "rows: 0"},
		{Config{Rows: []Row{{2, 5}}, Memory: 7}, "rows are given"},
		{Config{Rows: []Row{{2, 5}}, Bits: []int{2}}, "rows are given"},
		{Config{Rows: many}, "9 rows; expected at most 8"}, {Config{Rows: many[1:]}, ""},
		{Config{Rows: []Row{{1, 5}}}, "row 0: 1-bit"}, {Config{Rows: []Row{{33, 5}}}, "row 0: 33-bit"},
		{Config{Rows: []Row{{2, 0}}}, "row 0: 0 counters"}, {Config{Rows: []Row{{2, 1}}}, ""},
		{Config{Rows: []Row{{32, maxWidth + 1}}}, "row 0: 2147483649 counters"},
		{Config{Rows: []Row{{3, maxOddWidth + 1}}}, "do not divide"},
		{Config{Rows: []Row{{32, maxWidth}}}, "more than "},
	} {
		s, err := New[family.Fast](c.config)
		if (err == nil) != (c.problem == "") || err != nil && (!errors.Is(err, sketch.ErrConfig) ||
			!strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.problem)
		}
		if _, err := NewLatency[family.Fast](c.config); c.config.Rows != nil && err != nil && (c.problem == "" ||
			!strings.Contains(err.Error(), c.problem)) {
			t.Errorf("buckets, %+v: %v, want %q", c.config, err, c.problem)
		}
		if err == nil && c.config.Memory > 0 && s.Memory() != c.config.Memory {
			t.Errorf("%+v: %d bytes", c.config, s.Memory())
		}
	}
}

// TestLargestRows: rows of the largest sizes are valid, and larger ones are not. Counters of the
// widest rows are found by a multiplication instead of a division.
func TestLargestRows(t *testing.T) {
	const words = sketch.MaxMemory / 8
	half := Row{Bits: 32, Width: words} // 32 bits are half of a word
	for _, c := range []struct {
		rows []Row
		ok   bool
	}{
		{[]Row{{3, maxOddWidth}}, true}, {[]Row{{3, maxOddWidth + 1}}, false}, {[]Row{half, half}, true},
		{[]Row{{2, 1}, half, half}, false}, {[]Row{half, {32, words + 1}}, false},
	} {
		config := Config{Rows: c.rows}
		if _, err := config.rows(); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.rows, err)
		}
	}
	for bits := 2; bits <= 32; bits++ {
		width := uint32(maxOddWidth)
		if wordBits%bits == 0 {
			width = 1 << 31
		}
		perWord := uint32(wordBits / bits)
		rows, _ := plan([]Row{{bits, int(width)}})
		for _, col := range []uint32{0, perWord - 1, perWord, width/2 - 1, width / 2, width/perWord*perWord - 1, width - 1} {
			if word, shift := rows[0].locate(col); word != col/perWord || shift != col%perWord*uint32(bits) {
				t.Errorf("%d bits, counter %d: word %d, shift %d", bits, col, word, shift)
			}
		}
	}
	if _, err := NewLatency[family.Fast](Config{Rows: []Row{{16, words}, {32, words / 2}}}); !errors.Is(err,
		sketch.ErrConfig) {
		t.Errorf("more buckets than memory: %v", err)
	}
}

// TestHeaders: a serialized tower of an impossible shape is refused.
func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		flags, rows  uint32
		bad, buckets bool // whether a tower, and a tower of buckets, is refused
	}{{0, 1, false, false}, {1, family.MaxRows, false, true}, {2, 1, true, true}, {0, 0, true, true},
		{0, family.MaxRows + 1, true, true}} {
		data := func(kind uint8, words uint32) []byte {
			w := wire.NewWriter(kind, family.ID[family.Fast](), 0, 0)
			w.U32(c.flags, c.rows)
			for range c.rows {
				w.U32(8, 8)
			}
			w.U64(make([]uint64, words*c.rows)...)
			return w.Bytes()
		}
		check := func(what string, bad bool, err error) {
			if bad != (err != nil) || err != nil && (!errors.Is(err, sketch.ErrFormat) ||
				!strings.Contains(err.Error(), "tower: ")) {
				t.Errorf("%s, %+v: %v", what, c, err)
			}
		}
		counters, buckets := data(wire.Tower, 1), data(wire.TowerBuckets, 4)
		check("counters", c.bad, new(Sketch[family.Fast]).UnmarshalBinary(counters))
		check("buckets", c.buckets, new(Latency[family.Fast]).UnmarshalBinary(buckets))
		check("counters as buckets", true, new(Latency[family.Fast]).UnmarshalBinary(counters))
		check("cut buckets", true, new(Latency[family.Fast]).UnmarshalBinary(buckets[:len(buckets)-1]))
		check("buckets for half of the rows", true, new(Latency[family.Fast]).UnmarshalBinary(data(wire.TowerBuckets, 2)))
	}
}

// TestShapes: a serialized tower whose rows or seed are impossible is refused, in its words.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		seed        uint64
		bits, width uint32
		problem     string
		want        error
	}{
		{0, 8, 8, "", nil}, {3, 8, 8, "", nil}, {2, 8, 8, "seed: 2", sketch.ErrConfig},
		{0, 1, 64, "row 0: 1-bit", sketch.ErrFormat}, {0, 0, 1, "row 0: 0-bit", sketch.ErrFormat},
		{0, 33, 1, "row 0: 33-bit", sketch.ErrFormat}, {0, 8, 0, "row 0: 0 counters", sketch.ErrFormat},
	} {
		for _, kind := range []uint8{wire.Tower, wire.TowerBuckets} {
			into, words := encoding.BinaryUnmarshaler(new(Sketch[family.P4])), 1
			if kind == wire.TowerBuckets {
				into, words = new(Latency[family.P4]), 4
			}
			w := wire.NewWriter(kind, family.ID[family.P4](), c.seed, 0)
			w.U32(0, 1, c.bits, c.width)
			w.U64(make([]uint64, words)...)
			err := into.UnmarshalBinary(w.Bytes())
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

// TestTheorem: theorem 1 by hand. Of rows of 2, 8 and 16 bits those contribute that can hold the
// flow and the error together.
func TestTheorem(t *testing.T) {
	s := build[family.Fast](t, Config{Rows: []Row{{2, 400}, {8, 100}, {16, 50}}})
	factor := func(width, of float64) float64 { return width / (math.E * of) }
	for _, c := range []struct {
		size          uint32
		total         uint64
		over, failure float64
	}{
		{1, 10, math.E / 50 * 10, factor(50, 400) * factor(50, 100) * factor(50, 50)}, // all rows
		{3, 10, math.E / 50 * 10, factor(50, 100) * factor(50, 50)},
		{254, 10, math.E / 50 * 10, factor(50, 100) * factor(50, 50)},
		{255, 10, math.E / 50 * 10, factor(50, 50)},
		{255, 0, 0, factor(50, 50)},
		{65534, 10, math.E / 50 * 10, factor(50, 50)},
		{65535, 10, math.Inf(1), 1},
	} {
		b := s.Bound(c.size, c.total)
		if c.over != b.Over && math.Abs(b.Over-c.over) > 1e-9 || math.Abs(b.Failure-c.failure) > 1e-12 {
			t.Errorf("size %d: %+v, want %v with %v", c.size, b, c.over, c.failure)
		}
	}
}
