// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	_ "embed" // the schema
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/plugins/univmon/manifest"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/flow"
)

// configSchema is generated from Configuration.
//
//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of UnivMon; every key has a default.
type Configuration struct {
	// Dimensions are flow definitions, each with an analysis of its own: 5-tuple, or fields of it
	// (src, dst, proto, src-port, dst-port) in this order, joined by +, such as dst+dst-port. If
	// empty, all that the switches measure; without any switch src, dst and 5-tuple.
	Dimensions []string `yaml:"dimensions" unique:"true"`
	// Switches publishes results of each switch.
	Switches bool `yaml:"switches" default:"true"`
	// Encapsulation is the flow that switches measure of a packet in a tunnel (IP, MPLS, GRE or VXLAN
	// in IP): that of its outer IP header, or of the last one.
	Encapsulation wire.Encapsulation `yaml:"encapsulation" default:"outer" oneof:"outer inner"`
	// Network is the view of all switches together, device "network".
	Network NetworkView `yaml:"network"`
	// Hosts are host agents with the role univmon. Each such host is a device with results of its
	// own.
	Hosts HostView `yaml:"hosts"`
	// HeavyHitters are flows of at least a share of the packets and a number of packets.
	HeavyHitters Threshold `yaml:"heavy-hitters"`
	// Icebergs are the heavy hitters of device "network" (global icebergs). If not given, as
	// heavy-hitters.
	Icebergs *Icebergs `yaml:"icebergs"`
	// HeavyChanges are flows that changed, from one epoch to the next, by at least a share of the sum
	// of all changes and a number of packets.
	HeavyChanges HeavyChanges `yaml:"heavy-changes"`
	// DDoSVictims are destinations that many different source addresses send to. Needs the dimension
	// 5-tuple.
	DDoSVictims Victims `yaml:"ddos-victims"`
	// Alerts are raised for DDoS victims, and for an entropy or a change of a flow that differs from
	// what it usually is: of device network, or of each device if network is not enabled.
	Alerts Alerts `yaml:"alerts"`
	// Functions are sums of x^power · log2(x)^log over flows, where x is the number of packets of a
	// flow. Flows with fewer packets than from, or with more than to, do not count.
	Functions []Function `yaml:"functions"`
}

// NetworkView configures how the switches' sketches are combined for the network.
type NetworkView struct {
	// Enabled publishes results of all switches together.
	Enabled bool `yaml:"enabled" default:"true"`
	// Scheme is how packets that cross several switches are counted once. With weights, every switch
	// counts all packets, and sketches are added and subtracted. The others, for any topology, write
	// entries by which each switch counts a part: manifest with the least memory, ingress at the
	// switch where packets enter, greedy along the path, query where sketches are already.
	Scheme manifest.Scheme `yaml:"scheme" default:"weights" oneof:"weights manifest ingress greedy query"`
	// Prefixes maps prefixes to the switches at which their packets enter and leave, in addition to
	// the addresses of hosts. Not with scheme weights.
	Prefixes map[string]string `yaml:"prefixes"`
	// Unmanaged states which paths packets take where the collector does not install the routes:
	// with ends only the two ends of each path are certain, with shortest packets take all shortest
	// paths over the links of the configuration and of LLDP. Where packets take other paths than
	// the shortest ones, they can count twice or not at all. Not with scheme weights.
	Unmanaged Unmanaged `yaml:"unmanaged" default:"ends" oneof:"ends shortest"`
	// Paths are the paths of packets, each the names of its switches in their order with blanks
	// between them. They replace all other paths between the same two ends. Not with scheme weights.
	Paths []string `yaml:"paths"`
	// Manifests publishes what each switch counts, a row for each pair of switches and dimension. Not
	// with scheme weights.
	Manifests bool `yaml:"manifests" default:"false"`
	// Memory is the largest size of a switch's sketches. If 0, there is no limit. Not with scheme
	// weights.
	Memory settings.Size `yaml:"memory" default:"0" range:"0.."`
	// Weights maps names or roles of switches, and names of hosts, to 1 (the sketch is added to the
	// network's), -1 (it is subtracted) or 0 (it is omitted, as without a weight). Each packet must
	// be counted once in total. If not given, computed from the topology: 1 and -1 alternating from
	// the edge inwards; without switches that measure, 1 for each host.
	Weights map[string]int `yaml:"weights" range:"-1..1"`
}

