// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"time"
)

// Role is a switch's place in the fabric.
type Role string

// Roles of switches. Hosts are attached to edge switches only.
const (
	RoleEdge    Role = "edge"
	RoleTransit Role = "transit"
)

// Switch is one switch of a fabric.
type Switch struct {
	Name string
	Role Role
}

// Host is one host, attached to a port of an edge switch. It owns all addresses of
// its prefixes.
type Host struct {
	Name     string
	Switch   int    // index into Fabric.Switches
	Port     uint32 // P4Runtime port of the switch
	V4, V6   netip.Prefix
	Prefixes []netip.Prefix // further prefixes, such as the prefixes of a replayed trace
}

// Link joins two switches.
type Link struct {
	A, B         int // indexes into Fabric.Switches
	PortA, PortB uint32
	Latency      time.Duration
	Loss         float64 // share of packets lost, each direction for itself, 0 to 1
}

// LinkName names a link by both its switches, such as "leaf1-spine2".
func (f *Fabric) LinkName(l Link) string {
	return f.Switches[l.A].Name + "-" + f.Switches[l.B].Name
}

// Fabric is a network of switches and hosts. Ports are numbered from 1 on each
// switch: hosts first, then links.
type Fabric struct {
	Switches []Switch
	Hosts    []Host
	Links    []Link
	Queue    Queue
}

// maxHosts is how many prefixes the address plan has.
const maxHosts = 1 << 14

// addHost attaches host number n of the address plan: 10.x.y.0/24 and fd00:0:0:n::/64.
func (f *Fabric) addHost(sw int, port uint32) {
	n := len(f.Hosts)
	v4 := netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 0})
	v6 := netip.AddrFrom16([16]byte{0: 0xfd, 6: byte(n >> 8), 7: byte(n)})
	f.Hosts = append(f.Hosts, Host{
		Name: fmt.Sprintf("h%d", n+1), Switch: sw, Port: port,
		V4: netip.PrefixFrom(v4, 24), V6: netip.PrefixFrom(v6, 64),
	})
}

// LeafSpine returns a two-tier Clos network: every leaf is linked to every spine.
func LeafSpine(leaves, spines, hostsPerLeaf int, latency time.Duration) (*Fabric, error) {
	switch {
	case leaves < 2 || spines < 1 || hostsPerLeaf < 1:
		return nil, fmt.Errorf("lab: leaf-spine of %d leaves, %d spines, %d hosts a leaf: at least 2, 1 and 1 "+
			"are needed", leaves, spines, hostsPerLeaf)
	case leaves*hostsPerLeaf > maxHosts:
		return nil, fmt.Errorf("lab: leaf-spine of %d hosts: at most %d", leaves*hostsPerLeaf, maxHosts)
	case hostsPerLeaf+spines > maxPort || leaves > maxPort:
		return nil, fmt.Errorf("lab: leaf-spine: a switch has at most %d ports", maxPort)
	}
	f := &Fabric{}
	for l := range leaves {
		f.Switches = append(f.Switches, Switch{fmt.Sprintf("leaf%d", l+1), RoleEdge})
		for h := range hostsPerLeaf {
			f.addHost(l, uint32(h+1))
		}
	}
	for s := range spines {
		f.Switches = append(f.Switches, Switch{fmt.Sprintf("spine%d", s+1), RoleTransit})
		for l := range leaves {
			f.Links = append(f.Links, Link{
				A: l, PortA: uint32(hostsPerLeaf + s + 1), B: leaves + s, PortB: uint32(l + 1), Latency: latency,
			})
		}
	}
	return f, nil
}

