// SPDX-License-Identifier: Apache-2.0

package sumax

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/sketch/family"
)

// TestSeedsOfSwitches compares switches with a seed each with switches that hash alike: by the
// share of flows whose size is too high at each of three switches in a row. Half of the flows of a
// switch cross all three. With seeds, other flows share their buckets at each.
func TestSeedsOfSwitches(t *testing.T) {
	const switches, width = 3, 4096
	odd := [switches]uint64{0x811c9dc5, 0x9e3779b1, 0x2c9277b5}
	for _, flows := range []int{2000, 8000} {
		high := map[bool]float64{}
		for _, seeds := range []bool{false, true} {
			r := rand.New(rand.NewPCG(1, uint64(flows)))
			var all [switches]*Sketch[family.P4]
			for i := range all {
				c := Config{Width: width}
				if seeds {
					c.Seed = odd[i]
				}
				s, err := New[family.P4](c)
				if err != nil {
					t.Fatal(err)
				}
				all[i] = s
			}
			key := func() []byte { return binary.BigEndian.AppendUint64(nil, r.Uint64()) }
			common, truth := make([][]byte, flows/2), make([]uint32, flows/2)
			for i := range common {
				common[i], truth[i] = key(), 1+r.Uint32N(20)
			}
			for _, s := range all {
				for i, k := range common {
					s.Add(k, truth[i])
				}
				for range flows / 2 {
					s.Add(key(), 1+r.Uint32N(20))
				}
			}
			for i, k := range common {
				least := ^uint32(0)
				for _, s := range all {
					n, _ := s.Query(k)
					least = min(least, n)
				}
				if least > truth[i] {
					high[seeds] += 2 / float64(flows)
				}
			}
		}
		t.Logf("%d flows: %.4f too high at all switches, %.4f with seeds", flows, high[false], high[true])
		if high[true] > 0.7*high[false] {
			t.Errorf("%d flows: %.4f with seeds, %.4f without; expected at most 0.7 times as many", flows, high[true],
				high[false])
		}
	}
}
