// SPDX-License-Identifier: Apache-2.0

// Package tower is TowerSketch (SketchINT §IV): rows of equal memory, from many small
// counters to few large ones. A counter whose bits are all ones has overflowed and means +∞. The
// estimate is the smallest of a key's counters.
//
// Counters are packed into 64-bit words, and none spans two words: widths that do not divide 64
// leave a part of each word unused. The Sketch is not safe for concurrent use while it is written;
// Shared is.
package tower

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/pages"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// Overflow is the estimate if all counters of a key have overflowed.
const Overflow = math.MaxUint32

// Sketch counts packets by key.
type Sketch[F family.Hash] struct {
	seed  uint64
	cu    bool
	rows  []row
	even  []evenRow // rows as even rows if all rows can be even rows; otherwise nil
	words []uint64
	shape []Row
	// touched is a sum whose only purpose is to keep the compiler from removing accesses that load
	// words into the caches.
	touched uint64
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
	s.words = pages.Make[uint64](total)
	if family.ID[F]() == family.ID[family.Fast]() {
		s.even = even(s.rows, rows)
	}
	return s, nil
}

// Rows returns the shape of the rows.
func (s *Sketch[F]) Rows() []Row { return slices.Clone(s.shape) }

// Memory returns the size of the counters in bytes.
func (s *Sketch[F]) Memory() int { return len(s.words) * wordBits / 8 }

// Words returns the counters, row by row, each row in whole words. The lowest bits of a word are
// its first counter. A data path that counts elsewhere copies its words here.
func (s *Sketch[F]) Words() []uint64 { return s.words }

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
func (s *Sketch[F]) Add(key []byte, n uint32) { s.AddDigest(family.Digest[F](s.seed, key), n) }

// AddDigest counts n packets of a key that is given by its digest in the family.
func (s *Sketch[F]) AddDigest(d uint64, n uint32) {
	if s.cu {
		s.raise(d, uint64(n))
	} else {
		s.add(d, uint64(n))
	}
}

// InsertBatch counts one packet of each key; keys are concatenated, size bytes each. With CU
// insertion and the family Fast, it adds up equal keys first, as if their packets came one after
// another.
func (s *Sketch[F]) InsertBatch(keys []byte, size int) error {
	if err := family.CheckBatch("tower", keys, size); err != nil {
		return err
	}
	switch {
	case !s.cu:
		family.SumBatch[F](s.seed, keys, size, s.addBlock)
	case family.ID[F]() == family.ID[family.Fast]():
		family.SumBatch[F](s.seed, keys, size, s.raiseBlock)
	default: // as the P4 programs do, one packet after another
		family.Blocks[F](s.seed, keys, size, s.raiseBlock)
	}
	return nil
}

// InsertBatchAbove inserts as InsertBatch does. It appends the keys whose estimate after their
// insertion exceeds the limit to above, in their order, and returns above. (ChameleMon's
// classifier, §3.2, passes such packets on to an encoder.)
func (s *Sketch[F]) InsertBatchAbove(keys []byte, size int, limit uint32, above []byte) ([]byte, error) {
	if err := family.CheckBatch("tower", keys, size); err != nil {
		return above, err
	}
	var digests [family.Block]uint64
	var places [family.Block]uint32
	for len(keys) > 0 {
		n := family.Digests[F](s.seed, keys, size, digests[:])
		found := 0
		for i, d := range digests[:n] { // no branch, because whether an estimate exceeds the limit is not predictable
			places[found%family.Block] = uint32(i)
			exceeds := 0
			if s.insertQuery(d) > uint64(limit) {
				exceeds = 1
			}
			found += exceeds
		}
		for _, i := range places[:found] {
			above = appendKey(above, keys[int(i)*size:], size)
		}
		keys = keys[n*size:]
	}
	return above, nil
}

// appendKey appends the first bytes of keys.
func appendKey(to, keys []byte, size int) []byte {
	if size == 13 {
		return append(to, (*[13]byte)(keys)[:]...)
	}
	return append(to, keys[:size]...)
}

