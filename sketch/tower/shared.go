// SPDX-License-Identifier: Apache-2.0

package tower

import (
	"sync/atomic"

	"github.com/netsketch/netsketch/sketch/family"
)

// Shared is a tower that several goroutines write at once without locks (SketchINT
// §VI-B). Each writes through a Writer of its own. With CM insertion nothing is lost:
// after every Writer is flushed the counters are those of a Sketch that saw all packets.
// With CU insertion two writers may both act on an estimate that the other is
// raising, so that an answer can be too low by what was in flight at the same moment.
type Shared[F family.Hash] struct {
	s *Sketch[F]
}

// NewShared returns an empty shared tower.
func NewShared[F family.Hash](c Config) (*Shared[F], error) {
	s, err := New[F](c)
	if err != nil {
		return nil, err
	}
	return &Shared[F]{s}, nil
}

// Snapshot returns a copy to query, merge and serialise. It may be taken while writers
// write; a packet may then be in some rows and not yet in others.
func (t *Shared[F]) Snapshot() *Sketch[F] {
	c := *t.s
	c.words = make([]uint64, len(t.s.words))
	for i := range c.words {
		c.words[i] = atomic.LoadUint64(&t.s.words[i])
	}
	return &c
}

// pending is how many keys a Writer holds back. In skewed traffic most packets belong to
// a few flows; added up here, they do not make the cores fight for the same counters.
const pending = 1024

// Writer is one goroutine's way into a shared tower; it must not be used by two at once.
type Writer[F family.Hash] struct {
	t     *Shared[F]
	slots [pending]struct{ digest, count uint64 }
}

// Writer returns a new writer.
func (t *Shared[F]) Writer() *Writer[F] { return &Writer[F]{t: t} }

// Insert counts one packet of a key, in the tower at the latest when the writer is
// flushed.
func (w *Writer[F]) Insert(key []byte) {
	d := family.Digest[F](w.t.s.seed, key)
	slot := &w.slots[(d^d>>20)%pending]
	if slot.digest != d {
		if slot.count > 0 {
			w.t.add(slot.digest, slot.count)
		}
		slot.digest, slot.count = d, 0
	}
	slot.count++
}

// Flush brings everything that the writer holds back into the tower.
func (w *Writer[F]) Flush() {
	for i := range w.slots {
		if s := &w.slots[i]; s.count > 0 {
			w.t.add(s.digest, s.count)
			s.count = 0
		}
	}
}

func (t *Shared[F]) add(d, n uint64) {
	s := t.s
	to := uint64(Overflow)
	if s.cu {
		for i := range s.rows {
			r := &s.rows[i]
			at, shift := r.locate(family.Column[F](d, i, &r.cols))
			if v := atomic.LoadUint64(&s.words[at]) >> shift & r.mask; v != r.mask {
				to = min(to, v)
			}
		}
		if to == Overflow {
			return
		}
		to += n
	}
	for i := range s.rows {
		r := &s.rows[i]
		at, shift := r.locate(family.Column[F](d, i, &r.cols))
		word := &s.words[at]
		for {
			w := atomic.LoadUint64(word)
			v := w >> shift & r.mask
			next := min(v+n, r.mask)
			if s.cu {
				next = max(v, min(to, r.mask))
			}
			// A counter that stays, as an overflowed one does, is not written: its cache
			// line stays with every core.
			if next == v || atomic.CompareAndSwapUint64(word, w, w+(next-v)<<shift) {
				break
			}
		}
	}
}
