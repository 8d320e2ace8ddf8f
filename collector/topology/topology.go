// SPDX-License-Identifier: Apache-2.0

// Package topology models a network of switches, hosts and links, and computes shortest-path
// routes with equal-cost groups.
//
// A Builder collects the parts and Build checks them; the Topology it returns is immutable and may
// be used by any number of goroutines. Everything is deterministic: the same parts, added in
// whatever order, give the same routes, group numbers and addresses.
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

// Role is a switch's place in the network.
type Role string

// The roles that the collector knows. Others may be used and mean what the operator wants.
const (
	// Edge switches have hosts attached.
	Edge Role = "edge"
	// Transit switches connect other switches only.
	Transit Role = "transit"
)

// Switch is a switch.
type Switch struct {
	// Name is unique among switches and hosts.
	Name string
	// Role is edge or transit; Build derives it from the attached hosts when it is empty.
	Role Role
	// MAC is the Ethernet address packets to the switch's ports carry; Build makes one up, locally
	// administered and derived from the switch's place in the order of names, when it is zero.
	MAC MAC
}

// Host is an end host.
type Host struct {
	// Name is unique among switches and hosts.
	Name string
	// MAC is the host's Ethernet address; made up by Build when zero.
	MAC MAC
	// Prefixes are the host's addresses, as prefixes of full length, and prefixes behind it.
	Prefixes []netip.Prefix
	// Port is where it is attached.
	Port Port
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
type Link struct {
	A, B Port
	// Capacity is in bits per second; 0 when not known.
	Capacity uint64
}

// Builder collects the parts of a network. It is for one goroutine.
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
	links    []Link   // each with A before B, sorted

	switchIndex map[string]int
	hostIndex   map[string]int
	peers       map[Port]Peer
	// neighbours lists, per switch, the ports that lead to another switch, by port number.
	neighbours [][]neighbour
	reach      func() *reach // computed when first asked for
}

type neighbour struct {
	port uint32
	to   int
}

// Peer is what a port is connected to.
type Peer struct {
	// Host is the host's name; empty when the peer is a switch.
	Host string
	// Port is the port at the other switch; the zero Port when the peer is a host.
	Port Port
}

// Build checks the parts and returns the network, or every problem with it, joined.
func (b *Builder) Build() (*Topology, error) {
	t := &Topology{
		switches: slices.Clone(b.switches), hosts: slices.Clone(b.hosts), links: slices.Clone(b.links),
		switchIndex: map[string]int{}, hostIndex: map[string]int{}, peers: map[Port]Peer{},
	}
	t.sort()
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("topology: "+format, args...)) }
	for i := range t.switches {
		s := &t.switches[i]
		if s.Name == "" {
			fail("a switch has no name")
		}
		if _, twice := t.switchIndex[s.Name]; twice {
			fail("switch %s is there twice", s.Name)
		}
		t.switchIndex[s.Name] = i
		if s.MAC == (MAC{}) {
			s.MAC = madeUpMAC(0x01, i)
		}
	}
	for i := range t.hosts {
		h := &t.hosts[i]
		if _, twice := t.hostIndex[h.Name]; twice || h.Name == "" {
			fail("host %q: the name is empty or there twice", h.Name)
		}
		if _, taken := t.switchIndex[h.Name]; taken {
			fail("host %s has the name of a switch", h.Name)
		}
		t.hostIndex[h.Name] = i
		if h.MAC == (MAC{}) {
			h.MAC = madeUpMAC(0x02, i)
		}
		if err := t.connect(h.Port, Peer{Host: h.Name}); err != nil {
			fail("host %s: %w", h.Name, err)
		}
	}
	for _, l := range t.links {
		if err := errors.Join(t.connect(l.A, Peer{Port: l.B}), t.connect(l.B, Peer{Port: l.A})); err != nil {
			fail("link %s to %s: %w", l.A, l.B, err)
		}
	}
	if err := t.checkPrefixes(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	t.derive()
	t.reach = sync.OnceValue(func() *reach { return reachOf(t) })
	return t, nil
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
		return cmp.Or(naturalCompare(a.A.Switch, b.A.Switch), cmp.Compare(a.A.Number, b.A.Number), comparePorts(a.B, b.B))
	})
}

// connect records what a port leads to.
func (t *Topology) connect(p Port, to Peer) error {
	if _, ok := t.switchIndex[p.Switch]; !ok {
		return fmt.Errorf("there is no switch %q", p.Switch)
	}
	if p.Number == 0 {
		return fmt.Errorf("port %s: ports count from 1", p)
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

// derive fills in neighbours and roles.
func (t *Topology) derive() {
	t.neighbours = make([][]neighbour, len(t.switches))
	edge := make([]bool, len(t.switches))
	for p, peer := range t.peers {
		i := t.switchIndex[p.Switch]
		if peer.Host != "" {
			edge[i] = true
			continue
		}
		t.neighbours[i] = append(t.neighbours[i], neighbour{p.Number, t.switchIndex[peer.Port.Switch]})
	}
	for i := range t.switches {
		slices.SortFunc(t.neighbours[i], func(a, b neighbour) int { return cmp.Compare(a.port, b.port) })
		if t.switches[i].Role != "" {
			continue
		}
		t.switches[i].Role = Transit
		if edge[i] {
			t.switches[i].Role = Edge
		}
	}
}

// madeUpMAC is a locally administered unicast address.
func madeUpMAC(kind byte, i int) MAC {
	return MAC{0x02, kind, 0, byte(i >> 16), byte(i >> 8), byte(i)}
}

// Switches returns all switches, sorted by name. The caller must not change the slice.
func (t *Topology) Switches() []Switch { return t.switches }

// Hosts returns all hosts, sorted by name. The caller must not change the slice.
func (t *Topology) Hosts() []Host { return t.hosts }

// Links returns all links, each once, sorted. The caller must not change the slice.
func (t *Topology) Links() []Link { return t.links }

// Switch returns the switch of that name.
func (t *Topology) Switch(name string) (Switch, bool) {
	i, ok := t.switchIndex[name]
	if !ok {
		return Switch{}, false
	}
	return t.switches[i], true
}

// Host returns the host of that name.
func (t *Topology) Host(name string) (Host, bool) {
	i, ok := t.hostIndex[name]
	if !ok {
		return Host{}, false
	}
	return t.hosts[i], true
}

// Peer returns what a port is connected to.
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
