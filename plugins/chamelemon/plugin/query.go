// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

// flowSizes holds the sizes of all flows in one epoch. It does not change once it is made, so
// queries read it while the next epoch is analyzed.
type flowSizes struct {
	epoch   uint64
	binding *binding
	edges   []edgeSizes
}

// edgeSizes holds the flow sizes of an edge switch that delivered its cells.
type edgeSizes struct {
	name string
	*sizer
}

// sizes returns the flow sizes of the epoch. The readings are indexed.
func (a *analysis) sizes() *flowSizes {
	s := &flowSizes{epoch: a.epoch.Number, binding: a.b}
	for _, r := range a.readings {
		s.edges = append(s.edges, edgeSizes{r.edge.name, &r.sizer})
	}
	return s
}

// at returns a flow's packets at a switch, or in the network. In the network a flow enters at one
// edge: the edge of its source address if the network model has the address, otherwise the edge
// with the largest estimate, because estimates at the others are hash collisions.
func (s *flowSizes) at(name string, key flow.Key) (packets uint64, q sdk.Quality, known bool) {
	if name == Network && (s.binding.problem != "" || len(s.edges) < len(s.binding.edges)) {
		return 0, "", false
	}
	raw := key.AppendBinary(nil)
	at := name
	if name == Network {
		at = s.binding.attachedTo(key.SrcAddr())
	}
	if !slices.ContainsFunc(s.edges, func(e edgeSizes) bool { return e.name == at }) {
		at = ""
	}
	for _, e := range s.edges {
		if e.name != at && (at != "" || name != Network) {
			continue
		}
		if n, _, of := e.size(raw); !known || n > packets {
			packets, q = n, of
		}
		known = true
	}
	return packets, q, known
}

// table returns the list of flows with the rows that are known. The others go to unknown with the
// reason.
func (s *flowSizes) table(rows []sdk.RowKey, unknown func(flow, reason string)) (*table.Table, error) {
	b := table.NewBuilder(flowList)
	node, flows := b.TextKey("node"), b.TextKey("flow")
	packets, quality := b.Uint("state/packets"), b.Text("state/quality")
	for _, row := range rows {
		if row.List != flowList {
			continue
		}
		name, text := row.Keys["node"], row.Keys["flow"]
		key, err := flow.Parse(flow.FiveTuple, text)
		if err != nil {
			unknown(text, err.Error())
			continue
		}
		n, q, known := s.at(name, key)
		if !known {
			unknown(text, fmt.Sprintf("epoch %d has no data of %s", s.epoch, alert.Clip(name)))
			continue
		}
		node.Append(name)
		flows.Append(text) // as in the request, so that the row has the requested path
		packets.Append(n)
		quality.Append(string(q))
	}
	return b.Table()
}

// watchedTable makes the list of flows with the epoch's watched rows.
func (a *analysis) watchedTable() (*table.Table, error) {
	return a.sizes().table(a.epoch.Watched, func(flow, reason string) { a.problem(alert.Clip(flow), badWatch, reason) })
}

// Query implements sdk.Querier: the packets of one flow in the newest analyzed epoch, at an edge
// switch or in the network.
func (p *Plugin) Query(_ context.Context, row sdk.RowKey) ([]*table.Table, uint64, error) {
	if row.List != flowList {
		return nil, 0, fmt.Errorf("chamelemon: rows of %s cannot be queried; use %s", row.List, flowList)
	}
	if _, err := flow.Parse(flow.FiveTuple, row.Keys["flow"]); err != nil {
		return nil, 0, fmt.Errorf("chamelemon: %w", err)
	}
	s := p.newest.Load()
	if s == nil {
		return nil, 0, nil
	}
	t, err := s.table([]sdk.RowKey{row}, func(string, string) {})
	if err != nil || t.Rows() == 0 {
		return nil, s.epoch, err
	}
	return []*table.Table{t}, s.epoch, nil
}
