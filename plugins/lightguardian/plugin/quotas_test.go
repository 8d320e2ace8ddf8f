// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"slices"
	"testing"
)

// TestFaultQuotas: the faults of a kind are all listed, or as many of them as of any other kind.
func TestFaultQuotas(t *testing.T) {
	for _, tc := range []struct {
		limit        int
		faults, want map[string]int
	}{
		{200, map[string]int{"LATENCY_INFLATED": 900, "LOOP": 12, "PACKETS_LOST": 51},
			map[string]int{"LATENCY_INFLATED": 137, "LOOP": 12, "PACKETS_LOST": 51}},
		{200, map[string]int{"LATENCY_INFLATED": 900, "LOOP": 12, "PACKETS_LOST": 100},
			map[string]int{"LATENCY_INFLATED": 94, "LOOP": 12, "PACKETS_LOST": 94}},
		{200, map[string]int{"LATENCY_INFLATED": 150, "LOOP": 50}, map[string]int{"LATENCY_INFLATED": 150, "LOOP": 50}},
		{2, map[string]int{"LATENCY_INFLATED": 5, "LOOP": 5, "PACKETS_LOST": 5},
			map[string]int{"LATENCY_INFLATED": 0, "LOOP": 1, "PACKETS_LOST": 1}},
		{0, map[string]int{"LOOP": 1}, map[string]int{"LOOP": 0}},
		{200, nil, map[string]int{}},
	} {
		config := Configuration{}
		config.Limits.Faults = tc.limit
		r := &run{interval: &interval{setup: &setup{config: config}}}
		for _, kind := range slices.Sorted(maps.Keys(tc.faults)) {
			for range tc.faults[kind] {
				r.flows = append(r.flows, &flowState{faults: []fault{{kind: kind}}})
			}
		}
		if got := r.faultQuotas(); !maps.Equal(got, tc.want) {
			t.Errorf("limit %d, faults %v: %v, want %v", tc.limit, tc.faults, got, tc.want)
		}
	}
}