// FatTree returns the k-ary fat tree of Al-Fares et al. (SIGCOMM 2008, section 3): k pods of k/2
// edge and k/2 aggregation switches, (k/2)² core switches, k³/4 hosts. If pods is below k, only the
// first pods are built, without the core switches' ports to the other pods. If cores, a multiple of
// k/2, is lower than their full number, only this number of core switches is built, equally many
// above each aggregation switch. ChameleMon's testbed has k=4, two pods and two cores. For both, 0
// means all.
func FatTree(k, pods, cores int, latency time.Duration) (*Fabric, error) {
	if pods == 0 {
		pods = k
	}
	if k < 2 || k%2 != 0 || k > 32 || pods < 1 || pods > k {
		return nil, fmt.Errorf("lab: fat tree with k=%d and %d pods: k must be even, 2 to 32, and the pods 1 to k", k,
			pods)
	}
	if cores == 0 {
		cores = k / 2 * k / 2
	}
	if cores < k/2 || cores > k/2*k/2 || cores%(k/2) != 0 {
		return nil, fmt.Errorf("lab: fat tree with k=%d and %d core switches: they must be a multiple of k/2, at "+
			"most (k/2)²", k, cores)
	}
	above := cores / (k / 2) // links above each aggregation switch
	half := k / 2
	f := &Fabric{}
	link := func(a, b int, portA, portB uint32) {
		f.Links = append(f.Links, Link{A: a, B: b, PortA: portA, PortB: portB, Latency: latency})
	}
	edge := func(p, e int) int { return p*k + e }
	agg := func(p, a int) int { return p*k + half + a }
	core := func(a, c int) int { return pods*k + a*above + c }
	for p := range pods {
		for e := range half {
			f.Switches = append(f.Switches, Switch{fmt.Sprintf("edge%d-%d", p+1, e+1), RoleEdge})
		}
		for a := range half {
			f.Switches = append(f.Switches, Switch{fmt.Sprintf("agg%d-%d", p+1, a+1), RoleTransit})
		}
	}
	for a := range half {
		for c := range above {
			f.Switches = append(f.Switches, Switch{fmt.Sprintf("core%d-%d", a+1, c+1), RoleTransit})
		}
	}
	for p := range pods {
		for e := range half {
			for h := range half {
				f.addHost(edge(p, e), uint32(h+1))
			}
			for a := range half {
				link(edge(p, e), agg(p, a), uint32(half+a+1), uint32(e+1))
			}
		}
		for a := range half {
			for c := range above {
				link(agg(p, a), core(a, c), uint32(half+c+1), uint32(p+1))
			}
		}
	}
	return f, nil
}

// Graph returns a network of any shape, with hosts at each switch. Links are pairs of names; the
// switches are the named ones, in order.
func Graph(links [][2]string, hostsPerSwitch int, latency time.Duration) (*Fabric, error) {
	if len(links) == 0 || hostsPerSwitch < 1 {
		return nil, fmt.Errorf("lab: graph of %d links and %d hosts a switch: at least 1 and 1 are needed", len(links),
			hostsPerSwitch)
	}
	f := &Fabric{}
	ports := make(map[int]uint32) // ports in use
	add := func(name string) (int, uint32) {
		at := f.Find(name)
		if at < 0 {
			at = len(f.Switches)
			f.Switches = append(f.Switches, Switch{name, RoleEdge})
			ports[at] = uint32(hostsPerSwitch)
		}
		ports[at]++
		return at, ports[at]
	}
	for _, l := range links {
		a, portA := add(l[0])
		b, portB := add(l[1])
		if a == b || portA > maxPort || portB > maxPort {
			return nil, fmt.Errorf("lab: graph: link %s-%s joins a switch to itself, or one with more than %d ports", l[0],
				l[1], maxPort)
		}
		f.Links = append(f.Links, Link{A: a, PortA: portA, B: b, PortB: portB, Latency: latency})
	}
	if len(f.Switches)*hostsPerSwitch > maxHosts {
		return nil, fmt.Errorf("lab: graph of %d hosts: at most %d", len(f.Switches)*hostsPerSwitch, maxHosts)
	}
	for s := range f.Switches {
		for h := range hostsPerSwitch {
			f.addHost(s, uint32(h+1))
		}
	}
	return f, nil
}

// maxPort is the highest port number in use; 255 is the CPU port.
const maxPort = 254

// Find returns the index of the switch with the name, or -1.
func (f *Fabric) Find(name string) int {
	for i, s := range f.Switches {
		if s.Name == name {
			return i
		}
	}
	return -1
}
