// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// Network has the types of nodes and the names of interfaces, which are added to rows of results.
type Network struct {
	types      map[string]string // types of the nodes of /topology, as in grouping scope
	interfaces map[string]string // names of interfaces by the names of their ports
}

// NewNetwork returns the types and names that are added to rows from a network.
func NewNetwork(n *sdk.Network) *Network {
	out := &Network{types: map[string]string{"network": "NETWORK"}, interfaces: map[string]string{}}
	for i := range n.Devices {
		d := &n.Devices[i]
		out.types[d.Name] = "SWITCH"
		for _, p := range d.Ports {
			out.interfaces[sdk.Endpoint{Node: d.Name, Port: p.Number}.String()] = p.Name
		}
	}
	for i := range n.Hosts {
		out.types[n.Hosts[i].Name] = "HOST"
	}
	return out
}

// Complete returns the table with the leaves that a plugin leaves out, because they follow from
// others: those of the groupings flow-ref, scope and port-ref of netsketch-results.
func (r *Registry) Complete(t *table.Table, n *Network) *table.Table {
	return r.withPorts(r.withTypes(r.withFlows(t), n), n)
}

// withTypes adds the leaf type of grouping scope, if the list has the leaf and the table does not.
// An unknown node has no type.
func (r *Registry) withTypes(t *table.Table, n *Network) *table.Table {
	l, err := r.Current().List(t.List)
	nodes := t.Column("node")
	if err != nil || nodes == nil || nodes.Kind != table.String || t.Column("state/type") != nil {
		return t
	}
	if leaf := l.Leaf("state/type"); leaf == nil || leaf.Type.Name != "node-type" {
		return t
	}
	b := table.NewBuilder(t.List)
	rows, types := b.UintKey("row"), b.Text("state/type")
	for row := range t.Rows() {
		rows.Append(uint64(row))
		types.AppendSome(n.types[nodes.Text(row)])
	}
	return with(t, b)
}

// withPorts adds the leaves of grouping port-ref, if the list has them and the table does not. They
// follow from the row's link, or from its location.
func (r *Registry) withPorts(t *table.Table, n *Network) *table.Table {
	l, err := r.Current().List(t.List)
	if err != nil || l.Leaf("state/port-number") == nil || l.Leaf("state/link") == nil ||
		t.Column("state/port-number") != nil {
		return t
	}
	nodes := cmp.Or(t.Column("node"), t.Column("state/node"))
	links := cmp.Or(t.Column("link"), t.Column("state/link"))
	places := cmp.Or(links, t.Column("location"), t.Column("state/location"))
	if places == nil || places.Kind != table.String || nodes != nil && nodes.Kind != table.String {
		return t
	}
	b := table.NewBuilder(t.List)
	rows, numbers, interfaces := b.UintKey("row"), b.Uint("state/port-number"), b.Text("state/interface")
	var ofNodes, ofLinks *table.TextAppender
	if nodes == nil {
		ofNodes = b.Text("state/node")
	}
	if links == nil {
		ofLinks = b.Text("state/link")
	}
	for row := range t.Rows() {
		rows.Append(uint64(row))
		place, node := "", ""
		if !places.Null(row) {
			place = places.Text(row)
		}
		if nodes != nil && !nodes.Null(row) {
			node = nodes.Text(row)
		}
		end, isLink := portOf(place, node)
		name, number, _ := strings.Cut(end, "/")
		port, err := strconv.ParseUint(number, 10, 32)
		numbers.AppendIf(port, err == nil)
		interfaces.AppendSome(n.interfaces[end])
		if ofNodes != nil {
			ofNodes.AppendSome(name)
		}
		if ofLinks != nil {
			if !isLink {
				place = ""
			}
			ofLinks.AppendSome(place)
		}
	}
	return with(t, b)
}

// portOf returns the end of a link "A~B" that grouping port-ref describes. With a node, it is the
// end at that node. Without one, it is the end that sends; if that is a host, the end that
// receives. A place without "~" is a node, and is returned as it is.
func portOf(place, node string) (end string, isLink bool) {
	from, to, isLink := strings.Cut(place, "~")
	name, _, port := strings.Cut(from, "/")
	switch {
	case !isLink:
		return place, false
	case node == "" && port, name == node:
		return from, true
	}
	return to, true
}

// with returns the table with the values of a builder, which has as many rows.
func with(t *table.Table, b *table.Builder) *table.Table {
	more, err := b.Table()
	if err != nil {
		return t
	}
	out := *t
	out.Values = slices.Concat(t.Values, more.Values)
	return &out
}
