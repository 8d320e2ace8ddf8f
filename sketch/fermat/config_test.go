// SPDX-License-Identifier: Apache-2.0

package fermat

import (
	"errors"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// TestConfig: a sketch has the shape that its configuration asks for; limits themselves are valid.
func TestConfig(t *testing.T) {
	for _, c := range []struct {
		config  Config
		problem string
		narrow  string // the problem with Prime32
		bucket  [2]int // bytes of a bucket with Mersenne61 and Prime32
	}{
		{Config{Width: 1}, "keys of 0 bytes", "keys of 0 bytes", [2]int{}},
		{Config{Width: 1, KeyBytes: 65}, "keys of 65 bytes", "keys of 65 bytes", [2]int{}},
		{Config{Width: 1, KeyBytes: 64}, "", "", [2]int{8 * 10, 4 * 18}},
		{Config{Width: 1, KeyBytes: 1}, "", "", [2]int{8 * 2, 4 * 2}},
		{Config{Width: 1, KeyBytes: 4, FragmentBits: 8}, "fragments of 8 bits", "fragments of 8 bits", [2]int{}},
		{Config{Width: 1, KeyBytes: 4, FragmentBits: 9}, "", "", [2]int{8 * 5, 4 * 5}},
		{Config{Width: 1, KeyBytes: 4, FragmentBits: 32}, "", "", [2]int{8 * 2, 4 * 2}},
		{Config{Width: 1, KeyBytes: 4, FragmentBits: 33}, "", "fragments of 33 bits; expected 9 to 32", [2]int{8 * 2}},
		{Config{Width: 1, KeyBytes: 4, FragmentBits: 60}, "", "fragments of 60 bits", [2]int{8 * 2}},
		{Config{Width: 1, KeyBytes: 4, FragmentBits: 61}, "fragments of 61 bits; expected 9 to 60", "fragments of 61 bits",
			[2]int{}},
		{Config{Width: 1, KeyBytes: 4, Fingerprint: -1}, "fingerprint of -1", "fingerprint of -1", [2]int{}},
		{Config{Width: 1, KeyBytes: 4, Fingerprint: 33}, "fingerprint of 33", "fingerprint of 33", [2]int{}},
		{Config{Width: 1, KeyBytes: 13, Fingerprint: 32}, "", "", [2]int{8 * 4, 4 * 6}},
		{Config{Width: 1, KeyBytes: 13, Fingerprint: 16}, "", "", [2]int{8 * 3, 4 * 5}},
		{Config{Width: 1, KeyBytes: 13, Fingerprint: 17}, "", "", [2]int{8 * 4, 4 * 5}},
		{Config{Width: 1, KeyBytes: 13, Fingerprint: 20}, "", "", [2]int{8 * 4, 4 * 5}},
		{Config{Width: 1, KeyBytes: 13, Fingerprint: 21}, "", "", [2]int{8 * 4, 4 * 6}},
	} {
		wide, err := New[family.Fast, Mersenne61](c.config)
		check(t, c.config, err, c.problem)
		if err == nil && (wide.Memory() != 3*c.bucket[0] || wide.Config().Memory != 0) {
			t.Errorf("%+v: %d bytes", c.config, wide.Memory())
		}
		narrow, err := New[family.Fast, Prime32](c.config)
		check(t, c.config, err, c.narrow)
		if err == nil && narrow.Memory() != 3*c.bucket[1] {
			t.Errorf("%+v, 32 bits: %d bytes", c.config, narrow.Memory())
		}
	}
	s, err := New[family.Fast, Prime32](Config{Rows: 2, Memory: 2 * 50 * 20, KeyBytes: 13})
	if err != nil || s.Config().Width != 50 || s.Config().Memory != 0 || s.Buckets() != 100 {
		t.Errorf("%+v, %v", s.Config(), err)
	}
	if _, err := s.Divide(20, 31); err == nil || !strings.Contains(err.Error(), "part 1 of 31 buckets a row; 30 of 50") {
		t.Error(err)
	}
	if _, err := s.Divide(20, 0); !errors.Is(err, sketch.ErrConfig) {
		t.Error(err)
	}
	for _, at := range [][2]int{{-1, 0}, {2, 0}, {0, -1}, {0, 50}} {
		_, _, err := s.Bucket(at[0], at[1])
		if !errors.Is(err, sketch.ErrMismatch) || !strings.Contains(err.Error(), "2 rows of 50") {
			t.Errorf("bucket %v: %v", at, err)
		}
	}
	if err := s.AddRegisters(0, make([]uint32, 50*5-1), false); !errors.Is(err, sketch.ErrMismatch) ||
		!strings.Contains(err.Error(), "2 rows of 250") {
		t.Error(err)
	}
	for _, row := range []int{-1, 2} {
		if err := s.AddRegisters(row, make([]uint32, 50*5), false); !errors.Is(err, sketch.ErrMismatch) {
			t.Errorf("row %d: %v", row, err)
		}
	}
}

// check reports an error unless err has the problem; with "", unless it is nil.
func check(t *testing.T, c any, err error, problem string) {
	t.Helper()
	if (problem == "") != (err == nil) || err != nil && (!errors.Is(err, sketch.ErrConfig) ||
		!strings.Contains(err.Error(), problem)) {
		t.Errorf("%+v: %v, want %q", c, err, problem)
	}
}

// TestHeaders: a serialized sketch of an impossible shape is refused.
func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		header  [6]uint32 // flags, rows, width, bytes of a key, bits of a fragment, fingerprint
		words   int
		problem string
	}{
		{[6]uint32{0, 1, 2, 4, 31, 0}, 6, ""}, {[6]uint32{1, 1, 1, 1, 9, 0}, 2, ""}, {[6]uint32{0, 1, 1, 4, 32, 0}, 2, ""},
		{[6]uint32{2, 1, 2, 4, 31, 0}, 6, "another prime"}, {[6]uint32{4, 1, 2, 4, 31, 0}, 6, "another prime"},
		{[6]uint32{0, 0, 2, 4, 31, 0}, 18, "Rows:0"}, {[6]uint32{0, 1, 0, 4, 31, 0}, 0, "Width:0"},
		{[6]uint32{0, 1, 2, 4, 0, 0}, 6, "FragmentBits:0"}, {[6]uint32{0, 1, 2, 0, 31, 0}, 6, "keys of 0"},
		{[6]uint32{0, 1, 2, 4, 31, 0}, 5, "bytes"}, {[6]uint32{0, 1, 2, 4, 31, 0}, 7, "bytes"},
	} {
		w := wire.NewWriter(wire.Fermat, family.ID[family.Fast](), 0, 4*c.words)
		w.U32(c.header[:]...)
		w.U32(make([]uint32, c.words)...)
		var s Sketch[family.Fast, Prime32]
		err := s.UnmarshalBinary(w.Bytes())
		if (c.problem == "") != (err == nil) || err != nil && (!errors.Is(err, sketch.ErrFormat) ||
			!strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, decoded := s.Decode(); err == nil && (decoded != nil) != (c.header[0] == 1) {
			t.Errorf("%+v: decodes with %v", c, decoded)
		}
	}
}
