// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"math"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/internal/test/inbandtest"
)

// TestQueues measures queues in two lanes: latencies and occupancies by switch and queue. A hop
// without queue metadata counts at no queue.
func TestQueues(t *testing.T) {
	r, clock := start(t, defaults())
	frame := func(number int, stack ...uint32) []byte { // node, latency, queue and occupancy of each
		i := inbandtest.INT{Version: 2, HopWords: 3, Remaining: 3, Instructions: 0xb000, Stack: stack}
		m := i.Mark(sent(number), dscp)
		return m.Frame()
	}
	r.In(frames(frame(1, 72, 200, 1<<24|5, 71, 100, 7), frame(1, 72, math.MaxUint32, 1<<24|9, 71, 100, math.MaxUint32)))
	other := r.Lane()
	other.In(frames(frame(2, 72, 300, 1<<24|4, 73, 10, 2<<24), with(2, 72, 8)))
	clock.Advance(11)
	want := []wire.Queue{
		{Node: 71, ID: 0, Packets: 1, Timed: 1, Sum: 100, Occupancy: 7, Worst: 7},
		{Node: 72, ID: 1, Packets: 3, Timed: 2, Sum: 500, Occupancy: 18, Worst: 9},
		{Node: 73, ID: 2, Packets: 1, Timed: 1, Sum: 10},
	}
	if got := seal(t, r, 10); !slices.Equal(got.Queues, want) {
		t.Errorf("queues %+v, want %+v", got.Queues, want)
	}
	clock.Advance(12)
	if got := seal(t, r, 11); len(got.Queues) != 0 {
		t.Errorf("queues %+v of an interval without packets", got.Queues)
	}
	g, err := newGroup(defaults())
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint32(maxQueues) {
		g.queue(queue{i, 0})
	}
	if q := g.queue(queue{1, 1}); q != nil || g.queue(queue{5, 0}) == nil {
		t.Errorf("a queue beyond the bound: %+v", q)
	}
}