// increment adds 1 to every counter of a key that has not overflowed. It has no branch, because
// overflows are not predictable.
func (s *Sketch[F]) increment(d uint64) {
	if s.even != nil {
		incrementEven(s.words, s.even, d)
		return
	}
	words := s.words
	for i := range s.rows {
		r := &s.rows[i]
		at, shift := r.locate(family.Column[F](d, i, &r.cols))
		w := words[at]
		below := (w>>(shift&63)&r.mask - r.mask) >> 63
		words[at] = w + below<<(shift&63)
	}
}

func incrementEven(words []uint64, rows []evenRow, d uint64) {
	if len(rows) == 5 { // as in the paper; the unrolled loop is 10 % faster
		rows[0].increment(words, family.FastValue(d, 0))
		rows[1].increment(words, family.FastValue(d, 1))
		rows[2].increment(words, family.FastValue(d, 2))
		rows[3].increment(words, family.FastValue(d, 3))
		rows[4].increment(words, family.FastValue(d, 4))
		return
	}
	for i := range rows {
		rows[i].increment(words, family.FastValue(d, i))
	}
}

func (r *evenRow) increment(words []uint64, hash uint32) {
	x := uint64(hash) * r.words
	w, shift := &words[r.start+x>>32], x>>26&r.lanes&63
	*w += (*w>>shift&r.mask - r.mask) >> 63 << shift
}

// incrementQuery increments a counter and returns its new value.
func (r *evenRow) incrementQuery(words []uint64, hash uint32) uint64 {
	x := uint64(hash) * r.words
	w, shift := &words[r.start+x>>32], x>>26&r.lanes&63
	v := *w >> shift & r.mask
	below := (v - r.mask) >> 63
	*w += below << shift
	if v += below; v == r.mask {
		return Overflow
	}
	return v
}

// query returns a counter's value; Overflow if it has overflowed.
func (r *evenRow) query(words []uint64, hash uint32) uint64 {
	x := uint64(hash) * r.words
	v := words[r.start+x>>32] >> (x >> 26 & r.lanes & 63) & r.mask
	if v == r.mask {
		return Overflow
	}
	return v
}

// addBlock adds numbers of packets to the counters of digests.
func (s *Sketch[F]) addBlock(digests []uint64, numbers []uint32) {
	if s.even != nil {
		s.touched += addRows(s.words, s.even, digests, numbers)
		return
	}
	for i, d := range digests {
		s.add(d, uint64(numbers[i]))
	}
}

// addRows adds to even rows, row by row, because accesses to the same row are independent.
func addRows(words []uint64, rows []evenRow, digests []uint64, numbers []uint32) (touched uint64) {
	var at [family.Block]uint64
	for i := range rows {
		r := &rows[i]
		places := at[:len(digests)]
		family.RowProducts(digests, i, r.words, places)
		touched += touch(words[r.start:r.start+r.words], places)
		r.add(words[r.start:r.start+r.words], places, numbers)
	}
	return touched
}

// add adds numbers to the counters at hashes × words. Fewer instructions per counter let more
// accesses overlap.
func (r *evenRow) add(words, places []uint64, numbers []uint32) {
	mask, lanes := r.mask, r.lanes
	numbers = numbers[:len(places)]
	for k, x := range places {
		w, shift := &words[x>>32], x>>26&lanes&63
		room := mask - *w>>shift&mask
		*w += min(uint64(numbers[k]), room) << shift
	}
}

// add adds n to every counter of a key. A counter that would exceed its maximum overflows.
func (s *Sketch[F]) add(d, n uint64) {
	for i := range s.rows {
		r := &s.rows[i]
		at, shift := r.locate(family.Column[F](d, i, &r.cols))
		w := s.words[at]
		v := w >> shift & r.mask
		s.words[at] = w + (min(v+n, r.mask)-v)<<shift
	}
}

