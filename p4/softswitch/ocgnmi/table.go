// SPDX-License-Identifier: Apache-2.0

// Ports as rows of /interfaces/interface.

package ocgnmi

import (
	"fmt"
	"strings"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

const interfaces = "/openconfig-interfaces:interfaces/interface"

// speeds are the identities of openconfig-if-ethernet by bits a second.
var speeds = map[uint64]string{
	10e6: "SPEED_10MB", 100e6: "SPEED_100MB", 1e9: "SPEED_1GB", 10e9: "SPEED_10GB", 25e9: "SPEED_25GB",
	40e9: "SPEED_40GB", 50e9: "SPEED_50GB", 100e9: "SPEED_100GB",
}

// counter is one counter leaf.
type counter struct {
	leaf string
	of   func(*softswitch.PortCounters) uint64
}

// counters are the leaves of state/counters. The switch does not tell unicast from
// multicast; where the model has no leaf for all packets (in-pkts came with a later
// revision), they are counted as unicast.
var counters = []counter{
	{"in-pkts in-unicast-pkts", func(c *softswitch.PortCounters) uint64 { return c.InPackets }},
	{"in-octets", func(c *softswitch.PortCounters) uint64 { return c.InOctets }},
	{"in-errors", func(c *softswitch.PortCounters) uint64 { return c.InErrors }},
	{"in-discards", func(c *softswitch.PortCounters) uint64 { return c.InDiscards }},
	{"out-pkts out-unicast-pkts", func(c *softswitch.PortCounters) uint64 { return c.OutPackets }},
	{"out-octets", func(c *softswitch.PortCounters) uint64 { return c.OutOctets }},
	{"out-errors", func(c *softswitch.PortCounters) uint64 { return c.OutErrors }},
	{"out-discards", func(c *softswitch.PortCounters) uint64 { return c.OutDiscards }},
}

// table makes the interfaces' rows.
func (s *Server) table(ports []softswitch.PortStatus) (*table.Table, error) {
	b := table.NewBuilder(interfaces)
	name := b.TextKey("name")
	kind := b.Text("state/type")
	enabled := b.Bool("state/enabled")
	ifindex := b.Uint("state/ifindex")
	id := b.Uint("state/id")
	admin, oper := b.Text("state/admin-status"), b.Text("state/oper-status")
	change := b.Uint("state/last-change")
	speed := b.Text("ethernet/state/port-speed")
	var counts []*table.UintAppender
	for _, leaf := range s.shape.counters {
		counts = append(counts, b.Uint(leaf))
	}
	for i := range ports {
		p := &ports[i]
		n := p.Name
		if n == "" {
			n = fmt.Sprintf("port%d", p.ID)
		}
		name.Append(n)
		kind.Append("iana-if-type:ethernetCsmacd")
		enabled.Append(true)
		ifindex.Append(uint64(p.ID))
		if p.ID == 0 { // the model's ids begin with 1
			id.AppendNull()
		} else {
			id.Append(uint64(p.ID))
		}
		admin.Append("UP")
		if p.Up {
			oper.Append("UP")
		} else {
			oper.Append("DOWN")
		}
		if v, ok := s.lastChange(p); ok {
			change.Append(v)
		} else {
			change.AppendNull()
		}
		if v, ok := speeds[p.Speed]; ok {
			speed.Append("openconfig-if-ethernet:" + v)
		} else {
			speed.Append("openconfig-if-ethernet:SPEED_UNKNOWN")
		}
		for j, c := range counters {
			counts[j].Append(c.of(&p.Counters))
		}
	}
	return b.Table()
}

// shape is what the model's revision decides: which leaves there are and in which
// unit.
type shape struct {
	counters []string // leaf of each of counters
	ticks    bool     // last-change is in hundredths of a second on the switch's clock
}

func shapeOf(sch *yang.Schema) (shape, error) {
	l, err := sch.List(interfaces)
	if err != nil {
		return shape{}, err
	}
	var sh shape
	for _, c := range counters {
		found := ""
		for _, name := range strings.Fields(c.leaf) {
			if found == "" && l.Leaf("state/counters/"+name) != nil {
				found = "state/counters/" + name
			}
		}
		if found == "" {
			return shape{}, fmt.Errorf("%s has none of the counters %s", interfaces, c.leaf)
		}
		sh.counters = append(sh.counters, found)
	}
	change := l.Leaf("state/last-change")
	sh.ticks = change != nil && !change.Type.Wide()
	return sh, nil
}

// lastChange returns the value of state/last-change: hundredths of a second since the
// switch started in the model's older revisions, nanoseconds since 1970 in the newer.
func (s *Server) lastChange(p *softswitch.PortStatus) (uint64, bool) {
	switch {
	case s.shape.ticks:
		return uint64(p.LastChange/(10*time.Millisecond)) & 0xffffffff, p.LastChange >= 0
	case s.opts.Started.IsZero():
		return 0, false
	}
	return uint64(s.opts.Started.Add(p.LastChange).UnixNano()), true
}
