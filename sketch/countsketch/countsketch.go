// SPDX-License-Identifier: Apache-2.0

// Package countsketch is the Count sketch (Charikar, Chen and Farach-Colton 2002): every row adds
// or subtracts, depending on a sign of the key, and the median over the rows is an unbiased
// estimate whose error depends on the second moment.
//
// A Sketch is not safe for concurrent use while it is written.
package countsketch

import (
	"fmt"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/pages"
	"github.com/netsketch/netsketch/sketch/internal/shape"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// Config is the shape of a sketch of 32-bit signed counters. Give either Width or
// Memory.
type Config struct {
	Rows   int // 1 to family.Rows, preferably odd; 0 means 3
	Width  int // counters per row
	Memory int // bytes of all counters; rounded down to whole rows
	Seed   uint64
}

const cellBytes = 4

// Sketch counts packets, or other amounts, by key.
type Sketch[F family.Hash] struct {
	cfg   Config
	cols  family.Range
	cells []int32 // row-major
	full  bool    // whether a counter has reached its limit
}

// New returns an empty sketch.
func New[F family.Hash](c Config) (*Sketch[F], error) {
	var err error
	if c.Rows, c.Width, err = shape.Rows[F]("countsketch", c.Rows, c.Width, c.Memory, cellBytes, c.Seed); err != nil {
		return nil, err
	}
	c.Memory = 0
	return &Sketch[F]{cfg: c, cols: family.NewRange(uint32(c.Width)), cells: pages.Make[int32](c.Rows * c.Width)}, nil
}

// Config returns the shape, with its actual Width.
func (s *Sketch[F]) Config() Config { return s.cfg }

// Memory returns the size of the counters in bytes.
func (s *Sketch[F]) Memory() int { return len(s.cells) * cellBytes }

// Insert counts one packet of a key.
func (s *Sketch[F]) Insert(key []byte) { s.add(family.Digest[F](s.cfg.Seed, key), 1) }

// Add adds n, which may be negative, to a key. Counters stop at ±(2^31-1).
func (s *Sketch[F]) Add(key []byte, n int32) { s.add(family.Digest[F](s.cfg.Seed, key), n) }

// InsertBatch counts one packet of each key; keys are concatenated, size bytes each.
func (s *Sketch[F]) InsertBatch(keys []byte, size int) error {
	if err := family.CheckBatch("countsketch", keys, size); err != nil {
		return err
	}
	var digests [family.Block]uint64
	for len(keys) > 0 {
		n := family.Digests[F](s.cfg.Seed, keys, size, digests[:])
		for _, d := range digests[:n] {
			s.add(d, 1)
		}
		keys = keys[n*size:]
	}
	return nil
}

// at returns the index of a key's counter in a row, and its sign, 1 or -1. For P4, the sign is the
// lowest bit of the row's hash; for Fast, a bit of the digest.
func (s *Sketch[F]) at(d uint64, row int) (i int, sign int32) {
	v := family.Value[F](d, row)
	if family.ID[F]() == family.ID[family.P4]() {
		// The column is computed from the hash without its sign bit.
		return row*s.cfg.Width + int(family.Reduce[F](v>>1, &s.cols)), 1 - 2*int32(v&1)
	}
	return row*s.cfg.Width + int(family.Reduce[F](v, &s.cols)), 1 - 2*int32(d>>(8+row)&1)
}

func (s *Sketch[F]) add(d uint64, n int32) {
	for r := range s.cfg.Rows {
		i, sign := s.at(d, r)
		v := int64(s.cells[i]) + int64(sign)*int64(n)
		if v > math.MaxInt32 || v < -math.MaxInt32 {
			v, s.full = min(max(v, -math.MaxInt32), math.MaxInt32), true
		}
		s.cells[i] = int32(v)
	}
}

// Query returns the estimate of a key, the median over the rows; it may be negative.
func (s *Sketch[F]) Query(key []byte) int32 {
	return s.query(family.Digest[F](s.cfg.Seed, key))
}

func (s *Sketch[F]) query(d uint64) int32 {
	var v [family.MaxRows]int32
	rows := min(s.cfg.Rows, family.MaxRows)
	for r := range rows {
		i, sign := s.at(d, r)
		x := sign * s.cells[i]
		j := r
		for ; j > 0 && v[j-1] > x; j-- {
			v[j] = v[j-1]
		}
		v[j] = x
	}
	if rows%2 == 1 {
		return v[rows/2]
	}
	return int32((int64(v[rows/2-1]) + int64(v[rows/2])) / 2)
}

// Moment2 estimates the second moment F2, the sum of the squared counts: the median
// over the rows of the sum of their squared counters (Alon, Matias and Szegedy).
func (s *Sketch[F]) Moment2() float64 {
	rows := make([]float64, s.cfg.Rows)
	for r := range rows {
		for _, c := range s.cells[r*s.cfg.Width : (r+1)*s.cfg.Width] {
			rows[r] += float64(c) * float64(c)
		}
	}
	slices.Sort(rows)
	return (rows[(len(rows)-1)/2] + rows[len(rows)/2]) / 2
}

// Bound follows from Chebyshev's inequality: a row has an error above sqrt(8 F2/width) with
// probability at most 1/8, and the median has one only if half of the rows have. F2 is estimated.
func (s *Sketch[F]) Bound() sketch.Bound {
	d := s.cfg.Rows
	miss := 0.0
	for k := (d + 1) / 2; k <= d; k++ {
		miss += choose(d, k) * math.Pow(1./8, float64(k)) * math.Pow(7./8, float64(d-k))
	}
	e := math.Sqrt(8 * s.Moment2() / float64(s.cfg.Width))
	if s.full {
		e = math.Inf(1)
	}
	return sketch.Bound{Over: e, Under: e, Failure: miss}
}

func choose(n, k int) float64 {
	c := 1.0
	for i := range k {
		c = c * float64(n-i) / float64(i+1)
	}
	return c
}

// Reset empties the sketch.
func (s *Sketch[F]) Reset() {
	clear(s.cells)
	s.full = false
}

// Merge adds the counts of o.
func (s *Sketch[F]) Merge(o *Sketch[F]) error { return s.combine(o, 1) }

// Subtract subtracts the counts of o; the result may be negative.
func (s *Sketch[F]) Subtract(o *Sketch[F]) error { return s.combine(o, -1) }

func (s *Sketch[F]) combine(o *Sketch[F], sign int64) error {
	if o == nil {
		return fmt.Errorf("%w: countsketch: nothing to add", sketch.ErrMismatch)
	}
	if s.cfg != o.cfg {
		return fmt.Errorf("%w: countsketch: %+v and %+v", sketch.ErrMismatch, s.cfg, o.cfg)
	}
	full := s.full || o.full
	for i, c := range o.cells {
		v := int64(s.cells[i]) + sign*int64(c)
		if v > math.MaxInt32 || v < -math.MaxInt32 {
			v, full = min(max(v, -math.MaxInt32), math.MaxInt32), true
		}
		s.cells[i] = int32(v)
	}
	s.full = full
	return nil
}

// MarshalBinary serializes the sketch.
func (s *Sketch[F]) MarshalBinary() ([]byte, error) {
	w := wire.NewWriter(wire.CountSketch, family.ID[F](), s.cfg.Seed, s.Memory())
	var flags uint32
	if s.full {
		flags |= 1
	}
	w.U32(flags, uint32(s.cfg.Rows), uint32(s.cfg.Width))
	for _, c := range s.cells {
		w.U32(uint32(c))
	}
	return w.Bytes(), nil
}

// UnmarshalBinary replaces the sketch by a serialized one.
func (s *Sketch[F]) UnmarshalBinary(b []byte) error {
	r, err := wire.NewReader(b, wire.CountSketch, family.ID[F]())
	if err != nil {
		return fmt.Errorf("countsketch: %w", err)
	}
	flags, rows, width := r.U32(), int(r.U32()), int(r.U32())
	if rows < 1 || rows > family.MaxRows || width < 1 || flags > 1 {
		return fmt.Errorf("countsketch: %w: %d rows of %d columns", sketch.ErrFormat, rows, width)
	}
	if err := r.Expect(rows * width * cellBytes); err != nil {
		return fmt.Errorf("countsketch: %w", err)
	}
	n, err := New[F](Config{Rows: rows, Width: width, Seed: r.Seed})
	if err != nil {
		return err
	}
	for i := range n.cells {
		n.cells[i] = int32(r.U32())
	}
	n.full = flags == 1
	*s = *n
	return nil
}
