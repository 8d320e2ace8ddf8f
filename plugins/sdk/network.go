// SPDX-License-Identifier: Apache-2.0

// The network model that plugins receive.

package sdk

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	pluginv1 "github.com/netsketch/netsketch/plugins/sdk/pluginv1"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// Network is the collector's model of the network: devices, hosts and links.
type Network struct {
	Version uint64   `json:"version"` // increases with every change
	Devices []Device `json:"devices,omitempty"`
	Hosts   []Host   `json:"hosts,omitempty"`
	Links   []Link   `json:"links,omitempty"`
}

// Device is one switch.
type Device struct {
	Name    string   `json:"name"`              // unique; the key "node" of result lists
	Role    string   `json:"role,omitempty"`    // "edge", "transit", or a role that the operator defines
	Program string   `json:"program,omitempty"` // name of the program
	Objects []Object `json:"objects,omitempty"` // arrays that can be read in each epoch
	// Unread are the registers that have annotations, but cannot be read: packets carry away what they
	// hold. No ObjectNeed selects them. Each has one bank.
	Unread []Object `json:"unread,omitempty"`
	Ports  []Port   `json:"ports,omitempty"`
	// Forwarding is how the device forwards packets; nil if the collector does not install its routes.
	Forwarding *Forwarding `json:"forwarding,omitempty"`
}

// Forwarding holds the routes of a device. A packet takes the route with the longest prefix that
// contains its destination, and leaves by a port of the route's group; without a route, it is
// dropped.
type Forwarding struct {
	// Seed is the factor of the hash that selects a port of a group; see Port.
	Seed   uint32      `json:"seed"`
	Groups []PortGroup `json:"groups,omitempty"`
	Routes []Route     `json:"routes,omitempty"`
}

// PortGroup holds the ports that lead to equally short paths, at least one.
type PortGroup struct {
	Ports []uint32 `json:"ports"`
}

// Route is a destination and the group of ports that lead to it.
type Route struct {
	Prefix string `json:"prefix"` // such as 10.0.1.0/24
	Group  int    `json:"group"`  // index into Forwarding.Groups
}

// Port returns the port of the group by which the packets of a flow leave a device with this seed.
// fiveTuple is rowhash.Key of the flow's canonical 5-tuple.
func (g *PortGroup) Port(seed, fiveTuple uint32) uint32 {
	if len(g.Ports) == 1 {
		return g.Ports[0]
	}
	return g.Ports[rowhash.Mix(fiveTuple, seed)%uint32(len(g.Ports))]
}

// RouteTable finds routes by destination.
type RouteTable struct {
	groups  map[netip.Prefix]int
	lengths []int // lengths of prefixes, longest first, for IPv4 and IPv6
}

// NewRouteTable returns a table of routes. It leaves out routes whose prefix cannot be parsed.
func NewRouteTable(routes []Route) *RouteTable {
	t := &RouteTable{groups: map[netip.Prefix]int{}}
	for _, r := range routes {
		p, err := netip.ParsePrefix(r.Prefix)
		if err != nil {
			continue
		}
		t.groups[p] = r.Group
		if !slices.Contains(t.lengths, p.Bits()) {
			t.lengths = append(t.lengths, p.Bits())
		}
	}
	slices.Sort(t.lengths)
	slices.Reverse(t.lengths)
	return t
}

// Group returns the group of the longest prefix that contains an address; ok is false if no prefix
// does.
func (t *RouteTable) Group(to netip.Addr) (group int, ok bool) {
	for _, bits := range t.lengths {
		if p, err := to.Prefix(bits); err == nil {
			if group, ok = t.groups[p]; ok {
				return group, true
			}
		}
	}
	return 0, false
}

// Port is one port of a device.
type Port struct {
	Number uint32 `json:"number"`         // number in the data plane
	Name   string `json:"name,omitempty"` // OpenConfig interface name
}

