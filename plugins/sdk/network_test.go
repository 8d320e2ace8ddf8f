// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// TestLinkNames: names of nodes with dashes have links whose names differ and name their nodes.
func TestLinkNames(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range [][2]sdk.Endpoint{
		{{Node: "agg1-1", Port: 1}, {Node: "edge1-1", Port: 3}}, {{Node: "agg1", Port: 1}, {Node: "1-edge1-1", Port: 3}},
		{{Node: "h-1"}, {Node: "edge1-1", Port: 3}}, {{Node: "edge1-1", Port: 3}, {Node: "h-1"}},
	} {
		name := sdk.LinkName(l[0], l[1])
		if from, to := sdk.LinkNodes(name); from != l[0].Node || to != l[1].Node || seen[name] {
			t.Errorf("%s leads from %s to %s, expected %v, or is not unique", name, from, to, l)
		}
		seen[name] = true
	}
	if got := sdk.LinkName(sdk.Endpoint{Node: "h1"}, sdk.Endpoint{Node: "leaf1", Port: 7}); got != "h1~leaf1/7" {
		t.Error(got)
	}
}
