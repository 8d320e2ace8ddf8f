// SPDX-License-Identifier: Apache-2.0

package southbound

import "testing"

func TestBitsPerSecond(t *testing.T) {
	for text, want := range map[string]uint64{
		"SPEED_10MB": 1e7, "openconfig-if-ethernet:SPEED_2500MB": 25e8, "oc-eth:SPEED_400GB": 4e11, "SPEED_UNKNOWN": 0,
		"": 0, "10GB": 0, "SPEED_GB": 0, "SPEED_-1GB": 0, "SPEED_99999999GB": 0,
	} {
		if got := bitsPerSecond(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
