// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// NextHop is one way out of a switch.
type NextHop struct {
	// Port is the egress port.
	Port uint32
	// Source is the Ethernet address the packet leaves with: the switch's own.
	Source MAC
	// Destination is the Ethernet address of the next switch or of the host.
	Destination MAC
	// Peer is the next switch's or the host's name.
	Peer string
}

// Group is a set of equally short ways out of a switch; a packet takes one of them by its flow.
type Group struct {
	// ID counts from 1 within a switch, in the order in which routes first use the groups.
	ID uint32
	// Hops are sorted by port; at least one.
	Hops []NextHop
}

// Route is an entry of a longest-prefix-match table.
type Route struct {
	Prefix netip.Prefix
	// Group is the ID of the switch's group to send to.
	Group uint32
}

// Routes is the forwarding state of one switch.
type Routes struct {
	Switch string
	Groups []Group
	// Routes are sorted: IPv4 first, then by address and prefix length. Prefixes of hosts that the
	// switch cannot reach are not among them.
	Routes []Route
}

// Group returns the group of that ID.
func (r Routes) Group(id uint32) (Group, bool) {
	if id == 0 || int(id) > len(r.Groups) {
		return Group{}, false
	}
	return r.Groups[id-1], true
}

// Lookup returns the group that the longest matching prefix leads to.
func (r Routes) Lookup(addr netip.Addr) (Group, bool) {
	best, length := uint32(0), -1
	for _, route := range r.Routes {
		if route.Prefix.Bits() > length && route.Prefix.Contains(addr) {
			best, length = route.Group, route.Prefix.Bits()
		}
	}
	return r.Group(best)
}

// unreachable is a distance no path has.
const unreachable = int(^uint(0) >> 1)

// distances returns the number of links from every switch to the one given.
func (t *Topology) distances(to int) []int {
	d := make([]int, len(t.switches))
	for i := range d {
		d[i] = unreachable
	}
	d[to] = 0
	queue := []int{to}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, n := range t.neighbours[at] {
			if d[n.to] == unreachable {
				d[n.to] = d[at] + 1
				queue = append(queue, n.to)
			}
		}
	}
	return d
}

// hops returns the ways from one switch towards another, given the distances to the latter.
func (t *Topology) hops(from int, d []int) []NextHop {
	if d[from] == unreachable {
		return nil
	}
	var out []NextHop
	for _, n := range t.neighbours[from] {
		if d[n.to] != unreachable && d[n.to] == d[from]-1 {
			out = append(out, NextHop{n.port, t.switches[from].MAC, t.switches[n.to].MAC, t.switches[n.to].Name})
		}
	}
	return out
}

// destination is a prefix and the host that owns it.
type destination struct {
	prefix netip.Prefix
	host   *Host
}

// reach is what the routes of all switches rest on.
type reach struct {
	destinations []destination
	// toSwitch has the distances to each switch that a host is attached to.
	toSwitch map[int][]int
}

// reachOf computes the reach of a network once it is built.
func reachOf(t *Topology) *reach {
	r := &reach{toSwitch: map[int][]int{}}
	for i := range t.hosts {
		h := &t.hosts[i]
		at := t.switchIndex[h.Port.Switch]
		if r.toSwitch[at] == nil {
			r.toSwitch[at] = t.distances(at)
		}
		for _, p := range h.Prefixes {
			r.destinations = append(r.destinations, destination{p, h})
		}
	}
	slices.SortFunc(r.destinations, func(a, b destination) int { return comparePrefixes(a.prefix, b.prefix) })
	return r
}

// AllRoutes returns the forwarding state of every switch, in the order of Switches.
func (t *Topology) AllRoutes() []Routes {
	all := make([]Routes, len(t.switches))
	for i := range t.switches {
		all[i] = t.routesOf(i)
	}
	return all
}

// Routes returns the forwarding state of one switch; empty when there is no such switch.
func (t *Topology) Routes(name string) Routes {
	i, ok := t.switchIndex[name]
	if !ok {
		return Routes{Switch: name}
	}
	return t.routesOf(i)
}

