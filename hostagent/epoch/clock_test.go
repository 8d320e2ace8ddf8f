// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"sync"
	"testing"
	"time"
)

func TestAdvance(t *testing.T) {
	c := NewClock(100*time.Millisecond, 7)
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	steps := []struct {
		name   string
		do     func() bool
		want   bool
		epoch  uint64
		notify bool
	}{
		{"the clock is behind", func() bool { _, n := c.Tick(at(650)); return n }, false, 7, false},
		{"the clock reaches the next epoch", func() bool { _, n := c.Tick(at(800)); return n }, true, 8, true},
		{"the same epoch again", func() bool { _, n := c.Tick(at(899)); return n }, false, 8, false},
		{"a packet is newer", func() bool { return c.Follow(10) }, true, 10, false},
		{"the relayed message is not newer", func() bool { return c.Advance(10) }, false, 10, false},
		{"an older packet", func() bool { return c.Follow(9) && c.Current() != 10 }, false, 10, false},
		{"the clock follows and sends nothing", func() bool { _, n := c.Tick(at(1050)); return n }, false, 10, false},
	}
	for _, s := range steps {
		if got := s.do(); got != s.want || c.Current() != s.epoch {
			t.Errorf("%s: %v, epoch %d, want %v, %d", s.name, got, c.Current(), s.want, s.epoch)
		}
	}
}

// TestOneMessagePerEpoch: of all callers that advance a host at once, one gets true for an epoch.
func TestOneMessagePerEpoch(t *testing.T) {
	c := NewClock(time.Millisecond, 0)
	var mu sync.Mutex
	advanced := map[uint64]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for e := range uint64(500) {
				if c.Advance(e) {
					mu.Lock()
					advanced[e]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for e, n := range advanced {
		if n != 1 {
			t.Errorf("epoch %d began %d times", e, n)
		}
	}
	if c.Current() != 499 || advanced[499] != 1 {
		t.Errorf("epoch %d, 499 began %d times", c.Current(), advanced[499])
	}
}
