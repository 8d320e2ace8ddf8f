// SPDX-License-Identifier: Apache-2.0

// Package topology models a network of switches, hosts and links, and computes shortest-path
// routes with equal-cost groups.
//
// A Builder collects the parts and Build checks them; the Topology it returns is immutable and may
// be used by any number of goroutines. Routes, group numbers and addresses depend only on the
// parts, not on the order in which they are added.
package topology

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// MAC is a 48-bit Ethernet address.
type MAC [6]byte

// String is the colon-separated form.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Switch is a switch.
type Switch struct {
	// Name is unique among switches and hosts.
	Name string
	// MAC is the destination address of packets to the switch's ports. If it is zero, Build assigns
	// locally administered addresses in the order of the switches' names.
	MAC MAC
}

// Host is an end host.
type Host struct {
	// Name is unique among switches and hosts.
	Name string
	// MAC is the host's Ethernet address; assigned by Build if zero.
	MAC MAC
	// Prefixes are the host's addresses, as prefixes of full length, and the prefixes behind it.
	Prefixes []netip.Prefix
	// Port is the port that it is attached to.
	Port Port
	// Agent is set if a netsketch agent measures on the host.
	Agent bool
}

// Port is a port of a switch. Numbers count from 1.
type Port struct {
	Switch string
	Number uint32
}

// String is SWITCH/PORT.
func (p Port) String() string { return fmt.Sprintf("%s/%d", p.Switch, p.Number) }

func comparePorts(a, b Port) int {
	return cmp.Or(cmp.Compare(a.Switch, b.Switch), cmp.Compare(a.Number, b.Number))
}

// Link joins ports of two switches, in both directions.
type Link struct{ A, B Port }

// Builder collects the parts of a network. It must not be used by several goroutines at once.
type Builder struct {
	switches []Switch
	hosts    []Host
	links    []Link
}

// AddSwitch adds a switch.
func (b *Builder) AddSwitch(s Switch) { b.switches = append(b.switches, s) }

// AddHost adds a host.
func (b *Builder) AddHost(h Host) { b.hosts = append(b.hosts, h) }

// AddLink adds a link.
func (b *Builder) AddLink(l Link) { b.links = append(b.links, l) }

// Topology is a checked network.
type Topology struct {
	switches []Switch // sorted by name
	hosts    []Host   // sorted by name
	links    []Link   // sorted; A sorts before B in each link

	switchIndex map[string]int
	peers       map[Port]Peer
	unused      map[Port]bool // ports that routes do not use; nil for none
	neighbors   [][]neighbor  // ports that routes use to another switch, by switch and port number
	reach       func() *reach // computed at the first call
}

type neighbor struct {
	port uint32
	to   int
}

// Peer is the other end of a port.
type Peer struct {
	// Host is the host's name; empty if the peer is a switch.
	Host string
	// Port is the port of the other switch; the zero Port if the peer is a host.
	Port Port
}

// Build checks the parts and returns the network. The error joins all problems.
func (b *Builder) Build() (*Topology, error) {
	t := &Topology{
		switches: slices.Clone(b.switches), hosts: slices.Clone(b.hosts), links: slices.Clone(b.links),
		switchIndex: map[string]int{}, peers: map[Port]Peer{},
	}
	t.sort()
	if err := errors.Join(t.indexSwitches(), t.attachHosts(), t.connectLinks(), t.checkPrefixes()); err != nil {
		return nil, err
	}
	t.findNeighbors()
	return t, nil
}

// Avoiding returns the same network with routes that do not use some ports, nor the links at these
// ports in either direction.
func (t *Topology) Avoiding(ports map[Port]bool) *Topology {
	if len(ports) == 0 {
		return t
	}
	out := *t
	out.unused = ports
	out.findNeighbors()
	return &out
}

func (t *Topology) indexSwitches() error {
	var errs []error
	for i := range t.switches {
		s := &t.switches[i]
		if s.Name == "" {
			errs = append(errs, errors.New("topology: a switch has no name"))
		}
		if _, twice := t.switchIndex[s.Name]; twice {
			errs = append(errs, fmt.Errorf("topology: switch %s is defined twice", s.Name))
		}
		t.switchIndex[s.Name] = i
		if s.MAC == (MAC{}) {
			s.MAC = localMAC(0x01, i)
		}
	}
	return errors.Join(errs...)
}

