// SPDX-License-Identifier: Apache-2.0

package tower

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/sketch/family"
)

// Shared is a tower that several goroutines write at once without locks (SketchINT
// §VI-B), each through a Writer of its own. What a writer has not flushed is in no answer.
//
// With CM insertion a writer has counters of its own, which Flush hands over by the exchange
// of a pointer: no packet touches a cache line that another core writes. That costs
// memory, one tower a writer and one more for each that has flushed since the last Snapshot or Seal, and
// no accuracy: once all writers are flushed the counters are, bit by bit, those of a
// Sketch that saw all packets.
//
// CU insertion goes by the estimate of all packets, so there the writers share the counters and change
// them by compare-and-swap, after adding up the packets of 1,024 keys. No update is
// lost, but two writers may both act on an estimate that the other is raising, so that an
// answer can be too low by what was in flight at the same moment. (Counters of their own would be never
// too low, but for 2 writers have 1.3 times the error of one, for 8 nearly 3 times.)
type Shared[F family.Hash] struct {
	config  Config
	writers atomic.Uint32
	// sealed are towers that writers have handed over, free are empty ones. Whoever takes a
	// pointer out of its slot owns the tower.
	sealed, free [sharedSlots]atomic.Pointer[Sketch[F]]

	mu sync.Mutex // among readers; writers never take it
	// total is what was collected from sealed. With CU insertion its words are the
	// writers' too, and only ever used atomically.
	total *Sketch[F]
}

// sharedSlots bounds the towers that wait. With more writers than this some flushes add to
// what another writer has handed over.
const sharedSlots = 64

// NewShared returns an empty shared tower.
func NewShared[F family.Hash](c Config) (*Shared[F], error) {
	s, err := New[F](c)
	if err != nil {
		return nil, err
	}
	return &Shared[F]{config: Config{Rows: s.shape, Seed: c.Seed, Conservative: c.Conservative}, total: s}, nil
}

// Snapshot returns all that was flushed since the last Seal or Reset, to query, merge and serialise.
// Writers may go on meanwhile; with CU insertion a packet may then be in some rows and not
// yet in others.
func (t *Shared[F]) Snapshot() *Sketch[F] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(false)
}

// Seal is Snapshot and Reset in one, so that every flushed packet is in one epoch.
func (t *Shared[F]) Seal() *Sketch[F] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(true)
}

// Reset forgets what was flushed.
func (t *Shared[F]) Reset() { t.Seal() }

// take copies the total, and empties it if told to.
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

// collect adds up what writers have handed over.
func (t *Shared[F]) collect() {
	for i := range t.sealed {
		if s := t.sealed[i].Swap(nil); s != nil {
			t.total.merge(s)
			t.recycle(s)
		}
	}
}

// recycle keeps a tower for the next writer that needs one.
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
		panic(err) // NewShared has made one of this shape
	}
	return s
}

// Writer is one goroutine's way into a shared tower; it must not be used by two at once. It is
// to be flushed before it is given up.
type Writer[F family.Hash] struct {
	t    *Shared[F]
	own  *Sketch[F] // CM insertion; nil: nothing since the last flush
	held *held      // CU insertion
	slot int
	_    [64]byte // two writers share no cache line
}

// held are packets of keys that a writer holds back. In skewed traffic most packets belong to
// a few flows; added up here, they do not make the cores fight for the same counters.
type held [1024]struct{ digest, count uint64 }

// Writer returns a new writer.
func (t *Shared[F]) Writer() *Writer[F] {
	w := &Writer[F]{t: t, slot: int((t.writers.Add(1) - 1) % sharedSlots)}
	if t.config.Conservative {
		w.held = new(held)
	}
	return w
}

// Insert counts one packet of a key, in the tower once the writer is flushed. Only the
// first one after a flush may allocate.
func (w *Writer[F]) Insert(key []byte) {
	if own := w.own; own != nil {
		own.increment(family.Digest[F](own.seed, key))
		return
	}
	w.insert(key)
}

// insert is Insert for the other cases.
func (w *Writer[F]) insert(key []byte) {
	if w.held != nil {
		w.hold(family.Digest[F](w.t.config.Seed, key))
		return
	}
	w.own = w.t.empty()
	w.own.Insert(key)
}

// InsertBatch counts one packet of each key; keys lie end to end, size bytes each.
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

// Flush hands over what the writer has counted. It waits for nobody; when a reader has not yet
// collected what was handed over last, it adds to that.
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

// raise is Sketch.raise for counters that others raise at the same time.
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
			// A counter that stays, as an overflowed one does, is not written: its cache
			// line stays with every core.
			if next == v || atomic.CompareAndSwapUint64(word, w, w+(next-v)<<shift) {
				break
			}
		}
	}
}
