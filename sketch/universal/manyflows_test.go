// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

// TestManyFlows: with up to 4 million flows, numbers of flows and entropies are near the truth, or
// the estimate says that it does not know them.
func TestManyFlows(t *testing.T) {
	layouts := []Layout{{Key: flow.Src, Levels: 16, Rows: 3, Columns: 1280, Ways: 4, Slots: 40}, src1M, src300K}
	for _, n := range []int{1000, 30_000, 400_000, 4_000_000} {
		if n > 1_000_000 && testing.Short() {
			t.Skip("-short leaves out 4 million flows")
		}
		for _, l := range layouts {
			s := measure(t, l, nil)
			k := flow.Key{Mask: flow.Src}
			total, xlogx := 0.0, 0.0
			for i := range n { // one packet each, but every 50th flow 10 packets
				binary.BigEndian.PutUint32(k.Src[:], uint32(i)*2654435761)
				x := 1 + 9*(1-min(i%50, 1))
				for range x {
					s.Update(&k)
				}
				total += float64(x)
				xlogx += XLogX(float64(x))
			}
			e := s.Reading().Estimate()
			if e.CountsFlows() && relative(e.Distinct(), float64(n)) > 0.15 {
				t.Errorf("%v: %d flows: counted %.0f", l, n, e.Distinct())
			}
			if want := math.Log2(total) - xlogx/total; e.Represents() && relative(e.Entropy(), want) > 0.03 {
				t.Errorf("%v: %d flows: entropy %.3f, want %.3f", l, n, e.Entropy(), want)
			}
			if l.Levels == 16 && !e.Represents() {
				t.Errorf("%v: %d flows are too many", l, n)
			}
			if l.Levels == 10 && n == 4_000_000 && e.CountsFlows() {
				t.Errorf("%v: counts %d flows as %.0f", l, n, e.Distinct())
			}
		}
	}
}
