// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	chamelemon "github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	omnimon "github.com/netsketch/netsketch/plugins/omnimon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// network has a host h1 at port 7 of s1, and a link from port 3 of s1 to port 1 of s2.
var network = &sdk.Network{
	Devices: []sdk.Device{{Name: "s1", Ports: []sdk.Port{{Number: 3, Name: "Ethernet3"}, {Number: 7}}},
		{Name: "s2", Ports: []sdk.Port{{Number: 1, Name: "Ethernet1"}}}},
	Hosts: []sdk.Host{{Name: "h1"}}}

// registry knows the modules of plugins.
func registry(t *testing.T) *Registry {
	t.Helper()
	r := collectorSchema(t)
	for _, d := range []sdk.Description{chamelemon.New().Describe(), omnimon.New().Describe()} {
		if err := r.Adopt(d); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestTypes: rows of a list with the grouping scope get the types of their nodes, rows of unknown
// nodes get none. Other tables, and tables that have the types, stay as they are.
func TestTypes(t *testing.T) {
	r, n := registry(t), NewNetwork(network)
	const top = "/netsketch-chamelemon:chamelemon/"
	in := &table.Table{List: top + "node-summaries/node-summary", Keys: []table.Column{
		table.Strings("node", []string{"s1", "s9", "network", "h1"}),
		table.Strings("dimension", slices.Repeat([]string{"5-tuple"}, 4))}}
	out := r.Complete(in, n)
	if err := r.Validate(out); err != nil {
		t.Fatal(err)
	}
	c := out.Column("state/type")
	if c == nil || c.Text(0) != "SWITCH" || !c.Null(1) || c.Text(2) != "NETWORK" || c.Text(3) != "HOST" ||
		in.Column("state/type") != nil {
		t.Errorf("types %v", c)
	}
	for _, other := range []*table.Table{out, {List: "/x:y/z"},
		{List: top + "thresholds/threshold", Keys: in.Keys[:1]}} {
		if r.Complete(other, n) != other {
			t.Errorf("%s has new types", other.List)
		}
	}
}

// TestPorts: rows of lists with the grouping port-ref get the port of their link: the port at the
// row's node, otherwise the port that sends, or the port that receives if a host sends. A row about
// a node gets the node. A table that has the ports stays as it is.
func TestPorts(t *testing.T) {
	r, n := registry(t), NewNetwork(network)
	const top = "/netsketch-omnimon:omnimon/"
	flows := []string{"10.0.0.1,10.0.0.2,tcp,1,80", "10.0.0.1,10.0.0.2,tcp,2,80", "10.0.0.1,10.0.0.2,tcp,3,80"}
	inner, enters, leaves := "s1/3~s2/1", "h1~s1/7", "s1/7~h1"
	for _, tt := range []struct {
		in   *table.Table
		want [][4]any // node, port number, interface, link
	}{
		{&table.Table{List: top + "hops/hop", Keys: []table.Column{table.Strings("flow", flows),
			table.Strings("node", []string{"s2", "s1", "s1"})},
			Values: []table.Column{table.Strings("state/link", []string{inner, enters, inner})}}, [][4]any{
			{"s2", uint64(1), "Ethernet1", inner}, {"s1", uint64(7), nil, enters},
			{"s1", uint64(3), "Ethernet3", inner}}},
		{&table.Table{List: top + "links/link", Keys: []table.Column{
			table.Strings("link", []string{inner, enters, leaves, "s8/1~s9/1"})}}, [][4]any{
			{"s1", uint64(3), "Ethernet3", inner}, {"s1", uint64(7), nil, enters}, {"s1", uint64(7), nil, leaves},
			{"s8", uint64(1), nil, "s8/1~s9/1"}}},
		{&table.Table{List: top + "losses/loss", Keys: []table.Column{table.Strings("flow", flows[:2]),
			table.Strings("location", []string{inner, "s2"})}}, [][4]any{
			{"s1", uint64(3), "Ethernet3", inner}, {"s2", nil, nil, nil}}},
		{&table.Table{List: top + "alerts/alert", Keys: []table.Column{table.Strings("location", []string{"network"}),
			table.Strings("kind", []string{"INEXACT"})}}, [][4]any{{"network", nil, nil, nil}}},
	} {
		out := r.Complete(tt.in, n)
		if err := r.Validate(out); err != nil {
			t.Error(err)
		}
		var got [][4]any
		for row := range out.Rows() {
			var values [4]any
			for i, name := range []string{"node", "port-number", "interface", "link"} {
				c := out.Column(name)
				if c == nil {
					c = out.Column("state/" + name)
				}
				if c != nil && !c.Null(row) {
					values[i] = c.Value(row)
				}
			}
			got = append(got, values)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.in.List, diff)
		}
		if r.Complete(out, n) != out || tt.in.Column("state/port-number") != nil {
			t.Errorf("%s has new ports", out.List)
		}
	}
}
