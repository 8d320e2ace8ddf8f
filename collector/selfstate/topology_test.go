// SPDX-License-Identifier: Apache-2.0

package selfstate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// TestNetwork: nodes, ports and links of a network with names that have dashes. A link has both
// directions and the lower speed of its ends; a port has the interface that its switch reports.
func TestNetwork(t *testing.T) {
	var b topology.Builder
	for _, name := range []string{"agg1-1", "1-edge1-1"} {
		b.AddSwitch(topology.Switch{Name: name})
	}
	b.AddHost(topology.Host{Name: "h-1", Port: topology.Port{Switch: "1-edge1-1", Number: 7}})
	b.AddLink(topology.Link{A: topology.Port{Switch: "agg1-1", Number: 1},
		B: topology.Port{Switch: "1-edge1-1", Number: 3}})
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	interfaces := map[sdk.Endpoint]southbound.Port{
		{Node: "agg1-1", Port: 1}:    {Name: "Ethernet1", Speed: 10e9},
		{Node: "agg1-1", Port: 2}:    {Name: "Ethernet2"},
		{Node: "1-edge1-1", Port: 3}: {Name: "et-0/0/3", Speed: 25e8},
	}
	tables, err := networkTables(topo, map[string]bool{"agg1-1": true}, interfaces)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range tables {
		yangtest.Check(t, p.Table)
		for row := range p.Table.Rows() {
			text := p.Table.Keys[0].Text(row)
			for i := range p.Table.Values {
				if c := &p.Table.Values[i]; !c.Null(row) {
					text += fmt.Sprintf(" %s=%v", strings.TrimPrefix(c.Name, "state/"), c.Value(row))
				}
			}
			got = append(got, text)
		}
	}
	const there, back, up, down = "agg1-1/1~1-edge1-1/3", "1-edge1-1/3~agg1-1/1", "h-1~1-edge1-1/7", "1-edge1-1/7~h-1"
	want := []string{
		"network type=NETWORK", "1-edge1-1 type=SWITCH", "agg1-1 type=SWITCH target=agg1-1", "h-1 type=HOST",
		"1-edge1-1/3 speed=2500000000 node=1-edge1-1 port-number=3 interface=et-0/0/3",
		"1-edge1-1/7 node=1-edge1-1 port-number=7",
		"agg1-1/1 speed=10000000000 node=agg1-1 port-number=1 interface=Ethernet1",
		"agg1-1/2 node=agg1-1 port-number=2 interface=Ethernet2",
		up + " reverse=" + down + " source/node=h-1 destination/node=1-edge1-1 destination/port-number=7",
		down + " reverse=" + up + " source/node=1-edge1-1 source/port-number=7 destination/node=h-1",
		back + " reverse=" + there + " source/node=1-edge1-1 source/port-number=3 source/interface=et-0/0/3 " +
			"destination/node=agg1-1 destination/port-number=1 destination/interface=Ethernet1 speed=2500000000",
		there + " reverse=" + back + " source/node=agg1-1 source/port-number=1 source/interface=Ethernet1 " +
			"destination/node=1-edge1-1 destination/port-number=3 destination/interface=et-0/0/3 speed=2500000000",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