// SchemeWeights is the scheme by which every switch counts all packets, and sketches are added and
// subtracted.
const SchemeWeights manifest.Scheme = "weights"

// Unmanaged is which paths packets take where the collector does not install the routes.
type Unmanaged string

// Only the ends of paths are certain, or all shortest paths are taken.
const (
	UnmanagedEnds     Unmanaged = "ends"
	UnmanagedShortest Unmanaged = "shortest"
)

// HostView configures which packets hosts count. Each host with an agent is then a device.
type HostView struct {
	// Packets are the packets that hosts count: none, those that they send, those that arrive, or
	// all. Of two hosts with agents, only one counts a packet that is sent or received; with all, both
	// do.
	Packets HostPackets `yaml:"packets" default:"none" oneof:"none sent received all"`
	// Encapsulation selects the IP header whose flow a packet of a host has. With switch it is the
	// header that switches measure, so that sketches of hosts and switches add up: the first one
	// behind at most four VLAN tags and six MPLS labels or a PPPoE session, with the ports behind
	// at most three IPv6 extension headers. With outer it is the same without bounds, with inner
	// the last one, also in IP, MPLS, GRE and VXLAN in IP.
	Encapsulation wire.Encapsulation `yaml:"encapsulation" default:"switch" oneof:"switch outer inner"`
}

// HostPackets are packets that hosts count.
type HostPackets string

// The packets that hosts can count: none, those that they send, those that arrive, or both.
const (
	HostsNone     HostPackets = "none"
	HostsSent     HostPackets = "sent"
	HostsReceived HostPackets = "received"
	HostsAll      HostPackets = "all"
)

// Threshold defines heavy flows: both conditions must hold.
type Threshold struct {
	// Share is the least share of the whole.
	Share float64 `yaml:"share" default:"0.005" range:">0..1"`
	// Packets is the least number of packets.
	Packets float64 `yaml:"packets" default:"1" range:"0.."`
	// Limit bounds the rows of all nodes and dimensions together. Each of them has the same number
	// of rows, its largest. Node "network" may have as many rows more.
	Limit int `yaml:"limit" default:"500" range:"1.."`
	// Capacity is the packets per second of a link. If it is not 0, the whole is what the link can
	// carry in an epoch instead of the packets that were counted.
	Capacity float64 `yaml:"capacity" default:"0" range:"0.."`
}

// Least returns the least number of packets of a heavy flow, of the packets of an epoch.
func (t *Threshold) Least(packets float64, epoch time.Duration) float64 {
	if t.Capacity > 0 {
		packets = t.Capacity * epoch.Seconds()
	}
	return max(t.Share*packets, t.Packets, 1)
}

// Icebergs is a Threshold.
type Icebergs struct {
	// Share is the least share of the packets.
	Share float64 `yaml:"share" range:">0..1" required:"the least share of the packets, such as 0.005"`
	// Packets is the least number of packets.
	Packets float64 `yaml:"packets" default:"0" range:"0.."`
	// Limit bounds the rows of all dimensions together. Each of them has the same number of rows,
	// its largest.
	Limit int `yaml:"limit" default:"500" range:"1.."`
	// Capacity is the packets per second of a link. If it is not 0, the share is of what the link can
	// carry in an epoch.
	Capacity float64 `yaml:"capacity" default:"0" range:"0.."`
}

