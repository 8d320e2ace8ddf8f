// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
)

// A paced clock never runs ahead of the machine's. After work that takes too long it catches up,
// and reports by how much it was late.
func TestPacedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		v := epoch.NewVirtual(began, 0)
		c := PacedClock(v)
		var wake chan struct{}
		reach := func(at time.Duration) {
			t.Helper()
			if reached, err := c.wait(t.Context(), at, wake); !reached || err != nil || c.Now() != at {
				t.Fatalf("waited until %v: now %v, reached %t, error %v", at, c.Now(), reached, err)
			}
		}
		fired := false
		v.AfterFunc(400*time.Millisecond, func() { fired = true })
		reach(time.Second)
		if synctest.Wait(); !fired {
			t.Error("a timer within the wait has not fired")
		}
		if real := time.Since(began); real < time.Second-pace || real > time.Second+pace || c.Lag() > pace {
			t.Errorf("one second took %v, lag %v", real, c.Lag())
		}
		time.Sleep(3 * time.Second) // in the bubble's time: the lab computes for so long
		reach(2 * time.Second)
		if real := time.Since(began); real > 4*time.Second+pace {
			t.Errorf("a late clock waited until %v", real)
		}
		if lag := c.Lag(); lag < 2*time.Second || lag > 3*time.Second+pace {
			t.Errorf("lag %v after 3 s of work", lag)
		}
		reach(5 * time.Second)
		if real := time.Since(began); real < 5*time.Second-pace || real > 5*time.Second+pace {
			t.Errorf("the clock did not catch up: 5 s took %v", real)
		}

		wake = make(chan struct{}, 1)
		wake <- struct{}{}
		if reached, err := c.wait(t.Context(), 6*time.Second, wake); reached || err != nil {
			t.Errorf("an earlier event: reached %t, error %v", reached, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.wait(ctx, 7*time.Second, nil); err == nil {
			t.Error("a wait that was canceled ended without an error")
		}
	})
}
