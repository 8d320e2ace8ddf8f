// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"slices"
	"sync"
	"time"
)

// Times records when at least one of several conditions holds, such as that routes avoid a link. It
// may be used from any goroutine.
type Times struct {
	mu    sync.Mutex
	since time.Duration // begin of the present time in which hold is above 0
	hold  int           // number of conditions that hold now
	over  []span        // the times that are over
}

type span struct{ from, until time.Duration }

// Change records that a condition begins to hold now (more) or ceases to hold.
func (t *Times) Change(now time.Duration, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case more:
		if t.hold == 0 {
			t.since = now
		}
		t.hold++
	default:
		if t.hold--; t.hold == 0 {
			t.over = append(t.over, span{t.since, now})
		}
	}
}

// During reports whether any condition held at some time from start to end.
func (t *Times) During(start, end time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hold > 0 && t.since < end || slices.ContainsFunc(t.over, func(s span) bool {
		return s.from < end && s.until > start
	})
}
