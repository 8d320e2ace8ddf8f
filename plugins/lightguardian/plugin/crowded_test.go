// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
	"testing"
)

// TestCrowded: where too many flows share a column, the sizes, then the entropy, and at last the
// number of flows are absent, and an alert says so.
func TestCrowded(t *testing.T) {
	for _, tc := range []struct {
		flows                  int
		sizes, entropy, number bool
	}{{200, true, true, true}, {600, false, true, true}, {1000, false, false, true}, {9000, false, false, false}} {
		h := start(t, "")
		s := newSim(t)
		for i := range tc.flows {
			s.sketches["leaf1"].Insert(fmt.Appendf(nil, "flow of %4d", i))
		}
		r := play(t, h, 7, s)
		row := rows(t, r, summariesList)["leaf1 5-tuple"]
		sizes := 0
		for key := range rows(t, r, rangeList) {
			if strings.HasPrefix(key, "leaf1 ") {
				sizes++
			}
		}
		if sizes > 0 != tc.sizes || row["entropy"] != nil != tc.entropy || row["distinct-flows"] != nil != tc.number {
			t.Errorf("%d flows: %d ranges, %v", tc.flows, sizes, row)
		}
		text := fmt.Sprint(rows(t, r, alertList))
		if said := strings.Contains(text, "compile the program of all switches with more columns"); said == tc.sizes {
			t.Errorf("%d flows: alerts %s", tc.flows, text)
		}
	}
}
