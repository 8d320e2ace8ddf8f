// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"testing"

	"github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	"github.com/netsketch/netsketch/yang/table"
)

// TestWithNodeTypes: rows of a list with the grouping scope get the types of their nodes, those of
// unknown nodes get none. Other tables, and tables that have the types, stay as they are.
func TestWithNodeTypes(t *testing.T) {
	r := collectorSchema(t)
	if err := r.Adopt(plugin.New().Describe()); err != nil {
		t.Fatal(err)
	}
	types := map[string]string{"network": "NETWORK", "s1": "SWITCH"}
	of := func(node string) string { return types[node] }
	const top = "/netsketch-chamelemon:chamelemon/"
	in := &table.Table{List: top + "node-summaries/node-summary", Keys: []table.Column{
		table.Strings("node", []string{"s1", "s2", "network"}),
		table.Strings("dimension", []string{"5-tuple", "5-tuple", "5-tuple"})}}
	out := r.WithNodeTypes(in, of)
	if err := r.Validate(out); err != nil {
		t.Fatal(err)
	}
	c := out.Column("state/type")
	if c == nil || c.Text(0) != "SWITCH" || !c.Null(1) || c.Text(2) != "NETWORK" || in.Column("state/type") != nil {
		t.Errorf("types %v", c)
	}
	for _, other := range []*table.Table{out, {List: "/x:y/z"},
		{List: top + "thresholds/threshold", Keys: in.Keys[:1]}} {
		if r.WithNodeTypes(other, of) != other {
			t.Errorf("%s has new types", other.List)
		}
	}
}
