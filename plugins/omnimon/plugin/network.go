// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// network is the network model with switches, hosts and directed links by number.
type network struct {
	switches []swtch
	byName   map[string]int32 // switches
	links    []link
	at       map[sdk.Endpoint][2]int32 // links that enter and leave at a switch's port
	uplinks  map[string]sdk.Endpoint   // uplinks of hosts
	arrays   int                       // number of arrays of all switches

	hosts     []string // hosts by number
	addresses map[netip.Addr]address
	// trees are the trees that were used last, by source host and address modulo their count.
	trees []atomic.Pointer[tree]
	// search: another controller owns the routes of a switch that measures.
	search bool
}

// swtch is a switch of the network.
type swtch struct {
	name   string
	counts *counts // nil: the switch does not measure
	array  int32   // first slot array of the switch
	// arrayOf are the slot arrays of the switch's ports, relative to array.
	arrayOf map[uint32]int32
	seed    uint32
	groups  []sdk.PortGroup
	routes  *sdk.RouteTable // nil: another controller owns the routes
	out     []int32         // links that leave the switch
}

// link is a directed link.
type link struct {
	name     string
	from, to sdk.Endpoint
}

// address is an address of a host.
type address struct{ host, number int32 }

// newNetwork numbers the elements of the model. hosts are the names of hosts by number; hosts that
// have left are not in the model.
func newNetwork(model *sdk.Network, found map[string]*counts, hosts []string) *network {
	n := &network{byName: map[string]int32{}, at: map[sdk.Endpoint][2]int32{}, uplinks: map[string]sdk.Endpoint{},
		hosts: hosts, addresses: map[netip.Addr]address{}}
	for i := range model.Devices {
		d := &model.Devices[i]
		n.byName[d.Name] = int32(len(n.switches))
		s := swtch{name: d.Name, counts: found[d.Name], array: int32(n.arrays), arrayOf: map[uint32]int32{}}
		if s.counts != nil {
			n.arrays += s.counts.arrays
			n.search = n.search || d.Forwarding == nil
		}
		if f := d.Forwarding; f != nil {
			s.forward(f)
		}
		n.switches = append(n.switches, s)
	}
	for _, l := range model.Links {
		n.link(l.A, l.B)
		n.link(l.B, l.A)
	}
	for i := range n.links {
		if from, ok := n.byName[n.links[i].from.Node]; ok {
			n.switches[from].out = append(n.switches[from].out, int32(i))
		}
	}
	for i := range n.switches {
		n.switches[i].assignArrays(n)
	}
	numbers := positions(hosts)
	for _, h := range model.Hosts {
		number, ok := numbers[h.Name]
		if !ok {
			continue
		}
		for _, a := range agentAddresses(&h) {
			n.addresses[a] = address{int32(number), int32(len(n.addresses))}
		}
	}
	n.trees = make([]atomic.Pointer[tree], min(len(hosts)*len(n.addresses), maxTrees))
	return n
}

