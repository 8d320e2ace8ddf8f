// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	_ "embed" // the schema
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/tower"
)

// configSchema is generated from Configuration.
//
//go:embed config.schema.json
var configSchema string

// Configuration is the configuration of SketchINT; every key has a default. Another configuration
// begins with empty sketches at all hosts.
type Configuration struct {
	// Interval is how long hosts measure before they report, rounded up to whole epochs.
	Interval time.Duration `yaml:"interval" default:"5s" range:"1ns..1h"`
	// Metadata is what switches add to packets in addition to their node id.
	Metadata []string `yaml:"metadata" default:"latency" oneof:"latency queue ports times" unique:"true"`
	// TimeUnit is the unit in which switches write latencies and timestamps into INT. Results are in
	// nanoseconds.
	TimeUnit time.Duration `yaml:"time-unit" default:"1ns" range:"1ns..1ms"`
	// MaxHops is the largest number of switches that add metadata to a packet.
	MaxHops int `yaml:"max-hops" default:"16" range:"1..64"`
	// MTU is the largest IP packet on links, in bytes.
	MTU int `yaml:"mtu" default:"1500" range:"576..65535"`
	// Traffic selects the packets that get INT: up to 64 rows, of which a packet matches one. If
	// empty, all of TCP and UDP.
	Traffic []Traffic `yaml:"traffic" length:"0..64"`
	// Sinks are where INT ends: at hosts with agents, or at the last switches of packets.
	Sinks string `yaml:"sinks" default:"hosts" oneof:"hosts switches"`
	// Reports are telemetry reports, which the last switches of packets send. If not given, there are
	// none. Needs sinks: switches.
	Reports *Reports `yaml:"reports"`
	// Nodes are switches with given node ids; the plugin numbers the others. A name that is not a
	// device stands for a switch that the collector does not manage.
	Nodes []Node `yaml:"nodes"`
	// Marks are how packets with INT are marked. A mark of 0 is not used.
	Marks inband.Marks `yaml:"marks"`
	// FlowTower is the size of a host's tower of flows.
	FlowTower settings.Size `yaml:"flow-tower" default:"256KiB" range:"40..16MiB"`
	// LatencyTower is the size of a host's tower of latencies.
	LatencyTower settings.Size `yaml:"latency-tower" default:"1MiB" range:"24..16MiB"`
	// Conservative inserts into towers of flows by conservative update (CU), which is more accurate
	// and not possible in switches and the kernel.
	Conservative bool `yaml:"conservative" default:"false"`
	// Heavy is the least number of packets of a heavy hitter in an interval.
	Heavy uint32 `yaml:"heavy" default:"500" range:"1.."`
	// Change is the number of packets that a heavy change from one interval to the next exceeds.
	Change uint32 `yaml:"change" default:"250" range:"1.."`
	// HeavyFlows is the number of flows that a host keeps with their paths.
	HeavyFlows int `yaml:"heavy-flows" default:"4096" range:"0..1048576"`
	// Inflation is the multiple of the mean latency of a flow at a switch beyond which a latency is
	// inflated.
	Inflation float64 `yaml:"inflation" default:"5" range:"1..4096"`
	// InflatedFlows is the number of flows at switches with inflated latencies that a host keeps.
	InflatedFlows int `yaml:"inflated-flows" default:"4096" range:"0..1048576"`
	// InflatedPackets is the number of packets with an inflated latency, at a switch in an
	// interval, from which on there is an alert.
	InflatedPackets uint64 `yaml:"inflated-packets" default:"10" range:"1.."`
	// Limits are the largest numbers of published rows. Watched flows are published in addition.
	Limits Limits `yaml:"limits"`
}

// Traffic is packets by their 5-tuple; a field that is not given matches everything.
type Traffic struct {
	// Source is the source address or prefix.
	Source settings.Prefix `yaml:"source"`
	// Destination is the destination address or prefix, of the same family.
	Destination settings.Prefix `yaml:"destination"`
	// Protocol is the transport protocol.
	Protocol string `yaml:"protocol" oneof:"tcp udp"`
	// SourcePorts is a source port, such as 80, or a range, such as 1000-2000.
	SourcePorts Ports `yaml:"source-ports" default:"0-65535"`
	// DestinationPorts is a destination port or a range.
	DestinationPorts Ports `yaml:"destination-ports" default:"0-65535"`
}

// Reports are telemetry reports of packets whose INT the last switch ends.
type Reports struct {
	// Host is a host with an agent that receives reports, with packets.source: reports.
	Host string `yaml:"host" required:"the name of a host with an agent that receives reports"`
	// MAC is the Ethernet address of the host.
	MAC string `yaml:"mac" required:"the MAC address of the host, such as 02:00:00:00:00:01"`
	// Port is the UDP port of reports; the default is that of the specification.
	Port uint16 `yaml:"port" default:"32766" range:"1..65535"`
	// Source is the IPv4 address from which all switches send. Their node ids distinguish them.
	Source string `yaml:"source" required:"the IPv4 address from which switches send, such as 192.0.2.1"`
}

