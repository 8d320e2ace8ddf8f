// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// maxPaths bounds the paths of a pair. A pair with more paths is counted at one of its ends.
const maxPaths = 64

// Map is the part of a network model that manifests need. Indexes of switches are indexes of
// sdk.Network.Devices.
type Map struct {
	// Problem has the switches and pairs; the caller adds dimensions.
	Problem Problem
	// Sites are the prefixes of each switch, from its hosts or from the configuration, sorted. A
	// packet belongs to the pair of the switches with the longest prefixes that contain its source and
	// its destination.
	Sites [][]netip.Prefix
	// Internal are the ports of each switch that lead to other switches, sorted. Packets enter the
	// network at all other ports.
	Internal [][]uint32
}

// mapper builds a Map.
type mapper struct {
	network *sdk.Network
	index   map[string]int
	peers   []map[uint32]int // switches by port
	tables  []*sdk.RouteTable
	hosts   []int // with addresses, by switch
	routing Routing
	paths   map[[2]int][][]int // configured paths by their ends
	out     *Map
}

// Routing is the knowledge of the paths of packets.
type Routing struct {
	// Owners are, by prefix, the names of the switches at which their packets enter and leave, in
	// addition to the addresses of hosts.
	Owners map[string]string
	// Paths are paths by the names of their switches, separated by blanks. All paths of a pair are
	// given, or none.
	Paths []string
	// Shortest: switches whose routes the collector does not install choose, as it would, among all
	// shortest paths over the links.
	Shortest bool
}

// Read returns the Map of a network. A pair is two switches with prefixes; a switch with several
// hosts is a pair with itself. Paths are those of Routing, else those of the collector's routes.
// Where it does not install routes, and packets may take other paths than the shortest ones, only
// the ends of a path are certain, and the path consists of the ends.
func Read(n *sdk.Network, routing Routing) (*Map, error) {
	m := &mapper{network: n, index: make(map[string]int), hosts: make([]int, len(n.Devices)), routing: routing,
		paths: make(map[[2]int][][]int), out: &Map{
			Sites: make([][]netip.Prefix, len(n.Devices)), Internal: make([][]uint32, len(n.Devices)),
		}}
	for i := range n.Devices {
		d := &n.Devices[i]
		m.index[d.Name] = i
		m.out.Problem.Switches = append(m.out.Problem.Switches, Switch{Name: d.Name})
		m.peers = append(m.peers, make(map[uint32]int))
		var table *sdk.RouteTable
		if d.Forwarding != nil {
			table = sdk.NewRouteTable(d.Forwarding.Routes)
		}
		m.tables = append(m.tables, table)
	}
	m.attach()
	for text, name := range routing.Owners {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s is not a prefix; expected one such as 10.1.0.0/16", text)
		}
		i, ok := m.index[name]
		if !ok {
			return nil, fmt.Errorf("%s: no switch is called %q", text, name)
		}
		m.out.Sites[i] = append(m.out.Sites[i], prefix.Masked())
		m.hosts[i]++
	}
	for _, text := range routing.Paths {
		var path []int
		for _, name := range strings.Fields(text) {
			i, ok := m.index[name]
			if !ok {
				return nil, fmt.Errorf("path %q: no switch is called %q", text, name)
			}
			path = append(path, i)
		}
		if len(path) == 0 {
			return nil, errors.New("a path is empty; expected the names of its switches")
		}
		ends := [2]int{path[0], path[len(path)-1]}
		m.paths[ends] = append(m.paths[ends], path)
	}
	for i := range m.out.Sites {
		slices.SortFunc(m.out.Sites[i], netip.Prefix.Compare)
		m.out.Sites[i] = slices.Compact(m.out.Sites[i])
		slices.Sort(m.out.Internal[i])
	}
	m.pairs()
	return m.out, nil
}

