// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"slices"
	"testing"
)

// TestDistances: switches 0 to 2 are joined to each other, and switch 3 to none.
func TestDistances(t *testing.T) {
	net := Network{Hosts: 2, Switches: 4, Links: []Link{{Host, 0}, {0, Host}, {Host, 2}, {2, Host}, {0, 1}, {1, 0}, {1, 2},
		{2, 1}, {0, 2}, {2, 0}}, Search: &Search{Hosts: []int32{-1, 0, -1, 1, -1, -1, -1, -1, -1, -1}}}
	if got := distancesOf(&net); !slices.Equal(got, []int32{1, 2, 2, 1 << 20, 2, 2, 1, 1 << 20}) {
		t.Errorf("distances %v", got)
	}
}
