// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"github.com/netsketch/netsketch/internal/flowref"
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
	b := table.NewBuilder(t.List)
	rows, columns := b.UintKey("row"), flowref.Add(b)
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
		rows.Append(uint64(row))
		columns.Append(&key)
	}
	return with(t, b)
}
