// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestBursts: all packets that Tx defers during concurrent bursts are flushed.
func TestBursts(t *testing.T) {
	t.Parallel()
	s := router(t, "forwarding", Config{Parallel: 4})
	if err := s.RemovePort(1); err != nil {
		t.Fatal(err)
	}
	var late, sent atomic.Int64
	flush := func() { sent.Add(late.Swap(0)) }
	tx := func([]byte, time.Duration) {
		late.Add(1)
		if !s.Bursting() {
			flush()
		}
	}
	if err := s.AddPort(1, Port{Tx: tx, Flush: flush}); err != nil {
		t.Fatal(err)
	}
	pkt := udp(1, 2, 3, 4)
	s.Burst(func() {
		s.Inject(0, pkt, 0)
		if sent.Load() != 0 {
			t.Error("a packet of a burst was not put off")
		}
	})
	s.Inject(0, pkt, 0)
	if n := sent.Load(); n != 2 {
		t.Fatalf("%d packets were sent, not 2", n)
	}
	const workers, bursts = 4, 200
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range bursts {
				if w == 0 { // one writer uses no burst
					s.Inject(0, pkt, 0)
					continue
				}
				s.Burst(func() {
					for range w {
						s.Inject(0, pkt, 0)
					}
				})
			}
		})
	}
	wg.Wait()
	if n, want := sent.Load(), int64(2+bursts*(1+1+2+3)); n != want || late.Load() != 0 {
		t.Errorf("%d of %d packets were sent, %d wait", n, want, late.Load())
	}
	if err := s.RemovePort(1); err != nil {
		t.Fatal(err)
	}
	s.Burst(func() {})
}
