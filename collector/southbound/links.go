// SPDX-License-Identifier: Apache-2.0

// Links: where ports lead by configuration and by LLDP.

package southbound

import (
	"cmp"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/collector/topology"
)

// LinkStatus is what configuration and LLDP say of a port, as the collector's model names it.
type LinkStatus string

// Whether configuration and LLDP agree.
const (
	Confirmed  LinkStatus = "confirmed"  // they do
	Discovered LinkStatus = "discovered" // only LLDP tells of a link
	Configured LinkStatus = "configured" // LLDP cannot tell
	Missing    LinkStatus = "missing"    // LLDP could tell, and does not
	Mismatch   LinkStatus = "mismatch"   // LLDP tells of another port
)

// Link is one end of a link between two switches.
type Link struct {
	Port                   topology.Port
	Status                 LinkStatus
	Configured, Discovered topology.Port // the other end; zero when not known
}

// Links compares the links of a topology to what switches hear, by name of the switch.
// Facts with Number 0 are of a switch that nothing is known of. The result is sorted by
// port, and holds both ends of every link.
func Links(configured *topology.Topology, facts map[string]Facts) []Link {
	d := discoverer{facts: facts, byChassis: map[string]string{}, byName: map[string]string{}}
	d.index()
	heard := d.heard(configured)
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
	for p, peer := range heard {
		end(p).Discovered = peer
	}
	for p, peer := range heard { // what one end hears is known of the other
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

func (d *discoverer) status(l Link) LinkStatus {
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

// discoverer finds out whom neighbours are.
type discoverer struct {
	facts             map[string]Facts
	byChassis, byName map[string]string // to the switch's name; empty when it is of several
}

func (d *discoverer) index() {
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
	for name := range d.facts { // a name in the configuration is what the operator calls it
		d.byName[name] = name
	}
}

// heard returns where each port leads by what its switch hears. Of several neighbours on
// a port the configured one counts, or the first.
func (d *discoverer) heard(configured *topology.Topology) map[topology.Port]topology.Port {
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

// peer is the port that a neighbour's frames come from.
func (d *discoverer) peer(n Neighbor) (topology.Port, bool) {
	name := d.byChassis[n.Chassis]
	if name == "" {
		name = d.byName[n.SystemName]
	}
	f, ok := d.facts[name]
	if name == "" || !ok {
		return topology.Port{}, false
	}
	p, ok := f.Port(n.PortID)
	if !ok && n.PortAbout != "" { // some name the port by its address, and describe it by its name
		p, ok = f.Port(n.PortAbout)
	}
	if !ok || p.ID == 0 {
		return topology.Port{}, false
	}
	return topology.Port{Switch: name, Number: p.ID}, true
}