// Object is an array of a pipeline: a register or a counter.
type Object struct {
	Name  string `json:"name"`            // full P4Info name
	Alias string `json:"alias,omitempty"` // short name, unique in the pipeline
	Cells int    `json:"cells"`           // cells per bank
	Width int    `json:"width"`           // bits per cell in the data plane, 1 to 32
	Banks int    `json:"banks"`           // at least 1
	// Annotations are the annotations of the register in P4Info. They describe the structure of the
	// array (levels, rows, columns, key fields).
	Annotations Annotations `json:"annotations,omitempty"`
}

// Annotations are the values of a register's annotations, by the annotation's name and by key:
// @example[rows=3] gives {"example": {"rows": "3"}}. An element of a list is a key with an empty
// value: @example[fast] gives {"example": {"fast": ""}}.
type Annotations map[string]map[string]string

func (a Annotations) proto() map[string]*pluginv1.Annotation {
	out := make(map[string]*pluginv1.Annotation, len(a))
	for name, values := range a {
		out[name] = &pluginv1.Annotation{Values: values}
	}
	return out
}

func annotationsFrom(m map[string]*pluginv1.Annotation) Annotations {
	if len(m) == 0 {
		return nil
	}
	out := make(Annotations, len(m))
	for name, a := range m {
		out[name] = a.GetValues()
	}
	return out
}

// Host is one end host.
type Host struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses,omitempty"`
	Agent     bool     `json:"agent,omitempty"` // a netsketch agent runs there
}

// Endpoint is one end of a link.
type Endpoint struct {
	Node string `json:"node"`           // name of a device or host
	Port uint32 `json:"port,omitempty"` // port of a device
}

// String returns the name of the endpoint: of a port of a device DEVICE/PORT, the key of
// /topology/ports/port, otherwise the name of the node.
func (e Endpoint) String() string {
	if e.Port == 0 {
		return e.Node
	}
	return e.Node + "/" + strconv.FormatUint(uint64(e.Port), 10)
}

// LinkName returns the name of the direction of a link from one endpoint to the other, the key of
// /topology/links/link. No name of a node has a slash or a tilde.
func LinkName(from, to Endpoint) string { return from.String() + "~" + to.String() }

// LinkNodes returns the nodes at the ends of a link of this name.
func LinkNodes(name string) (from, to string) {
	from, to, _ = strings.Cut(name, "~")
	from, _, _ = strings.Cut(from, "/")
	to, _, _ = strings.Cut(to, "/")
	return from, to
}

// Link joins two endpoints.
type Link struct {
	A           Endpoint `json:"a"`
	B           Endpoint `json:"b"`
	CapacityBPS uint64   `json:"capacityBps,omitempty"` // bits per second; 0: unknown
}

