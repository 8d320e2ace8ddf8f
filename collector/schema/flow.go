// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

// withFlows adds the leaves of grouping flow-ref, if the list has them and the table does not: the
// fields of each row's flow. The fields of a flow are the fields of the row's dimension, by default
// those of a 5-tuple. A flow whose text has another form gets no fields.
func (r *Registry) withFlows(t *table.Table) *table.Table {
	l, err := r.Current().List(t.List)
	flows := t.Column("flow")
	if err != nil || flows == nil || flows.Kind != table.String || l.Leaf("state/source-address") == nil ||
		t.Column("state/source-address") != nil {
		return t
	}
	dimensions := t.Column("dimension")
	if dimensions != nil && dimensions.Kind != table.String {
		return t
	}
	f := newFlowColumns(t.List)
	name, fields, err := "", flow.FiveTuple, error(nil)
	for row := range t.Rows() {
		if dimensions != nil && dimensions.Text(row) != name {
			name = dimensions.Text(row)
			fields, err = flow.ParseFields(name)
		}
		key := flow.Key{}
		if err == nil {
			if k, wrong := flow.Parse(fields, flows.Text(row)); wrong == nil {
				key = k
			}
		}
		f.append(row, &key)
	}
	return with(t, f.builder)
}

// flowColumns are the columns of grouping flow-ref, with the number of the row as key.
type flowColumns struct {
	builder                       *table.Builder
	rows                          *table.UintAppender
	source, destination, protocol *table.TextAppender
	sourcePort, destinationPort   *table.UintAppender
}

func newFlowColumns(list string) *flowColumns {
	b := table.NewBuilder(list)
	return &flowColumns{builder: b, rows: b.UintKey("row"), source: b.Text("state/source-address"),
		destination: b.Text("state/destination-address"), protocol: b.Text("state/protocol"),
		sourcePort: b.Uint("state/source-port"), destinationPort: b.Uint("state/destination-port")}
}

// append appends a row with the fields that the key has.
func (c *flowColumns) append(row int, k *flow.Key) {
	c.rows.Append(uint64(row))
	text := func(a *table.TextAppender, f flow.Fields) {
		if k.Mask&f != 0 {
			a.AppendText(k.Project(f))
		}
	}
	text(c.source, flow.Src)
	text(c.destination, flow.Dst)
	text(c.protocol, flow.Proto)
	c.sourcePort.AppendIf(uint64(k.SrcPort), k.Mask&flow.SrcPort != 0)
	c.destinationPort.AppendIf(uint64(k.DstPort), k.Mask&flow.DstPort != 0)
}
