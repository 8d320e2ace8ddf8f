// SPDX-License-Identifier: Apache-2.0

// Package fermat is FermatSketch (ChameleMon §3.1): buckets that count packets and sum flow
// identifiers modulo a prime. Sketches can be added and subtracted; if a sketch has few enough
// flows, Decode returns every flow with its exact count. Three rows need about 1.23 buckets per
// flow.
//
// A Sketch is not safe for concurrent use while it is written; Decode only reads.
package fermat

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/pages"
	"github.com/netsketch/netsketch/sketch/internal/shape"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// Config is the shape of a sketch. Give either Width or Memory.
type Config struct {
	Rows     int // 1 to family.Rows; 0 means 3
	Width    int // buckets per row
	Memory   int // bytes of all buckets; rounded down to whole rows
	KeyBytes int // length of every key, 1 to 64: 13 for IPv4 5-tuples, 37 for IPv6, 4 for addresses
	// FragmentBits is the number of the identifier's bits in a word. Mersenne61 allows 1 to 60; 0
	// means 60. Prime32 allows 1 to 31, and 32 as P4 programs use; 0 means 31.
	FragmentBits int
	// Fingerprint is the number of bits, 0 to 32, of a hash of the key that are summed together with
	// the key, so that fewer buckets are mistaken for pure. Unused bits of the last fragment cost
	// nothing.
	Fingerprint int
	Seed        uint64
}

const (
	maxKey       = 64
	maxFragments = 64 // 544 bits need 18 fragments of 31, and are not cut into less than 9
)

// complete sets the defaults of a configuration and checks it.
func complete[F family.Hash, E Field](c *Config) (err error) {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: fermat: %s", sketch.ErrConfig, fmt.Sprintf(format, args...))
	}
	most := 32
	if c.FragmentBits == 0 {
		c.FragmentBits = 31
	}
	if wide[E]() {
		most = 60
		if c.FragmentBits == 31 {
			c.FragmentBits = 60
		}
	}
	switch {
	case c.KeyBytes < 1 || c.KeyBytes > maxKey:
		return fail("keys of %d bytes; expected 1 to %d", c.KeyBytes, maxKey)
	case c.FragmentBits < 9 || c.FragmentBits > most:
		return fail("fragments of %d bits; expected 9 to %d", c.FragmentBits, most)
	case c.Fingerprint < 0 || c.Fingerprint > 32:
		return fail("a fingerprint of %d bits; expected 0 to 32", c.Fingerprint)
	}
	c.Rows, c.Width, err = shape.Rows[F]("fermat", c.Rows, c.Width, c.Memory, c.bucket(wide[E]()), c.Seed)
	c.Memory = 0
	return err
}

// fragments returns the number of words of an identifier.
func (c *Config) fragments() int {
	return (c.KeyBytes*8 + c.Fingerprint + c.FragmentBits - 1) / c.FragmentBits
}

// bucket returns the size of a bucket in bytes.
func (c *Config) bucket(wide bool) int {
	if wide {
		return 8 * (1 + c.fragments())
	}
	return 4 * (1 + c.fragments())
}

// Sketch records packets by key.
type Sketch[F family.Hash, E Field] struct {
	cfg       Config
	cols      family.Range
	fragments int
	cells     []E // row-major buckets: a count in two's complement, then the fragments' sums
	stride    int // buckets from one row to the next; in a part of a sketch, more than Width
	offset    int // first bucket of a row
	full      bool
	// whole is set for three rows, the family Fast, and keys of 13 or 4 bytes in fragments of 60 or
	// 31 bits. insertWhole is fast for such keys.
	whole bool
}

// New returns an empty sketch.
func New[F family.Hash, E Field](c Config) (*Sketch[F, E], error) {
	if err := complete[F, E](&c); err != nil {
		return nil, err
	}
	n := c.fragments()
	return &Sketch[F, E]{
		cfg: c, cols: family.NewRange(uint32(c.Width)), fragments: n,
		cells: pages.Make[E](c.Rows * c.Width * (1 + n)), stride: c.Width,
		whole: family.ID[F]() == family.ID[family.Fast]() && c.Rows == 3 && c.Fingerprint == 0 &&
			(c.FragmentBits == 60 || c.FragmentBits == 31) && (c.KeyBytes == 13 || c.KeyBytes == 4),
	}, nil
}

