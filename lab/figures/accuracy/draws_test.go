// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"math/rand/v2"
	"testing"
)

func TestBreaks(t *testing.T) {
	row := func(quality string) map[string]string {
		return map[string]string{"packets": "10", "packets-low": "8", "packets-high": "13", "quality": quality}
	}
	for _, c := range []struct {
		quality string
		truth   float64
		want    bool
	}{
		{"EXACT", 10, false}, {"EXACT", 11, true}, {"LOWER_BOUND", 10, false}, {"LOWER_BOUND", 9, true},
		{"UPPER_BOUND", 10, false}, {"UPPER_BOUND", 11, true}, {"BOUNDED", 8, false}, {"BOUNDED", 13, false},
		{"BOUNDED", 7, true}, {"BOUNDED", 14, true}, {"ESTIMATE", 99, false},
	} {
		if got := breaks(row(c.quality), "packets", "quality", c.truth); got != c.want {
			t.Errorf("%s, %v packets: %v", c.quality, c.truth, got)
		}
	}
	if breaks(row("EXACT"), "lost-packets", "quality", 1) {
		t.Error("an absent leaf contradicts")
	}
}

// TestDrawSizes: drawn traffic stays within the numbers of flows and packets.
func TestDrawSizes(t *testing.T) {
	for seed := range uint64(20) {
		name, sizes := drawSizes(rand.New(rand.NewPCG(seed, 1)), 100_000)
		packets := 0
		for _, x := range sizes {
			if x < 1 {
				t.Fatalf("%s: a flow of %d packets", name, x)
			}
			packets += x
		}
		if len(sizes) < 1000 || len(sizes) > 100_000 || packets > mostPackets+len(sizes) {
			t.Errorf("%s: %d packets", name, packets)
		}
	}
}
