// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"encoding/binary"
	"math"
	"testing"
)

// TestChangeOfAFlowThatOneHeapLacks: the change of a flow comes from the counters of both sketches,
// also if only one of them has the flow in its heap (UnivMon, section 4.3).
func TestChangeOfAFlowThatOneHeapLacks(t *testing.T) {
	sketch := func(flows, packets, own int) *paperSketch {
		t.Helper()
		u, err := newPaperSketch(countBlock, paperLevels*400_000, 4, 1)
		if err != nil {
			t.Fatal(err)
		}
		insert := func(flow, packets int) {
			for range packets {
				u.insert(binary.BigEndian.AppendUint32(nil, uint32(flow)))
			}
		}
		insert(0, own)
		for f := range flows {
			insert(f+1, packets)
		}
		u.seal()
		return u
	}
	key := string(make([]byte, 4))
	before, after := sketch(1000, 100, 80), sketch(100, 100, 200)
	if _, ok := before.found[0][key]; ok {
		t.Fatal("the heap of the first sketch has the flow")
	}
	if _, ok := after.found[0][key]; !ok {
		t.Fatal("the heap of the second sketch lacks the flow")
	}
	found, total := after.changes(before)
	if d := found[key]; math.Abs(d-120) > 20 {
		t.Errorf("the flow changed by %.0f packets; it went from 80 to 200", d)
	}
	if want := 120. + 900*100; math.Abs(total-want) > 0.3*want {
		t.Errorf("the total change is %.0f; it was %.0f", total, want)
	}
}
