// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync/atomic"
)

// Tap delivers every batch published after the tap was made, in order, to an output that reads
// columns. Its queue is bounded: when the queue is full, the oldest batch is dropped and counted.
type Tap struct {
	store   *Store
	ch      chan *Batch
	dropped atomic.Uint64 // dropped batches
	rows    atomic.Uint64 // rows of dropped batches
	closed  bool          // guarded by store.pub
}

// Tap returns a tap with a queue of buffer batches, at least one.
func (s *Store) Tap(buffer int) *Tap {
	t := &Tap{store: s, ch: make(chan *Batch, max(buffer, 1))}
	s.pub.Lock()
	defer s.pub.Unlock()
	if s.closed {
		t.closed = true
		close(t.ch)
		return t
	}
	s.taps[t] = struct{}{}
	return t
}

// C delivers the batches, which must not be changed. It is closed by Close and when the store
// closes.
func (t *Tap) C() <-chan *Batch { return t.ch }

// Dropped returns the number of dropped batches.
func (t *Tap) Dropped() uint64 { return t.dropped.Load() }

// DroppedRows returns the number of rows in dropped batches.
func (t *Tap) DroppedRows() uint64 { return t.rows.Load() }

// Close ends the tap. It may be called more than once.
func (t *Tap) Close() {
	t.store.pub.Lock()
	defer t.store.pub.Unlock()
	t.close()
}

// close ends the tap. store.pub is held.
func (t *Tap) close() {
	if !t.closed {
		t.closed = true
		delete(t.store.taps, t)
		close(t.ch)
	}
}

// offer queues a batch. The caller holds store.pub, so there is one sender at a time.
func (t *Tap) offer(b *Batch) {
	for {
		select {
		case t.ch <- b:
			return
		default:
		}
		select {
		case old := <-t.ch:
			t.dropped.Add(1)
			for i := range old.Tables {
				t.rows.Add(uint64(old.Tables[i].Table.Rows()))
			}
		default:
		}
	}
}
