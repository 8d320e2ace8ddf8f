// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// TestLasting: a queue fills in the second interval, stays full for two more, and empties. The
// inflation lasts as long as the queue is full, although the means before it are high as well.
func TestLasting(t *testing.T) {
	rows, err := groundTruth(&score.Setting{Epoch: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	at, before := truth.FlowAt{Flow: flow.Key{Mask: flow.FiveTuple, SrcPort: 1}, Switch: "s1"}, (*score.Truth)(nil)
	for i, tt := range []struct {
		mean, worst    time.Duration
		inflated, near bool
	}{
		{time.Millisecond, time.Millisecond, false, false},
		{4 * time.Millisecond, 40 * time.Millisecond, true, false},
		{30 * time.Millisecond, 40 * time.Millisecond, true, false},
		{6 * time.Millisecond, 7 * time.Millisecond, true, true},
		{2 * time.Millisecond, 2 * time.Millisecond, false, false},
		{30 * time.Millisecond, 40 * time.Millisecond, true, false},
	} {
		now := &score.Truth{Stays: &truth.StaysEpoch{Delays: map[truth.FlowAt]truth.Delays{
			at: {Packets: 10, Sum: 10 * tt.mean, Worst: tt.worst}}}}
		row := rows(&score.Epoch{Truth: now, Before: before}).Row(inflations, network, at.Flow.String()+"/s1")
		if got := row != nil && !row.Unwanted; got != tt.inflated || got && row.Near != tt.near {
			t.Errorf("interval %d: %+v, want inflated %v, near %v", i, row, tt.inflated, tt.near)
		}
		before = now
	}
}
