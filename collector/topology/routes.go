// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
)

// NextHop is one next hop of a switch.
type NextHop struct {
	// Port is the egress port.
	Port uint32
	// Source is the switch's Ethernet address, the source of forwarded packets.
	Source MAC
	// Destination is the Ethernet address of the next switch or of the host.
	Destination MAC
	// Peer is the next switch's or the host's name.
	Peer string
}

// Group is a set of next hops on equally short paths; a hash of the flow selects one for a packet.
type Group struct {
	// ID counts from 1 within a switch, in the order in which routes first use the groups.
	ID uint32
	// Hops are sorted by port; at least one.
	Hops []NextHop
}

// Route is an entry of a longest-prefix-match table.
type Route struct {
	Prefix netip.Prefix
	// Group is the ID of the group that packets are sent to.
	Group uint32
}

// Routes is the forwarding state of one switch.
type Routes struct {
	Switch string
	// Seed is the factor of the hash that selects a next hop of a group: the index of the next hop is
	// crc32(crc32 of the 5-tuple times Seed) modulo the count of next hops. Seed is odd and differs
	// between switches: with equal seeds, the second switch of a path would receive only flows with
	// equal hashes, and use one of its ports only.
	Seed   uint32
	Groups []Group
	// Routes are sorted: IPv4 first, then by address and prefix length. Prefixes of hosts that the
	// switch cannot reach are left out.
	Routes []Route
}

// Group returns the group with an ID.
func (r Routes) Group(id uint32) (Group, bool) {
	if id == 0 || int(id) > len(r.Groups) {
		return Group{}, false
	}
	return r.Groups[id-1], true
}

// unreachable is the distance of switches without a path between them.
const unreachable = int(^uint(0) >> 1)

// distances returns the number of links from every switch to one switch.
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
		for _, n := range t.neighbors[at] {
			if d[n.to] == unreachable {
				d[n.to] = d[at] + 1
				queue = append(queue, n.to)
			}
		}
	}
	return d
}

// hops returns the next hops of switch from towards another switch; d holds the distances to the
// other switch.
func (t *Topology) hops(from int, d []int) []NextHop {
	if d[from] == unreachable {
		return nil
	}
	var out []NextHop
	for _, n := range t.neighbors[from] {
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

// reach is the input that the routes of all switches share.
type reach struct {
	destinations []destination
	// toSwitch has the distances to each switch with attached hosts.
	toSwitch map[int][]int
}

// reachOf computes the reach of a network.
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

// Routes returns the forwarding state of one switch; empty if there is no switch of this name.
func (t *Topology) Routes(name string) Routes {
	i, ok := t.switchIndex[name]
	if !ok {
		return Routes{Switch: name}
	}
	return t.routesOf(i)
}

func seed(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32() | 1
}

// via is a destination that several routes share: another switch, or a host attached to this
// switch.
type via struct {
	toSwitch int
	host     *Host
}

func (t *Topology) routesOf(i int) Routes {
	out := Routes{Switch: t.switches[i].Name, Seed: seed(t.switches[i].Name)}
	r := t.reach()
	ids := map[via]uint32{}        // 0 if the destination is unreachable
	byPorts := map[string]uint32{} // groups by their next hops, shared by all destinations
	for _, dst := range r.destinations {
		dest := via{toSwitch: t.switchIndex[dst.host.Port.Switch]}
		if dest.toSwitch == i {
			dest.host = dst.host
		}
		id, known := ids[dest]
		if !known {
			hops := t.hops(i, r.toSwitch[dest.toSwitch])
			if dest.host != nil && t.unused[dest.host.Port] {
				hops = nil
			} else if dest.host != nil {
				hops = []NextHop{{dest.host.Port.Number, t.switches[i].MAC, dest.host.MAC, dest.host.Name}}
			}
			if len(hops) > 0 {
				key := portsKey(hops)
				if id = byPorts[key]; id == 0 {
					id = uint32(len(out.Groups) + 1)
					byPorts[key] = id
					out.Groups = append(out.Groups, Group{id, hops})
				}
			}
			ids[dest] = id
		}
		if id != 0 {
			out.Routes = append(out.Routes, Route{dst.prefix, id})
		}
	}
	return out
}

// portsKey identifies a set of next hops by its ports: each port of a switch leads to one peer.
func portsKey(hops []NextHop) string {
	var b []byte
	for _, h := range hops {
		b = binary.BigEndian.AppendUint32(b, h.Port)
	}
	return string(b)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()), a.Addr().Compare(b.Addr()),
		cmp.Compare(a.Bits(), b.Bits()))
}
