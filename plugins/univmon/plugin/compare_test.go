// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// flood is the result of an epoch in which n sources send a packet each.
func flood(t *testing.T, epoch, n, first uint32) *result {
	t.Helper()
	s, err := universal.New(universal.Layout{Key: flow.Src, Levels: 8, Rows: 3, Columns: 512, Ways: 4, Slots: 32})
	if err != nil {
		t.Fatal(err)
	}
	k := flow.Key{Mask: flow.Src}
	for i := range n {
		binary.BigEndian.PutUint32(k.Src[:], (first+i)*2654435761)
		s.Update(&k)
	}
	return &result{epoch: uint64(epoch), whole: true, estimate: s.Reading().Estimate()}
}

// TestCompareOfFloods: epochs with more flows than the sketch represents have no changes, and nor
// has the epoch after them.
func TestCompareOfFloods(t *testing.T) {
	few, many := flood(t, 1, 2000, 0), flood(t, 2, 500_000, 0)
	if !few.estimate.Represents() || many.estimate.Represents() {
		t.Fatalf("represents 2,000 flows: %v, 500,000 flows: %v", few.estimate.Represents(), many.estimate.Represents())
	}
	for _, tt := range []struct {
		before, now *result
		want        bool
	}{
		{few, flood(t, 2, 2000, 1000), true},
		{few, many, false},
		{many, flood(t, 3, 2000, 0), false},
		{many, flood(t, 3, 500_000, 1000), false},
	} {
		a := analysis{previous: map[scope]*result{{}: tt.before}}
		a.compare(tt.now)
		if got := tt.now.change != nil; got != tt.want {
			t.Errorf("epoch %d after %d: changes %v, want %v", tt.now.epoch, tt.before.epoch, got, tt.want)
		}
	}
}