// agentAddresses are the addresses of a host; prefixes are left out, because a packet with a header
// must reach an agent.
func agentAddresses(h *sdk.Host) (out []netip.Addr) {
	for _, text := range h.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func (s *swtch) forward(f *sdk.Forwarding) {
	s.seed, s.groups = f.Seed, f.Groups
	valid := func(r sdk.Route) bool {
		return r.Group >= 0 && r.Group < len(f.Groups) && len(f.Groups[r.Group].Ports) > 0
	}
	s.routes = sdk.NewRouteTable(slices.DeleteFunc(slices.Clone(f.Routes), func(r sdk.Route) bool { return !valid(r) }))
}

// route returns the group of ports for a destination, or nil.
func (s *swtch) route(to netip.Addr) *sdk.PortGroup {
	if s.routes == nil {
		return nil
	}
	g, ok := s.routes.Group(to)
	if !ok {
		return nil
	}
	return &s.groups[g]
}

func (n *network) link(from, to sdk.Endpoint) {
	number := int32(len(n.links))
	n.links = append(n.links, link{sdk.LinkName(from, to), from, to})
	for side, e := range [2]sdk.Endpoint{to, from} {
		if _, ok := n.byName[e.Node]; !ok {
			n.uplinks[e.Node] = [2]sdk.Endpoint{from, to}[side]
			continue
		}
		ends, known := n.at[e]
		if !known {
			ends = [2]int32{-1, -1}
		}
		ends[side] = number
		n.at[e] = ends
	}
}

// assignArrays deals the slot arrays to the ports of links.
func (s *swtch) assignArrays(n *network) {
	if s.counts == nil {
		return
	}
	var ports []uint32
	for e := range n.at {
		if e.Node == s.name {
			ports = append(ports, e.Port)
		}
	}
	slices.Sort(ports)
	for i, p := range ports {
		s.arrayOf[p] = int32(i % s.counts.arrays)
	}
}

// model returns the network as the analysis sees it.
func (n *network) model(singlePath bool) analysis.Network {
	out := analysis.Network{Hosts: len(n.hosts), Switches: len(n.switches), Arrays: n.arrays, Values: statistics,
		Bits: 32, Route: n.route, HostNames: n.hosts}
	for i := range n.switches {
		if c := n.switches[i].counts; c != nil {
			out.SwitchOf = append(out.SwitchOf, slices.Repeat([]int32{int32(i)}, c.arrays)...)
		}
	}
	for _, host := range n.hosts {
		up, down := int32(-1), int32(-1)
		if ends, ok := n.at[n.uplinks[host]]; ok {
			up, down = ends[0], ends[1]
		}
		out.Uplinks, out.Downlinks = append(out.Uplinks, up), append(out.Downlinks, down)
	}
	number := func(e sdk.Endpoint) int32 {
		if s, ok := n.byName[e.Node]; ok {
			return s
		}
		return analysis.Host
	}
	for _, l := range n.links {
		out.Links = append(out.Links, analysis.Link{From: number(l.from), To: number(l.to)})
	}
	if n.search {
		out.Search = n.searchModel(singlePath)
	}
	return out
}

// searchModel lets the analysis search for paths. Switches whose routes the collector installs send
// by the installed routes.
func (n *network) searchModel(singlePath bool) *analysis.Search {
	s := &analysis.Search{Ends: n.ends, Next: n.next, SinglePath: singlePath}
	numbers := positions(n.hosts)
	for _, l := range n.links {
		array, host := int32(analysis.None), int32(-1)
		if number, ok := numbers[l.to.Node]; ok {
			host = int32(number)
		}
		if number, ok := n.byName[l.to.Node]; ok {
			host = -1
			if w := &n.switches[number]; w.counts != nil {
				array = w.array + w.arrayOf[l.to.Port]
			}
		}
		s.Arrays, s.Hosts = append(s.Arrays, array), append(s.Hosts, host)
	}
	return s
}

// ends implements analysis.Search.
func (n *network) ends(source int, k *flow.Key) (destination int, first, last int32) {
	to, ok := n.addresses[k.DstAddr()]
	if !ok {
		return -1, -1, -1
	}
	in, isLinked := n.at[n.uplinks[n.hosts[source]]]
	out, isReachable := n.at[n.uplinks[n.hosts[to.host]]]
	if !isLinked || !isReachable {
		return -1, -1, -1
	}
	return int(to.host), in[0], out[1]
}

// next implements analysis.Search.
func (n *network) next(at int32, k *flow.Key, links []int32) []int32 {
	s := &n.switches[at]
	if s.routes == nil {
		return append(links, s.out...)
	}
	if group := s.route(k.DstAddr()); group != nil {
		var buffer [37]byte
		port := group.Port(s.seed, rowhash.Key(k.AppendBinary(buffer[:0])))
		if ends, ok := n.at[sdk.Endpoint{Node: s.name, Port: port}]; ok {
			return append(links, ends[1])
		}
	}
	return links
}

// tree is the paths from a host to an address. Inner nodes are switches with several next hops.
type tree struct {
	pair int // of source host and address, of a whole tree
	seed uint32
	next []*tree // trees of the members; empty: a leaf
	path *analysis.Path
}

// maxPaths bounds the paths of one tree, and maxTrees the trees that are kept. maxHops bounds the
// switches of a path: a route with a loop has no path.
const (
	maxPaths = 4096
	maxHops  = 64
	maxTrees = 1 << 20
)

// route implements analysis.Network.Route.
func (n *network) route(source int, k *flow.Key) (destination int, path *analysis.Path) {
	to, ok := n.addresses[k.DstAddr()]
	if !ok {
		return -1, nil
	}
	if n.search {
		destination, first, last := n.ends(source, k)
		if destination < 0 {
			return -1, nil
		}
		return destination, &analysis.Path{From: first, Last: last}
	}
	pair := source*len(n.addresses) + int(to.number)
	at := &n.trees[pair%len(n.trees)]
	t := at.Load()
	if t == nil || t.pair != pair {
		t = n.paths(source, k.DstAddr(), to.host)
		t.pair = pair
		at.Store(t)
	}
	if len(t.next) > 0 {
		var buffer [37]byte
		h := rowhash.Key(k.AppendBinary(buffer[:0]))
		for len(t.next) > 0 {
			t = t.next[rowhash.Mix(h, t.seed)%uint32(len(t.next))]
		}
	}
	return int(to.host), t.path
}

// paths computes the tree of paths from a host to an address.
func (n *network) paths(source int, to netip.Addr, host int32) *tree {
	uplink, ok := n.uplinks[n.hosts[source]]
	if !ok {
		return &tree{}
	}
	left := maxPaths
	return n.walk(uplink, to, n.hosts[host], nil, &left)
}

// walk continues paths that enter a switch at a port.
func (n *network) walk(in sdk.Endpoint, to netip.Addr, host string, hops []analysis.Hop, left *int) *tree {
	number, ok := n.byName[in.Node]
	ends, linked := n.at[in]
	if *left--; !ok || !linked || len(hops) == maxHops || *left < 0 {
		return &tree{}
	}
	s := &n.switches[number]
	group := s.route(to)
	if group == nil {
		return &tree{}
	}
	hop := analysis.Hop{Link: ends[0], Switch: number, Array: analysis.None}
	if s.counts != nil {
		hop.Array = s.array + s.arrayOf[in.Port]
	}
	hops = append(slices.Clip(hops), hop)
	t := &tree{seed: s.seed}
	for _, port := range group.Ports {
		next := &tree{}
		if ends, ok := n.at[sdk.Endpoint{Node: in.Node, Port: port}]; ok {
			out := n.links[ends[1]]
			if out.to.Node == host {
				next.path = &analysis.Path{Hops: hops, Last: ends[1]}
			} else {
				next = n.walk(out.to, to, host, hops, left)
			}
		}
		t.next = append(t.next, next)
	}
	if len(t.next) == 1 {
		return t.next[0]
	}
	return t
}

// element returns the name of a switch or link by its position in analysis.LossyFlow.Losses.
func (n *network) element(p *analysis.Path, at int) (name, kind string) {
	switch {
	case at%2 == 1:
		return n.switches[p.Hops[at/2].Switch].name, "SWITCH"
	case at/2 < len(p.Hops):
		return n.links[p.Hops[at/2].Link].name, "LINK"
	}
	return n.links[p.Last].name, "LINK"
}

// describe returns the switches of a path, separated by spaces.
func (n *network) describe(p *analysis.Path, b []byte) []byte {
	for i, h := range p.Hops {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, n.switches[h.Switch].name...)
	}
	return b
}

