// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	_ "embed" // the schema
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/tower"
)

//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of the plugin. config.schema.json describes its JSON form.
type Configuration struct {
	// Interval is how long hosts measure before they report, such as "5s".
	Interval string `json:"interval"`
	// Metadata lists the data that switches add to packets in addition to their node id.
	Metadata []string `json:"metadata"`
	// MaxHops is the largest number of switches that add metadata to a packet.
	MaxHops int `json:"maxHops"`
	// MTU is the largest IP packet on links, in bytes.
	MTU int `json:"mtu"`
	// Traffic selects the packets that get INT; empty: all of TCP and UDP.
	Traffic []Traffic `json:"traffic"`
	// Sinks are where INT ends: "hosts" or "switches".
	Sinks string `json:"sinks"`
	// Reports are where switches send telemetry reports of packets whose INT they end; nil: nowhere.
	Reports *Reports `json:"reports"`
	// Nodes sets the node ids of switches, or names for the ids of switches that the collector does
	// not manage.
	Nodes []Node `json:"nodes"`
	// Marks are how packets with INT are marked.
	Marks inband.Marks `json:"marks"`
	// FlowTower and LatencyTower are the bytes of a host's towers.
	FlowTower    int `json:"flowTower"`
	LatencyTower int `json:"latencyTower"`
	// Conservative is CU insertion into towers of flows.
	Conservative bool `json:"conservative"`
	// Heavy is the least number of packets of a heavy hitter in an interval, and Change what a heavy
	// change exceeds.
	Heavy  uint32 `json:"heavy"`
	Change uint32 `json:"change"`
	// HeavyFlows bounds a host's table of heavy flows.
	HeavyFlows int `json:"heavyFlows"`
	// Inflation is the multiple of a flow's mean latency at a switch beyond which a latency is
	// inflated; InflatedFlows bounds a host's table of flows and switches with one, and an alert
	// begins with InflatedPackets at a switch.
	Inflation       float64 `json:"inflation"`
	InflatedFlows   int     `json:"inflatedFlows"`
	InflatedPackets uint64  `json:"inflatedPackets"`
	// Limits bound the published rows.
	Limits Limits `json:"limits"`

	interval time.Duration
	traffic  []traffic
}

// Traffic is packets by their 5-tuple; an empty field matches everything.
type Traffic struct {
	Source           string `json:"source"`
	Destination      string `json:"destination"`
	Protocol         string `json:"protocol"`
	SourcePorts      string `json:"sourcePorts"`
	DestinationPorts string `json:"destinationPorts"`
}

// traffic is Traffic parsed.
type traffic struct {
	source, destination           netip.Prefix // invalid: all addresses
	protocol                      uint8        // 0: TCP and UDP
	sourcePorts, destinationPorts ports
}

// ports is a range, both ends included.
type ports struct{ low, high uint16 }

// Node is a switch and its node id.
type Node struct {
	Name string `json:"name"`
	ID   uint32 `json:"id"`
}

// Limits bound the rows of lists.
type Limits struct {
	Flows       int `json:"flows"`       // flows with the most packets
	Inflations  int `json:"inflations"`  // flows at switches with inflated latencies
	SwitchFlows int `json:"switchFlows"` // heavy hitters and heavy changes of one host or switch
	Foreign     int `json:"foreign"`     // switches that the plugin does not configure
	Senders     int `json:"senders"`     // to a host: of telemetry reports, and of packets that cannot be read
}

// The places where INT ends.
const (
	sinksHosts    = "hosts"
	sinksSwitches = "switches"
)

// instructions are the bits of metadata in INT's instruction bitmap. The node id is always
// requested.
var instructions = map[string]uint16{"ports": 0x4000, "latency": 0x2000, "queue": 0x1000, "times": 0x0c00}

const nodeInstruction = 0x8000

// largestNode is the largest node id; all ones are no id.
const largestNode = 1<<32 - 2

// DefaultConfiguration returns the defaults.
func DefaultConfiguration() Configuration {
	return Configuration{
		Interval: "5s", Metadata: []string{"latency"}, MaxHops: 16, MTU: 1500, Sinks: sinksHosts,
		Marks: inband.Marks{DSCP: 0x17, DSCPMask: 0x3f}, FlowTower: 256 << 10, LatencyTower: 1 << 20,
		Heavy: 500, Change: 250, HeavyFlows: 4096, Inflation: 5, InflatedFlows: 4096, InflatedPackets: 10,
		Limits: Limits{Flows: 1000, Inflations: 1000, SwitchFlows: 100, Foreign: 1000, Senders: 1000},
	}
}