// Divide returns sketches that share this sketch's memory: the first one has the first buckets of
// every row, and so on (ChameleMon §3.2.2). While the parts are in use, do not insert into the
// sketch itself and do not decode it. Reset empties all parts. The sketch can be divided again at
// any time.
func (s *Sketch[F, E]) Divide(widths ...int) ([]*Sketch[F, E], error) {
	parts := make([]*Sketch[F, E], 0, len(widths))
	offset := 0
	for i, w := range widths {
		if w < 1 || w > s.cfg.Width-offset {
			return nil, fmt.Errorf("%w: fermat: part %d of %d buckets a row; %d of %d are left, and none may be empty",
				sketch.ErrConfig, i, w, s.cfg.Width-offset, s.cfg.Width)
		}
		p := *s
		p.cfg.Width, p.cols, p.offset, p.full = w, family.NewRange(uint32(w)), s.offset+offset, false
		parts = append(parts, &p)
		offset += w
	}
	return parts, nil
}

// Config returns the shape, with its actual Width.
func (s *Sketch[F, E]) Config() Config { return s.cfg }

// Buckets returns the number of buckets of all rows.
func (s *Sketch[F, E]) Buckets() int { return s.cfg.Rows * s.cfg.Width }

// Memory returns the size of the buckets in bytes.
func (s *Sketch[F, E]) Memory() int { return s.Buckets() * s.cfg.bucket(wide[E]()) }

// at returns a bucket.
func (s *Sketch[F, E]) at(row int, col uint32) []E {
	n := 1 + s.fragments
	i := (row*s.stride + s.offset + int(col)) * n
	return s.cells[i : i+n : i+n]
}

// errKey is a fixed value, so that insertion does not allocate.
var errKey = fmt.Errorf("%w: fermat: the key's length differs from the sketch's KeyBytes", sketch.ErrMismatch)

// Insert records one packet of a key. It fails only for a key of another length.
func (s *Sketch[F, E]) Insert(key []byte) error {
	if len(key) != s.cfg.KeyBytes {
		return errKey
	}
	if s.whole {
		s.insertWhole(key)
	} else {
		s.insert(family.Digest[F](s.cfg.Seed, key), key)
	}
	return nil
}

// InsertBatch records one packet of each key; keys are concatenated.
func (s *Sketch[F, E]) InsertBatch(keys []byte, size int) error {
	if size != s.cfg.KeyBytes || len(keys)%size != 0 {
		return errKey
	}
	if (size == 13 || size == 4) && len(keys) >= sumsFrom*size {
		for len(keys) > 0 {
			n := min(len(keys), numberBits*size)
			s.insertSums(keys[:n], size)
			keys = keys[n:]
		}
		return nil
	}
	if s.whole {
		for ; len(keys) > 0; keys = keys[size:] {
			s.insertWhole(keys[:size])
		}
		return nil
	}
	var digests [family.Block]uint64
	for len(keys) > 0 {
		n := family.Digests[F](s.cfg.Seed, keys, size, digests[:])
		for i, d := range digests[:n] {
			s.insert(d, keys[i*size:][:size])
		}
		keys = keys[n*size:]
	}
	return nil
}

func (s *Sketch[F, E]) insert(d uint64, key []byte) {
	var cols [family.MaxRows]uint32
	at := cols[:min(s.cfg.Rows, family.MaxRows)]
	family.Columns[F](d, &s.cols, at)
	switch s.fragments {
	case 2:
		s.insert2(d, key, at)
		return
	case 4:
		s.insert4(d, key, at)
		return
	}
	var many [maxFragments]E
	frags := many[:s.fragments]
	s.split(d, key, frags)
	for r, col := range at {
		b := s.at(r, col)
		s.full = increment(&b[0]) || s.full
		b = b[1:]
		for i, x := range frags[:len(b)] {
			b[i] = add(b[i], x)
		}
	}
}

// insert2 inserts identifiers of two fragments. insert4 does so for four fragments, as IPv4
// 5-tuples have in Prime32.
func (s *Sketch[F, E]) insert2(d uint64, key []byte, at []uint32) {
	var frags [2]E
	s.split(d, key, frags[:])
	start, stride, cells, full := s.offset, s.stride, s.cells, false
	f0, f1 := frags[0], frags[1]
	for _, col := range at {
		i := (start + int(col)) * 3
		b := (*[3]E)(cells[i : i+3])
		full = increment(&b[0]) || full
		b[1], b[2] = add(b[1], f0), add(b[2], f1)
		start += stride
	}
	if full {
		s.full = true
	}
}