// Node is a switch and its node id.
type Node struct {
	// Name is the name of the switch; unique.
	Name string `yaml:"name" required:"the name of a switch" length:"1..253" unique:"true"`
	// ID is the node id; unique.
	ID uint32 `yaml:"id" required:"a node id from 1 to 4294967294" range:"1..4294967294" unique:"true"`
}

// Limits bound the rows of lists.
type Limits struct {
	// Flows is the largest number of flows that are listed: the flows with the most packets.
	Flows int `yaml:"flows" default:"500" range:"0..1000000"`
	// Latencies is the largest number of flows whose latencies are listed: the flows with the most
	// packets.
	Latencies int `yaml:"latencies" default:"100" range:"0..1000000"`
	// Inflations is the number of flows at switches with the most inflated latencies.
	Inflations int `yaml:"inflations" default:"200" range:"0..1000000"`
	// SwitchFlows is the largest number of heavy hitters of all hosts and switches together, and the
	// same for heavy changes. If there are more, the limit is shared evenly, and each host and switch
	// keeps its largest flows. The network has the same limit for itself.
	SwitchFlows int `yaml:"switch-flows" default:"200" range:"0..100000"`
	// Foreign is the largest number of listed switches that the plugin does not configure: those with
	// the most packets.
	Foreign int `yaml:"foreign" default:"1000" range:"0..100000"`
	// Senders is the number of senders of telemetry reports, and of packets whose INT cannot be read,
	// for each host, in the order of addresses.
	Senders int `yaml:"senders" default:"1000" range:"0..100000"`
}

// sinksSwitches is the value of Sinks by which INT ends at switches.
const sinksSwitches = "switches"

// instructions are the bits of metadata in INT's instruction bitmap. The node id is always
// requested.
var instructions = map[string]uint16{"ports": 0x4000, "latency": 0x2000, "queue": 0x1000, "times": 0x0c00}

const nodeInstruction = 0x8000

// largestNode is the largest node id; all ones are no id.
const largestNode = 1<<32 - 2

// Validate returns the errors that tags cannot express.
func (c *Configuration) Validate() error {
	var errs settings.KeyErrors
	if c.Reports != nil {
		c.Reports.check(&errs)
		if c.Sinks != sinksSwitches {
			errs.Add("reports", "are of switches where INT ends; expected sinks: switches")
		}
	}
	for i, t := range c.Traffic {
		if t.Source.IsValid() && t.Destination.IsValid() && t.Source.Addr().Is4() != t.Destination.Addr().Is4() {
			errs.Add(fmt.Sprintf("traffic[%d].destination", i), "%s is of another family than source, %s; expected one of "+
				"the same", t.Destination, t.Source)
		}
	}
	if _, err := tower.New[family.P4](tower.Config{Memory: int(c.FlowTower)}); err != nil {
		errs.Add("flow-tower", "%s has no room: %v", c.FlowTower, err)
	}
	if _, err := tower.NewLatency[family.P4](tower.Config{Memory: int(c.LatencyTower)}); err != nil {
		errs.Add("latency-tower", "%s has no room: %v", c.LatencyTower, err)
	}
	return errs.Err()
}

// check adds the errors in the keys of reports.
func (r *Reports) check(errs *settings.KeyErrors) {
	if m, err := net.ParseMAC(r.MAC); err != nil || len(m) != 6 {
		errs.Add("reports.mac", "%q is not a MAC address; expected that of the host, such as 02:00:00:00:00:01", r.MAC)
	}
	if a, err := netip.ParseAddr(r.Source); err != nil || !a.Is4() {
		errs.Add("reports.source", "%q is not an IPv4 address; expected that from which switches send, such as 192.0.2.1",
			r.Source)
	}
}

// traffic returns the rows of packets that get INT, in ascending order of priority.
func (c *Configuration) traffic() []Traffic {
	if len(c.Traffic) == 0 {
		return []Traffic{settings.Default[Traffic]()}
	}
	return c.Traffic
}

// Ports is a range of ports, both ends included.
type Ports struct{ Low, High uint16 }

// UnmarshalText reads a port or a range, such as 1000-2000.
func (p *Ports) UnmarshalText(text []byte) error {
	low, high, isRange := strings.Cut(string(text), "-")
	if !isRange {
		high = low
	}
	a, errA := strconv.ParseUint(low, 10, 16)
	b, errB := strconv.ParseUint(high, 10, 16)
	if errA != nil || errB != nil || a > b {
		return fmt.Errorf("expected a port such as 80, or a range such as 1000-2000; found %q", text)
	}
	*p = Ports{uint16(a), uint16(b)}
	return nil
}

// maxTower bounds a tower, so that both fit the message of a host's report.
const maxTower = 16 << 20

var allPorts = Ports{0, 1<<16 - 1}

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
