// SPDX-License-Identifier: Apache-2.0

package universal

import "testing"

// TestFewFlows: a deviation, or a share of the flows, of some flows is always tolerated.
func TestFewFlows(t *testing.T) {
	for _, c := range []struct {
		count, deviation, sampled, fill float64
		counts, represents              bool
	}{
		{count: 10, deviation: 7, counts: true, represents: true}, {count: 10, deviation: 7.1},
		{count: 100, deviation: 25, sampled: 45, counts: true, represents: true}, {count: 100, deviation: 25.1, sampled: 45},
		{count: 100, deviation: 25, sampled: 44.9, counts: true}, {count: 10, fill: mostFill, counts: true, represents: true},
		{count: 10, fill: mostFill + 0.01},
	} {
		e := &Estimate{levels: []level{{}, {fill: c.fill}}, count: c.count, deviation: c.deviation, sampled: c.sampled}
		if e.CountsFlows() != c.counts || e.Represents() != c.represents {
			t.Errorf("%+v: counts flows %v, represents %v", c, e.CountsFlows(), e.Represents())
		}
	}
	for deviation, known := range map[float64]bool{25: true, 25.1: false} {
		if c := (&Change{total: 100, deviation: deviation}); c.Known() != known {
			t.Errorf("a change of 100 ± %v is known: %v", deviation, c.Known())
		}
	}
}
