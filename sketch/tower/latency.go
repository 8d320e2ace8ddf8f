// SPDX-License-Identifier: Apache-2.0

package tower

import (
	"fmt"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// Latency is the tower whose counters are buckets of a frequency and a latency counter
// (SketchINT §V-B). The key is the flow's bytes, with the switch's number before or after
// them if latencies are recorded by flow and switch.
type Latency[F family.Hash] struct {
	packets *Sketch[F]
	sums    []uint64 // packed like the packets' words, in counters of the rows' shape
	rows    []row
	shape   []Row
}

// extraBits is the width of a latency counter beyond that of its frequency counter.
const extraBits = 16

// NewLatency returns an empty tower of buckets. The rows are those of the frequency counters; each
// has a latency counter that is 16 bits wider, up to 32. For both kinds, all ones mean +∞.
// Insertion is CM. Memory is the size of both.
func NewLatency[F family.Hash](c Config) (*Latency[F], error) {
	if c.Conservative {
		return nil, fmt.Errorf("%w: tower: buckets of latencies are inserted into as in CM, not conservatively",
			sketch.ErrConfig)
	}
	if c.Rows == nil {
		bits := c.Bits
		if bits == nil {
			bits = []int{8, 16, 32} // the widths that the paper uses for latencies
		}
		for _, b := range bits {
			if b < 2 || b > 32 {
				return nil, fmt.Errorf("%w: tower: %d-bit counters; expected 2 to 32 bits", sketch.ErrConfig, b)
			}
			// A counter costs its share of a word; each row may leave two words partly unused.
			cost := 1/float64(wordBits/b) + 1/float64(wordBits/min(b+extraBits, 32))
			width := int(float64(c.Memory/(wordBits/8)/len(bits)-2) / cost)
			c.Rows = append(c.Rows, Row{Bits: b, Width: width})
		}
		c.Memory, c.Bits = 0, nil
	}
	p, err := New[F](c)
	if err != nil {
		return nil, err
	}
	l := &Latency[F]{packets: p}
	for _, r := range p.shape {
		l.shape = append(l.shape, Row{Bits: min(r.Bits+extraBits, 32), Width: r.Width})
	}
	var total int
	l.rows, total = plan(l.shape)
	l.sums = make([]uint64, total)
	return l, nil
}

// Memory returns the bytes of all counters.
func (l *Latency[F]) Memory() int { return l.packets.Memory() + len(l.sums)*wordBits/8 }

// Insert records a packet of a key and its latency, in any unit.
func (l *Latency[F]) Insert(key []byte, latency uint32) {
	d := family.Digest[F](l.packets.seed, key)
	l.packets.increment(d)
	for i := range l.rows {
		r := &l.rows[i]
		at, shift := r.locate(family.Column[F](d, i, &r.cols))
		v := l.sums[at] >> shift & r.mask
		l.sums[at] += (min(v+uint64(latency), r.mask) - v) << shift
	}
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

// Bound is Sketch.Bound of the packets; a latency is a sum over as many flows.
func (l *Latency[F]) Bound(size uint32, total uint64) sketch.Bound {
	return l.packets.Bound(size, total)
}

// Query returns the estimated packets and total latency of a key; ok is false if one of
// them has overflowed in every row or no packet was seen. The mean is latency / packets.
func (l *Latency[F]) Query(key []byte) (packets, latency uint32, ok bool) {
	d := family.Digest[F](l.packets.seed, key)
	n, sum := uint64(Overflow), uint64(Overflow)
	for i := range l.rows {
		r := &l.rows[i]
		n = min(n, l.packets.value(i, d))
		at, shift := r.locate(family.Column[F](d, i, &r.cols))
		if v := l.sums[at] >> shift & r.mask; v != r.mask {
			sum = min(sum, v)
		}
	}
	return uint32(n), uint32(sum), n != Overflow && sum != Overflow && n > 0
}

// Reset empties the tower.
func (l *Latency[F]) Reset() {
	l.packets.Reset()
	clear(l.sums)
}

// Merge adds the records of o.
func (l *Latency[F]) Merge(o *Latency[F]) error {
	if o == nil {
		return fmt.Errorf("%w: tower: nothing to merge", sketch.ErrMismatch)
	}
	if err := l.packets.Merge(o.packets); err != nil {
		return err
	}
	// The shape equals that of the packets, so this cannot fail.
	sums, others := Sketch[F]{rows: l.rows, words: l.sums, shape: l.shape},
		Sketch[F]{rows: o.rows, words: o.sums, shape: o.shape}
	return sums.Merge(&others)
}

// MarshalBinary serializes the tower.
func (l *Latency[F]) MarshalBinary() ([]byte, error) {
	w := wire.NewWriter(wire.TowerLatency, family.ID[F](), l.packets.seed, l.Memory())
	writeShape(w, 0, l.packets.shape)
	w.U32(uint32(len(l.sums)))
	w.U64(l.packets.words...)
	w.U64(l.sums...)
	return w.Bytes(), nil
}

// UnmarshalBinary replaces the tower by a serialized one.
func (l *Latency[F]) UnmarshalBinary(b []byte) error {
	r, err := wire.NewReader(b, wire.TowerLatency, family.ID[F]())
	if err != nil {
		return fmt.Errorf("tower: %w", err)
	}
	c := Config{Seed: r.Seed}
	flags, n := r.U32(), r.U32()
	if flags != 0 || n < 1 || n > family.MaxRows {
		return fmt.Errorf("tower: %w: %d rows", sketch.ErrFormat, n)
	}
	for range n {
		c.Rows = append(c.Rows, Row{Bits: int(r.U32()), Width: int(r.U32())})
	}
	if _, err := c.rows(); err != nil {
		return fmt.Errorf("tower: %w: %w", sketch.ErrFormat, err)
	}
	total, sums := 0, 0
	for _, row := range c.Rows {
		total += words(row)
		sums += words(Row{Bits: min(row.Bits+extraBits, 32), Width: row.Width})
	}
	if stated := r.U32(); int(stated) != sums {
		return fmt.Errorf("tower: %w: %d words of latencies; the shape has %d", sketch.ErrFormat, stated, sums)
	}
	if err := r.Expect((total + sums) * wordBits / 8); err != nil {
		return fmt.Errorf("tower: %w", err)
	}
	fresh, err := NewLatency[F](c)
	if err != nil {
		return err
	}
	wire.Cells(r, fresh.packets.words)
	wire.Cells(r, fresh.sums)
	*l = *fresh
	return nil
}
