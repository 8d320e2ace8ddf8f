// SPDX-License-Identifier: Apache-2.0

// Package countmin is the Count-Min sketch (Cormode and Muthukrishnan 2005) and, with conservative
// update, CU (Estan and Varghese 2002). The estimate of both is the smallest of a key's counters,
// which is never too low.
//
// A Sketch is not safe for concurrent use while it is written.
package countmin

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/pages"
	"github.com/netsketch/netsketch/sketch/internal/shape"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// Config is the shape of a sketch of 32-bit counters. Give either Width or Memory.
type Config struct {
	Rows   int // 1 to family.Rows; 0 means 3
	Width  int // counters per row
	Memory int // bytes of all counters; rounded down to whole rows
	Seed   uint64
	// Conservative adds only to the smallest counters (CU). Estimates are better, but sketches
	// cannot be subtracted.
	Conservative bool
}

const cellBytes = 4

// Sketch counts packets, or other amounts, by key.
type Sketch[F family.Hash] struct {
	cfg   Config
	cols  family.Range
	cells []uint32 // row-major
	total uint64   // sum of all added numbers
	full  bool     // whether a counter has reached its limit
}

// New returns an empty sketch.
func New[F family.Hash](c Config) (*Sketch[F], error) {
	var err error
	if c.Rows, c.Width, err = shape.Rows[F]("countmin", c.Rows, c.Width, c.Memory, cellBytes, c.Seed); err != nil {
		return nil, err
	}
	c.Memory = 0
	return &Sketch[F]{cfg: c, cols: family.NewRange(uint32(c.Width)), cells: pages.Make[uint32](c.Rows * c.Width)}, nil
}

// Config returns the shape, with its actual Width.
func (s *Sketch[F]) Config() Config { return s.cfg }

// Memory returns the size of the counters in bytes.
func (s *Sketch[F]) Memory() int { return len(s.cells) * cellBytes }

// Row returns the counters of a row, for estimators. The caller must not change them.
func (s *Sketch[F]) Row(i int) []uint32 { return s.cells[i*s.cfg.Width : (i+1)*s.cfg.Width] }

// Insert counts one packet of a key.
func (s *Sketch[F]) Insert(key []byte) {
	d := family.Digest[F](s.cfg.Seed, key)
	switch {
	case s.cfg.Rows != 3 || family.ID[F]() != family.ID[family.Fast]():
		s.add(d, 1)
	case s.cfg.Conservative:
		s.raiseOne(d)
	default:
		s.addThree(d, 1)
	}
}

// Add adds n to a key's counters, which stop at 2^32-1.
func (s *Sketch[F]) Add(key []byte, n uint32) { s.add(family.Digest[F](s.cfg.Seed, key), n) }

// InsertBatch counts one packet of each key; keys are concatenated, size bytes each. With
// conservative update and the family Fast, it adds up equal keys first, as if their packets came
// one after another.
func (s *Sketch[F]) InsertBatch(keys []byte, size int) error {
	if err := family.CheckBatch("countmin", keys, size); err != nil {
		return err
	}
	s.total += uint64(len(keys) / size)
	switch {
	case !s.cfg.Conservative:
		family.SumBatch[F](s.cfg.Seed, keys, size, s.addRows)
	case family.ID[F]() == family.ID[family.Fast]():
		family.SumBatch[F](s.cfg.Seed, keys, size, s.raiseBlock)
	default: // as the P4 programs do, one packet after another
		family.Blocks[F](s.cfg.Seed, keys, size, s.raiseBlock)
	}
	return nil
}

func (s *Sketch[F]) add(d uint64, n uint32) {
	if !s.cfg.Conservative && s.cfg.Rows == 3 && family.ID[F]() == family.ID[family.Fast]() {
		s.addThree(d, n)
		return
	}
	s.total += uint64(n)
	if s.cfg.Conservative {
		s.raise(d, n)
		return
	}
	var cols [family.MaxRows]uint32
	at := cols[:min(s.cfg.Rows, family.MaxRows)]
	family.Columns[F](d, &s.cols, at)
	base, width := s.cells, s.cfg.Width
	for _, col := range at {
		c := &base[col]
		if v := *c + n; v >= n {
			*c = v
		} else {
			*c, s.full = math.MaxUint32, true
		}
		base = base[width:]
	}
}

// addThree does the work of add for three rows of the family Fast. It reads all counters before it
// writes one, so that cache misses overlap.
func (s *Sketch[F]) addThree(d uint64, n uint32) {
	s.total += uint64(n)
	cells, width := s.cells, uint64(s.cfg.Width)
	a := &cells[uint64(family.FastValue(d, 0))*width>>32]
	b := &cells[width+uint64(family.FastValue(d, 1))*width>>32]
	c := &cells[2*width+uint64(family.FastValue(d, 2))*width>>32]
	x, over := bits.Add32(*a, n, 0)
	y, overB := bits.Add32(*b, n, 0)
	z, overC := bits.Add32(*c, n, 0)
	*a, *b, *c = x|-over, y|-overB, z|-overC
	if over|overB|overC != 0 {
		s.full = true
	}
}

