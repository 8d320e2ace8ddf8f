// SPDX-License-Identifier: Apache-2.0

// Package wire defines what a SketchINT host and the SketchINT plugin exchange: the settings that
// the plugin sends, and the report of one epoch that the host returns. The collector passes both on
// as bytes.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

// Role is the name of the host role.
const Role = "sketchint"

// Settings configure the role SketchINT at one host.
type Settings struct {
	// Marks state how packets with INT are marked.
	Marks inband.Marks `json:"marks"`
	// SinkReports states that only the last switches send telemetry reports. A report without metadata
	// of earlier hops then counts a packet of a flow that passed one switch.
	SinkReports bool `json:"sinkReports,omitempty"`
	// Interval is the count of epochs after which a group of sketches is reported.
	Interval uint64 `json:"interval"`
	// Flows and Latencies are the sizes of the two towers in bytes. Their hashes equal the P4
	// programs' hashes, so that towers of hosts, of the kernel and of edge switches have equal
	// counters.
	Flows     int `json:"flows"`
	Latencies int `json:"latencies"`
	// Conservative is CU insertion into the tower of flows.
	Conservative bool `json:"conservative,omitempty"`
	// Heavy is the count of packets from which a flow and its path are in the table of heavy flows,
	// which has room for HeavyFlows.
	Heavy      uint32 `json:"heavy"`
	HeavyFlows int    `json:"heavyFlows"`
	// Inflation is the multiple of a flow's mean latency at a switch beyond which a latency is
	// inflated, in steps of 1/256; InflatedFlows bounds the table of flows and switches with one.
	Inflation     float64 `json:"inflation"`
	InflatedFlows int     `json:"inflatedFlows"`
}

// maxTable bounds the tables of a report.
const maxTable = 1 << 20

// maxInflation is the largest Inflation.
const maxInflation = 1 << 12

// MaxFaults bounds the table of faults in an interval.
const MaxFaults = 1 << 10

// ParseSettings decodes and checks settings.
func ParseSettings(data []byte) (*Settings, error) {
	s := new(Settings)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("settings of role %s: %w", Role, err)
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("settings of role %s: "+format, append([]any{Role}, args...)...))
		}
	}
	check(s.Interval >= 1, "interval: %d epochs; expected at least 1", s.Interval)
	check(s.Heavy >= 1, "heavy: %d packets; expected at least 1", s.Heavy)
	check(s.HeavyFlows >= 0 && s.HeavyFlows <= maxTable, "heavyFlows: %d; expected 0 to %d", s.HeavyFlows, maxTable)
	check(s.Inflation >= 1 && s.Inflation <= maxInflation, "inflation: %v; expected 1 to %d", s.Inflation, maxInflation)
	check(s.InflatedFlows >= 0 && s.InflatedFlows <= maxTable, "inflatedFlows: %d; expected 0 to %d", s.InflatedFlows,
		maxTable)
	for _, only := range s.Marks.SourceOnly {
		check(only.Words >= 0 && only.Words < 256, "sourceOnly: %d words; expected 0 to 255", only.Words)
	}
	return s, errors.Join(errs...)
}

// Factor is Inflation in units of 1/256.
func (s *Settings) Factor() uint64 { return uint64(math.Round(s.Inflation * 256)) }

// Append appends the encoded settings.
func (s *Settings) Append(b []byte) ([]byte, error) {
	data, err := json.Marshal(s)
	return append(b, data...), err
}

// NewTowers returns empty towers.
func (s *Settings) NewTowers() (*tower.Sketch[family.P4], *tower.Latency[family.P4], error) {
	flows, err := tower.New[family.P4](tower.Config{Memory: s.Flows, Conservative: s.Conservative})
	if err != nil {
		return nil, nil, fmt.Errorf("flows: %w", err)
	}
	latencies, err := tower.NewLatency[family.P4](tower.Config{Memory: s.Latencies})
	if err != nil {
		return nil, nil, fmt.Errorf("latencies: %w", err)
	}
	return flows, latencies, nil
}

// AppendKey appends the key of a flow at a switch in the tower of latencies: the flow's canonical
// bytes and the node id.
func AppendKey(b []byte, k *flow.Key, node uint32) []byte {
	return binary.BigEndian.AppendUint32(k.AppendBinary(b), node)
}