func (s *Sketch[F, E]) insert4(d uint64, key []byte, at []uint32) {
	var frags [4]E
	s.split(d, key, frags[:])
	start, stride, cells, full := s.offset, s.stride, s.cells, false
	for _, col := range at {
		i := (start + int(col)) * 5
		b := (*[5]E)(cells[i : i+5])
		full = increment(&b[0]) || full
		b[1], b[2] = add(b[1], frags[0]), add(b[2], frags[1])
		b[3], b[4] = add(b[3], frags[2]), add(b[4], frags[3])
		start += stride
	}
	if full {
		s.full = true
	}
}

// increment adds 1 to a count. full reports that the count was at its maximum, where it stays.
func increment[E Field](c *E) (full bool) {
	n := *c + 1
	if wide[E]() && uint64(n) == 1<<63 || !wide[E]() && uint32(n) == 1<<31 {
		return true
	}
	*c = n
	return false
}

// count returns a bucket's signed count.
func count[E Field](c E) int64 {
	if wide[E]() {
		return int64(c)
	}
	return int64(int32(c))
}

// Add records n packets of a key, or removes them if n is negative.
func (s *Sketch[F, E]) Add(key []byte, n int64) error {
	if len(key) != s.cfg.KeyBytes {
		return errKey
	}
	d := family.Digest[F](s.cfg.Seed, key)
	var f [maxFragments]E
	frags := f[:s.fragments]
	s.split(d, key, frags)
	for r := range s.cfg.Rows {
		s.full = s.put(s.at(r, family.Column[F](d, r, &s.cols)), frags, n) || s.full
	}
	return nil
}

// put adds an identifier n times to a bucket, and reports whether the count overflowed.
func (s *Sketch[F, E]) put(b, frags []E, n int64) (full bool) {
	sum := count(b[0]) + n
	full = !fits[E](sum)
	b[0] = E(sum)
	times := signed[E](n)
	b = b[1:]
	for i, x := range frags[:len(b)] {
		b[i] = add(b[i], mul(x, times))
	}
	return full
}

// signed returns n as an element of the field.
func signed[E Field](n int64) E {
	if n < 0 {
		return sub(0, reduce[E](uint64(-n)))
	}
	return reduce[E](uint64(n))
}

func fits[E Field](n int64) bool {
	return wide[E]() || n >= math.MinInt32+1 && n <= math.MaxInt32
}

// split divides a key and its fingerprint into fragments, each below the prime.
func (s *Sketch[F, E]) split(d uint64, key []byte, out []E) {
	var fp uint64
	if s.cfg.Fingerprint > 0 {
		fp = uint64(family.Fingerprint[F](d)) & (1<<s.cfg.Fingerprint - 1)
	}
	if s.cfg.FragmentBits == 32 {
		splitWords(key, fp, out)
		return
	}
	if n := uint(len(key)); n >= 8 && n*8+uint(s.cfg.Fingerprint) <= 128 {
		// The whole identifier in two words.
		lo, hi := binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[n-8:])>>(128-8*n)
		if n < 16 {
			hi |= fp << (8*n - 64)
		}
		bits := uint(s.cfg.FragmentBits)
		mask := uint64(1)<<bits - 1
		for i := range out {
			out[i] = E(lo & mask)
			lo, hi = lo>>(bits&63)|hi<<((64-bits)&63), hi>>(bits&63)
		}
		return
	}
	var b [maxKey + 16]byte
	copy(b[:], key)
	binary.LittleEndian.PutUint64(b[len(key):], fp)
	bits := uint(s.cfg.FragmentBits)
	for i := range out {
		at := uint(i) * bits
		out[i] = E(bitsAt(b[at/8:], at%8, bits))
	}
}

// bitsAt returns n bits, at most 60, from bit shift (0 to 7) on; b must have 9 bytes.
func bitsAt(b []byte, shift, n uint) uint64 {
	v := binary.LittleEndian.Uint64(b)>>shift | uint64(b[8])<<(64-shift)
	return v & (1<<n - 1)
}

