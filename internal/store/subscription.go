// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"slices"
)

// SubscribeOptions select the rows to follow and the form of delivery.
type SubscribeOptions struct {
	// Queries are followed together. Subscriptions with the same queries, in any order, share a
	// feed.
	Queries []Query
	// Rendering is different for subscriptions that render rows differently: subscriptions with the
	// same text share rendered rows.
	Rendering string
	// UpdatesOnly leaves out the existing rows.
	UpdatesOnly bool
	// Notify is signaled, without blocking, when there are deltas to pull. Its capacity is at least
	// one. Several subscriptions may share it. If nil, the subscription makes its own channel
	// (Ready).
	Notify chan struct{}
}

// Subscription delivers rows to one subscriber: first the existing rows, then changed rows. It
// keeps the last sent state of each leaf, and a queue in which a row occurs at most once, so its
// memory does not grow if the subscriber does not pull.
type Subscription struct {
	feed   *feed
	notify chan struct{}

	// The following fields are guarded by feed.mu.
	cursor  uint64 // position in the log
	initial int    // rows at the head of the queue that existed when the subscription began
	queue   []int32
	head    int
	queued  bitset   // slots whose row is in the queue
	forced  bitset   // slots whose leaves must all be sent, changed or not
	gen     []uint32 // generation of the row that was sent, by slot; 0 if none was sent
	sent    []uint32 // count of changes of a leaf when it was last sent, by slot and leaf
	stride  int
	closed  bool

	// The following fields are only used by Pull.
	deltas []Delta
	leaves []LeafDelta
}

// Delta is the change of a row since it was last sent.
type Delta struct {
	Row  *Row
	Meta Meta
	// Removed is set if the entry was removed. Leaves then holds the leaves that were sent before.
	Removed bool
	// Leaves are the changed leaves. A leaf that is absent in Row was removed.
	Leaves []LeafDelta
}

// LeafDelta is one leaf of a Delta.
type LeafDelta struct {
	// Leaf is the leaf's index in Row.List.Leaves.
	Leaf int
	// Duplicates is the number of earlier changes that were coalesced into this one. It is too large
	// if the list was published several times before it was evaluated for subscribers, and not each
	// publication changed the leaf. It is never too small.
	Duplicates uint32
}

// Subscribe follows the rows that the queries select. The subscription is registered before the
// existing rows are read, so no change is missed. The caller closes it.
func (s *Store) Subscribe(o SubscribeOptions) (*Subscription, error) {
	if len(o.Queries) == 0 {
		return nil, errors.New("store: a subscription needs at least one query")
	}
	if o.Notify == nil {
		o.Notify = make(chan struct{}, 1)
	}
	f, err := s.join(o)
	if err != nil {
		return nil, err
	}
	f.evaluate()
	sub := &Subscription{feed: f, notify: o.Notify}
	f.mu.Lock()
	sub.start(o.UpdatesOnly)
	f.subs[sub] = struct{}{}
	f.mu.Unlock()
	s.interest.change(f.watches, 1)
	return sub, nil
}

// join returns the feed for the options and adds one to its users.
func (s *Store) join(o SubscribeOptions) (*feed, error) {
	key := feedKey(o.Queries, o.Rendering)
	for {
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			return nil, ErrClosed
		}
		if f := s.feeds[key]; f != nil {
			f.users++
			s.mu.Unlock()
			return f, nil
		}
		s.mu.Unlock()

		// Matching happens without the lock, because thousands of queries take time.
		f := newFeed(s, key, slices.Clone(o.Queries))
		s.mu.RLock()
		now := s.snapshots()
		s.mu.RUnlock()
		f.offer(now)
		s.mu.Lock()
		if s.feeds[key] == nil && !s.stopped {
			s.feeds[key] = f
			f.offer(s.snapshots())
			f.users++
			go f.run()
			s.mu.Unlock()
			return f, nil
		}
		s.mu.Unlock()
	}
}

// Close ends the subscription. It may be called more than once, and while another
// goroutine pulls.
func (sub *Subscription) Close() {
	f := sub.feed
	f.mu.Lock()
	if sub.closed {
		f.mu.Unlock()
		return
	}
	sub.closed = true
	delete(f.subs, sub)
	for id, gen := range sub.gen {
		if gen != 0 && f.slots[id].gen == gen {
			sub.drop(int32(id))
		}
	}
	sub.queue, sub.gen, sub.sent = nil, nil, nil
	f.mu.Unlock()

	s := f.store
	s.mu.Lock()
	f.users--
	last := f.users == 0 && s.feeds[f.key] == f
	if last {
		delete(s.feeds, f.key)
	}
	s.mu.Unlock()
	if last {
		f.shut()
	}
	s.interest.change(f.watches, -1)
}

// Ready is signaled when there are deltas to pull. One signal may stand for many changes: pull
// until Pull returns no more.
func (sub *Subscription) Ready() <-chan struct{} { return sub.notify }

// Initial reports whether existing rows are still to be pulled.
func (sub *Subscription) Initial() bool {
	sub.feed.mu.Lock()
	defer sub.feed.mu.Unlock()
	return sub.initial > 0
}

// Sync waits until everything published so far can be pulled.
func (sub *Subscription) Sync() { sub.feed.evaluate() }

// QueueAll queues all rows with all their leaves, changed or not, for a sample or a heartbeat.
func (sub *Subscription) QueueAll() {
	f := sub.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if sub.closed {
		return
	}
	sub.drain()
	for id := range f.slots {
		if s := &f.slots[id]; s.row != nil && !s.gone {
			sub.enqueue(int32(id))
			sub.forced.set(id)
		}
	}
}

