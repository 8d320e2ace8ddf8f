// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
	"github.com/netsketch/netsketch/sketch/tower"
)

// Edge switches have no paths of flows. In their small towers collisions would add switches that a
// flow did not pass, so the routes that the collector installs limit where a flow can be.

// routing is the routes of the network, and where hosts are.
type routing struct {
	switches map[string]*router
	sources  *sdk.RouteTable // of addresses of hosts: a group is an index of entries
	entries  []string        // the switches of hosts
	replaced bool            // before the interval began
}

// router is a switch.
type router struct {
	node   uint32          // 0: it inserts no INT
	seed   uint32          // of the hash that selects a port of a group
	routes *sdk.RouteTable // nil: the collector does not install its routes
	groups []sdk.PortGroup
	ends   map[uint32]string // what is at the other end of a port
}

func newRouting(model *sdk.Network, nodes map[string]uint32) *routing {
	g := &routing{switches: map[string]*router{}}
	for i := range model.Devices {
		d := &model.Devices[i]
		s := &router{node: nodes[d.Name], ends: map[uint32]string{}}
		if f := d.Forwarding; f != nil {
			s.seed, s.groups, s.routes = f.Seed, f.Groups, sdk.NewRouteTable(f.Routes)
		}
		g.switches[d.Name] = s
	}
	at := map[string]string{}
	for _, l := range model.Links {
		for _, e := range [][2]sdk.Endpoint{{l.A, l.B}, {l.B, l.A}} {
			if s := g.switches[e[0].Node]; s != nil {
				s.ends[e[0].Port] = e[1].Node
				at[e[1].Node] = e[0].Node
			}
		}
	}
	var sources []sdk.Route
	for i := range model.Hosts {
		h := &model.Hosts[i]
		for _, a := range h.Addresses {
			switch {
			case strings.Contains(a, "/"):
			case strings.Contains(a, ":"):
				a += "/128"
			default:
				a += "/32"
			}
			sources = append(sources, sdk.Route{Prefix: a, Group: i})
		}
		g.entries = append(g.entries, at[h.Name])
	}
	g.sources = sdk.NewRouteTable(sources)
	return g
}

// retire leaves out the routes that were replaced before the interval that ends began. Those that
// were replaced since may be in the interval that follows, because analysis is later than packets.
func retire(routes []*routing) (out []*routing) {
	for i, g := range routes {
		if i == len(routes)-1 {
			return append(out, g)
		}
		if !g.replaced {
			next := *g // the interval has the old one
			next.replaced = true
			out = append(out, &next)
		}
	}
	return out
}

// follow returns the switches on all equally short paths of a flow, or on the one that the hash of
// the flow selects; nil if they are not known.
func (g *routing) follow(k *flow.Key, one bool) (nodes []uint32) {
	source, ok := g.sources.Group(k.SrcAddr())
	if !ok {
		return nil
	}
	to, hash := k.DstAddr(), rowhash.Key(k.AppendBinary(nil))
	names := []string{g.entries[source]}
	for i := 0; i < len(names); i++ {
		s := g.switches[names[i]]
		if s == nil || s.routes == nil {
			return nil
		}
		if s.node > 0 {
			nodes = append(nodes, s.node)
		}
		group, ok := s.routes.Group(to)
		if !ok || group < 0 || group >= len(s.groups) || len(s.groups[group].Ports) == 0 {
			return nil
		}
		ports := s.groups[group].Ports
		if one {
			ports = []uint32{s.groups[group].Port(s.seed, hash)}
		}
		for _, p := range ports {
			end, linked := s.ends[p]
			if !linked {
				return nil
			}
			if g.switches[end] != nil && !slices.Contains(names, end) {
				names = append(names, end)
			}
		}
	}
	return nodes
}

// expected returns the path by which all packets of a flow came, and their number: the one that the
// hash of the flow selects, if the tower of latencies has all packets at each switch of it. Towers
// overestimate, so a flow that took another path has fewer at one of these switches; then ok is
// false.
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

// sizeOnRoute returns the packets of a flow at a switch; there are none but at its candidates.
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
