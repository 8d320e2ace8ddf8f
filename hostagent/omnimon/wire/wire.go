// SPDX-License-Identifier: Apache-2.0

// Package wire defines what an OmniMon host and the OmniMon plugin exchange: the settings that the
// plugin sends, and the report of one epoch that the host returns. The collector passes both on as
// bytes.
//
// The package has no state; a Report and a Builder belong to one goroutine at a time.
package wire

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Role is the name of the host role.
const Role = "omnimon"

// Statistic is one value of a flow in an epoch, as an index into Values.
type Statistic int

// The statistics that hosts and switches add up. The ninth statistic of the paper, a flow's latest
// epoch, follows from the epochs that have a row of the flow.
const (
	Packets Statistic = iota
	Bytes             // lengths of IP packets
	SYN               // TCP packets with SYN and without ACK
	FinRst            // TCP packets with FIN or RST
	SynAck            // TCP packets with SYN and ACK
	Ack               // TCP packets with ACK and without SYN, FIN and RST
	Bare              // IP and TCP headers without options and data: 40 bytes in IPv4, 60 in IPv6
	Matched           // packets whose payload contains the configured string
	// FirstExtreme is the first configured maximum or minimum; the others follow.
	FirstExtreme
)

// Statistics is the count of values, with all maxima and minima.
const Statistics = FirstExtreme + MaxExtremes

// MaxExtremes is the largest count of maxima and minima.
const MaxExtremes = 4

var names = [FirstExtreme]string{"packets", "bytes", "syn", "fin-rst", "syn-ack", "ack", "bare", "matched"}

// String returns the name of a statistic, such as "packets".
func (s Statistic) String() string {
	if s < FirstExtreme {
		return names[s]
	}
	return fmt.Sprintf("extreme-%d", int(s-FirstExtreme))
}

// Values are the values of one flow in one epoch. An extreme is the sum of the differences that
// packets carried: at the source it equals the maximum or minimum (paper, appendix E).
type Values [Statistics]int64

// Add adds o to v.
func (v *Values) Add(o *Values) {
	for i, x := range o {
		v[i] += x
	}
}

// Sub subtracts o from v.
func (v *Values) Sub(o *Values) {
	for i, x := range o {
		v[i] -= x
	}
}

// Field is a field of a packet that has maxima and minima.
type Field string

// The fields.
const (
	FieldLength Field = "length" // length of the IP packet in bytes
	FieldTTL    Field = "ttl"    // TTL or hop limit
	FieldWindow Field = "window" // window of TCP; 0 for other packets
)

// Extreme is a maximum or minimum over the packets of a flow in an epoch.
type Extreme struct {
	// Field is the field of packets.
	Field Field `json:"field" yaml:"field" oneof:"length ttl window" required:"length, ttl or window"`
	// Min is set for the minimum instead of the maximum.
	Min bool `json:"min,omitempty" yaml:"min" default:"false"`
}

// Settings configure the role OmniMon at one host.
//
// Host comes first and Hosts last in their encoding, so that settings of all hosts have one end,
// and settings that differ in little else end with the same addresses.
type Settings struct {
	// Host is the number of this host: an index into Hosts, and the number of its share.
	Host int `json:"host"`
	// Carrier is how packets carry the header; empty: CarrierShim.
	Carrier Carrier `json:"carrier,omitempty"`
	// EtherType of the header with CarrierShim.
	EtherType uint16 `json:"etherType"`
	// KeepMSS leaves the maximum segment size of TCP connections between hosts with agents as it is.
	// By default hosts reduce it, so that full segments have room for the header.
	KeepMSS bool `json:"keepMss,omitempty"`
	// Slots is the number of slots of a switch per epoch, SlotsPerFlow the number that each flow is
	// mapped to.
	Slots        int `json:"slots"`
	SlotsPerFlow int `json:"slotsPerFlow"`
	// Seed of the order of mappings; the same at all hosts.
	Seed uint64 `json:"seed,omitempty"`
	// Shares is the count of shares that the mappings are divided into, at least one per host.
	Shares int `json:"shares"`
	// Flows is the size of every host's flow table. A host index is below it.
	Flows int `json:"flows"`
	// IngressSlots bounds the slots of incoming flows per epoch.
	IngressSlots int `json:"ingressSlots"`
	// IdleEpochs without a packet end a flow of TCP, UDPIdleEpochs any other flow; 0: IdleEpochs.
	IdleEpochs    uint64 `json:"idleEpochs"`
	UDPIdleEpochs uint64 `json:"udpIdleEpochs,omitempty"`
	// Match is the string that Matched counts; empty: none.
	Match string `json:"match,omitempty"`
	// Extremes are maxima and minima, at most MaxExtremes.
	Extremes []Extreme `json:"extremes,omitempty"`
	// Queries run on outgoing packets, in epochs that begin with these settings.
	Queries []Query `json:"queries,omitempty"`
	// QueryTuples bounds the tuples that a host keeps for each operator of a query in an epoch; 0:
	// DefaultQueryTuples.
	QueryTuples int `json:"queryTuples,omitempty"`
	// FlowletGap is the longest time between two packets of a flowlet.
	FlowletGap time.Duration `json:"flowletGap,omitempty"`
	// Hosts are the addresses of all hosts with an agent, by number. A number stays with its host.
	Hosts [][]netip.Addr `json:"hosts"`
}

// DefaultQueryTuples is the default of Settings.QueryTuples.
const DefaultQueryTuples = 1 << 16

// Carrier is how a packet carries the header.
type Carrier string

// Carriers of the header. A receiver removes all of them, whatever its settings are.
const (
	CarrierShim   Carrier = "shim"   // behind the link layer, with an EtherType of its own (paper, section 3.2)
	CarrierOption Carrier = "option" // an IPv4 option, or an IPv6 destination option
	CarrierTunnel Carrier = "tunnel" // an option of Geneve, whose tunnel carries the packet
)

// Query is a query in OmniMon's language. A host runs the operators of each sequence over packets
// that need not be at the collector.
type Query struct {
	ID   uint64 `json:"id"` // id of the results in reports
	Text string `json:"text"`
}

// ParseSettings decodes settings.
func ParseSettings(data []byte) (*Settings, error) {
	s := new(Settings)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("settings of role %s: %w", Role, err)
	}
	return s, nil
}

// Append appends the encoded settings.
func (s *Settings) Append(b []byte) ([]byte, error) {
	data, err := json.Marshal(s)
	return append(b, data...), err
}

// Check returns the check value of a flow, which detects a packet whose host index belongs to
// another flow. It must be the same at all hosts, so it has no seed.
func Check(k *flow.Key) uint32 { return uint32(Hash(k, 0)) }

// Hash returns a 64-bit hash of a 5-tuple.
func Hash(k *flow.Key, seed uint64) uint64 { return k.Hash(seed) }
