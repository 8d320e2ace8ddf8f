// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// NodeTypes returns the types of the nodes of /topology by their names, as of grouping scope.
func NodeTypes(n *sdk.Network) map[string]string {
	out := map[string]string{"network": "NETWORK"}
	for i := range n.Devices {
		out[n.Devices[i].Name] = "SWITCH"
	}
	for i := range n.Hosts {
		out[n.Hosts[i].Name] = "HOST"
	}
	return out
}

// WithNodeTypes returns the table with the leaf type of grouping scope of netsketch-results, if its
// list has the leaf and the table does not. of returns the type of a node, "" for an unknown one.
func (r *Registry) WithNodeTypes(t *table.Table, of func(node string) string) *table.Table {
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
		types.AppendSome(of(nodes.Text(row)))
	}
	more, err := b.Table()
	if err != nil {
		return t
	}
	out := *t
	out.Values = slices.Concat(t.Values, more.Values)
	return &out
}
