// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/routes"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

// Edge switches have no paths of flows. In their small towers collisions would add switches that a
// flow did not pass, so the routes that the collector installs limit where a flow can be.

// routing is the routes of the network.
type routing struct {
	*routes.Routes
	nodes    map[string]uint32 // ids of the switches that insert INT
	replaced bool              // before the interval began
}

func newRouting(model *sdk.Network, nodes map[string]uint32) *routing {
	return &routing{Routes: routes.New(model), nodes: nodes}
}

// retire leaves out the routes that were replaced before the ending interval began. Routes that
// were replaced since then may be used in the next interval, because analysis is later than
// packets.
func retire(all []*routing) (out []*routing) {
	for i, g := range all {
		if i == len(all)-1 {
			return append(out, g)
		}
		if !g.replaced {
			next := *g // the interval has the old value
			next.replaced = true
			out = append(out, &next)
		}
	}
	return out
}

// follow returns the switches on all equally short paths of a flow, or with one set only on the
// path that the hash of the flow selects; nil if the paths are not known.
func (g *routing) follow(k *flow.Key, one bool) (nodes []uint32) {
	names := g.Paths(k)
	if one {
		names = g.Path(k)
	}
	for _, name := range names {
		if node := g.nodes[name]; node > 0 {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// expected returns the path that the hash of the flow selects, and the number of the flow's
// packets, if the tower of latencies has all packets at each switch of the path. Towers
// overestimate, so a flow that took another path has fewer packets at one of these switches; then
// ok is false.
func (o *observer) expected(k *flow.Key) (path []uint32, packets uint32, ok bool) {
	size, _ := o.size(k)
	for _, g := range slices.Backward(o.routes) {
		path, packets = g.follow(k, true), size
		if len(path) == 0 {
			continue
		}
		last, _, _ := o.latency(k, path[len(path)-1])
		packets = min(packets, last)
		if packets > 0 && packets != tower.Overflow && !slices.ContainsFunc(path, func(node uint32) bool {
			n, _, _ := o.latency(k, node)
			return n < packets
		}) {
			return path, packets, true
		}
	}
	return nil, 0, false
}

// candidates returns the switches that a flow without a path may have passed. At an edge switch
// these are the switches of the expected path, otherwise of all equally short paths.
func (o *observer) candidates(k *flow.Key) (nodes []uint32) {
	if path, _, ok := o.expected(k); ok {
		return path
	}
	for _, g := range o.routes {
		equal := g.follow(k, false)
		if equal == nil {
			nodes = nil
			break
		}
		nodes = append(nodes, equal...)
	}
	if nodes == nil {
		for _, n := range o.report.Nodes {
			nodes = append(nodes, n.ID)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// sizeOnRoute returns the packets of a flow at a switch; they are 0 at switches that are not among
// its candidates.
func (o *observer) sizeOnRoute(k *flow.Key, node uint32) (packets uint32, ok bool) {
	if path, n, ok := o.expected(k); ok {
		if !slices.Contains(path, node) {
			return 0, true
		}
		return n, true
	}
	if !slices.Contains(o.candidates(k), node) {
		return 0, true
	}
	packets, _, _ = o.latency(k, node)
	if size, ok := o.size(k); ok {
		packets = min(packets, size)
	}
	return packets, packets != tower.Overflow
}