// addRows adds numbers to the counters of digests, row by row, because accesses to the same row
// are independent.
func (s *Sketch[F]) addRows(digests []uint64, numbers []uint32) {
	var cols [family.Block]uint32
	full := false
	for r := range s.cfg.Rows {
		row := s.Row(r)
		family.RowColumns[F](digests, r, &s.cols, cols[:])
		for i, n := range numbers {
			if c := &row[cols[i%family.Block]]; *c <= ^n {
				*c += n
			} else {
				*c, full = math.MaxUint32, true
			}
		}
	}
	if full {
		s.full = true
	}
}

// inCaches is the size in bytes up to which counters usually fit the second-level cache.
const inCaches = 1 << 20

// raiseBlock raises the counters of digests by numbers of packets, in order. If accesses have to
// wait for memory, it first finds all columns, so that more accesses overlap.
func (s *Sketch[F]) raiseBlock(digests []uint64, numbers []uint32) {
	full := uint32(0)
	if s.cfg.Rows == 3 && s.Memory() <= inCaches && family.ID[F]() == family.ID[family.Fast]() {
		first, second, third := s.Row(0), s.Row(1), s.Row(2)
		width := uint64(s.cfg.Width)
		for i, d := range digests {
			full |= raiseThree(&first[uint64(family.FastValue(d, 0))*width>>32],
				&second[uint64(family.FastValue(d, 1))*width>>32],
				&third[uint64(family.FastValue(d, 2))*width>>32], numbers[i])
		}
		if full != 0 {
			s.full = true
		}
		return
	}
	var cols [family.MaxRows][family.Block]uint32
	rows := min(s.cfg.Rows, family.MaxRows)
	for r := range rows {
		family.RowColumns[F](digests, r, &s.cols, cols[r][:])
	}
	switch rows {
	case 3:
		first, second, third := s.Row(0), s.Row(1), s.Row(2)
		for i, n := range numbers {
			i %= family.Block
			full |= raiseThree(&first[cols[0][i]], &second[cols[1][i]], &third[cols[2][i]], n)
		}
	case 5:
		r0, r1, r2, r3, r4 := s.Row(0), s.Row(1), s.Row(2), s.Row(3), s.Row(4)
		for i, n := range numbers {
			i %= family.Block
			full |= raiseFive(&r0[cols[0][i]], &r1[cols[1][i]], &r2[cols[2][i]], &r3[cols[3][i]], &r4[cols[4][i]], n)
		}
	default:
		var at [family.MaxRows]uint32
		for i, n := range numbers {
			for r := range rows {
				at[r] = cols[r][i%family.Block]
			}
			s.raiseColumns(at[:rows], n)
		}
	}
	if full != 0 {
		s.full = true
	}
}

// raiseFive does the work of raiseThree for five rows.
func raiseFive(a, b, c, d, e *uint32, n uint32) (full uint32) {
	v, w, x, y, z := *a, *b, *c, *d, *e
	to, full := bits.Add32(min(v, w, x, y, z), n, 0)
	to |= -full
	*a, *b, *c, *d, *e = max(v, to), max(w, to), max(x, to), max(y, to), max(z, to)
	return full
}

// raiseThree raises a key's counters in three rows by n, without a branch for which of them
// change. It returns 1 if they are full.
func raiseThree(a, b, c *uint32, n uint32) (full uint32) {
	x, y, z := *a, *b, *c
	to, full := bits.Add32(min(x, y, z), n, 0)
	to |= -full
	*a, *b, *c = max(x, to), max(y, to), max(z, to)
	return full
}

// raiseOne adds 1 with conservative update, for three rows of the family Fast. Fewer instructions
// per key let more cache misses of the following keys overlap.
func (s *Sketch[F]) raiseOne(d uint64) {
	s.total++
	cells, width := s.cells, uint64(s.cfg.Width)
	a := &cells[uint64(family.FastValue(d, 0))*width>>32]
	b := &cells[width+uint64(family.FastValue(d, 1))*width>>32]
	c := &cells[2*width+uint64(family.FastValue(d, 2))*width>>32]
	x, y, z := *a, *b, *c
	to := min(x, y, z) + 1
	if to == 0 {
		s.full = true
		return
	}
	*a, *b, *c = max(x, to), max(y, to), max(z, to)
}

// raise sets every counter of a key that is below the estimate plus n to the estimate plus n.
func (s *Sketch[F]) raise(d uint64, n uint32) {
	var cols [family.MaxRows]uint32
	at := cols[:min(s.cfg.Rows, family.MaxRows)]
	family.Columns[F](d, &s.cols, at)
	if len(at) != 3 {
		s.raiseColumns(at, n)
		return
	}
	cells, width := s.cells, uint32(s.cfg.Width)
	if raiseThree(&cells[at[0]], &cells[width+at[1]], &cells[2*width+at[2]], n) != 0 {
		s.full = true
	}
}