// via is a way out that routes share: to another switch, or to a host attached here.
type via struct {
	toSwitch int
	host     *Host
}

func (t *Topology) routesOf(i int) Routes {
	out := Routes{Switch: t.switches[i].Name}
	r := t.reach()
	ids := map[via]uint32{}        // 0: no way
	byPorts := map[string]uint32{} // equal hops are one group, whatever they lead to
	for _, dst := range r.destinations {
		way := via{toSwitch: t.switchIndex[dst.host.Port.Switch]}
		if way.toSwitch == i {
			way.host = dst.host
		}
		id, known := ids[way]
		if !known {
			hops := t.hops(i, r.toSwitch[way.toSwitch])
			if way.host != nil {
				hops = []NextHop{{way.host.Port.Number, t.switches[i].MAC, way.host.MAC, way.host.Name}}
			}
			if len(hops) > 0 {
				key := portsKey(hops)
				if id = byPorts[key]; id == 0 {
					id = uint32(len(out.Groups) + 1)
					byPorts[key] = id
					out.Groups = append(out.Groups, Group{id, hops})
				}
			}
			ids[way] = id
		}
		if id != 0 {
			out.Routes = append(out.Routes, Route{dst.prefix, id})
		}
	}
	return out
}

// portsKey names a set of hops; within a switch a port leads to one peer.
func portsKey(hops []NextHop) string {
	var b []byte
	for _, h := range hops {
		b = binary.BigEndian.AppendUint32(b, h.Port)
	}
	return string(b)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()), a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Hop is one switch on a path.
type Hop struct {
	Switch string
	// In and Out are the ports the packet enters and leaves by.
	In, Out uint32
}

// Path follows a packet from one host to another. choose is asked at every switch with more than
// one way and returns an index into the hops, as the switch's own hash would. The error names the
// host or the switch where the way ends.
func (t *Topology) Path(from, to string, choose func(at string, hops []NextHop) int) ([]Hop, error) {
	src, ok := t.Host(from)
	if !ok {
		return nil, fmt.Errorf("topology: there is no host %q", from)
	}
	dst, ok := t.Host(to)
	if !ok {
		return nil, fmt.Errorf("topology: there is no host %q", to)
	}
	end := t.switchIndex[dst.Port.Switch]
	d := t.distances(end)
	at, in := t.switchIndex[src.Port.Switch], src.Port.Number
	var path []Hop
	for at != end {
		name := t.switches[at].Name
		hops := t.hops(at, d)
		if len(hops) == 0 {
			return nil, fmt.Errorf("topology: no way from switch %s to host %s", name, to)
		}
		pick := 0
		if len(hops) > 1 && choose != nil {
			if pick = choose(name, hops); pick < 0 || pick >= len(hops) {
				return nil, fmt.Errorf("topology: choice %d of %d ways at switch %s", pick, len(hops), name)
			}
		}
		path = append(path, Hop{name, in, hops[pick].Port})
		next := t.peers[Port{name, hops[pick].Port}].Port
		at, in = t.switchIndex[next.Switch], next.Number
	}
	return append(path, Hop{t.switches[end].Name, in, dst.Port.Number}), nil
}

// Paths returns every shortest path between two hosts, in the order of their ports, at most limit.
func (t *Topology) Paths(from, to string, limit int) ([][]Hop, error) {
	var paths [][]Hop
	// choices counts like an odometer: one digit per switch with a choice, the last turning fastest.
	var choices, sizes []int
	for len(paths) < limit {
		depth := 0
		path, err := t.Path(from, to, func(_ string, hops []NextHop) int {
			if depth == len(choices) {
				choices, sizes = append(choices, 0), append(sizes, len(hops))
			}
			sizes[depth] = len(hops)
			depth++
			return choices[depth-1]
		})
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
		i := len(choices) - 1
		for i >= 0 && choices[i]+1 == sizes[i] {
			i--
		}
		if i < 0 {
			break
		}
		choices, sizes = choices[:i+1], sizes[:i+1]
		choices[i]++
	}
	return paths, nil
}
