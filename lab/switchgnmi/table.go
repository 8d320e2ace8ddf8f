// SPDX-License-Identifier: Apache-2.0

package switchgnmi

import (
	"time"

	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/lldp"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

const interfaces = "/openconfig-interfaces:interfaces/interface"

// speeds are the identities of openconfig-if-ethernet by bits per second.
var speeds = map[uint64]string{
	10e6: "SPEED_10MB", 100e6: "SPEED_100MB", 1e9: "SPEED_1GB", 10e9: "SPEED_10GB", 25e9: "SPEED_25GB",
	40e9: "SPEED_40GB", 50e9: "SPEED_50GB", 100e9: "SPEED_100GB",
}

// counter is one counter leaf.
type counter struct {
	leaf string
	of   func(*softswitch.PortCounters) uint64
}

// counters are the leaves of state/counters; leaves that the model's revision lacks are omitted.
var counters = []counter{
	{"in-pkts", func(c *softswitch.PortCounters) uint64 { return c.InPackets }},
	{"in-unicast-pkts", func(c *softswitch.PortCounters) uint64 {
		return c.InPackets - min(c.InPackets, c.InMulticast+c.InBroadcast)
	}},
	{"in-multicast-pkts", func(c *softswitch.PortCounters) uint64 { return c.InMulticast }},
	{"in-broadcast-pkts", func(c *softswitch.PortCounters) uint64 { return c.InBroadcast }},
	{"in-octets", func(c *softswitch.PortCounters) uint64 { return c.InOctets }},
	{"in-errors", func(c *softswitch.PortCounters) uint64 { return c.InErrors }},
	{"in-discards", func(c *softswitch.PortCounters) uint64 { return c.InDiscards }},
	{"out-pkts", func(c *softswitch.PortCounters) uint64 { return c.OutPackets }},
	{"out-unicast-pkts", func(c *softswitch.PortCounters) uint64 {
		return c.OutPackets - min(c.OutPackets, c.OutMulticast+c.OutBroadcast)
	}},
	{"out-multicast-pkts", func(c *softswitch.PortCounters) uint64 { return c.OutMulticast }},
	{"out-broadcast-pkts", func(c *softswitch.PortCounters) uint64 { return c.OutBroadcast }},
	{"out-octets", func(c *softswitch.PortCounters) uint64 { return c.OutOctets }},
	{"out-errors", func(c *softswitch.PortCounters) uint64 { return c.OutErrors }},
	{"out-discards", func(c *softswitch.PortCounters) uint64 { return c.OutDiscards }},
}

const ethernet = "iana-if-type:ethernetCsmacd"

// interfaces returns the interfaces' rows.
func (s *Server) interfaces(ports []softswitch.PortStatus, set settings) (*table.Table, error) {
	b := table.NewBuilder(interfaces)
	name := b.TextKey("name")
	configType, configEnabled, configDescription := b.Text("config/type"), b.Bool("config/enabled"),
		b.Text("config/description")
	kind := b.Text("state/type")
	enabled, description := b.Bool("state/enabled"), b.Text("state/description")
	ifindex := b.Uint("state/ifindex")
	id, configID := b.Uint("state/id"), b.Uint("config/id")
	hardware := b.Text("state/hardware-port")
	admin, oper := b.Text("state/admin-status"), b.Text("state/oper-status")
	change := b.Uint("state/last-change")
	speed := b.Text("ethernet/state/port-speed")
	var counts []*table.UintAppender
	for _, c := range s.shape.counters {
		counts = append(counts, b.Uint("state/counters/"+c.leaf))
	}
	for i := range ports {
		p := &ports[i]
		port := set.port(*p, s.opts.Unconfigured)
		name.Append(lldp.PortName(*p))
		configType.Append(ethernet)
		configEnabled.Append(port.enabled)
		configDescription.AppendSome(port.description)
		kind.Append(ethernet)
		enabled.Append(port.enabled)
		description.AppendSome(port.description)
		ifindex.Append(uint64(p.ID))
		for _, n := range []*table.UintAppender{id, configID} {
			n.AppendIf(uint64(port.id), port.id != 0) // the model's ids begin with 1
		}
		hardware.Append(componentOf(p.ID))
		admin.Append(upDown(port.enabled))
		oper.Append(upDown(p.Up))
		change.Append(s.lastChange(p))
		if v, ok := speeds[p.Speed]; ok {
			speed.Append("openconfig-if-ethernet:" + v)
		} else {
			speed.Append("openconfig-if-ethernet:SPEED_UNKNOWN")
		}
		for j, c := range s.shape.counters {
			counts[j].Append(c.of(&p.Counters))
		}
	}
	return b.Table()
}

func upDown(up bool) string {
	if up {
		return "UP"
	}
	return "DOWN"
}

// shape is the part of the rows that depends on the model's revision: leaves and units.
type shape struct {
	counters []counter
	ticks    bool // last-change is in hundredths of a second on the switch's clock
}

func shapeOf(sch *yang.Schema) (shape, error) {
	l, err := sch.List(interfaces)
	if err != nil {
		return shape{}, err
	}
	var sh shape
	for _, c := range counters {
		if l.Leaf("state/counters/"+c.leaf) != nil {
			sh.counters = append(sh.counters, c)
		}
	}
	change := l.Leaf("state/last-change")
	sh.ticks = change != nil && !change.Type.Wide()
	return sh, nil
}

// lastChange returns the value of state/last-change: hundredths of a second since the
// switch started in the model's older revisions, nanoseconds since 1970 in the newer.
func (s *Server) lastChange(p *softswitch.PortStatus) uint64 {
	if s.shape.ticks {
		return uint64(max(0, p.LastChange)/(10*time.Millisecond)) & 0xffffffff
	}
	return uint64(s.opts.Started.Add(p.LastChange).UnixNano())
}
