// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	_ "embed"
	"fmt"
	"net/netip"
	"slices"

	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/univmon/manifest"
	"github.com/netsketch/netsketch/sketch/flow"
)

//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of the plugin. config.schema.json describes its JSON form.
type Configuration struct {
	// Dimensions to analyze, such as "src" or "5-tuple". Empty: all that the switches measure.
	Dimensions []string `json:"dimensions"`
	// Switches enables results of each switch.
	Switches bool `json:"switches"`
	// Encapsulation is the IP header whose flow switches measure of a packet in a tunnel:
	// wire.EncapsulationOuter or EncapsulationInner.
	Encapsulation wire.Encapsulation `json:"encapsulation"`
	// Network configures the network-wide view.
	Network NetworkView `json:"network"`
	// Hosts configures what host agents with the role univmon count.
	Hosts HostView `json:"hosts"`
	// HeavyHitters are flows of at least Share of the packets.
	HeavyHitters Threshold `json:"heavyHitters"`
	// Icebergs is HeavyHitters for device "network"; default: HeavyHitters.
	Icebergs *Threshold `json:"icebergs"`
	// HeavyChanges are flows that changed by at least Share of the sum of all changes.
	HeavyChanges Threshold `json:"heavyChanges"`
	// DDoSVictims are destinations of at least Sources source addresses.
	DDoSVictims Victims `json:"ddosVictims"`
	// Functions are additional functions of the flow sizes, summed over all flows.
	Functions []Function `json:"functions"`
}

// NetworkView configures how the switches' sketches are combined for the network.
type NetworkView struct {
	// Enabled enables results of device "network".
	Enabled bool `json:"enabled"`
	// Weights of switches, by their names or roles, and of hosts by their names: 1 adds a sketch, -1
	// subtracts it, 0 omits it. Empty: computed from the topology.
	Weights map[string]int `json:"weights"`
	// Scheme is how packets that cross several switches are counted once: SchemeWeights, or one of
	// manifest.Schemes, by which each switch counts a part of them.
	Scheme manifest.Scheme `json:"scheme"`
	// Prefixes are further addresses by the name of the switch at which their packets enter and
	// leave, for schemes other than SchemeWeights.
	Prefixes map[string]string `json:"prefixes"`
	// Memory bounds the sketches of a switch in bytes, for the same schemes; 0: no limit.
	Memory int `json:"memory"`
}

// SchemeWeights: every switch counts all packets, and sketches are added and subtracted.
const SchemeWeights manifest.Scheme = "weights"

// HostView configures which packets hosts count. Each host with an agent is then a device.
type HostView struct {
	Packets HostPackets `json:"packets"`
	// Encapsulation is the IP header whose flow a packet has: one of hostEncapsulations.
	Encapsulation wire.Encapsulation `json:"encapsulation"`
}

// hostEncapsulations are those of hosts: that of switches, or one without their bounds.
var hostEncapsulations = []wire.Encapsulation{
	wire.EncapsulationSwitch, wire.EncapsulationOuter, wire.EncapsulationInner,
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
	Share   float64 `json:"share"`   // of the whole, above 0 up to 1
	Packets float64 `json:"packets"` // at least this many
	Limit   int     `json:"limit"`   // maximum rows per device and dimension
}

// Victims defines DDoS victims.
type Victims struct {
	Sources float64 `json:"sources"`
	Limit   int     `json:"limit"` // maximum rows per device
}

// DefaultConfiguration returns the defaults.
func DefaultConfiguration() Configuration {
	return Configuration{
		Switches:      true,
		Encapsulation: wire.EncapsulationOuter,
		Network:       NetworkView{Enabled: true, Scheme: SchemeWeights},
		Hosts:         HostView{Packets: HostsNone, Encapsulation: wire.EncapsulationSwitch},
		HeavyHitters:  Threshold{Share: 0.005, Packets: 1, Limit: 1000},
		HeavyChanges:  Threshold{Share: 0.01, Packets: 20, Limit: 1000},
		DDoSVictims:   Victims{Sources: 1000, Limit: 100},
	}
}

// inner reports whether switches measure inner flows.
func (c *Configuration) inner() bool { return c.Encapsulation == wire.EncapsulationInner }

// icebergs returns the threshold for the network's heavy hitters.
func (c *Configuration) icebergs() Threshold {
	if c.Icebergs != nil {
		return *c.Icebergs
	}
	return c.HeavyHitters
}