// splitWords divides an identifier as P4 programs do: into words of 32 bits in network order, a
// short last word as a small number, then the fingerprint. The prime is subtracted from words that
// are not below it.
func splitWords[E Field](key []byte, fp uint64, out []E) {
	if len(key) == 13 && len(out) == 4 {
		out[0] = reduce[E](uint64(binary.BigEndian.Uint32(key)))
		out[1] = reduce[E](uint64(binary.BigEndian.Uint32(key[4:])))
		out[2] = reduce[E](uint64(binary.BigEndian.Uint32(key[8:])))
		out[3] = reduce[E](uint64(key[12]) | fp<<8&math.MaxUint32)
		return
	}
	for i := range out {
		var v uint64
		switch rest := len(key) - 4*i; {
		case rest >= 4:
			v = uint64(binary.BigEndian.Uint32(key[4*i:]))
		case rest > 0:
			for _, c := range key[4*i:] {
				v = v<<8 | uint64(c)
			}
			v |= fp << (8 * rest) & math.MaxUint32
			fp >>= 32 - 8*rest
		default:
			v = fp
		}
		out[i] = reduce[E](v)
	}
}

// Reset empties the sketch, or a part of it.
func (s *Sketch[F, E]) Reset() {
	for r := range s.cfg.Rows {
		clear(s.row(r))
	}
	s.full = false
}

// row returns the cells of a row.
func (s *Sketch[F, E]) row(r int) []E {
	n := 1 + s.fragments
	i := (r*s.stride + s.offset) * n
	return s.cells[i : i+s.cfg.Width*n]
}

// Bucket returns the count and the fragments' sums of a bucket in new memory.
func (s *Sketch[F, E]) Bucket(row, col int) (n int64, sums []uint64, err error) {
	if err := s.inside(row, col); err != nil {
		return 0, nil, err
	}
	b := s.at(row, uint32(col))
	for _, x := range b[1:] {
		sums = append(sums, uint64(x))
	}
	return count(b[0]), sums, nil
}

// SetBucket sets a bucket to values read from a switch's registers.
func (s *Sketch[F, E]) SetBucket(row, col int, n int64, sums []uint64) error {
	if err := s.inside(row, col); err != nil {
		return err
	}
	if len(sums) != s.fragments || !fits[E](n) {
		return fmt.Errorf("%w: fermat: bucket %d of row %d: count %d and %d sums; expected %d sums", sketch.ErrMismatch,
			col, row, n, len(sums), s.fragments)
	}
	for i, x := range sums {
		if x >= uint64(prime[E]()) {
			return fmt.Errorf("%w: fermat: bucket %d of row %d: sum %d is %d, not below the prime", sketch.ErrMismatch,
				col, row, i, x)
		}
	}
	b := s.at(row, uint32(col))
	b[0] = E(n)
	for i, x := range sums {
		b[1+i] = E(x)
	}
	return nil
}

// AddRegisters adds or subtracts a row of buckets in the form of P4 programs: for each bucket a
// count and the fragments' sums, 32 bits each. A count of 2^31 or more, or a sum that is not below
// the prime, is an error; the row is then undefined.
func (s *Sketch[F, E]) AddRegisters(row int, cells []uint32, minus bool) error {
	n := 1 + s.fragments
	if row < 0 || row >= s.cfg.Rows || len(cells) != s.cfg.Width*n || wide[E]() {
		return fmt.Errorf("%w: fermat: %d cells of 32 bits for row %d; there are %d rows of %d", sketch.ErrMismatch,
			len(cells), row, s.cfg.Rows, s.cfg.Width*n)
	}
	into := s.row(row)
	for at := 0; at < len(into); at += n {
		from, to := cells[at:at+n:at+n], into[at:at+n:at+n]
		if from[0] > math.MaxInt32 {
			return fmt.Errorf("%w: fermat: bucket %d of row %d has counted %d packets or has wrapped",
				sketch.ErrMismatch, at/n, row, from[0])
		}
		sum := count(to[0]) + int64(from[0])
		if minus {
			sum = count(to[0]) - int64(from[0])
		}
		s.full = s.full || !fits[E](sum)
		to[0] = E(sum)
		for i, x := range from[1:] {
			if x >= prime32 {
				return fmt.Errorf("%w: fermat: bucket %d of row %d: sum %d is %d, not below the prime",
					sketch.ErrMismatch, at/n, row, i, x)
			}
			if minus {
				to[1+i] = sub(to[1+i], E(x))
			} else {
				to[1+i] = add(to[1+i], E(x))
			}
		}
	}
	return nil
}

