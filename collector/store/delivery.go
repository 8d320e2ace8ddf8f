// SPDX-License-Identifier: Apache-2.0

// Delivery: how long results took to reach a subscriber.

package store

import (
	"sync"
	"time"
)

// keptDeliveries is how many epochs are remembered.
const keptDeliveries = 64

// deliveries remembers the last epochs' first deliveries, by epoch modulo their
// number.
type deliveries struct {
	mu   sync.Mutex
	last [keptDeliveries]struct {
		epoch uint64
		took  time.Duration
		known bool
	}
}

// NoteDelivery is called by an output that serves subscribers, with how long after
// the end of an epoch its first update was handed to one. The first call for an
// epoch counts.
func (s *Store) NoteDelivery(epoch uint64, took time.Duration) {
	d := &s.deliveries
	d.mu.Lock()
	defer d.mu.Unlock()
	e := &d.last[epoch%keptDeliveries]
	if !e.known || e.epoch != epoch {
		e.epoch, e.took, e.known = epoch, took, true
	}
}

// Delivery returns what was noted of one of the last 64 epochs; false when no
// subscriber was sent anything of it.
func (s *Store) Delivery(epoch uint64) (took time.Duration, ok bool) {
	d := &s.deliveries
	d.mu.Lock()
	defer d.mu.Unlock()
	e := &d.last[epoch%keptDeliveries]
	return e.took, e.known && e.epoch == epoch
}
