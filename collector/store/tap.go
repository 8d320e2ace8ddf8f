// SPDX-License-Identifier: Apache-2.0

// Taps: whole batches for outputs that read columns.

package store

import (
	"context"
	"iter"
	"sync/atomic"
)

// Tap receives every batch published after it was made, in order. Its queue is
// bounded: when it is full the oldest batch is dropped and counted.
type Tap struct {
	store   *Store
	ch      chan *Batch
	dropped atomic.Uint64 // batches
	rows    atomic.Uint64 // in them
	closed  bool          // under store.pub
}

// Tap returns a tap with room for so many batches (at least one).
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

// C delivers the batches, for reading only; it is closed by Close and when the
// store closes.
func (t *Tap) C() <-chan *Batch { return t.ch }

// Dropped returns how many batches were dropped because nobody read them in time.
func (t *Tap) Dropped() uint64 { return t.dropped.Load() }

// DroppedRows returns how many rows they had.
func (t *Tap) DroppedRows() uint64 { return t.rows.Load() }

// Close ends the tap. It may be called more than once.
func (t *Tap) Close() {
	t.store.pub.Lock()
	defer t.store.pub.Unlock()
	t.close()
}

// close needs store.pub held.
func (t *Tap) close() {
	if !t.closed {
		t.closed = true
		delete(t.store.taps, t)
		close(t.ch)
	}
}

// offer needs store.pub held, which makes it the only sender.
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

// Batches yields batches from now on until ctx ends or the store closes, through a
// tap with room for so many.
func (s *Store) Batches(ctx context.Context, buffer int) iter.Seq[*Batch] {
	t := s.Tap(buffer)
	return func(yield func(*Batch) bool) {
		defer t.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case b, ok := <-t.ch:
				if !ok || !yield(b) {
					return
				}
			}
		}
	}
}
