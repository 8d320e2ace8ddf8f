// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// TestKernelClock: without an agent, packets advance the epoch by the clock in the kernel. Epochs
// that the maps no longer hold are counted as dropped.
func TestKernelClock(t *testing.T) {
	needBPF(t)
	p := newPath(t, Config{}, defaults(0))
	const length = 5 * time.Millisecond
	zero := time.Now().Add(-1000 * length)
	p.Schedule(zero, length, 0)
	frame := ipFrame(address(0, false), address(1, false), packet.ProtocolTCP, 1, 2, packet.ACK, 0, nil)
	for p.Epoch() < 1020 {
		run(t, p.tables.egress, frame, tcNext)
		if now, e := uint64(time.Since(zero)/length), p.Epoch(); e > now+1 {
			t.Fatalf("epoch %d, the clock is in %d", e, now)
		}
	}
	p.Schedule(zero, 0, 0)
	last := p.Epoch()
	for range 10 {
		run(t, p.tables.egress, frame, tcNext)
	}
	if e := p.Epoch(); e != last {
		t.Errorf("epoch %d without a clock, want %d", e, last)
	}
	p.Advance(last + 1)
	g, err := p.Seal(last)
	if err != nil || g == nil {
		t.Fatalf("report %v, error %v", g, err)
	}
	r, err := wire.Open(g.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	dropped := r.Counters[wire.Missed]
	for _, w := range p.waiting {
		dropped += w.dropped
	}
	if held := uint64(p.cfg.Generations); r.EgressRows != 1 || dropped < last-100-held {
		t.Errorf("%d flows, %d epochs dropped of %d, of which the maps hold %d", r.EgressRows, dropped, last-100, held)
	}
}
