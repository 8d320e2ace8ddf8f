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
// A bucket is a part of one word, so that a packet accesses one cache line per row. Buckets whose
// frequency counter has at most 8 bits have 32 bits, others 64; the latency counter takes the rest.
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
	pack  uint32 // binary logarithm of the number of buckets in a word
	bits  uint32 // width of the frequency counter, which is the lower one
	mask  uint64 // mask of the frequency counter
	sums  uint64 // mask of the latency counter
	all   uint64 // mask of a bucket
}

// smallBits is the width of the largest frequency counter that shares 32 bits with its latency.
const smallBits = 8

// perWord returns the binary logarithm of the number of buckets in a word.
func perWord(bits int) uint32 {
	if bits <= smallBits {
		return 1
	}
	return 0
}

// NewLatency returns an empty tower of buckets. The configured rows are those of the frequency
// counters, by default 8, 16 and 24 bits wide. For both kinds of counters, all ones mean +∞.
// Insertion is CM. Memory is the size of both kinds together.
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
			c.Rows = append(c.Rows, Row{Bits: b, Width: c.Memory / (wordBits / 8) / len(c.Bits) << perWord(b)})
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
		size := uint32(wordBits) >> perWord(r.Bits)
		l.rows = append(l.rows, buckets{cols: family.NewRange(uint32(r.Width)), start: start, pack: perWord(r.Bits),
			bits: uint32(r.Bits), mask: 1<<r.Bits - 1, sums: 1<<(size-uint32(r.Bits)) - 1,
			all: math.MaxUint64 >> (wordBits - size)})
		start += bucketWords(r)
	}
	return l, nil
}

func bucketWords(r Row) uint64 { return (uint64(r.Width)-1)>>perWord(r.Bits) + 1 }

func latencyWords(shape []Row) (total uint64) {
	for _, r := range shape {
		total += bucketWords(r)
	}
	return total
}

// Memory returns the bytes of all counters.
func (l *Latency[F]) Memory() int { return len(l.words) * wordBits / 8 }

// Words returns the buckets, row by row, each row in whole words. The lowest bits of a word are
// its first bucket, and the lowest bits of a bucket its packet count.
func (l *Latency[F]) Words() []uint64 { return l.words }

// locate returns the word of a digest's bucket, and the bucket's first bit.
func locate[F family.Hash](r *buckets, d uint64, row int) (word uint64, shift uint32) {
	col := family.Column[F](d, row, &r.cols)
	return r.start + uint64(col>>r.pack), col & r.pack * 32
}

// Insert records a packet of a key and its latency, in any unit.
func (l *Latency[F]) Insert(key []byte, latency uint32) { l.Add(key, 1, uint64(latency)) }

// Add records packets of a key with the sum of their latencies. The result equals that of one
// Insert per packet.
func (l *Latency[F]) Add(key []byte, packets uint32, sum uint64) {
	l.AddDigest(family.Digest[F](l.seed, key), packets, sum)
}

// AddDigest records packets of a key that is given by its digest in the family.
func (l *Latency[F]) AddDigest(d uint64, packets uint32, sum uint64) {
	for i := range l.rows {
		r := &l.rows[i]
		at, shift := locate[F](r, d, i)
		word := &l.words[at]
		old := *word >> (shift & 63) & r.all
		count := min(old&r.mask+uint64(packets), r.mask)
		total := min(old>>(r.bits&63)+min(sum, r.sums), r.sums)
		*word += (count | total<<(r.bits&63) - old) << (shift & 63)
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

// AppendPlaces appends the indices in Words of the buckets of a digest.
func (l *Latency[F]) AppendPlaces(places []uint32, d uint64) []uint32 {
	for i := range l.rows {
		at, _ := locate[F](&l.rows[i], d, i)
		places = append(places, uint32(at))
	}
	return places
}

// QueryDigest queries a key that is given by its digest in the family.
func (l *Latency[F]) QueryDigest(d uint64) (packets uint32, sum uint64, ok bool) {
	n, least := uint64(Overflow), uint64(math.MaxUint64)
	for i := range l.rows {
		r := &l.rows[i]
		at, shift := locate[F](r, d, i)
		v := l.words[at] >> shift & r.all
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
		end := r.start + bucketWords(l.shape[i])
		for at := r.start; at < end; at++ {
			merged := uint64(0)
			for shift := uint32(0); shift < wordBits; shift += wordBits >> r.pack {
				a, b := l.words[at]>>shift&r.all, o.words[at]>>shift&r.all
				packets := min(a&r.mask+b&r.mask, r.mask)
				merged |= (packets | min(a>>r.bits+b>>r.bits, r.sums)<<r.bits) << shift
			}
			l.words[at] = merged
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