// raise sets every counter that is below the estimate plus n, and has not overflowed, to the
// estimate plus n.
func (s *Sketch[F]) raise(d, n uint64) {
	if len(s.even) == 5 && n == 1 {
		raiseFive(s.words, s.even, d)
		return
	}
	if s.even != nil {
		raiseEven(s.words, s.even, d, n)
		return
	}
	var at, shift [family.MaxRows]uint32
	words, rows := s.words, s.rows[:min(len(s.rows), family.MaxRows)]
	least := uint64(Overflow)
	for i := range rows {
		r := &rows[i]
		at[i], shift[i] = r.locate(family.Column[F](d, i, &r.cols))
		if v := words[at[i]] >> (shift[i] & 63) & r.mask; v != r.mask {
			least = min(least, v)
		}
	}
	if least == Overflow {
		return
	}
	for i := range rows {
		mask, by := rows[i].mask, shift[i]&63
		v := words[at[i]] >> by & mask
		words[at[i]] += (max(min(least+n, mask), v) - v) << by
	}
}

// find returns a counter's word, its shift and its value. The value of an overflowed counter is
// the largest number.
func (r *evenRow) find(words []uint64, hash uint32) (w *uint64, shift, v uint64) {
	return r.counter(words, uint64(hash)*r.words)
}

// counter does the work of find for a given product hash × words.
func (r *evenRow) counter(words []uint64, x uint64) (w *uint64, shift, v uint64) {
	w, shift = &words[r.start+x>>32], x>>26&r.lanes&63
	return w, shift, (*w>>shift+1)&r.mask - 1
}

// up returns by how much a counter's value must be raised to reach to, or the counter's maximum.
func (r *evenRow) up(v, to uint64) uint64 { return max(min(to, r.mask), v) - v }

// is returns 1 if a equals b, otherwise 0, without a branch.
func is(a, b uint64) (x uint64) {
	if a == b {
		x = 1
	}
	return x
}

func raiseFive(words []uint64, rows []evenRow, d uint64) {
	w0, s0, v0 := rows[0].find(words, family.FastValue(d, 0))
	w1, s1, v1 := rows[1].find(words, family.FastValue(d, 1))
	w2, s2, v2 := rows[2].find(words, family.FastValue(d, 2))
	w3, s3, v3 := rows[3].find(words, family.FastValue(d, 3))
	w4, s4, v4 := rows[4].find(words, family.FastValue(d, 4))
	least := min(v0, v1, v2, v3, v4)
	if least == math.MaxUint64 {
		return
	}
	*w0 += is(v0, least) << (s0 & 63)
	*w1 += is(v1, least) << (s1 & 63)
	*w2 += is(v2, least) << (s2 & 63)
	*w3 += is(v3, least) << (s3 & 63)
	*w4 += is(v4, least) << (s4 & 63)
}

// touchedBlock is the number of keys whose counters in five rows fit the first-level cache.
const touchedBlock = 64

// raiseBlock raises the counters of digests by numbers of packets, in order.
func (s *Sketch[F]) raiseBlock(digests []uint64, numbers []uint32) {
	if len(s.even) != 5 {
		for i, d := range digests {
			s.raise(d, uint64(numbers[i]))
		}
		return
	}
	for len(digests) > 0 {
		n := min(len(digests), touchedBlock)
		s.touched += raiseRows(s.words, s.even, digests[:n], numbers[:n])
		digests, numbers = digests[n:], numbers[n:]
	}
}

// raiseRows does the work of raise in five rows, for up to touchedBlock digests. It first reads
// all words, because such accesses do not wait for each other, and returns their sum.
func raiseRows(words []uint64, rows []evenRow, digests []uint64, numbers []uint32) (touched uint64) {
	var at [5][touchedBlock]uint64
	digests = digests[:min(len(digests), touchedBlock)]
	for i := range at {
		r, places := &rows[i], at[i][:len(digests)]
		family.RowProducts(digests, i, r.words, places)
		touched += touch(words[r.start:r.start+r.words], places)
	}
	numbers = numbers[:len(digests)]
	for k, n := range numbers {
		k %= touchedBlock
		w0, s0, v0 := rows[0].counter(words, at[0][k])
		w1, s1, v1 := rows[1].counter(words, at[1][k])
		w2, s2, v2 := rows[2].counter(words, at[2][k])
		w3, s3, v3 := rows[3].counter(words, at[3][k])
		w4, s4, v4 := rows[4].counter(words, at[4][k])
		to := min(v0, v1, v2, v3, v4) + uint64(n)
		*w0 += rows[0].up(v0, to) << (s0 & 63)
		*w1 += rows[1].up(v1, to) << (s1 & 63)
		*w2 += rows[2].up(v2, to) << (s2 & 63)
		*w3 += rows[3].up(v3, to) << (s3 & 63)
		*w4 += rows[4].up(v4, to) << (s4 & 63)
	}
	return touched
}

