// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"
	"time"
)

// begins records when the newest epochs began at the host.
type begins struct {
	mu     sync.Mutex
	newest uint64
	at     [8]time.Time // time at which each epoch began, by epoch modulo the length
}

// add records the begin of an epoch that is newer than all others.
func (b *begins) add(epoch uint64, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch <= b.newest {
		return
	}
	for e := max(b.newest, epoch-min(epoch, uint64(len(b.at)))) + 1; e <= epoch; e++ {
		b.at[e%uint64(len(b.at))] = at // skipped epochs begin at the same time
	}
	b.newest = epoch
}

// since returns the time from the begin of an epoch until now; ok is false if it is not known.
func (b *begins) since(epoch uint64, now time.Time) (d time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch > b.newest || epoch+uint64(len(b.at)) <= b.newest || b.at[epoch%uint64(len(b.at))].IsZero() {
		return 0, false
	}
	return max(now.Sub(b.at[epoch%uint64(len(b.at))]), 1), true
}