// check returns all errors of the configuration, by field, and parses it.
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
	var err error
	if c.interval, err = time.ParseDuration(c.Interval); err != nil || c.interval <= 0 || c.interval > time.Hour {
		bad("interval", "is %q; expected a duration such as 5s, at most 1h", c.Interval)
	}
	for i, m := range c.Metadata {
		field := fmt.Sprintf("metadata.%d", i)
		if instructions[m] == 0 {
			bad(field, "is %q; expected latency, queue, ports or times", m)
		} else if slices.Index(c.Metadata, m) < i {
			bad(field, "%q is given twice", m)
		}
	}
	between("maxHops", c.MaxHops, 1, inband.MaxHops)
	between("mtu", c.MTU, 576, 65_535)
	if c.Sinks != sinksHosts && c.Sinks != sinksSwitches {
		bad("sinks", "is %q; expected hosts or switches", c.Sinks)
	}
	if c.Reports != nil {
		c.Reports.check(bad)
		if c.Sinks != sinksSwitches {
			bad("reports", "are of switches where INT ends; expected sinks: switches")
		}
	}
	c.checkNodes(bad)
	c.traffic = nil
	for i, t := range c.Traffic {
		parsed, problems := t.parse()
		for _, p := range problems {
			bad(fmt.Sprintf("traffic.%d.%s", i, p.Field), "%s", p.Message)
		}
		c.traffic = append(c.traffic, parsed)
	}
	if len(c.traffic) == 0 {
		c.traffic = []traffic{{sourcePorts: allPorts, destinationPorts: allPorts}}
	}
	between("traffic", len(c.Traffic), 0, maxTraffic)
	if _, err := tower.New[family.P4](tower.Config{Memory: c.FlowTower}); err != nil || c.FlowTower > maxTower {
		bad("flowTower", "is %d; expected 40 to %d bytes", c.FlowTower, maxTower)
	}
	if _, err := tower.NewLatency[family.P4](tower.Config{Memory: c.LatencyTower}); err != nil ||
		c.LatencyTower > maxTower {
		bad("latencyTower", "is %d; expected 24 to %d bytes", c.LatencyTower, maxTower)
	}
	if c.Heavy < 1 {
		bad("heavy", "is 0; expected at least 1 packet")
	}
	if c.Change < 1 {
		bad("change", "is 0; expected at least 1 packet")
	}
	between("heavyFlows", c.HeavyFlows, 0, 1<<20)
	if c.Inflation < 1 || c.Inflation > 4096 {
		bad("inflation", "is %v; expected 1 to 4096", c.Inflation)
	}
	between("inflatedFlows", c.InflatedFlows, 0, 1<<20)
	if c.InflatedPackets < 1 {
		bad("inflatedPackets", "is 0; expected at least 1 packet")
	}
	between("limits.flows", c.Limits.Flows, 0, 1_000_000)
	between("limits.inflations", c.Limits.Inflations, 0, 1_000_000)
	between("limits.switchFlows", c.Limits.SwitchFlows, 0, 100_000)
	between("limits.foreign", c.Limits.Foreign, 0, 100_000)
	between("limits.senders", c.Limits.Senders, 0, 100_000)
	for i, only := range c.Marks.SourceOnly {
		between(fmt.Sprintf("marks.sourceOnly.%d.words", i), only.Words, 0, 255)
	}
	return errs
}

// maxTower bounds a tower, so that both fit the message of a host's report.
const maxTower = 16 << 20

// maxTraffic bounds the rows of Traffic: a switch has 1,024 entries of each family, one for each
// row and port of a host.
const maxTraffic = 64

func (c *Configuration) checkNodes(bad func(field, format string, args ...any)) {
	ids, names := map[uint32]bool{}, map[string]bool{}
	for i, n := range c.Nodes {
		switch field := fmt.Sprintf("nodes.%d", i); {
		case n.Name == "" || len(n.Name) > 253:
			bad(field+".name", "has %d bytes; expected 1 to 253", len(n.Name))
		case names[n.Name]:
			bad(field+".name", "%q is given twice", n.Name)
		case n.ID < 1 || n.ID > largestNode:
			bad(field+".id", "is %d; expected 1 to %d", n.ID, uint32(largestNode))
		case ids[n.ID]:
			bad(field+".id", "%d is given twice", n.ID)
		}
		ids[n.ID], names[n.Name] = true, true
	}
}

var allPorts = ports{0, 1<<16 - 1}

// parse returns the packets that a row selects, and its errors by field.
func (t *Traffic) parse() (out traffic, errs sdk.FieldErrors) {
	prefix := func(field, text string, to *netip.Prefix) {
		if text == "" {
			return
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, sdk.FieldError{Field: field,
				Message: fmt.Sprintf("is %q; expected a prefix such as 10.0.0.0/8", text)})
		}
		*to = p.Masked()
	}
	prefix("source", t.Source, &out.source)
	prefix("destination", t.Destination, &out.destination)
	if out.source.IsValid() && out.destination.IsValid() && out.source.Addr().Is4() != out.destination.Addr().Is4() {
		errs = append(errs, sdk.FieldError{Field: "destination",
			Message: "and source are of IPv4 and IPv6; expected one of both"})
	}
	switch t.Protocol {
	case "":
	case "tcp":
		out.protocol = 6
	case "udp":
		out.protocol = 17
	default:
		errs = append(errs, sdk.FieldError{Field: "protocol", Message: fmt.Sprintf("is %q; expected tcp or udp", t.Protocol)})
	}
	for _, p := range []struct {
		field, text string
		to          *ports
	}{{"sourcePorts", t.SourcePorts, &out.sourcePorts}, {"destinationPorts", t.DestinationPorts, &out.destinationPorts}} {
		var ok bool
		if *p.to, ok = parsePorts(p.text); !ok {
			errs = append(errs, sdk.FieldError{Field: p.field,
				Message: fmt.Sprintf("is %q; expected a port such as 80, or a range such as 1000-2000", p.text)})
		}
	}
	return out, errs
}

func parsePorts(text string) (ports, bool) {
	if text == "" {
		return allPorts, true
	}
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	a, errA := strconv.ParseUint(low, 10, 16)
	b, errB := strconv.ParseUint(high, 10, 16)
	return ports{uint16(a), uint16(b)}, errA == nil && errB == nil && a <= b
}

// instructions returns the bitmap of the metadata that switches add.
func (c *Configuration) instructions() uint16 {
	bits := uint16(nodeInstruction)
	for _, m := range c.Metadata {
		bits |= instructions[m]
	}
	return bits
}

// threshold is the number of packets from which a host keeps a flow and its path: a heavy change is
// at least that heavy in one of two intervals.
func (c *Configuration) threshold() uint32 { return min(c.Heavy, c.Change) }