func (s *Sketch[F, E]) inside(row, col int) error {
	if row < 0 || row >= s.cfg.Rows || col < 0 || col >= s.cfg.Width {
		return fmt.Errorf("%w: fermat: bucket %d of row %d; there are %d rows of %d", sketch.ErrMismatch, col, row,
			s.cfg.Rows, s.cfg.Width)
	}
	return nil
}

// Merge adds the records of o (ChameleMon §3.1, addition).
func (s *Sketch[F, E]) Merge(o *Sketch[F, E]) error { return s.combine(o, false) }

// Subtract subtracts the records of o. Flows with more packets in o have a negative count.
func (s *Sketch[F, E]) Subtract(o *Sketch[F, E]) error { return s.combine(o, true) }

func (s *Sketch[F, E]) combine(o *Sketch[F, E], minus bool) error {
	if o == nil {
		return fmt.Errorf("%w: fermat: nothing to add", sketch.ErrMismatch)
	}
	if s.cfg != o.cfg {
		return fmt.Errorf("%w: fermat: %+v and %+v", sketch.ErrMismatch, s.cfg, o.cfg)
	}
	s.full = s.full || o.full
	n := 1 + s.fragments
	for r := range s.cfg.Rows {
		a, b := s.row(r), o.row(r)
		for i := range a {
			switch {
			case i%n == 0:
				sum := count(a[i]) + count(b[i])
				if minus {
					sum = count(a[i]) - count(b[i])
				}
				if !fits[E](sum) {
					s.full = true
				}
				a[i] = E(sum)
			case minus:
				a[i] = sub(a[i], b[i])
			default:
				a[i] = add(a[i], b[i])
			}
		}
	}
	return nil
}

// MarshalBinary serializes the sketch, or a part of it.
func (s *Sketch[F, E]) MarshalBinary() ([]byte, error) {
	w := wire.NewWriter(wire.Fermat, family.ID[F](), s.cfg.Seed, s.Memory())
	var flags uint32
	if s.full {
		flags |= 1
	}
	if wide[E]() {
		flags |= 2
	}
	w.U32(flags, uint32(s.cfg.Rows), uint32(s.cfg.Width), uint32(s.cfg.KeyBytes), uint32(s.cfg.FragmentBits),
		uint32(s.cfg.Fingerprint))
	for r := range s.cfg.Rows {
		for _, x := range s.row(r) {
			if wide[E]() {
				w.U64(uint64(x))
			} else {
				w.U32(uint32(x))
			}
		}
	}
	return w.Bytes(), nil
}

// UnmarshalBinary replaces the sketch by a serialized one.
func (s *Sketch[F, E]) UnmarshalBinary(b []byte) error {
	r, err := wire.NewReader(b, wire.Fermat, family.ID[F]())
	if err != nil {
		return fmt.Errorf("fermat: %w", err)
	}
	flags := r.U32()
	c := Config{Rows: int(r.U32()), Width: int(r.U32()), KeyBytes: int(r.U32()), FragmentBits: int(r.U32()),
		Fingerprint: int(r.U32()), Seed: r.Seed}
	word := 4
	if wide[E]() {
		word = 8
	}
	if flags > 3 || flags&2 != 0 != wide[E]() {
		return fmt.Errorf("fermat: %w: another prime field, or unknown flags %#x", sketch.ErrFormat, flags)
	}
	if c.Rows < 1 || c.Width < 1 || c.FragmentBits < 1 {
		return fmt.Errorf("fermat: %w: %+v", sketch.ErrFormat, c)
	}
	given := c
	if err := complete[F, E](&c); err != nil {
		return fmt.Errorf("%w: %w", sketch.ErrFormat, err)
	}
	if c != given {
		return fmt.Errorf("fermat: %w: %+v", sketch.ErrFormat, given)
	}
	if err := r.Expect(c.Rows * c.Width * (1 + c.fragments()) * word); err != nil {
		return fmt.Errorf("fermat: %w", err)
	}
	n, err := New[F, E](c)
	if err != nil {
		return err
	}
	for i := range n.cells {
		var x uint64
		if wide[E]() {
			x = r.U64()
		} else {
			x = uint64(r.U32())
		}
		if i%(1+n.fragments) != 0 && x >= uint64(prime[E]()) {
			return fmt.Errorf("fermat: %w: a sum of %d is not below the prime", sketch.ErrFormat, x)
		}
		n.cells[i] = E(x)
	}
	n.full = flags&1 != 0
	*s = *n
	return nil
}