// check returns all errors of the configuration, by field.
func (c *Configuration) check(registered []Function) sdk.FieldErrors {
	var errs sdk.FieldErrors
	bad := func(field, format string, args ...any) {
		errs = append(errs, sdk.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	for i, d := range c.Dimensions {
		if f, err := flow.ParseFields(d); err != nil || f.String() != d {
			bad(fmt.Sprintf("dimensions.%d", i), "is %q; expected 5-tuple or fields of it in their order, such as src or "+
				"dst+dst-port", d)
		} else if slices.Index(c.Dimensions, d) < i {
			bad(fmt.Sprintf("dimensions.%d", i), "%q is given twice", d)
		}
	}
	threshold := func(field string, t Threshold) {
		if !(t.Share > 0 && t.Share <= 1) {
			bad(field+".share", "is %v; expected a part of the whole, above 0 and at most 1, such as 0.005", t.Share)
		}
		if !(t.Packets >= 0) {
			bad(field+".packets", "is %v; expected a number of packets, 0 or more", t.Packets)
		}
		if t.Limit < 1 {
			bad(field+".limit", "is %d; expected 1 or more rows", t.Limit)
		}
	}
	threshold("heavyHitters", c.HeavyHitters)
	threshold("heavyChanges", c.HeavyChanges)
	if c.Icebergs != nil {
		threshold("icebergs", *c.Icebergs)
	}
	if !(c.DDoSVictims.Sources >= 2) {
		bad("ddosVictims.sources", "is %v; expected 2 or more source addresses", c.DDoSVictims.Sources)
	}
	if c.DDoSVictims.Limit < 1 {
		bad("ddosVictims.limit", "is %d; expected 1 or more rows", c.DDoSVictims.Limit)
	}
	if n := len(c.Dimensions); n > wire.MaxSketches && c.Hosts.Packets != HostsNone {
		bad("dimensions", "are %d; expected at most %d where hosts count packets", n, wire.MaxSketches)
	}
	if h := c.Hosts.Packets; !slices.Contains([]HostPackets{HostsNone, HostsSent, HostsReceived, HostsAll}, h) {
		bad("hosts.packets", "is %q; expected %s, %s, %s or %s", h, HostsNone, HostsSent, HostsReceived, HostsAll)
	}
	if e := c.Encapsulation; e != wire.EncapsulationOuter && e != wire.EncapsulationInner {
		bad("encapsulation", "is %q; expected %s or %s", e, wire.EncapsulationOuter, wire.EncapsulationInner)
	}
	if e := c.Hosts.Encapsulation; !slices.Contains(hostEncapsulations, e) {
		bad("hosts.encapsulation", "is %q; expected one of %v", e, hostEncapsulations)
	}
	for name, w := range c.Network.Weights {
		if w < -1 || w > 1 {
			bad("network.weights."+name, "is %d; expected 1, 0 or -1", w)
		}
	}
	if n := &c.Network; n.Scheme != SchemeWeights && !slices.Contains(manifest.Schemes, n.Scheme) {
		bad("network.scheme", "is %q; expected %s or one of %v", n.Scheme, SchemeWeights, manifest.Schemes)
	} else if n.Scheme != SchemeWeights && len(n.Weights) > 0 {
		bad("network.weights", "are for the scheme %s; the scheme is %s", SchemeWeights, n.Scheme)
	} else if n.Scheme == SchemeWeights && (len(n.Prefixes) > 0 || n.Memory != 0) {
		bad("network.scheme", "is %s, which has neither prefixes nor memory; expected one of %v", n.Scheme,
			manifest.Schemes)
	}
	if c.Network.Memory < 0 {
		bad("network.memory", "is %d; expected bytes, 0 or more", c.Network.Memory)
	}
	for text := range c.Network.Prefixes {
		if _, err := netip.ParsePrefix(text); err != nil {
			bad("network.prefixes."+text, "is not a prefix; expected one such as 10.1.0.0/16")
		}
	}
	names := make(map[string]bool)
	for _, f := range registered {
		names[f.Name] = true
	}
	for i, f := range c.Functions {
		field := fmt.Sprintf("functions.%d", i)
		for _, e := range f.check() {
			e.Field = field + "." + e.Field
			errs = append(errs, e)
		}
		if names[f.Name] {
			bad(field+".name", "%q is given twice", f.Name)
		}
		names[f.Name] = true
	}
	slices.SortFunc(errs, func(a, b sdk.FieldError) int {
		if a.Field < b.Field {
			return -1
		} else if a.Field > b.Field {
			return 1
		}
		return 0
	})
	return errs
}

// dimensions are the dimensions of the program univmon, which hosts measure by default.
var dimensions = []string{flow.Src.String(), flow.Dst.String(), flow.FiveTuple.String()}

// allDimensions returns all flow definitions, dimensions first.
func allDimensions() []string {
	out := slices.Clone(dimensions)
	for f := flow.Fields(1); f < flow.FiveTuple; f++ {
		if name := f.String(); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
