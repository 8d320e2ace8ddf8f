// SPDX-License-Identifier: Apache-2.0

// Package flowref fills the leaves of grouping flow-ref of the module netsketch-results.
package flowref

import (
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

// Columns are the columns of a table with the fields of each row's flow.
type Columns struct {
	source, destination, protocol *table.TextAppender
	sourcePort, destinationPort   *table.UintAppender
}

// Add adds the columns to a table.
func Add(b *table.Builder) *Columns {
	return &Columns{source: b.Text("state/source-address"), destination: b.Text("state/destination-address"),
		protocol: b.Text("state/protocol"), sourcePort: b.Uint("state/source-port"),
		destinationPort: b.Uint("state/destination-port")}
}

// Append appends a row with the fields of a flow. Fields that the flow lacks have no value.
func (c *Columns) Append(k *flow.Key) {
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
