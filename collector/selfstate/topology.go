// SPDX-License-Identifier: Apache-2.0

// The network: nodes, ports and links.

package selfstate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// wholeNetwork is the node of results over all switches. No switch and no host has this name.
const wholeNetwork = "network"

// network returns the tables of nodes, ports and links.
func (c *Component) network() ([]store.Publication, error) {
	topo := c.deps.Network.Topology()
	interfaces := map[sdk.Endpoint]southbound.Port{} // by port, of switches with a gNMI session
	reports := map[string]bool{}                     // switches with a gNMI session
	for _, s := range topo.Switches() {
		session := c.deps.Discovery.Session(s.Name)
		if reports[s.Name] = session != nil; session == nil {
			continue
		}
		facts := session.Facts()
		for _, p := range facts.Ports {
			if p.ID != 0 {
				interfaces[sdk.Endpoint{Node: s.Name, Port: p.ID}] = p
			}
		}
	}
	return networkTables(topo, reports, interfaces)
}

// networkTables returns the tables of nodes, ports and links. reports has the switches whose
// interfaces are published under a target of their name.
func networkTables(topo *topology.Topology, reports map[string]bool,
	interfaces map[sdk.Endpoint]southbound.Port,
) ([]store.Publication, error) {
	nodes := table.NewBuilder(Topology + "/nodes/node")
	name, kind, target := nodes.TextKey("name"), nodes.Text("state/type"), nodes.Text("state/target")
	node := func(text, of, at string) {
		name.Append(text)
		kind.Append(of)
		target.AppendSome(at)
	}
	node(wholeNetwork, "NETWORK", "")
	ports := newPortTable(interfaces)
	for _, s := range topo.Switches() {
		at := ""
		if reports[s.Name] {
			at = s.Name
		}
		node(s.Name, "SWITCH", at)
	}
	links := newLinkTable(interfaces)
	for _, h := range topo.Hosts() {
		node(h.Name, "HOST", "")
		links.add(sdk.Endpoint{Node: h.Name}, endpoint(h.Port))
		ports.used[endpoint(h.Port)] = true
	}
	for _, l := range topo.Links() {
		links.add(endpoint(l.A), endpoint(l.B))
		ports.used[endpoint(l.A)], ports.used[endpoint(l.B)] = true, true
	}
	ports.addAll()
	var out []store.Publication
	for _, b := range []*table.Builder{nodes, ports.builder, links.builder} {
		t, err := b.Table()
		if err != nil {
			return nil, err
		}
		out = append(out, store.Publication{Table: t, Replace: true})
	}
	return out, nil
}

func endpoint(p topology.Port) sdk.Endpoint { return sdk.Endpoint{Node: p.Switch, Port: p.Number} }

// portColumns are the columns of grouping port-ref of netsketch-topology.
type portColumns struct {
	node, name *table.TextAppender
	number     *table.UintAppender
	interfaces map[sdk.Endpoint]southbound.Port
}

func newPortColumns(b *table.Builder, at string, interfaces map[sdk.Endpoint]southbound.Port) portColumns {
	return portColumns{node: b.Text(at + "node"), number: b.Uint(at + "port-number"),
		name: b.Text(at + "interface"), interfaces: interfaces}
}

// append appends the end of a link.
func (c *portColumns) append(e sdk.Endpoint) {
	c.node.Append(e.Node)
	c.number.AppendIf(uint64(e.Port), e.Port != 0)
	c.name.AppendSome(c.interfaces[e].Name)
}

// portTable is the list of ports.
type portTable struct {
	builder *table.Builder
	names   *table.TextAppender
	speeds  *table.UintAppender
	columns portColumns
	used    map[sdk.Endpoint]bool // ports that links have
}

func newPortTable(interfaces map[sdk.Endpoint]southbound.Port) *portTable {
	b := table.NewBuilder(Topology + "/ports/port")
	return &portTable{builder: b, names: b.TextKey("name"), speeds: b.Uint("state/speed"),
		columns: newPortColumns(b, "state/", interfaces), used: map[sdk.Endpoint]bool{}}
}

// addAll adds the ports that links or interfaces have.
func (t *portTable) addAll() {
	for e := range t.columns.interfaces {
		t.used[e] = true
	}
	for _, e := range slices.SortedFunc(maps.Keys(t.used), compareEndpoints) {
		t.names.Append(e.String())
		t.columns.append(e)
		speed := t.columns.interfaces[e].Speed
		t.speeds.AppendIf(speed, speed != 0)
	}
}

func compareEndpoints(a, b sdk.Endpoint) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Port, b.Port))
}

// linkTable is the list of the directions of links.
type linkTable struct {
	builder        *table.Builder
	names, reverse *table.TextAppender
	from, to       portColumns
	speeds         *table.UintAppender
}

func newLinkTable(interfaces map[sdk.Endpoint]southbound.Port) *linkTable {
	b := table.NewBuilder(Topology + "/links/link")
	return &linkTable{builder: b, names: b.TextKey("name"), reverse: b.Text("state/reverse"),
		from: newPortColumns(b, "state/source/", interfaces), to: newPortColumns(b, "state/destination/", interfaces),
		speeds: b.Uint("state/speed")}
}

// add adds both directions of a link.
func (t *linkTable) add(a, b sdk.Endpoint) {
	speed := t.from.interfaces[a].Speed
	if other := t.to.interfaces[b].Speed; speed == 0 || other != 0 && other < speed {
		speed = other
	}
	for _, d := range [][2]sdk.Endpoint{{a, b}, {b, a}} {
		t.names.Append(sdk.LinkName(d[0], d[1]))
		t.reverse.Append(sdk.LinkName(d[1], d[0]))
		t.from.append(d[0])
		t.to.append(d[1])
		t.speeds.AppendIf(speed, speed != 0)
	}
}