// Counter counts packets, reports and entries of an interval.
type Counter int

// The counters of a report, which has one for each inband.Problem besides. If Missed or a counter
// below it is not 0, the results of the interval are inexact.
const (
	Packets         Counter = iota // IP packets that arrived, with INT or without
	WithINT                        // packets from which INT was removed
	INTBytes                       // bytes of INT that were removed
	Hops                           // hops that were read
	NoLatency                      // hops without a latency
	Copies                         // replicas, which the INT source asks the sink to discard
	MTUExceeded                    // packets to which a hop added nothing because of the MTU
	HopLimit                       // packets whose remaining hop count is 0
	UnknownInstruct                // packets whose instructions have reserved bits
	Reports                        // individual telemetry reports
	ReportsNoFlow                  // reports without the packet that they describe
	Drops                          // reports of dropped packets
	FaultsFull                     // packets and reports with a problem that the table of faults has no room for
	Missed                         // intervals whose report was not requested in time
	HeavyFull                      // packets of heavy flows that the table has no room for
	InflatedFull                   // inflated latencies without room in the table
	NodesFull                      // packets at switches and queues that the tables have no room for
	SourcesFull                    // datagrams of nodes that the table has no room for
	Unread                         // packets whose INT a data path in the kernel could not remove
	Hidden                         // intervals in which another role hid the flows of packets
	Counters
)

var counterNames = [Counters]string{"packets", "with-int", "int-bytes", "hops", "no-latency", "copies", "mtu-exceeded",
	"hop-limit", "unknown-instruction", "reports", "reports-no-flow", "drop-reports", "faults-full",
	"missed-intervals", "heavy-full", "inflated-full", "nodes-full", "sources-full", "unread",
	"hidden-intervals"}

// String returns the name of a counter, such as "hop-limit".
func (c Counter) String() string { return counterNames[c] }

// Inexact reports whether a count makes results of the interval inexact.
func (c Counter) Inexact() bool { return c >= Missed }

// Heavy is a heavy flow.
type Heavy struct {
	Key  flow.Key
	Path []uint32 // node ids in the order of the path; nil: no packet had INT
	// Changes counts how often another path followed.
	Changes uint32
}

// Inflated is a flow at a switch with inflated latencies.
type Inflated struct {
	Key     flow.Key
	Node    uint32
	Packets uint32
	Worst   uint32 // the largest inflated latency
}

// Node is a switch.
type Node struct {
	ID      uint32
	Packets uint64 // packets with a latency
	Sum     uint64 // sum of latencies
	Worst   uint32
	Drops   uint64 // dropped packets that the node reported
}

// Queue is a queue of a switch, if packets have queue metadata.
type Queue struct {
	Node      uint32
	ID        uint8
	Packets   uint64
	Timed     uint64 // packets with a latency
	Sum       uint64 // sum of latencies
	Occupancy uint64 // sum over packets, in the unit of the switch
	Worst     uint32 // occupancy
}

// Source is a sender of telemetry reports, with its counts since the agent started.
type Source struct {
	Address  netip.Addr
	Node     uint32
	Hardware uint8
	Received uint64 // datagrams
	Lost     uint64 // lost datagrams, by their sequence numbers
	Late     uint64 // datagrams received after one with a higher sequence number
	Restarts uint64 // restarts of the sequence numbers
}

// Fault counts the packets or datagrams of one sender that have a problem.
type Fault struct {
	Address netip.Addr // source of the packet
	Problem inband.Problem
	Packets uint64
}

// Report is a host's report of an epoch.
type Report struct {
	// First and Last are the epochs of the interval. Last is 0 if the interval has not ended with the
	// epoch; the report then has only these fields.
	First, Last uint64
	Problems    [inband.Problems]uint64
	Versions    [16]uint64 // packets and datagrams of unknown versions
	Counters    [Counters]uint64
	Heavy       []Heavy
	Inflated    []Inflated
	Nodes       []Node
	Sources     []Source
	Faults      []Fault
	Queues      []Queue
	Flows       *tower.Sketch[family.P4]
	Latencies   *tower.Latency[family.P4]
}