// Pull returns the deltas of at most rows rows, and whether more are queued. The deltas are valid
// until the next Pull.
func (sub *Subscription) Pull(rows int) (deltas []Delta, more bool) {
	sub.deltas, sub.leaves = sub.deltas[:0], sub.leaves[:0]
	f := sub.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if sub.closed {
		return nil, false
	}
	sub.drain()
	for sub.head < len(sub.queue) && len(sub.deltas) < rows {
		id := sub.queue[sub.head]
		sub.head++
		sub.pop(id)
		if sub.initial > 0 {
			sub.initial--
		}
	}
	if sub.head == len(sub.queue) {
		sub.queue, sub.head = sub.queue[:0], 0
	} else if sub.head > 1024 && sub.head > len(sub.queue)/2 {
		n := copy(sub.queue, sub.queue[sub.head:])
		sub.queue, sub.head = sub.queue[:n], 0
	}
	// The slice of leaf deltas may be reallocated while it grows, so each Delta's Leaves is set after
	// the loop.
	at := 0
	for i := range sub.deltas {
		n := len(sub.deltas[i].Leaves)
		sub.deltas[i].Leaves = sub.leaves[at : at+n : at+n]
		at += n
	}
	return sub.deltas, sub.head < len(sub.queue)
}

// start queues the existing rows, or marks them as sent. The caller holds feed.mu.
func (sub *Subscription) start(updatesOnly bool) {
	f := sub.feed
	sub.cursor = f.seq
	sub.fit()
	for id := range f.slots {
		s := &f.slots[id]
		if s.row == nil || s.gone {
			continue
		}
		if !updatesOnly {
			sub.enqueue(int32(id))
			continue
		}
		sub.gen[id] = s.gen
		s.known++
		copy(sub.sent[id*sub.stride:], s.row.changes)
	}
	sub.initial = len(sub.queue)
	if sub.initial > 0 {
		sub.signal()
	}
}

// drain moves new log entries to the queue.
func (sub *Subscription) drain() {
	f := sub.feed
	sub.fit()
	if sub.cursor == f.seq {
		return
	}
	from, _ := slices.BinarySearchFunc(f.log, sub.cursor+1, func(e logEntry, seq uint64) int {
		switch {
		case e.seq < seq:
			return -1
		case e.seq > seq:
			return 1
		}
		return 0
	})
	for _, e := range f.log[from:] {
		if f.slots[e.slot].seq == e.seq {
			sub.enqueue(e.slot)
		}
	}
	sub.cursor = f.seq
}

func (sub *Subscription) enqueue(id int32) {
	if !sub.queued.has(int(id)) {
		sub.queued.set(int(id))
		sub.queue = append(sub.queue, id)
	}
}

// pop adds the delta of one row if the row has changed.
func (sub *Subscription) pop(id int32) {
	sub.queued.clear(int(id))
	forced := sub.forced.has(int(id))
	sub.forced.clear(int(id))
	s := &sub.feed.slots[id]
	if s.row == nil {
		return
	}
	known := sub.gen[id] == s.gen
	sent := sub.sent[int(id)*sub.stride:][:sub.stride]
	if !known {
		if s.gone {
			return
		}
		clear(sent)
		sub.gen[id] = s.gen
		s.known++
	}
	first := len(sub.leaves)
	for i, n := range s.row.changes {
		last := sent[i]
		present := !s.row.Values[i].Absent()
		if n == last && !(forced && present) || !present && last == 0 {
			sent[i] = n
			continue
		}
		d := LeafDelta{Leaf: i}
		if n > last && sub.initial == 0 && present {
			d.Duplicates = n - last - 1
		}
		sub.leaves = append(sub.leaves, d)
		sent[i] = n
	}
	if len(sub.leaves) == first && !s.gone {
		return
	}
	sub.deltas = append(sub.deltas, Delta{
		Row:     s.row,
		Meta:    Meta{Time: s.stamp.time, Epoch: s.stamp.epoch, leaves: s.times},
		Removed: s.gone,
		Leaves:  sub.leaves[first:],
	})
	if s.gone {
		sub.drop(id)
	}
}

// drop marks a row as not sent.
func (sub *Subscription) drop(id int32) {
	s := &sub.feed.slots[id]
	sub.gen[id] = 0
	s.known--
	if s.gone && s.known == 0 {
		sub.feed.release(id)
	}
}

// fit grows the tables to the feed's slots and leaves.
func (sub *Subscription) fit() {
	f := sub.feed
	n := len(f.slots)
	if sub.stride != f.stride {
		sent := make([]uint32, n*f.stride)
		for id := range sub.gen {
			copy(sent[id*f.stride:], sub.sent[id*sub.stride:(id+1)*sub.stride])
		}
		sub.sent, sub.stride = sent, f.stride
	}
	if len(sub.gen) < n {
		sub.gen = append(sub.gen, make([]uint32, n-len(sub.gen))...)
		sub.sent = append(sub.sent, make([]uint32, max(n*sub.stride-len(sub.sent), 0))...)
		sub.queued.grow(n)
		sub.forced.grow(n)
	}
}

// signal signals the subscriber without blocking.
func (sub *Subscription) signal() {
	select {
	case sub.notify <- struct{}{}:
	default:
	}
}

// bitset is a set of small numbers.
type bitset []uint64

func (b *bitset) grow(n int) {
	for len(*b) < (n+63)/64 {
		*b = append(*b, 0)
	}
}

func (b bitset) has(i int) bool { return b[i>>6]>>(i&63)&1 != 0 }
func (b bitset) set(i int)      { b[i>>6] |= 1 << (i & 63) }
func (b bitset) clear(i int)    { b[i>>6] &^= 1 << (i & 63) }
