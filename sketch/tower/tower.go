// SPDX-License-Identifier: Apache-2.0

// Package tower is TowerSketch (SketchINT §IV): rows of equal memory, from many small
// counters to few large ones. A counter whose bits are all ones has overflowed and stands
// for +∞; the answer is the smallest of a key's counters.
//
// Counters are packed into 64-bit words, as many as fit whole: bits that do not divide 64
// leave some of each word unused. The Sketch is not safe for concurrent use
// while it is written; Shared is.
package tower

import (
	"fmt"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// Overflow is what Query answers when all counters of a key have overflowed.
const Overflow = math.MaxUint32

// Sketch counts packets by key.
type Sketch[F family.Hash] struct {
	seed  uint64
	cu    bool
	even  bool // family.Fast and even rows
	rows  []row
	words []uint64
	shape []Row
}

// New returns an empty tower.
func New[F family.Hash](c Config) (*Sketch[F], error) {
	rows, err := c.rows()
	if err != nil {
		return nil, err
	}
	if err := family.Check[F](len(rows), c.Seed); err != nil {
		return nil, fmt.Errorf("tower: %w", err)
	}
	s := &Sketch[F]{seed: c.Seed, cu: c.Conservative, shape: slices.Clone(rows)}
	var total int
	s.rows, total = plan(rows)
	s.words = make([]uint64, total)
	s.even = even(rows) && family.ID[F]() == family.ID[family.Fast]()
	return s, nil
}

// Rows returns the shape of the rows.
func (s *Sketch[F]) Rows() []Row { return slices.Clone(s.shape) }

// Memory returns the bytes that the counters take.
func (s *Sketch[F]) Memory() int { return len(s.words) * wordBits / 8 }

// Insert counts one packet of a key.
func (s *Sketch[F]) Insert(key []byte) {
	d := family.Digest[F](s.seed, key)
	if s.cu {
		s.raise(d, 1)
	} else {
		s.increment(d)
	}
}

// Add counts n packets of a key.
func (s *Sketch[F]) Add(key []byte, n uint32) {
	d := family.Digest[F](s.seed, key)
	if s.cu {
		s.raise(d, uint64(n))
	} else {
		s.add(d, uint64(n))
	}
}

// InsertBatch counts one packet of each key; keys lie end to end, size bytes each.
func (s *Sketch[F]) InsertBatch(keys []byte, size int) error {
	if size < 1 || len(keys)%size != 0 {
		return fmt.Errorf("%w: tower: %d bytes are no whole number of keys of %d bytes", sketch.ErrMismatch, len(keys), size)
	}
	const ahead = 256
	var digests [ahead]uint64
	for len(keys) > 0 {
		n := min(ahead, len(keys)/size)
		for i := range n {
			digests[i] = family.Digest[F](s.seed, keys[i*size:(i+1)*size])
		}
		switch {
		case s.cu:
			for _, d := range digests[:n] {
				s.raise(d, 1)
			}
		case s.even:
			s.incrementRows(digests[:n])
		default:
			for _, d := range digests[:n] {
				s.increment(d)
			}
		}
		keys = keys[n*size:]
	}
	return nil
}

// increment adds 1 to every counter of a key that has not overflowed, without a branch:
// which counters have is not predictable.
func (s *Sketch[F]) increment(d uint64) {
	words := s.words
	if s.even {
		for i := range s.rows {
			r := &s.rows[i]
			x := uint64(family.Value[F](d, i)) * r.words
			at, shift := r.start+uint32(x>>32), x>>26&r.lanes
			w := words[at]
			below := (w>>(shift&63)&r.mask - r.mask) >> 63
			words[at] = w + below<<(shift&63)
		}
		return
	}
	for i := range s.rows {
		r := &s.rows[i]
		at, shift := r.locate(family.Column[F](d, i, &r.cols))
		w := words[at]
		below := (w>>(shift&63)&r.mask - r.mask) >> 63
		words[at] = w + below<<(shift&63)
	}
}

// incrementRows is increment for many keys, row by row: in one row nothing waits for anything.
func (s *Sketch[F]) incrementRows(digests []uint64) {
	for i := range s.rows {
		r := s.rows[i]
		words := s.words[r.start : uint64(r.start)+r.words]
		for _, d := range digests {
			x := uint64(family.Value[F](d, i)) * r.words
			w, shift := &words[x>>32], x>>26&r.lanes&63
			below := (*w>>shift&r.mask - r.mask) >> 63
			*w += below << shift
		}
	}
}

// add adds n to every counter of a key; one that would pass its maximum overflows.
func (s *Sketch[F]) add(d, n uint64) {
	for i := range s.rows {
		r := &s.rows[i]
		at, shift := r.locate(family.Column[F](d, i, &r.cols))
		w := s.words[at]
		v := w >> shift & r.mask
		s.words[at] = w + (min(v+n, r.mask)-v)<<shift
	}
}

// raise brings every counter that is below the estimate plus n, and has not overflowed,
// up to it.
func (s *Sketch[F]) raise(d, n uint64) {
	var at, shift [family.MaxRows]uint32
	var value [family.MaxRows]uint64
	words, rows := s.words, s.rows[:min(len(s.rows), family.MaxRows)]
	least := uint64(Overflow)
	for i := range rows {
		r := &rows[i]
		var a, sh uint32
		if s.even {
			x := uint64(family.Value[F](d, i)) * r.words
			a, sh = r.start+uint32(x>>32), uint32(x>>26&r.lanes)
		} else {
			a, sh = r.locate(family.Column[F](d, i, &r.cols))
		}
		v := words[a] >> (sh & 63) & r.mask
		at[i], shift[i], value[i] = a, sh, v
		if v == r.mask {
			v = Overflow
		}
		least = min(least, v)
	}
	if least == Overflow {
		return
	}
	for i := range rows {
		v := value[i]
		to := max(min(least+n, rows[i].mask), v)
		words[at[i]] += (to - v) << (shift[i] & 63)
	}
}

// value returns a counter, Overflow if it has overflowed.
func (s *Sketch[F]) value(i int, d uint64) uint64 {
	r := &s.rows[i]
	at, shift := r.locate(family.Column[F](d, i, &r.cols))
	if v := s.words[at] >> shift & r.mask; v != r.mask {
		return v
	}
	return Overflow
}

// Query returns the estimate of a key, never below its packets; Overflow when every
// counter of it has overflowed.
func (s *Sketch[F]) Query(key []byte) uint32 {
	d := family.Digest[F](s.seed, key)
	least := uint64(Overflow)
	for i := range s.rows {
		least = min(least, s.value(i, d))
	}
	return uint32(least)
}

// InsertQuery counts one packet of a key and returns the new estimate.
func (s *Sketch[F]) InsertQuery(key []byte) uint32 {
	d := family.Digest[F](s.seed, key)
	if s.cu {
		s.raise(d, 1)
	} else {
		s.increment(d)
	}
	least := uint64(Overflow)
	for i := range s.rows {
		least = min(least, s.value(i, d))
	}
	return uint32(least)
}

// Row returns a copy of a row's counters, Overflow for those that have overflowed: the
// input of linear counting and MRAC (§V-A).
func (s *Sketch[F]) Row(i int) []uint32 {
	r := &s.rows[i]
	out := make([]uint32, r.cols.Len())
	for c := range out {
		at, shift := r.locate(uint32(c))
		out[c] = Overflow
		if v := s.words[at] >> shift & r.mask; v != r.mask {
			out[c] = uint32(v)
		}
	}
	return out
}

// Bound is the one of the paper's Theorem 1 in its simplest form, Markov's inequality in
// every row that can hold the estimate: with the total of the packets, an estimate of
// a flow of the given size is at most Over too high. Rows that overflowed count for nothing.
func (s *Sketch[F]) Bound(size uint32, total uint64) sketch.Bound {
	width, usable := uint32(math.MaxUint32), 0
	for i := range s.rows {
		if uint64(size) < s.rows[i].mask {
			width = min(width, s.rows[i].cols.Len())
			usable++
		}
	}
	if usable == 0 {
		return sketch.Bound{Over: math.Inf(1), Under: math.Inf(1), Failure: 1}
	}
	return sketch.Bound{Over: math.E / float64(width) * float64(total), Failure: math.Exp(-float64(usable))}
}

// Reset empties the tower.
func (s *Sketch[F]) Reset() { clear(s.words) }

// Merge adds what o counted. With CM insertion the result is what one tower would have
// held; with CU insertion it never answers too low.
func (s *Sketch[F]) Merge(o *Sketch[F]) error {
	if o == nil {
		return fmt.Errorf("%w: tower: nothing to merge", sketch.ErrMismatch)
	}
	if s.seed != o.seed || s.cu != o.cu || !slices.Equal(s.shape, o.shape) {
		return fmt.Errorf("%w: tower: rows %v, seed %d, conservative %v and rows %v, seed %d, conservative %v", sketch.ErrMismatch, s.shape, s.seed, s.cu, o.shape, o.seed, o.cu)
	}
	for i := range s.rows {
		r := &s.rows[i]
		first, last := int(r.start), int(r.start)+words(s.shape[i])
		for w := first; w < last; w++ {
			a, b, sum := s.words[w], o.words[w], uint64(0)
			for lane := range r.inWord {
				shift := lane * r.bits
				sum |= min(a>>shift&r.mask+b>>shift&r.mask, r.mask) << shift
			}
			s.words[w] = sum
		}
	}
	return nil
}

// MarshalBinary serialises the tower.
func (s *Sketch[F]) MarshalBinary() ([]byte, error) {
	w := wire.NewWriter(wire.Tower, family.ID[F](), s.seed, s.Memory())
	var flags uint32
	if s.cu {
		flags = 1
	}
	writeShape(w, flags, s.shape)
	w.U64(s.words...)
	return w.Bytes(), nil
}

func writeShape(w *wire.Writer, flags uint32, shape []Row) {
	w.U32(flags, uint32(len(shape)))
	for _, r := range shape {
		w.U32(uint32(r.Bits), uint32(r.Width))
	}
}

// readShape reads the shape and checks that its words follow, before anything is
// allocated for them.
func readShape(r *wire.Reader) (Config, error) {
	flags, n := r.U32(), r.U32()
	if flags > 1 || n < 1 || n > family.MaxRows {
		return Config{}, fmt.Errorf("%w: tower: %d rows", sketch.ErrFormat, n)
	}
	c := Config{Seed: r.Seed, Conservative: flags == 1}
	for range n {
		c.Rows = append(c.Rows, Row{Bits: int(r.U32()), Width: int(r.U32())})
	}
	if _, err := c.rows(); err != nil {
		return c, fmt.Errorf("%w: %w", sketch.ErrFormat, err)
	}
	total := 0
	for _, row := range c.Rows {
		total += words(row)
	}
	return c, r.Expect(total * wordBits / 8)
}

// UnmarshalBinary replaces the tower by a serialised one.
func (s *Sketch[F]) UnmarshalBinary(b []byte) error {
	r, err := wire.NewReader(b, wire.Tower, family.ID[F]())
	if err != nil {
		return fmt.Errorf("tower: %w", err)
	}
	c, err := readShape(r)
	if err != nil {
		return fmt.Errorf("tower: %w", err)
	}
	n, err := New[F](c)
	if err != nil {
		return err
	}
	wire.Cells(r, n.words)
	*s = *n
	return nil
}