// Device returns the device with a name, or nil.
func (n *Network) Device(name string) *Device {
	i := slices.IndexFunc(n.Devices, func(d Device) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &n.Devices[i]
}

// Cabling is the set of the endpoints that the links of a network join.
type Cabling struct {
	// Ends are the names of the nodes at the other ends of links, by device and port.
	Ends map[string]map[uint32]string

	plain map[string]bool // devices that only forward
}

// Cabling returns the endpoints that the links of the network join.
func (n *Network) Cabling() *Cabling {
	c := &Cabling{Ends: map[string]map[uint32]string{}, plain: map[string]bool{}}
	for i := range n.Devices {
		d := &n.Devices[i]
		c.Ends[d.Name], c.plain[d.Name] = map[uint32]string{}, d.Program == "forwarding"
	}
	for _, l := range n.Links {
		for _, e := range [][2]Endpoint{{l.A, l.B}, {l.B, l.A}} {
			if ports := c.Ends[e[0].Node]; ports != nil {
				ports[e[0].Port] = e[1].Node
			}
		}
	}
	return c
}

// Beyond returns the hosts and measuring devices that packets reach first when they leave a device
// by a port, sorted; none if the port has no link. Devices that run the program forwarding are
// passed: they change nothing that another device inserted into a packet, and measure nothing.
func (c *Cabling) Beyond(device string, port uint32) (nodes []string) {
	var next []string
	if node, ok := c.Ends[device][port]; ok {
		next = append(next, node)
	}
	seen := map[string]bool{}
	for len(next) > 0 {
		node := next[0]
		if next = next[1:]; seen[node] {
			continue
		}
		seen[node] = true
		if !c.plain[node] {
			nodes = append(nodes, node)
			continue
		}
		for _, other := range c.Ends[node] {
			next = append(next, other)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// Object returns the object with a full name or alias, or nil.
func (d *Device) Object(name string) *Object {
	i := slices.IndexFunc(d.Objects, func(o Object) bool { return o.Name == name || (o.Alias == name && name != "") })
	if i < 0 {
		return nil
	}
	return &d.Objects[i]
}

// Select returns the objects of the device that match need; none if need is for devices of another
// role.
func (d *Device) Select(need ObjectNeed) []Object {
	if need.Role != "" && need.Role != d.Role {
		return nil
	}
	var found []Object
	for _, o := range d.Objects {
		if need.matches(o) {
			found = append(found, o)
		}
	}
	return found
}

func (need ObjectNeed) matches(o Object) bool {
	if need.Name != "" && !glob(need.Name, o.Name) && !glob(need.Name, o.Alias) {
		return false
	}
	values, has := o.Annotations[need.Annotation]
	if need.Annotation != "" && !has {
		return false
	}
	for key, want := range need.Values {
		if have, ok := values[key]; !ok || (want != "" && want != have) {
			return false
		}
	}
	return true
}

// glob reports whether name matches pattern, where '*' matches any run of characters.
func glob(pattern, name string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == name
	}
	escaped := strings.NewReplacer(`\`, `\\`, "?", `\?`, "[", `\[`, "/", "\x00").Replace(pattern)
	ok, err := path.Match(escaped, strings.ReplaceAll(name, "/", "\x00"))
	return ok && err == nil
}

// String describes the need for messages.
func (need ObjectNeed) String() string {
	var parts []string
	if need.Name != "" {
		parts = append(parts, need.Name)
	}
	if need.Annotation != "" {
		var values []string
		for _, key := range slices.Sorted(maps.Keys(need.Values)) {
			if value := need.Values[key]; value != "" {
				key += "=" + value
			}
			values = append(values, key)
		}
		annotation := "@" + need.Annotation
		if len(values) > 0 {
			annotation += "[" + strings.Join(values, ", ") + "]"
		}
		parts = append(parts, annotation)
	}
	if len(parts) == 0 {
		return "any object"
	}
	return strings.Join(parts, " ")
}

// Bind matches needs with every device. It returns the objects to read, and the needs that no
// device meets. A plugin that makes no choice of its own returns both in its Settings.
func (n *Network) Bind(needs []ObjectNeed) (bindings []Binding, missing []MissingObject) {
	taken := make(map[Binding]bool)
	for _, need := range needs {
		found := false
		for i := range n.Devices {
			for _, o := range n.Devices[i].Select(need) {
				found = true
				if b := (Binding{Device: n.Devices[i].Name, Object: o.Name}); !taken[b] {
					taken[b] = true
					bindings = append(bindings, b)
				}
			}
		}
		if !found && !need.Optional {
			missing = append(missing, MissingObject{Object: need.String(), Consequence: n.readable()})
		}
	}
	return bindings, missing
}

// readable lists the registers of the first device that has any, for the message that an object is
// missing.
func (n *Network) readable() string {
	for _, d := range n.Devices {
		var names []string
		for _, o := range d.Objects {
			names = append(names, strings.Join(append([]string{o.Name}, slices.Sorted(maps.Keys(o.Annotations))...), " @"))
		}
		if len(names) > 0 {
			return fmt.Sprintf("the registers of %s are %s", d.Name, strings.Join(names, ", "))
		}
	}
	return "no switch has registers with @netsketch_readout"
}
