// SPDX-License-Identifier: Apache-2.0

package tower

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/sketch/family"
)

// Shared is a tower that several goroutines write at once without locks (SketchINT §VI-B), each
// through its own Writer. Estimates do not include packets that a writer has not flushed.
//
// With CM insertion each writer has its own counters, which Flush hands over by exchanging a
// pointer, so no packet touches a cache line that another core writes. The cost is memory: one
// tower per writer and one more for each writer that has flushed since the last Snapshot or Seal.
// Once all writers are flushed, the counters equal, bit by bit, the counters of a Sketch that saw
// all packets.
//
// CU insertion depends on the estimate of all packets, so the writers share the counters and change
// them by compare-and-swap, after adding up the packets of 1,024 keys. No update is lost, but two
// writers may both use an estimate that the other is raising, so that an estimate can be too low by
// the packets in flight at that moment. (Separate counters would never be too low, but with two
// writers the error is 1.3 times the error of one writer, and with eight nearly 3 times.)
type Shared[F family.Hash] struct {
	config  Config
	writers atomic.Uint32
	// sealed holds towers that writers have flushed, free holds empty towers. The goroutine that
	// takes a pointer out of a slot owns the tower.
	sealed, free [sharedSlots]atomic.Pointer[Sketch[F]]

	mu sync.Mutex // held by readers; writers never take it
	// total is the sum of the collected towers. With CU insertion, the writers also use its words,
	// always atomically.
	total *Sketch[F]
}

// sharedSlots bounds the towers that are not collected yet. With more writers, some flushes add to
// another writer's tower.
const sharedSlots = 64

// NewShared returns an empty shared tower.
func NewShared[F family.Hash](c Config) (*Shared[F], error) {
	s, err := New[F](c)
	if err != nil {
		return nil, err
	}
	return &Shared[F]{config: Config{Rows: s.shape, Seed: c.Seed, Conservative: c.Conservative}, total: s}, nil
}

// Snapshot returns all packets flushed since the last Seal or Reset, to be queried, merged or
// serialized. Writers may continue meanwhile; with CU insertion, a packet may then be counted in
// some rows and not yet in others.
func (t *Shared[F]) Snapshot() *Sketch[F] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(false)
}

// Seal takes a snapshot and resets the tower at the same moment, so that every flushed packet is
// in exactly one epoch.
func (t *Shared[F]) Seal() *Sketch[F] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(true)
}

// Reset discards all flushed packets.
func (t *Shared[F]) Reset() { t.Seal() }

// take copies the total, and empties it if seal is set.
func (t *Shared[F]) take(seal bool) *Sketch[F] {
	t.collect()
	c := *t.total
	switch {
	case c.cu:
		c.words = make([]uint64, len(t.total.words))
		for i := range c.words {
			if seal {
				c.words[i] = atomic.SwapUint64(&t.total.words[i], 0)
			} else {
				c.words[i] = atomic.LoadUint64(&t.total.words[i])
			}
		}
	case seal:
		t.total.words = make([]uint64, len(c.words))
	default:
		c.words = slices.Clone(c.words)
	}
	return &c
}

// collect adds up the towers that writers have flushed.
func (t *Shared[F]) collect() {
	for i := range t.sealed {
		if s := t.sealed[i].Swap(nil); s != nil {
			t.total.merge(s)
			t.recycle(s)
		}
	}
}

// recycle keeps an empty tower for the next writer that needs one.
func (t *Shared[F]) recycle(s *Sketch[F]) {
	s.Reset()
	for i := range t.free {
		if t.free[i].CompareAndSwap(nil, s) {
			return
		}
	}
}

// empty returns an empty tower.
func (t *Shared[F]) empty() *Sketch[F] {
	for i := range t.free {
		if s := t.free[i].Swap(nil); s != nil {
			return s
		}
	}
	s, err := New[F](t.config)
	if err != nil {
		panic(err) // cannot fail: NewShared has created a tower of this shape
	}
	return s
}

// Writer adds packets to a shared tower. Only one goroutine may use it at a time. Call Flush after
// the last packet.
type Writer[F family.Hash] struct {
	t    *Shared[F]
	own  *Sketch[F] // used with CM insertion; nil if nothing was inserted since the last flush
	held *held      // used with CU insertion
	slot int
	_    [64]byte // so that two writers share no cache line
}

// held are packets of keys that a writer has not added yet. In skewed traffic, most packets belong
// to a few flows; adding them up first reduces contention for the same counters.
type held [1024]struct{ digest, count uint64 }

// Writer returns a new writer.
func (t *Shared[F]) Writer() *Writer[F] {
	w := &Writer[F]{t: t, slot: int((t.writers.Add(1) - 1) % sharedSlots)}
	if t.config.Conservative {
		w.held = new(held)
	}
	return w
}

// Insert counts one packet of a key, which is in the tower once the writer is flushed. Only the
// first Insert after a flush may allocate.
func (w *Writer[F]) Insert(key []byte) {
	if own := w.own; own != nil {
		own.increment(family.Digest[F](own.seed, key))
		return
	}
	w.insert(key)
}

// insert is Insert for a writer that holds keys back, or has no tower of its own yet.
func (w *Writer[F]) insert(key []byte) {
	if w.held != nil {
		w.hold(family.Digest[F](w.t.config.Seed, key))
		return
	}
	w.own = w.t.empty()
	w.own.Insert(key)
}

// InsertBatch counts one packet of each key; keys are concatenated, size bytes each.
func (w *Writer[F]) InsertBatch(keys []byte, size int) error {
	if w.held == nil {
		if w.own == nil {
			w.own = w.t.empty()
		}
		return w.own.InsertBatch(keys, size)
	}
	if err := family.CheckBatch("tower", keys, size); err != nil {
		return err
	}
	for ; len(keys) > 0; keys = keys[size:] {
		w.hold(family.Digest[F](w.t.config.Seed, keys[:size]))
	}
	return nil
}

func (w *Writer[F]) hold(d uint64) {
	slot := &w.held[(d^d>>20)%uint64(len(w.held))]
	if slot.digest != d {
		if slot.count > 0 {
			w.t.raise(slot.digest, slot.count)
		}
		slot.digest, slot.count = d, 0
	}
	slot.count++
}

// Flush hands the writer's counts over to the tower. It does not wait. If no reader has collected
// the previous flush, Flush adds to it.
func (w *Writer[F]) Flush() {
	if w.held != nil {
		for i := range w.held {
			if s := &w.held[i]; s.count > 0 {
				w.t.raise(s.digest, s.count)
				s.count = 0
			}
		}
		return
	}
	own := w.own
	if own == nil {
		return
	}
	w.own = nil
	slot := &w.t.sealed[w.slot]
	for !slot.CompareAndSwap(nil, own) {
		if earlier := slot.Swap(nil); earlier != nil {
			own.merge(earlier)
			w.t.recycle(earlier)
		}
	}
}

// raise does the work of Sketch.raise for counters that other writers may raise at the same time.
func (t *Shared[F]) raise(d, n uint64) {
	s := t.total
	to := uint64(Overflow)
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
	for i := range s.rows {
		r := &s.rows[i]
		at, shift := r.locate(family.Column[F](d, i, &r.cols))
		word := &s.words[at]
		for {
			w := atomic.LoadUint64(word)
			v := w >> shift & r.mask
			next := max(v, min(to, r.mask))
			// A counter that does not change, such as an overflowed one, is not written, so that all cores
			// keep sharing its cache line.
			if next == v || atomic.CompareAndSwapUint64(word, w, w+(next-v)<<shift) {
				break
			}
		}
	}
}