// HeavyChanges is a Threshold.
type HeavyChanges struct {
	// Share is the least share of the sum of all changes.
	Share float64 `yaml:"share" default:"0.01" range:">0..1"`
	// Packets is the least number of packets.
	Packets float64 `yaml:"packets" default:"20" range:"0.."`
	// Limit bounds the rows of all nodes and dimensions together. Each of them has the same number
	// of rows, its largest. Node "network" may have as many rows more.
	Limit int `yaml:"limit" default:"200" range:"1.."`
}

// Victims defines DDoS victims.
type Victims struct {
	// Sources is the least number of different source addresses.
	Sources float64 `yaml:"sources" default:"1000" range:"2.."`
	// Limit is the largest number of rows of each device.
	Limit int `yaml:"limit" default:"100" range:"1.."`
}

// Alerts defines when results are alerts.
type Alerts struct {
	// Packets is the number of packets from which on an epoch is judged.
	Packets float64 `yaml:"packets" default:"1000" range:"1.."`
	// Entropy is the least distance of the entropy from its usual value, in bits. The distance must
	// also be at least six times the usual one.
	Entropy float64 `yaml:"entropy" default:"0.5" range:">0.."`
	// Change is the least change of a flow, as a share of the packets of the larger epoch. The change
	// must also differ from the usual largest change by at least six times the usual difference.
	Change float64 `yaml:"change" default:"0.1" range:">0..1"`
	// Hold is the number of epochs that an alert lasts after the last epoch with its problem.
	Hold int `yaml:"hold" default:"2" range:"0..1000"`
}

// inner reports whether switches measure inner flows.
func (c *Configuration) inner() bool { return c.Encapsulation == wire.EncapsulationInner }

// icebergs returns the threshold for the network's heavy hitters.
func (c *Configuration) icebergs() Threshold {
	if c.Icebergs != nil {
		return Threshold(*c.Icebergs)
	}
	return c.HeavyHitters
}

// Validate returns the errors that tags cannot express.
func (c *Configuration) Validate() error {
	var errs settings.KeyErrors
	for i, d := range c.Dimensions {
		if f, err := flow.ParseFields(d); err != nil || f.String() != d {
			errs.Add(fmt.Sprintf("dimensions[%d]", i), "%q is not a flow definition; expected 5-tuple or fields of it in "+
				"their order, such as src or dst+dst-port", d)
		}
	}
	if n := len(c.Dimensions); n > wire.MaxSketches && c.Hosts.Packets != HostsNone {
		errs.Add("dimensions", "has %d elements; expected at most %d where hosts count packets", n, wire.MaxSketches)
	}
	if n := &c.Network; n.Scheme != SchemeWeights && len(n.Weights) > 0 {
		errs.Add("network.weights", "are for the scheme %s; the scheme is %s", SchemeWeights, n.Scheme)
	} else if n.Scheme == SchemeWeights && (len(n.Prefixes) > 0 || len(n.Paths) > 0 || n.Memory != 0 ||
		n.Manifests || n.Unmanaged == UnmanagedShortest) {
		errs.Add("network.scheme", "%s has no prefixes, paths, memory, manifests or unmanaged; expected one of %v", n.Scheme,
			manifest.Schemes)
	}
	for _, text := range slices.Sorted(maps.Keys(c.Network.Prefixes)) {
		if _, err := netip.ParsePrefix(text); err != nil {
			errs.Add("network.prefixes."+text, "is not a prefix; expected one such as 10.1.0.0/16")
		}
	}
	for i, f := range c.Functions {
		f.check(fmt.Sprintf("functions[%d].", i), &errs)
	}
	return errs.Err()
}

// dimensions are the dimensions of the program univmon, which hosts measure by default.
var dimensions = []string{flow.Src.String(), flow.Dst.String(), flow.FiveTuple.String()}

// allDimensions returns all flow definitions, in the order of dimensions and then the others.
func allDimensions() []string {
	out := slices.Clone(dimensions)
	for f := flow.Fields(1); f < flow.FiveTuple; f++ {
		if name := f.String(); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
