// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	_ "embed" // the schema
	"fmt"
	"slices"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/settings"
)

// configSchema is generated from Configuration.
//
//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of OmniMon; every key has a default. Changes of carrier,
// ether-type, slots, slots-per-flow, seed, shares, flows and extremes restart the flow tables of
// all hosts: the epochs of the change are inexact.
type Configuration struct {
	// Carrier is how packets carry the header: as the first option of IPv4 or a destination option of
	// IPv6 (option), behind the link layer (shim), or as an option of Geneve (tunnel). Hosts use it
	// only where probes show that it arrives.
	Carrier wire.Carrier `yaml:"carrier" default:"option" oneof:"option shim tunnel"`
	// ClampMSS reduces the maximum segment size of TCP connections between hosts with agents, so that
	// full segments have room for the header.
	ClampMSS bool `yaml:"clamp-mss" default:"true"`
	// EtherType is the EtherType of the header with carrier shim, as compiled into the switches'
	// program.
	EtherType uint16 `yaml:"ether-type" default:"0x88b5" range:"0x600..0xffff"`
	// Slots is the number of slots of a switch per epoch (K). If 0, as many as the smallest program
	// has; otherwise at least slots-per-flow.
	Slots int `yaml:"slots" default:"0" range:"0..65536"`
	// SlotsPerFlow is the number of slots that a flow is mapped to (d), as compiled into the switches'
	// program.
	SlotsPerFlow int `yaml:"slots-per-flow" default:"2" range:"1..4"`
	// Seed is the seed of the order in which mappings are used.
	Seed uint64 `yaml:"seed" default:"0"`
	// Shares is the largest number of hosts. If 0, twice the first number of hosts, at least 16.
	Shares int `yaml:"shares" default:"0" range:"0..65536"`
	// Flows is the number of flows that a host can send at a time.
	Flows int `yaml:"flows" default:"65536" range:"1..16777216"`
	// IngressSlots is the number of flows that a host can receive in an epoch.
	IngressSlots int `yaml:"ingress-slots" default:"65536" range:"1..16777216"`
	// IdleTime is the time without packets that ends a flow of TCP.
	IdleTime time.Duration `yaml:"idle-time" default:"30m" range:"1ns.."`
	// UDPIdleTime is the time without packets that ends any other flow.
	UDPIdleTime time.Duration `yaml:"udp-idle-time" default:"60s" range:"1ns.."`
	// FlowletGap is the longest time between two packets of a flowlet, in queries that read the field
	// flowlet.
	FlowletGap time.Duration `yaml:"flowlet-gap" default:"500us" range:"1ns.."`
	// SinglePath states that all packets of a flow take one path in an epoch. Without it, where the
	// plugin finds paths by slots, it gives no path to a flow whose flowlets may take several.
	SinglePath bool `yaml:"single-path"`
	// QueryTuples is the number of tuples that a host keeps for each operator of a query in an epoch.
	// Further ones are counted, and make the query inexact.
	QueryTuples int `yaml:"query-tuples" default:"65536" range:"1..1048576"`
	// Match is the text in payloads that the statistic matched counts, at most 64 bytes.
	Match string `yaml:"match" length:"0..64"`
	// Extremes are up to 4 maxima and minima over the packets of each flow. The switches' program has
	// one difference for each.
	Extremes []wire.Extreme `yaml:"extremes" length:"0..4"`
	// Limits are the largest numbers of published rows. Watched flows are published in addition.
	Limits Limits `yaml:"limits"`
	// Queries are queries that run in every epoch.
	Queries []Query `yaml:"queries"`
}

// Limits bound the rows of lists.
type Limits struct {
	// Flows is the number of flows, those with the most packets.
	Flows int `yaml:"flows" default:"200" range:"0..1000000"`
	// Hops is the largest number of flows whose hops are listed: the first flows of the list flows.
	Hops int `yaml:"hops" default:"40" range:"0..1000000"`
	// Losses is the number of losses of flows at switches and links, the largest first.
	Losses int `yaml:"losses" default:"200" range:"0..1000000"`
	// LinkFlows is the number of flows of all links together. Each link has an equal part of it, at
	// least one flow: those with the most packets on the link.
	LinkFlows int `yaml:"link-flows" default:"500" range:"0..1000000"`
	// Results is the number of results of each query.
	Results int `yaml:"results" default:"200" range:"1..1000000"`
}

// Query is a query of the configuration.
type Query struct {
	// Name is the query's name in results; unique.
	Name string `yaml:"name" form:"name" required:"the name of the query" unique:"true"`
	// Text is the query, in OmniMon's language.
	Text string `yaml:"text" required:"a query in OmniMon's language" length:"1..65536"`
}

// Validate returns the errors that tags cannot express.
func (c *Configuration) Validate() error {
	var errs settings.KeyErrors
	if c.Slots != 0 && c.Slots < c.SlotsPerFlow {
		errs.Add("slots", "%d is out of range; expected 0, or %d to 65536: a flow has %d slots", c.Slots, c.SlotsPerFlow,
			c.SlotsPerFlow)
	}
	for i, e := range c.Extremes {
		if slices.Index(c.Extremes, e) < i {
			errs.Add(fmt.Sprintf("extremes[%d]", i), "the same extreme is given twice")
		}
	}
	for i, q := range c.Queries {
		if r := newRunning(q.Name, q.Text, false); r.problem != "" {
			errs.Add(fmt.Sprintf("queries[%d].text", i), "%s", r.problem)
		}
	}
	return errs.Err()
}