// attach reads links: which ports lead to switches, and the addresses of hosts at others.
func (m *mapper) attach() {
	addresses := make(map[string][]string)
	for _, h := range m.network.Hosts {
		addresses[h.Name] = h.Addresses
	}
	for _, l := range m.network.Links {
		for _, ends := range [][2]sdk.Endpoint{{l.A, l.B}, {l.B, l.A}} {
			at, ok := m.index[ends[0].Node]
			if !ok {
				continue
			}
			if to, ok := m.index[ends[1].Node]; ok {
				m.peers[at][ends[0].Port] = to
				m.out.Internal[at] = append(m.out.Internal[at], ends[0].Port)
				continue
			}
			known := false
			for _, text := range addresses[ends[1].Node] {
				prefix, err := netip.ParsePrefix(text)
				if err != nil {
					a, err := netip.ParseAddr(text)
					if err != nil {
						continue
					}
					prefix = netip.PrefixFrom(a, a.BitLen())
				}
				m.out.Sites[at] = append(m.out.Sites[at], prefix.Masked())
				known = true
			}
			if known {
				m.hosts[at]++
			}
		}
	}
}

// pairs adds all pairs with their paths.
func (m *mapper) pairs() {
	for to := range m.out.Sites {
		if len(m.out.Sites[to]) == 0 {
			continue
		}
		next := m.next(to)
		for from := range m.out.Sites {
			if len(m.out.Sites[from]) == 0 || from == to && m.hosts[to] < 2 {
				continue
			}
			paths := m.paths[[2]int{from, to}]
			if paths == nil {
				paths = m.walk(from, to, next)
			}
			m.out.Problem.Pairs = append(m.out.Problem.Pairs, Pair{from, to, paths})
		}
	}
}

// hops are the switches to which a switch sends packets to a destination.
type hops struct {
	to      []int
	unknown bool // whether another controller installs the switch's routes
}

// next returns the hops to the prefixes of a switch.
func (m *mapper) next(to int) []hops {
	out := make([]hops, len(m.out.Sites))
	distance := m.distances(to)
	for i := range out {
		if m.tables[i] == nil {
			for _, peer := range m.peers[i] {
				if distance[peer] == distance[i]-1 && !slices.Contains(out[i].to, peer) {
					out[i].to = append(out[i].to, peer)
				}
			}
			slices.Sort(out[i].to)
			out[i].unknown = !m.routing.Shortest || i != to && out[i].to == nil
			continue
		}
		for _, prefix := range m.out.Sites[to] {
			group, ok := m.tables[i].Group(prefix.Addr())
			if !ok {
				continue
			}
			for _, port := range m.network.Devices[i].Forwarding.Groups[group].Ports {
				if peer, ok := m.peers[i][port]; ok && !slices.Contains(out[i].to, peer) {
					out[i].to = append(out[i].to, peer)
				}
			}
		}
		slices.Sort(out[i].to)
	}
	return out
}

// distances returns the hops from each switch to one; those that have no path are infinitely far.
func (m *mapper) distances(to int) []int {
	out := slices.Repeat([]int{math.MaxInt}, len(m.peers))
	out[to] = 0
	for queue := []int{to}; len(queue) > 0; queue = queue[1:] {
		for _, peer := range m.peers[queue[0]] { // links join in both directions
			if out[peer] == math.MaxInt {
				out[peer] = out[queue[0]] + 1
				queue = append(queue, peer)
			}
		}
	}
	return out
}

// walk follows the hops. A path ends at the destination, or where routes end: packets are dropped
// there. Paths with a loop, which routes in transition can have, count as unknown.
func (m *mapper) walk(from, to int, next []hops) (out [][]int) {
	ends := [][]int{slices.Compact([]int{from, to})}
	unknown := false
	var step func(path []int)
	step = func(path []int) {
		at := path[len(path)-1]
		switch {
		case unknown:
		case at == to, len(next[at].to) == 0 && !next[at].unknown:
			out = append(out, slices.Clone(path))
			unknown = len(out) > maxPaths
		case next[at].unknown:
			unknown = true
		default:
			for _, j := range next[at].to {
				if slices.Contains(path, j) {
					unknown = true
					return
				}
				step(append(path, j))
			}
		}
	}
	step([]int{from})
	if unknown {
		return ends
	}
	return out
}
