// SPDX-License-Identifier: Apache-2.0

package tower

import (
	"fmt"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/pages"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// Latency is the tower whose counters are buckets of a frequency and a latency counter
// (SketchINT §V-B). The key is the flow's bytes, with the switch's number before or after
// them if latencies are recorded by flow and switch.
//
// A bucket has 32, 44 or 64 bits if its frequency counter has at most 8, at most 16, or more bits;
// the latency counter takes the rest. Buckets follow each other without gaps, so that some of 44
// bits are in two words.
type Latency[F family.Hash] struct {
	seed  uint64
	shape []Row
	rows  []buckets
	words []uint64
}

// buckets is a row of buckets.
type buckets struct {
	cols  family.Range
	start uint64 // index of the row's first word
	size  uint64 // bits of a bucket
	bits  uint32 // width of the frequency counter, which is the lower one
	mask  uint64 // mask of the frequency counter
	sums  uint64 // mask of the latency counter
	all   uint64 // mask of a bucket
}

// bucketBits returns the size of a bucket by the width of its frequency counter.
func bucketBits(bits int) uint64 {
	switch {
	case bits <= 8:
		return 32
	case bits <= 16:
		return 44
	}
	return wordBits
}

// NewLatency returns an empty tower of buckets. The configured rows give the widths of the
// frequency counters, by default 8, 16 and 24 bits, so that latency counters have 24, 28 and 40
// bits. For both kinds of counters, all ones mean +∞. Insertion is CM. Memory is the size of both
// kinds together.
func NewLatency[F family.Hash](c Config) (*Latency[F], error) {
	if c.Conservative {
		return nil, fmt.Errorf("%w: tower: buckets of latencies have CM insertion only, not conservative insertion",
			sketch.ErrConfig)
	}
	if c.Rows == nil {
		if c.Bits == nil {
			c.Bits = []int{8, 16, 24}
		}
		for _, b := range c.Bits {
			c.Rows = append(c.Rows, Row{Bits: b, Width: c.Memory / (wordBits / 8) / len(c.Bits) * wordBits / int(bucketBits(b))})
		}
		c.Memory, c.Bits = 0, nil
	}
	shape, err := c.rows()
	if err != nil {
		return nil, err
	}
	if err := family.Check[F](len(shape), c.Seed); err != nil {
		return nil, fmt.Errorf("tower: %w", err)
	}
	total := latencyWords(shape)
	if total > sketch.MaxMemory/8 {
		return nil, fmt.Errorf("%w: tower: %d words of buckets; expected at most %d", sketch.ErrConfig, total,
			sketch.MaxMemory/8)
	}
	l := &Latency[F]{seed: c.Seed, shape: shape, words: pages.Make[uint64](int(total))}
	start := uint64(0)
	for _, r := range shape {
		size := bucketBits(r.Bits)
		l.rows = append(l.rows, buckets{cols: family.NewRange(uint32(r.Width)), start: start, size: size,
			bits: uint32(r.Bits), mask: 1<<r.Bits - 1, sums: 1<<(size-uint64(r.Bits)) - 1,
			all: math.MaxUint64 >> (wordBits - size)})
		start += bucketWords(r)
	}
	return l, nil
}

func bucketWords(r Row) uint64 { return (uint64(r.Width)*bucketBits(r.Bits)-1)/wordBits + 1 }

func latencyWords(shape []Row) (total uint64) {
	for _, r := range shape {
		total += bucketWords(r)
	}
	return total
}

// Memory returns the bytes of all counters.
func (l *Latency[F]) Memory() int { return len(l.words) * wordBits / 8 }

// Words returns the buckets, row by row, each row in whole words. The lowest bits of a row are its
// first bucket, and the lowest bits of a bucket its packet count.
func (l *Latency[F]) Words() []uint64 { return l.words }

// locate returns the first word of a digest's bucket, and the bucket's first bit in it.
func locate[F family.Hash](r *buckets, d uint64, row int) (word, shift uint64) {
	return r.place(uint64(family.Column[F](d, row, &r.cols)))
}

func (r *buckets) place(col uint64) (word, shift uint64) {
	bit := col * r.size
	return r.start + bit/wordBits, bit % wordBits
}

// get returns the bucket at a place.
func (r *buckets) get(words []uint64, at, shift uint64) uint64 {
	v := words[at] >> shift
	if shift+r.size > wordBits {
		v |= words[at+1] << (wordBits - shift)
	}
	return v & r.all
}

// change replaces the bucket old at a place by another bucket.
func (r *buckets) change(words []uint64, at, shift, old, by uint64) {
	words[at] ^= (old ^ by) << shift
	if shift+r.size > wordBits {
		words[at+1] ^= (old ^ by) >> (wordBits - shift)
	}
}

// Insert records a packet of a key and its latency, in any unit.
func (l *Latency[F]) Insert(key []byte, latency uint32) { l.Add(key, 1, uint64(latency)) }

// Add records packets of a key with the sum of their latencies. The result equals one Insert per
// packet.
func (l *Latency[F]) Add(key []byte, packets uint32, sum uint64) {
	l.AddDigest(family.Digest[F](l.seed, key), packets, sum)
}

// AddDigest records packets of a key that is given by its digest in the family.
func (l *Latency[F]) AddDigest(d uint64, packets uint32, sum uint64) {
	for i := range l.rows {
		r := &l.rows[i]
		at, shift := locate[F](r, d, i)
		old := r.get(l.words, at, shift)
		count := min(old&r.mask+uint64(packets), r.mask)
		total := min(old>>(r.bits&63)+min(sum, r.sums), r.sums)
		r.change(l.words, at, shift, old, count|total<<(r.bits&63))
	}
}

// infinite returns +∞ for a counter whose bits are all ones.
func infinite(v, ones uint64) uint64 {
	if v == ones {
		return math.MaxUint64
	}
	return v
}

// InsertBatch records one packet of each key, with its latency; keys are concatenated, size bytes
// each.
func (l *Latency[F]) InsertBatch(keys []byte, size int, latencies []uint32) error {
	if err := family.CheckBatch("tower", keys, size); err != nil {
		return err
	}
	if len(latencies) != len(keys)/size {
		return fmt.Errorf("%w: tower: %d latencies of %d keys", sketch.ErrMismatch, len(latencies), len(keys)/size)
	}
	for i, latency := range latencies {
		l.Insert(keys[i*size:(i+1)*size], latency)
	}
	return nil
}

// Bound returns the bound of Sketch.Bound for packets. Latencies are sums over the same flows.
func (l *Latency[F]) Bound(size uint32, total uint64) sketch.Bound {
	return bound(l.shape, size, total)
}

// Query returns the estimated packets and total latency of a key. ok is false if one of them has
// overflowed in every row, or if the key has no packets. The mean latency is sum / packets.
func (l *Latency[F]) Query(key []byte) (packets uint32, sum uint64, ok bool) {
	return l.QueryDigest(family.Digest[F](l.seed, key))
}

// AppendPlaces appends the indices in Words of the buckets of a digest; a bucket in two words has
// two.
func (l *Latency[F]) AppendPlaces(places []uint32, d uint64) []uint32 {
	for i := range l.rows {
		r := &l.rows[i]
		at, shift := locate[F](r, d, i)
		places = append(places, uint32(at))
		if shift+r.size > wordBits {
			places = append(places, uint32(at+1))
		}
	}
	return places
}

// QueryDigest queries a key that is given by its digest in the family.
func (l *Latency[F]) QueryDigest(d uint64) (packets uint32, sum uint64, ok bool) {
	n, least := uint64(Overflow), uint64(math.MaxUint64)
	for i := range l.rows {
		r := &l.rows[i]
		at, shift := locate[F](r, d, i)
		v := r.get(l.words, at, shift)
		n, least = min(n, infinite(v&r.mask, r.mask)), min(least, infinite(v>>r.bits, r.sums))
	}
	return uint32(n), least, n < Overflow && least != math.MaxUint64 && n > 0
}

// Clone returns a copy of the tower.
func (l *Latency[F]) Clone() *Latency[F] {
	c := *l
	c.words = slices.Clone(l.words)
	return &c
}

// Reset empties the tower.
func (l *Latency[F]) Reset() { clear(l.words) }

// Merge adds the records of o.
func (l *Latency[F]) Merge(o *Latency[F]) error {
	if o == nil {
		return fmt.Errorf("%w: tower: nothing to merge", sketch.ErrMismatch)
	}
	if err := match(l.shape, o.shape, l.seed, o.seed, false, false); err != nil {
		return err
	}
	for i := range l.rows {
		r := &l.rows[i]
		for col := range uint64(l.shape[i].Width) {
			at, shift := r.place(col)
			a, b := r.get(l.words, at, shift), r.get(o.words, at, shift)
			packets := min(a&r.mask+b&r.mask, r.mask)
			r.change(l.words, at, shift, a, packets|min(a>>r.bits+b>>r.bits, r.sums)<<r.bits)
		}
	}
	return nil
}

// MarshalBinary serializes the tower.
func (l *Latency[F]) MarshalBinary() ([]byte, error) {
	w := wire.NewWriter(wire.TowerBuckets, family.ID[F](), l.seed, l.Memory())
	writeShape(w, 0, l.shape)
	w.U64(l.words...)
	return w.Bytes(), nil
}

// UnmarshalBinary replaces the tower by a serialized one.
func (l *Latency[F]) UnmarshalBinary(b []byte) error {
	r, err := wire.NewReader(b, wire.TowerBuckets, family.ID[F]())
	if err != nil {
		return fmt.Errorf("tower: %w", err)
	}
	c, err := readShape(r)
	if err != nil {
		return fmt.Errorf("tower: %w", err)
	}
	if c.Conservative {
		return fmt.Errorf("tower: %w: buckets of conservative insertion", sketch.ErrFormat)
	}
	if err := r.Expect(int(latencyWords(c.Rows)) * wordBits / 8); err != nil {
		return fmt.Errorf("tower: %w", err)
	}
	fresh, err := NewLatency[F](c)
	if err != nil {
		return err
	}
	wire.Cells(r, fresh.words)
	*l = *fresh
	return nil
}
