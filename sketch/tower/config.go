// SPDX-License-Identifier: Apache-2.0

package tower

import (
	"fmt"
	"math"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// Row is the shape of one row.
type Row struct {
	Bits  int // bits per counter, 2 to 32
	Width int // number of counters
}

// Config is the shape of a tower. Give either Rows, or Bits and Memory for rows of equal memory.
type Config struct {
	Rows   []Row
	Bits   []int // bits per counter, by row; nil with Memory means 2, 4, 8, 16, 32
	Memory int   // bytes of all rows together
	Seed   uint64
	// Conservative makes an insertion add only to the smallest counters that have not overflowed (CU
	// insertion).
	Conservative bool
}

const wordBits = 64

// maxOddWidth bounds rows whose counter width does not divide a word, so that a multiplication can
// replace the division.
const maxOddWidth = 1 << 27

// rows returns the validated rows.
func (c *Config) rows() ([]Row, error) {
	fail := func(format string, args ...any) ([]Row, error) {
		return nil, fmt.Errorf("%w: tower: %s", sketch.ErrConfig, fmt.Sprintf(format, args...))
	}
	rows := c.Rows
	if rows == nil {
		bits := c.Bits
		if bits == nil {
			bits = []int{2, 4, 8, 16, 32}
		}
		if c.Memory < 1 || c.Memory > sketch.MaxMemory || len(bits) == 0 {
			return fail("memory: %d bytes for %d rows; expected 1 to %d bytes, or rows given one by one", c.Memory,
				len(bits), sketch.MaxMemory)
		}
		words := c.Memory / (wordBits / 8) / len(bits)
		if words == 0 {
			return fail("memory: %d bytes are less than a word of 8 bytes for each of %d rows", c.Memory, len(bits))
		}
		for _, b := range bits {
			if b < 2 || b > 32 {
				return fail("a row of %d-bit counters; expected 2 to 32 bits", b)
			}
			rows = append(rows, Row{Bits: b, Width: words * (wordBits / b)})
		}
	} else if c.Memory != 0 || c.Bits != nil {
		return fail("rows are given, so memory (%d) and bits (%v) must not be", c.Memory, c.Bits)
	}
	if len(rows) > family.MaxRows {
		return fail("%d rows; expected at most %d", len(rows), family.MaxRows)
	}
	total := 0
	for i, r := range rows {
		switch {
		case r.Bits < 2 || r.Bits > 32:
			return fail("row %d: %d-bit counters; expected 2 to 32 bits", i, r.Bits)
		case r.Width < 1 || r.Width > maxWidth:
			return fail("row %d: %d counters; expected 1 to %d", i, r.Width, maxWidth)
		case wordBits%r.Bits != 0 && r.Width > maxOddWidth:
			return fail("row %d: %d counters of %d bits; at most %d when the bits do not divide %d", i, r.Width, r.Bits,
				maxOddWidth, wordBits)
		case i > 0 && r.Bits < rows[i-1].Bits:
			return fail("row %d: %d-bit counters above %d-bit ones; rows go from small to large", i, r.Bits,
				rows[i-1].Bits)
		}
		if words(r) > sketch.MaxMemory/8-total {
			return fail("more than %d bytes", sketch.MaxMemory)
		}
		total += words(r)
	}
	return rows, nil
}

// maxWidth bounds a row, so that its size in bytes fits an int.
const maxWidth = min(1<<31, math.MaxInt)

// words returns the number of 64-bit words of a row. No counter spans two words.
func words(r Row) int {
	perWord := wordBits / r.Bits
	return (r.Width-1)/perWord + 1
}

// row is the shape of a row for insertion.
type row struct {
	cols   family.Range
	magic  uint64 // 2^32 divided by the number of counters in a word, rounded up
	mask   uint64 // mask of a counter; a counter with this value has overflowed
	start  uint32 // index of the row's first word
	bits   uint32
	inWord uint32 // counters per word
	words  uint64 // number of words
	high   uint64 // has the highest bit of every counter of a word set
}

// evenRow is a row for family.Fast whose counter width divides the word. The high half of hash ×
// words is the index of the word, and the low half gives the bit offset. This is the counter that
// locate finds, with one multiplication only.
type evenRow struct {
	words uint64
	mask  uint64
	lanes uint64 // has the lowest bit of each counter of a word set
	start uint64
}

func plan(rows []Row) (plans []row, total int) {
	for _, r := range rows {
		perWord := uint64(wordBits / r.Bits)
		plans = append(plans, row{
			cols:   family.NewRange(uint32(r.Width)),
			magic:  (1<<32 + perWord - 1) / perWord,
			mask:   1<<r.Bits - 1,
			start:  uint32(total),
			bits:   uint32(r.Bits),
			inWord: uint32(perWord),
			words:  uint64(words(r)),
		})
		p := &plans[len(plans)-1]
		for lane := range p.inWord {
			p.high |= 1 << (lane*p.bits + p.bits - 1)
		}
		total += words(r)
	}
	return plans, total
}

// even returns the rows as evenRows. It returns nil unless all rows have counters of 2, 4, 8, 16
// or 32 bits and fill their words.
func even(plans []row, shape []Row) []evenRow {
	rows := make([]evenRow, len(plans))
	for i, r := range plans {
		if r.bits&(r.bits-1) != 0 || shape[i].Width%int(r.inWord) != 0 {
			return nil
		}
		rows[i] = evenRow{words: r.words, mask: r.mask, lanes: 63 &^ uint64(r.bits-1), start: uint64(r.start)}
	}
	return rows
}

// locate returns the word of a counter, and the counter's first bit.
func (r *row) locate(col uint32) (word, shift uint32) {
	w := uint32(uint64(col) * r.magic >> 32)
	return r.start + w, (col - w*r.inWord) * r.bits
}