// counts are the registers of a switch, as its annotations describe them.
type counts struct {
	object, uncounted                       string // full names; uncounted is optional
	arrays, slots, words, arrived, departed int
	ports                                   int
	noHeader, badSlot                       int
	units                                   [kinds][]string // filter tables, by number
}

// statistics is the count of statistics that switches record, without differences of extremes.
const statistics = 7

// annotation is the name of the annotation of OmniMon's registers in programs.
const annotation = "netsketch_omnimon"

var (
	countsNeed = sdk.ObjectNeed{Annotation: annotation,
		Values: map[string]string{"part": "counts", "slots_per_flow": "", "words": "",
			"arrived": "", "departed": ""}}
	uncountedNeed = sdk.ObjectNeed{Annotation: annotation,
		Values: map[string]string{"part": "uncounted", "bad_slot": ""}, Optional: true}
)

// find returns the registers of a device; nil, nil if it has none.
func find(d *sdk.Device, c *Configuration) (*counts, error) {
	selected := d.Select(countsNeed)
	if len(selected) == 0 {
		return nil, nil
	}
	o := selected[0]
	out := &counts{object: o.Name, noHeader: -1, badSlot: -1}
	var etherType, slotsPerFlow, differences int
	for _, a := range []struct {
		name string
		to   *int
	}{{"ethertype", &etherType}, {"arrays", &out.arrays}, {"slots", &out.slots}, {"slots_per_flow", &slotsPerFlow},
		{"differences", &differences}, {"words", &out.words}, {"arrived", &out.arrived}, {"departed", &out.departed},
		{"ports", &out.ports}} {
		if err := number(&o, a.name, a.to); err != nil {
			return nil, err
		}
	}
	switch {
	case etherType != int(c.EtherType):
		return nil, fmt.Errorf("its program has EtherType %#x, the plugin %#x: set ether-type", etherType, c.EtherType)
	case slotsPerFlow != c.SlotsPerFlow:
		return nil, fmt.Errorf("its program has %d slots per flow, the plugin %d: set slots-per-flow", slotsPerFlow,
			c.SlotsPerFlow)
	case differences != len(c.Extremes):
		return nil, fmt.Errorf("its program has %d differences, the plugin %d extremes: use another program",
			differences, len(c.Extremes))
	case c.Slots > out.slots:
		return nil, fmt.Errorf("its program has %d slots, the plugin %d: set slots", out.slots, c.Slots)
	case out.words < statistics+differences || out.arrays < 1 || out.slots < 1 || out.ports < 0 || o.Width != 32:
		return nil, fmt.Errorf("%s has %d words of %d bits; expected at least %d of 32", o.Name, out.words, o.Width,
			statistics)
	}
	if end := max(out.arrays*out.slots*out.words, out.arrived+out.ports, out.departed+out.ports); end > o.Cells ||
		out.arrived < 0 || out.departed < 0 {
		return nil, fmt.Errorf("%s has %d cells, its annotations describe %d", o.Name, o.Cells, end)
	}
	var err error
	if out.units, err = findUnits(&o); err != nil {
		return nil, err
	}
	if n := out.unitCount(); out.words < statistics+differences+n {
		return nil, fmt.Errorf("%s has %d words for %d units", o.Name, out.words, n)
	}
	for _, u := range d.Select(uncountedNeed) {
		out.uncounted = u.Name
		_ = number(&u, "no_header", &out.noHeader)
		if err := number(&u, "bad_slot", &out.badSlot); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// number reads an annotation that is a number, decimal or with the prefix 0x. As in P4, 010 is ten.
func number(o *sdk.Object, name string, to *int) error {
	text := o.Annotations[annotation][name]
	base := 0
	if settings.Decimal(text) != nil {
		base = 10
	}
	n, err := strconv.ParseInt(text, base, 32)
	if err != nil {
		return fmt.Errorf("annotation %s of %s is %q, not a number", name, o.Name, text)
	}
	*to = int(n)
	return nil
}
