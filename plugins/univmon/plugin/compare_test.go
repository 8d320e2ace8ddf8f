// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"math"
	"strings"
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

// TestCompareOfFloods: the total change is known unless more flows changed than the sketch can
// count, even if it does not represent all flows of the epochs. What is unknown is said.
func TestCompareOfFloods(t *testing.T) {
	few, many := flood(t, 1, 2000, 0), flood(t, 2, 500_000, 0)
	if !few.estimate.Represents() || many.estimate.Represents() {
		t.Fatalf("represents 2,000 flows: %v, 500,000 flows: %v", few.estimate.Represents(), many.estimate.Represents())
	}
	for _, tt := range []struct {
		before, now *result
		want        float64 // total change; 0: unknown
		doubt       string
	}{
		{few, flood(t, 2, 2000, 1000), 2000, ""},
		{few, many, 0, "changes, entropy, functions and DDoS victims are unknown"},
		{many, flood(t, 3, 2000, 0), 0, "more flows changed than the sketch can count: changes are unknown"},
		{many, flood(t, 3, 500_000, 1000), 2000, "number, entropy, functions and DDoS victims are unknown"},
	} {
		a := analysis{previous: map[scope]*result{{}: tt.before}}
		a.compare(tt.now)
		if tt.now.change == nil {
			t.Fatalf("epoch %d after %d was not compared", tt.now.epoch, tt.before.epoch)
		}
		total, deviation, known := tt.now.change.Total(), tt.now.change.Deviation(), tt.now.change.Known()
		if known != (tt.want > 0) || known && math.Abs(total-tt.want) > 4*deviation {
			t.Errorf("epoch %d after %d: total change %.0f ± %.0f, known %v; want %.0f", tt.now.epoch, tt.before.epoch, total,
				deviation, known, tt.want)
		}
		if got := tt.now.doubt(); !strings.Contains(got, tt.doubt) || (got == "") != (tt.doubt == "") {
			t.Errorf("epoch %d after %d: %q, want %q", tt.now.epoch, tt.before.epoch, got, tt.doubt)
		}
	}
}
