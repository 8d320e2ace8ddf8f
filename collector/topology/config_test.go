// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"slices"
	"testing"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/config"
)

func TestTopologyOfAConfiguration(t *testing.T) {
	c, err := config.Load("../../configs/netsketch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	topo, err := topology.Of(c)
	if err != nil {
		t.Fatal(err)
	}
	// Switches on the path from h1 to h2.
	for name, want := range map[string]uint32{"leaf1": 1, "spine1": 2, "leaf2": 2} {
		h2 := slices.IndexFunc(topo.Hosts(), func(h topology.Host) bool {
			return h.Name == "h2" && len(h.Prefixes) > 0
		})
		if h2 < 0 {
			t.Fatalf("no host h2 with a prefix: %+v", topo.Hosts())
		}
		prefix := topo.Hosts()[h2].Prefixes[0]
		r := topo.Routes(name)
		i := slices.IndexFunc(r.Routes, func(r topology.Route) bool { return r.Prefix == prefix })
		if i < 0 {
			t.Errorf("%s has no route to h2: %+v", name, r)
			continue
		}
		if g, ok := r.Group(r.Routes[i].Group); !ok || len(g.Hops) != 1 || g.Hops[0].Port != want {
			t.Errorf("%s: to h2 by %+v, want port %d", name, g.Hops, want)
		}
	}
}
