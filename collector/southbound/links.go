// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"cmp"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/yang/bindings"
)

// LinkStatus compares the configured and the LLDP peer of a port.
type LinkStatus = bindings.E_Link_Status

// The states of a link.
const (
	Confirmed  = bindings.Link_Status_CONFIRMED  // configuration and LLDP agree
	Discovered = bindings.Link_Status_DISCOVERED // only LLDP reports the link
	Configured = bindings.Link_Status_CONFIGURED // an end has no gNMI session or no LLDP
	Missing    = bindings.Link_Status_MISSING    // both ends run LLDP, and neither reports the link
	Mismatch   = bindings.Link_Status_MISMATCH   // LLDP reports another peer
)

// Link is one end of a link between two switches.
type Link struct {
	Port                   topology.Port
	Status                 LinkStatus
	Configured, Discovered topology.Port // other end of the link; zero if it is not known
}

// Links compares the configured links with the LLDP neighbors of the switches; facts is keyed by
// switch name. The result is sorted by port and has both ends of every link.
func Links(configured *topology.Topology, facts map[string]Facts) []Link {
	d := resolver{facts: facts, byChassis: map[string]string{}, byName: map[string]string{}}
	d.index()
	peers := d.peers(configured)
	ends := map[topology.Port]*Link{}
	end := func(p topology.Port) *Link {
		if ends[p] == nil {
			ends[p] = &Link{Port: p}
		}
		return ends[p]
	}
	for _, l := range configured.Links() {
		end(l.A).Configured, end(l.B).Configured = l.B, l.A
	}
	for p, peer := range peers {
		end(p).Discovered = peer
	}
	for p, peer := range peers { // one end is enough to learn both ends
		if end(peer).Discovered == (topology.Port{}) {
			end(peer).Discovered = p
		}
	}
	out := make([]Link, 0, len(ends))
	for _, l := range ends {
		l.Status = d.status(*l)
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b Link) int {
		return cmp.Or(strings.Compare(a.Port.Switch, b.Port.Switch), cmp.Compare(a.Port.Number, b.Port.Number))
	})
	return out
}

func (d *resolver) status(l Link) LinkStatus {
	none := topology.Port{}
	speaks := func(name string) bool { f := d.facts[name]; return f.Number > 0 && f.LLDP }
	switch {
	case l.Configured == none:
		return Discovered
	case l.Discovered == l.Configured:
		return Confirmed
	case l.Discovered != none:
		return Mismatch
	case speaks(l.Port.Switch) && speaks(l.Configured.Switch):
		return Missing
	}
	return Configured
}

// resolver finds the ports that neighbors' frames come from.
type resolver struct {
	facts             map[string]Facts
	byChassis, byName map[string]string // name of the switch; empty if several switches share the key
}

func (d *resolver) index() {
	add := func(m map[string]string, key, name string) {
		if key == "" {
			return
		}
		if other, ok := m[key]; ok && other != name {
			name = ""
		}
		m[key] = name
	}
	for name, f := range d.facts {
		add(d.byChassis, f.Chassis, name)
		add(d.byName, f.SystemName, name)
		add(d.byName, f.Hostname, name)
	}
	for name := range d.facts { // the configured name takes precedence
		d.byName[name] = name
	}
}

// peers returns the LLDP peer of each port. If a port has several neighbors, the configured one is
// its peer, otherwise the first.
func (d *resolver) peers(configured *topology.Topology) map[topology.Port]topology.Port {
	out := map[topology.Port]topology.Port{}
	for name, f := range d.facts {
		for _, n := range f.Neighbors {
			local, ok := f.Port(n.Interface)
			if !ok || local.ID == 0 {
				continue
			}
			peer, ok := d.peer(n)
			if !ok {
				continue
			}
			at := topology.Port{Switch: name, Number: local.ID}
			want, _ := configured.Peer(at)
			if _, taken := out[at]; !taken || peer == want.Port {
				out[at] = peer
			}
		}
	}
	return out
}

// peer returns the port that a neighbor's frames come from.
func (d *resolver) peer(n Neighbor) (topology.Port, bool) {
	name := d.byChassis[n.Chassis]
	if name == "" {
		name = d.byName[n.SystemName]
	}
	f, ok := d.facts[name]
	if name == "" || !ok {
		return topology.Port{}, false
	}
	p, ok := f.Port(n.PortID)
	if !ok && n.PortDescription != "" { // some switches use the MAC address as port id, and the name as description
		p, ok = f.Port(n.PortDescription)
	}
	if !ok || p.ID == 0 {
		return topology.Port{}, false
	}
	return topology.Port{Switch: name, Number: p.ID}, true
}