func (t *Topology) attachHosts() error {
	var errs []error
	names := map[string]bool{}
	for i := range t.hosts {
		h := &t.hosts[i]
		if names[h.Name] || h.Name == "" {
			errs = append(errs, fmt.Errorf("topology: host %q: the name is empty or defined twice", h.Name))
		}
		if _, taken := t.switchIndex[h.Name]; taken {
			errs = append(errs, fmt.Errorf("topology: host %s has the name of a switch", h.Name))
		}
		names[h.Name] = true
		if h.MAC == (MAC{}) {
			h.MAC = localMAC(0x02, i)
		}
		if err := t.connect(h.Port, Peer{Host: h.Name}); err != nil {
			errs = append(errs, fmt.Errorf("topology: host %s: %w", h.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (t *Topology) connectLinks() error {
	var errs []error
	for _, l := range t.links {
		if err := errors.Join(t.connect(l.A, Peer{Port: l.B}), t.connect(l.B, Peer{Port: l.A})); err != nil {
			errs = append(errs, fmt.Errorf("topology: link %s to %s: %w", l.A, l.B, err))
		}
	}
	return errors.Join(errs...)
}

func (t *Topology) sort() {
	for i, l := range t.links {
		if comparePorts(l.A, l.B) > 0 {
			t.links[i].A, t.links[i].B = l.B, l.A
		}
	}
	slices.SortFunc(t.switches, func(a, b Switch) int { return naturalCompare(a.Name, b.Name) })
	slices.SortFunc(t.hosts, func(a, b Host) int { return naturalCompare(a.Name, b.Name) })
	slices.SortFunc(t.links, func(a, b Link) int {
		return cmp.Or(naturalCompare(a.A.Switch, b.A.Switch), cmp.Compare(a.A.Number, b.A.Number),
			comparePorts(a.B, b.B))
	})
}

// connect records the other end of a port.
func (t *Topology) connect(p Port, to Peer) error {
	if _, ok := t.switchIndex[p.Switch]; !ok {
		return fmt.Errorf("there is no switch %q; add it to the devices", p.Switch)
	}
	if p.Number == 0 {
		return fmt.Errorf("port %s: numbers of ports count from 1", p)
	}
	if _, taken := t.peers[p]; taken {
		return fmt.Errorf("port %s is used twice", p)
	}
	t.peers[p] = to
	return nil
}

func (t *Topology) checkPrefixes() error {
	owner := map[netip.Prefix]string{}
	var errs []error
	for _, h := range t.hosts {
		for _, p := range h.Prefixes {
			if !p.IsValid() || p.Masked() != p {
				errs = append(errs, fmt.Errorf("topology: host %s: %s is not a prefix", h.Name, p))
			}
			if other, taken := owner[p]; taken {
				errs = append(errs, fmt.Errorf("topology: %s belongs to host %s and to host %s", p, other, h.Name))
			}
			owner[p] = h.Name
		}
	}
	return errors.Join(errs...)
}

// findNeighbors fills in neighbors, from which routes are computed.
func (t *Topology) findNeighbors() {
	t.reach = sync.OnceValue(func() *reach { return reachOf(t) })
	t.neighbors = make([][]neighbor, len(t.switches))
	for p, peer := range t.peers {
		if peer.Host == "" && !t.unused[p] && !t.unused[peer.Port] {
			i := t.switchIndex[p.Switch]
			t.neighbors[i] = append(t.neighbors[i], neighbor{p.Number, t.switchIndex[peer.Port.Switch]})
		}
	}
	for i := range t.switches {
		slices.SortFunc(t.neighbors[i], func(a, b neighbor) int { return cmp.Compare(a.port, b.port) })
	}
}

// localMAC is a locally administered unicast address.
func localMAC(kind byte, i int) MAC {
	return MAC{0x02, kind, 0, byte(i >> 16), byte(i >> 8), byte(i)}
}

// Switches returns all switches, sorted by name. The caller must not change the slice.
func (t *Topology) Switches() []Switch { return t.switches }

// Hosts returns all hosts, sorted by name. The caller must not change the slice.
func (t *Topology) Hosts() []Host { return t.hosts }

// Links returns all links, each once, sorted. The caller must not change the slice.
func (t *Topology) Links() []Link { return t.links }

// Switch returns the switch with a name.
func (t *Topology) Switch(name string) (Switch, bool) {
	i, ok := t.switchIndex[name]
	if !ok {
		return Switch{}, false
	}
	return t.switches[i], true
}

// Peer returns the other end of a port; false if the port is not connected.
func (t *Topology) Peer(p Port) (Peer, bool) {
	peer, ok := t.peers[p]
	return peer, ok
}

// Ports returns the connected ports of a switch in order.
func (t *Topology) Ports(name string) []uint32 {
	var ports []uint32
	for p := range t.peers {
		if p.Switch == name {
			ports = append(ports, p.Number)
		}
	}
	slices.Sort(ports)
	return ports
}

// naturalCompare orders names so that leaf2 comes before leaf10.
func naturalCompare(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, y := trimZeros(a[:na]), trimZeros(b[:nb])
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(na, nb)); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}
