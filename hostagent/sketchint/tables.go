// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// maxNodes bounds the switches of an interval.
const maxNodes = 1 << 14

// place is a flow at a switch.
type place struct {
	key  flow.Key
	node uint32
}

// fault is a problem of one sender.
type fault struct {
	address netip.Addr
	problem inband.Problem
}

// fault counts a problem by the sender of the packet or datagram, if it has an address.
func (g *group) fault(from netip.Addr, problem inband.Problem) {
	if !from.IsValid() {
		return
	}
	at := fault{from, problem}
	f := g.faults[at]
	if f == nil {
		if len(g.faults) >= wire.MaxFaults {
			g.Counters[wire.FaultsFull]++
			return
		}
		f = &wire.Fault{Address: from, Problem: problem}
		g.faults[at] = f
	}
	f.Packets++
}

// mark puts the flow of a packet and its latest path into the table of heavy flows, and reports
// whether it has room.
func (g *group) mark(e *entry, a *arrival) bool {
	h := g.heavy[a.key]
	if h == nil {
		if len(g.heavy) >= g.settings.HeavyFlows {
			g.Counters[wire.HeavyFull]++
			return false
		}
		h = &wire.Heavy{Key: a.key, Changes: uint32(e.changes)}
		g.heavy[a.key] = h
	}
	path := e.latest(a)
	if path == nil { // the next packet with a path states it
		e.route, e.hops = 0, 0
		return true
	}
	if h.Path != nil && !slices.Equal(h.Path, path) {
		h.Changes++
	}
	h.Path = path
	return true
}

// latest returns the latest path of the flow, in its order, or nil if neither the packet nor the
// entry has it.
func (e *entry) latest(a *arrival) (nodes []uint32) {
	if e.route == a.route {
		for i := range a.path[:a.hops] {
			nodes = append(nodes, a.path[i].Node)
		}
	} else {
		nodes = slices.Clone(e.nodes())
	}
	if len(nodes) == 0 {
		return nil
	}
	slices.Reverse(nodes) // the latest hop comes first
	return nodes
}

// inflate counts inflated latencies of a flow at a switch.
func (g *group) inflate(at place, packets, worst uint32) {
	f := g.inflated[at]
	if f == nil {
		if len(g.inflated) >= g.settings.InflatedFlows {
			g.Counters[wire.InflatedFull] += uint64(packets)
			return
		}
		f = &wire.Inflated{Key: at.key, Node: at.node}
		g.inflated[at] = f
	}
	f.Packets += packets
	f.Worst = max(f.Worst, worst)
}

// node returns the counts of a switch, or nil without room.
func (g *group) node(id uint32) *wire.Node {
	recent := &g.recent[id%uint32(len(g.recent))]
	if n := *recent; n != nil && n.ID == id {
		return n
	}
	n := g.nodes[id]
	if n == nil {
		if len(g.nodes) >= maxNodes {
			return nil
		}
		n = &wire.Node{ID: id}
		g.nodes[id] = n
	}
	*recent = n
	return n
}

// merge adds another lane's measurements of the same interval. Both groups are finished.
func (g *group) merge(o *group) error {
	for i, n := range o.Problems {
		g.Problems[i] += n
	}
	for i, n := range o.Versions {
		g.Versions[i] += n
	}
	for i, n := range o.Counters {
		g.Counters[i] += n
	}
	for k, h := range o.heavy {
		switch mine := g.heavy[k]; {
		case mine != nil:
			mine.Changes += h.Changes
			if mine.Path != nil && h.Path != nil && !slices.Equal(mine.Path, h.Path) {
				mine.Changes++
			}
			if mine.Path == nil {
				mine.Path = h.Path
			}
		case len(g.heavy) < g.settings.HeavyFlows:
			g.heavy[k] = h
		default:
			g.Counters[wire.HeavyFull]++
		}
	}
	for at, f := range o.inflated {
		switch mine := g.inflated[at]; {
		case mine != nil:
			mine.Packets += f.Packets
			mine.Worst = max(mine.Worst, f.Worst)
		case len(g.inflated) < g.settings.InflatedFlows:
			g.inflated[at] = f
		default:
			g.Counters[wire.InflatedFull]++
		}
	}
	for at, f := range o.faults {
		switch mine := g.faults[at]; {
		case mine != nil:
			mine.Packets += f.Packets
		case len(g.faults) < wire.MaxFaults:
			g.faults[at] = f
		default:
			g.Counters[wire.FaultsFull] += f.Packets
		}
	}
	for id, n := range o.nodes {
		mine := g.node(id)
		if mine == nil {
			g.Counters[wire.NodesFull] += n.Packets
			continue
		}
		mine.Packets, mine.Sum, mine.Drops = mine.Packets+n.Packets, mine.Sum+n.Sum, mine.Drops+n.Drops
		mine.Worst = max(mine.Worst, n.Worst)
	}
	g.mergeQueues(o)
	return errors.Join(g.Flows.Merge(o.Flows), g.Latencies.Merge(o.Latencies))
}

// adopt fills the tables from the rows of the report.
func (g *group) adopt() {
	for i := range g.Heavy {
		g.heavy[g.Heavy[i].Key] = &g.Heavy[i]
	}
	for i := range g.Inflated {
		g.inflated[place{g.Inflated[i].Key, g.Inflated[i].Node}] = &g.Inflated[i]
	}
	for i := range g.Nodes {
		g.nodes[g.Nodes[i].ID] = &g.Nodes[i]
	}
	for i := range g.Queues {
		g.queues[queue{g.Queues[i].Node, g.Queues[i].ID}] = &g.Queues[i]
	}
	for i := range g.Faults {
		g.faults[fault{g.Faults[i].Address, g.Faults[i].Problem}] = &g.Faults[i]
	}
}

// rows sorts the tables into the report.
func (g *group) rows() {
	g.Heavy = sorted(g.heavy, func(a, b wire.Heavy) int { return a.Key.Compare(b.Key) })
	g.Inflated = sorted(g.inflated, func(a, b wire.Inflated) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Node, b.Node))
	})
	g.Queues = sorted(g.queues, func(a, b wire.Queue) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	g.Nodes = sorted(g.nodes, func(a, b wire.Node) int { return cmp.Compare(a.ID, b.ID) })
	g.Faults = sorted(g.faults, func(a, b wire.Fault) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Problem, b.Problem))
	})
}

func sorted[K comparable, V any](table map[K]*V, order func(a, b V) int) (rows []V) {
	for _, row := range table {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, order)
	return rows
}
