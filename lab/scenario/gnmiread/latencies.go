// SPDX-License-Identifier: Apache-2.0

package gnmiread

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Latencies are the times from the end of each epoch to its first update at a subscriber.
type Latencies struct {
	mu    sync.Mutex
	first map[uint64]time.Duration // by epoch
}

// Watch subscribes to a leaf, and notes when each epoch's number first arrives, until ctx ends.
func (l *Latencies) Watch(ctx context.Context, c *Client, leaf []string, log *slog.Logger) {
	err := c.Epochs(ctx, leaf, func(number uint64, end time.Time) {
		late := time.Since(end)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.first == nil {
			l.first = map[uint64]time.Duration{}
		}
		l.first[number] = late
	})
	if err != nil && ctx.Err() == nil {
		log.Warn("the subscription that measures latency ended", "error", err)
	}
}

// Sorted returns the latencies of all epochs, the smallest first.
func (l *Latencies) Sorted() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Values(l.first))
}