// raiseColumns does the work of raise for a key's columns, which it overwrites.
func (s *Sketch[F]) raiseColumns(at []uint32, n uint32) {
	cells, start, width := s.cells, uint32(0), uint32(s.cfg.Width)
	least := uint32(math.MaxUint32)
	for r, col := range at {
		at[r] = start + col
		least = min(least, cells[at[r]])
		start += width
	}
	to := least + n
	if to < n {
		to, s.full = math.MaxUint32, true
	}
	for _, i := range at {
		cells[i] = max(cells[i], to)
	}
}

// Query returns the estimate of a key: never below the true sum, unless a counter stopped at
// 2^32-1; then the estimate is 2^32-1.
func (s *Sketch[F]) Query(key []byte) uint32 {
	d := family.Digest[F](s.cfg.Seed, key)
	least := uint32(math.MaxUint32)
	for r := range s.cfg.Rows {
		least = min(least, s.cells[r*s.cfg.Width+int(family.Column[F](d, r, &s.cols))])
	}
	return least
}

// Total returns the sum of all added numbers.
func (s *Sketch[F]) Total() uint64 { return s.total }

// Bound is the bound of Count-Min: with probability 1-e^-rows, an estimate is too high by at most
// e/width of the total.
func (s *Sketch[F]) Bound() sketch.Bound {
	b := sketch.Bound{Over: math.E / float64(s.cfg.Width) * float64(s.total), Failure: math.Exp(-float64(s.cfg.Rows))}
	if s.full {
		b.Under = math.Inf(1)
	}
	return b
}

// Reset empties the sketch.
func (s *Sketch[F]) Reset() {
	clear(s.cells)
	s.total, s.full = 0, false
}

func (s *Sketch[F]) fits(o *Sketch[F]) error {
	if o == nil || s.cfg != o.cfg {
		return fmt.Errorf("%w: countmin: %+v and %+v", sketch.ErrMismatch, s.cfg, o.config())
	}
	return nil
}

func (s *Sketch[F]) config() any {
	if s == nil {
		return nil
	}
	return s.cfg
}

// Merge adds the counts of o. For CU sketches, estimates are still never too low, but the counters
// differ from the counters of a single sketch.
func (s *Sketch[F]) Merge(o *Sketch[F]) error {
	if err := s.fits(o); err != nil {
		return err
	}
	full := s.full || o.full
	for i, v := range o.cells {
		sum := s.cells[i] + v
		if sum < v {
			sum, full = math.MaxUint32, true
		}
		s.cells[i] = sum
	}
	s.total, s.full = s.total+o.total, full
	return nil
}

// Subtract subtracts the counts of o, whose packets must be a part of the packets of s. It fails,
// and changes nothing, for CU sketches, for counters at their limit, and if a counter would become
// negative.
func (s *Sketch[F]) Subtract(o *Sketch[F]) error {
	if err := s.fits(o); err != nil {
		return err
	}
	if s.cfg.Conservative {
		return fmt.Errorf("%w: countmin: sketches with conservative update are not linear and cannot be subtracted",
			sketch.ErrMismatch)
	}
	if s.full || o.full {
		return fmt.Errorf("%w: countmin: subtract", sketch.ErrLimit)
	}
	for i, v := range o.cells {
		if v > s.cells[i] {
			return fmt.Errorf("%w: countmin: counter %d would become %d-%d; only a part of what was counted can "+
				"be subtracted", sketch.ErrMismatch, i, s.cells[i], v)
		}
	}
	total := o.total
	for i, v := range o.cells {
		s.cells[i] -= v
	}
	s.total -= total
	return nil
}

// MarshalBinary serializes the sketch.
func (s *Sketch[F]) MarshalBinary() ([]byte, error) {
	w := wire.NewWriter(wire.CountMin, family.ID[F](), s.cfg.Seed, s.Memory())
	var flags uint32
	if s.cfg.Conservative {
		flags |= 1
	}
	if s.full {
		flags |= 2
	}
	w.U32(flags, uint32(s.cfg.Rows), uint32(s.cfg.Width))
	w.U64(s.total)
	w.U32(s.cells...)
	return w.Bytes(), nil
}

// UnmarshalBinary replaces the sketch by a serialized one.
func (s *Sketch[F]) UnmarshalBinary(b []byte) error {
	r, err := wire.NewReader(b, wire.CountMin, family.ID[F]())
	if err != nil {
		return fmt.Errorf("countmin: %w", err)
	}
	flags, rows, width := r.U32(), int(r.U32()), int(r.U32())
	total := r.U64()
	if rows < 1 || rows > family.MaxRows || width < 1 || flags > 3 {
		return fmt.Errorf("countmin: %w: %d rows of %d columns", sketch.ErrFormat, rows, width)
	}
	if err := r.Expect(rows * width * cellBytes); err != nil {
		return fmt.Errorf("countmin: %w", err)
	}
	n, err := New[F](Config{Rows: rows, Width: width, Seed: r.Seed, Conservative: flags&1 != 0})
	if err != nil {
		return err
	}
	wire.Cells(r, n.cells)
	n.total, n.full = total, flags&2 != 0
	*s = *n
	return nil
}