// touch reads the words at hashes × words and returns their sum.
func touch(words, places []uint64) (sum uint64) {
	for _, x := range places {
		sum += words[x>>32]
	}
	return sum
}

func raiseEven(words []uint64, rows []evenRow, d, n uint64) {
	var at [family.MaxRows]uint32
	var shift, value [family.MaxRows]uint32
	least := uint32(Overflow)
	for i := range rows {
		r, j := &rows[i], uint(i)%family.MaxRows
		x := uint64(family.FastValue(d, i)) * r.words
		a, by := uint32(r.start)+uint32(x>>32), uint32(x>>26&r.lanes)
		v := uint32(words[a] >> (by & 63) & r.mask)
		if v == uint32(r.mask) {
			v = Overflow
		}
		least = min(least, v)
		at[j], shift[j], value[j] = a, by, v
	}
	if least == Overflow {
		return
	}
	if n != 1 {
		raiseBy(words, rows, d, uint64(least), n)
		return
	}
	for j := range uint(len(rows)) {
		j %= family.MaxRows
		up := uint64(0)
		if value[j] == least {
			up = 1
		}
		words[at[j]] += up << (shift[j] & 63)
	}
}

func raiseBy(words []uint64, rows []evenRow, d, least, n uint64) {
	for i := range rows {
		r := &rows[i]
		x := uint64(family.FastValue(d, i)) * r.words
		w, by := &words[r.start+x>>32], x>>26&r.lanes&63
		v := *w >> by & r.mask
		*w += (max(min(least+n, r.mask), v) - v) << by
	}
}

// value returns a counter's value; Overflow if it has overflowed.
func (s *Sketch[F]) value(i int, d uint64) uint64 {
	r := &s.rows[i]
	at, shift := r.locate(family.Column[F](d, i, &r.cols))
	if v := s.words[at] >> shift & r.mask; v != r.mask {
		return v
	}
	return Overflow
}

// Query returns the estimate of a key, which is never below its packets; Overflow if all of its
// counters have overflowed.
func (s *Sketch[F]) Query(key []byte) uint32 {
	d := family.Digest[F](s.seed, key)
	return uint32(s.query(d))
}

// QueryDigest queries a key that is given by its digest in the family.
func (s *Sketch[F]) QueryDigest(d uint64) uint32 { return uint32(s.query(d)) }

// AppendPlaces appends the indices in Words of the counters of a digest.
func (s *Sketch[F]) AppendPlaces(places []uint32, d uint64) []uint32 {
	for i := range s.rows {
		r := &s.rows[i]
		at, _ := r.locate(family.Column[F](d, i, &r.cols))
		places = append(places, at)
	}
	return places
}

func (s *Sketch[F]) query(d uint64) uint64 {
	least := uint64(Overflow)
	if s.even != nil {
		for i := range s.even {
			least = min(least, s.even[i].query(s.words, family.FastValue(d, i)))
		}
		return least
	}
	for i := range s.rows {
		least = min(least, s.value(i, d))
	}
	return least
}

// InsertQuery counts one packet of a key and returns the new estimate.
func (s *Sketch[F]) InsertQuery(key []byte) uint32 {
	return uint32(s.insertQuery(family.Digest[F](s.seed, key)))
}

func (s *Sketch[F]) insertQuery(d uint64) uint64 {
	if s.even != nil && !s.cu {
		if len(s.even) == 2 { // ChameleMon's tower has two rows
			a := s.even[0].incrementQuery(s.words, family.FastValue(d, 0))
			return min(a, s.even[1].incrementQuery(s.words, family.FastValue(d, 1)))
		}
		least := uint64(Overflow)
		for i := range s.even {
			least = min(least, s.even[i].incrementQuery(s.words, family.FastValue(d, i)))
		}
		return least
	}
	if s.cu {
		s.raise(d, 1)
	} else {
		s.increment(d)
	}
	return s.query(d)
}

