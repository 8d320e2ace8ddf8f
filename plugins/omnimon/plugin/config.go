// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
)

//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of the plugin. config.schema.json describes its JSON form.
type Configuration struct {
	// Carrier is how packets carry the header.
	Carrier wire.Carrier `json:"carrier"`
	// ClampMSS reduces the maximum segment size of TCP connections between hosts with agents, so that
	// full segments have room for the header.
	ClampMSS bool `json:"clampMss"`
	// EtherType of the header with CarrierShim. The program of the switches has the same.
	EtherType uint16 `json:"etherType"`
	// Slots of a switch per epoch (K); 0: as many as the smallest program has.
	Slots int `json:"slots"`
	// SlotsPerFlow is the count of slots that a flow is mapped to (d).
	SlotsPerFlow int `json:"slotsPerFlow"`
	// Seed of the order of mappings.
	Seed uint64 `json:"seed"`
	// Shares is the count of shares that the mappings are divided into, the largest number of hosts;
	// 0: twice the first count of hosts, at least 16. Another count restarts all flow tables.
	Shares int `json:"shares"`
	// Flows is the size of each host's flow table, IngressSlots bounds its incoming flows per epoch.
	Flows        int `json:"flows"`
	IngressSlots int `json:"ingressSlots"`
	// IdleTime without packets ends a flow of TCP, UDPIdleTime any other flow, such as "30m".
	IdleTime    string `json:"idleTime"`
	UDPIdleTime string `json:"udpIdleTime"`
	// FlowletGap is the longest time between two packets of a flowlet, such as "500us".
	FlowletGap string `json:"flowletGap"`
	// QueryTuples bounds the tuples that a host keeps for each operator of a query in an epoch.
	QueryTuples int `json:"queryTuples"`
	// Match is the text that the statistic matched counts; empty: none.
	Match string `json:"match"`
	// Extremes are maxima and minima of fields.
	Extremes []wire.Extreme `json:"extremes"`
	// Limits bound the published rows.
	Limits Limits `json:"limits"`
	// Queries run in every epoch.
	Queries []Query `json:"queries"`

	idle, udpIdle, gap time.Duration
}

// Limits bound the rows of lists.
type Limits struct {
	Flows     int `json:"flows"`     // flows with the most packets
	Losses    int `json:"losses"`    // losses of flows, the largest first
	LinkFlows int `json:"linkFlows"` // of each link
	Results   int `json:"results"`   // of each query
}

// Query is a query of the configuration.
type Query struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// DefaultConfiguration returns the defaults.
func DefaultConfiguration() Configuration {
	return Configuration{
		Carrier: wire.CarrierOption, ClampMSS: true, UDPIdleTime: "60s",
		EtherType: 0x88b5, SlotsPerFlow: 2, Flows: 1 << 16, IngressSlots: 1 << 16, IdleTime: "30m",
		FlowletGap: "500us", QueryTuples: wire.DefaultQueryTuples,
		Limits: Limits{Flows: 1000, Losses: 10_000, LinkFlows: 10, Results: 1000},
	}
}

var queryName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// check returns all errors of the configuration, by field.
func (c *Configuration) check() sdk.FieldErrors {
	var errs sdk.FieldErrors
	bad := func(field, format string, args ...any) {
		errs = append(errs, sdk.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	between := func(field string, n, low, high int) {
		if n < low || n > high {
			bad(field, "is %d; expected %d to %d", n, low, high)
		}
	}
	if carriers := []wire.Carrier{wire.CarrierOption, wire.CarrierShim, wire.CarrierTunnel}; !slices.Contains(carriers,
		c.Carrier) {
		bad("carrier", "is %q; expected option, shim or tunnel", c.Carrier)
	}
	if c.EtherType < 0x600 {
		bad("etherType", "is %#x; expected 0x600 to 0xffff", c.EtherType)
	}
	between("slotsPerFlow", c.SlotsPerFlow, 1, 4)
	if c.Slots != 0 {
		between("slots", c.Slots, max(c.SlotsPerFlow, 1), 1<<16)
	}
	between("shares", c.Shares, 0, 1<<16)
	between("flows", c.Flows, 1, 1<<24)
	between("ingressSlots", c.IngressSlots, 1, 1<<24)
	between("queryTuples", c.QueryTuples, 1, 1<<20)
	between("limits.flows", c.Limits.Flows, 0, 1_000_000)
	between("limits.losses", c.Limits.Losses, 0, 1_000_000)
	between("limits.linkFlows", c.Limits.LinkFlows, 0, 1000)
	between("limits.results", c.Limits.Results, 1, 1_000_000)
	var err error
	if c.idle, err = time.ParseDuration(c.IdleTime); err != nil || c.idle <= 0 {
		bad("idleTime", "is %q; expected a duration such as 30m", c.IdleTime)
	}
	if c.udpIdle, err = time.ParseDuration(c.UDPIdleTime); err != nil || c.udpIdle <= 0 {
		bad("udpIdleTime", "is %q; expected a duration such as 60s", c.UDPIdleTime)
	}
	if c.gap, err = time.ParseDuration(c.FlowletGap); err != nil || c.gap <= 0 {
		bad("flowletGap", "is %q; expected a duration such as 500us", c.FlowletGap)
	}
	if len(c.Match) > 64 {
		bad("match", "has %d bytes; expected at most 64", len(c.Match))
	}
	if len(c.Extremes) > wire.MaxExtremes {
		bad("extremes", "are %d; expected at most %d", len(c.Extremes), wire.MaxExtremes)
	}
	for i, e := range c.Extremes {
		field := fmt.Sprintf("extremes.%d", i)
		if !slices.Contains([]wire.Field{wire.FieldLength, wire.FieldTTL, wire.FieldWindow}, e.Field) {
			bad(field+".field", "is %q; expected length, ttl or window", e.Field)
		} else if slices.Index(c.Extremes, e) < i {
			bad(field, "the same extreme is given twice")
		}
	}
	for i, q := range c.Queries {
		field := fmt.Sprintf("queries.%d", i)
		if !queryName.MatchString(q.Name) {
			bad(field+".name", "is %q; expected up to 63 lower-case letters, digits, - and _", q.Name)
		} else if slices.IndexFunc(c.Queries, func(o Query) bool { return o.Name == q.Name }) < i {
			bad(field+".name", "%q is given twice", q.Name)
		}
		if r := newRunning(q.Name, q.Text, false); r.problem != "" {
			bad(field+".text", "%s", r.problem)
		}
	}
	return errs
}
