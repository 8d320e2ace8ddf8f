// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	omnimon "github.com/netsketch/netsketch/plugins/omnimon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
	univmon "github.com/netsketch/netsketch/plugins/univmon/plugin"
	"github.com/netsketch/netsketch/yang/table"
)

// TestFlows: rows of flows get the fields of their dimension, or the fields of a 5-tuple if they
// have no dimension. A text that is not a flow gets no fields. The tables are valid. Other tables,
// and tables that have the fields, stay as they are.
func TestFlows(t *testing.T) {
	r := collectorSchema(t)
	for _, d := range []sdk.Description{univmon.New().Describe(), omnimon.New().Describe()} {
		if err := r.Adopt(d); err != nil {
			t.Fatal(err)
		}
	}
	dimensions := &table.Table{List: "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter"}
	for i, name := range []string{"node", "dimension", "flow"} {
		var column []string
		for _, row := range [][3]string{{"s1", "src", "10.0.0.1"}, {"s1", "dst+dst-port", "2001:db8::1,443"},
			{"s1", "5-tuple", "10.0.0.1,10.0.0.2,udp,0,53"}, {"s1", "5-tuple", "10.0.0.1"}, {"s1", "no", "10.0.0.1"},
			{"s1", "proto", "200"}} {
			column = append(column, row[i])
		}
		dimensions.Keys = append(dimensions.Keys, table.Strings(name, column))
	}
	flows := &table.Table{List: "/netsketch-omnimon:omnimon/losses/loss", Keys: []table.Column{
		table.Strings("flow", []string{"10.0.0.1,10.0.0.2,tcp,1,80"}), table.Strings("location", []string{"s1"})}}
	for _, tt := range []struct {
		table *table.Table
		want  [][5]any
	}{
		{dimensions, [][5]any{
			{"10.0.0.1", nil, nil, nil, nil}, {nil, "2001:db8::1", nil, nil, uint64(443)},
			{"10.0.0.1", "10.0.0.2", "udp", uint64(0), uint64(53)}, {}, {}, {nil, nil, "200", nil, nil}}},
		{flows, [][5]any{{"10.0.0.1", "10.0.0.2", "tcp", uint64(1), uint64(80)}}},
	} {
		out := r.withFlows(tt.table)
		if err := r.Validate(out); err != nil {
			t.Error(err)
		}
		var got [][5]any
		for row := range out.Rows() {
			var values [5]any
			for i, name := range []string{"source-address", "destination-address", "protocol", "source-port",
				"destination-port"} {
				if c := out.Column("state/" + name); !c.Null(row) {
					values[i] = c.Value(row)
				}
			}
			got = append(got, values)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.table.List, diff)
		}
		if r.withFlows(out) != out {
			t.Errorf("%s: the fields are derived again", tt.table.List)
		}
	}
	for _, other := range []*table.Table{
		{List: summaries, Keys: []table.Column{table.Strings("node", []string{"s1"}),
			table.Strings("dimension", []string{"src"})}},
		{List: "/netsketch-omnimon:omnimon/switches/switch", Keys: []table.Column{table.Strings("node", []string{"s1"})}},
		{List: "/x:y/z"},
	} {
		if r.withFlows(other) != other {
			t.Errorf("%s has the fields of flows", other.List)
		}
	}
}

// FuzzWithFlows: a table stays valid, whatever text a plugin gives as a flow or dimension.
func FuzzWithFlows(f *testing.F) {
	r, err := New(nil)
	if err != nil {
		f.Fatal(err)
	}
	if err := r.Adopt(univmon.New().Describe()); err != nil {
		f.Fatal(err)
	}
	f.Add("5-tuple", "10.0.0.1,10.0.0.2,tcp,1,80")
	f.Add("src", "2001:db8::1%eth0")
	f.Add("proto+src-port", ",")
	f.Fuzz(func(t *testing.T, dimension, flow string) {
		in := &table.Table{List: "/netsketch-univmon:univmon/flows/flow", Keys: []table.Column{
			table.Strings("node", []string{"s1"}), table.Strings("dimension", []string{dimension}),
			table.Strings("flow", []string{flow})}}
		if r.Validate(in) != nil {
			return
		}
		if err := r.Validate(r.withFlows(in)); err != nil {
			t.Error(err)
		}
	})
}