// Row returns a copy of a row's counters, with Overflow for overflowed ones. It is the input of
// linear counting and MRAC (§V-A).
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

// Bound is the bound of Theorem 1 (SketchINT §IV-C) on the estimate of a flow of the given size,
// among total packets of all flows: the estimate is too high by at most Over, which is e·total
// divided by the number of counters in the smallest row that contributes. A row contributes if its
// counters can hold size and Over together; in another row, fewer packets of other flows than Over
// can make the flow's counter overflow. If no row contributes, Over is infinite.
func (s *Sketch[F]) Bound(size uint32, total uint64) sketch.Bound { return bound(s.shape, size, total) }

func bound(shape []Row, size uint32, total uint64) sketch.Bound {
	rows := shape
	for len(rows) > 0 {
		width := slices.MinFunc(rows, func(a, b Row) int { return cmp.Compare(a.Width, b.Width) }).Width
		over := math.E / float64(width) * float64(total)
		var hold []Row // the rows that can hold a flow with this error
		failure := 1.0
		for _, r := range rows {
			if float64(size)+over < float64(uint64(1)<<r.Bits-1) {
				hold = append(hold, r)
				failure *= float64(width) / (math.E * float64(r.Width))
			}
		}
		if len(hold) == len(rows) {
			return sketch.Bound{Over: over, Failure: failure}
		}
		rows = hold
	}
	return sketch.Bound{Over: math.Inf(1), Under: math.Inf(1), Failure: 1}
}

// Reset empties the tower.
func (s *Sketch[F]) Reset() { clear(s.words) }

// Merge adds the counts of o. With CM insertion, the result equals a single tower; with CU
// insertion, its estimates are never too low.
func (s *Sketch[F]) Merge(o *Sketch[F]) error {
	if o == nil {
		return fmt.Errorf("%w: tower: nothing to merge", sketch.ErrMismatch)
	}
	if err := match(s.shape, o.shape, s.seed, o.seed, s.cu, o.cu); err != nil {
		return err
	}
	s.merge(o)
	return nil
}

// match returns an error unless two towers have the same shape, seed and insertion.
func match(a, b []Row, seedA, seedB uint64, cuA, cuB bool) error {
	if seedA != seedB || cuA != cuB || !slices.Equal(a, b) {
		return fmt.Errorf("%w: tower: rows %v, seed %d, conservative %v and rows %v, seed %d, conservative %v",
			sketch.ErrMismatch, a, seedA, cuA, b, seedB, cuB)
	}
	return nil
}

// merge adds a tower of the same shape.
func (s *Sketch[F]) merge(o *Sketch[F]) {
	for i := range s.rows {
		r := &s.rows[i]
		first, last := uint64(r.start), uint64(r.start)+r.words
		mergeWords(s.words[first:last], o.words[first:last], r.high, r.bits)
	}
}

// mergeWords adds the counters of words to the counters of sums, all counters of a word at once.
// high has the highest bit of each counter set. A counter that exceeds its maximum becomes all
// ones.
func mergeWords(sums, words []uint64, high uint64, bits uint32) {
	words = words[:len(sums)]
	for i, a := range sums {
		b := words[i]
		sum := (a&^high + b&^high) ^ (a^b)&high
		over := (a&b | (a|b)&^sum) & high
		sums[i] = sum | over | (over - over>>((bits-1)&63))
	}
}

// MarshalBinary serializes the tower.
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

// readShape reads the shape.
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
	return c, nil
}

// UnmarshalBinary replaces the tower by a serialized one.
func (s *Sketch[F]) UnmarshalBinary(b []byte) error {
	r, err := wire.NewReader(b, wire.Tower, family.ID[F]())
	if err != nil {
		return fmt.Errorf("tower: %w", err)
	}
	c, err := readShape(r)
	if err != nil {
		return fmt.Errorf("tower: %w", err)
	}
	total := 0
	for _, row := range c.Rows {
		total += words(row)
	}
	if err := r.Expect(total * wordBits / 8); err != nil { // checked before memory is allocated
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
