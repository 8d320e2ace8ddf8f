// SPDX-License-Identifier: Apache-2.0

package switchgnmi

import (
	"net"
	"strconv"

	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/lldp"
	"github.com/netsketch/netsketch/yang/table"
)

const (
	lldpTop        = "/netsketch-lldp:lldp"
	lldpInterfaces = "/netsketch-lldp:lldp/interfaces/interface"
	lldpNeighbors  = "/netsketch-lldp:lldp/interfaces/interface/neighbors/neighbor"
)

// lldpCounters are the leaves of LLDP counters. The switch has all of them, a port all but the
// last.
var lldpCounters = []struct {
	leaf string
	of   func(*lldp.Counters) uint64
}{
	{"frame-in", func(c *lldp.Counters) uint64 { return c.In }},
	{"frame-out", func(c *lldp.Counters) uint64 { return c.Out }},
	{"frame-error-in", func(c *lldp.Counters) uint64 { return c.Errors }},
	{"frame-discard", func(c *lldp.Counters) uint64 { return c.Discarded }},
	{"tlv-unknown", func(c *lldp.Counters) uint64 { return c.Unknown }},
	{"entries-aged-out", func(c *lldp.Counters) uint64 { return c.AgedOut }},
}

// lldp returns the row of the switch; nil without an agent.
func (s *Server) lldp(ports []softswitch.PortStatus, set settings) (*table.Table, error) {
	if s.opts.LLDP == nil {
		return nil, nil
	}
	st := s.opts.LLDP.State()
	b := table.NewBuilder(lldpTop)
	b.Bool("config/enabled").Append(valueOr(set.device.Lldp.Enabled, true))
	b.Bool("state/enabled").Append(st.Enabled)
	b.Uint("state/hello-timer").Append(uint64(st.Interval.Seconds()))
	b.Text("state/system-name").Append(st.SystemName)
	b.Text("state/system-description").AppendSome(st.SystemDescription)
	b.Text("state/chassis-id").Append(net.HardwareAddr(st.Chassis[:]).String())
	b.Text("state/chassis-id-type").Append("MAC_ADDRESS")
	var sum lldp.Counters
	for i := range ports {
		_, c, _ := s.opts.LLDP.PortState(ports[i].ID)
		sum.In, sum.Out, sum.Errors = sum.In+c.In, sum.Out+c.Out, sum.Errors+c.Errors
		sum.Discarded, sum.Unknown, sum.AgedOut = sum.Discarded+c.Discarded, sum.Unknown+c.Unknown,
			sum.AgedOut+c.AgedOut
	}
	for _, c := range lldpCounters {
		b.Uint("state/counters/" + c.leaf).Append(c.of(&sum))
	}
	return b.Table()
}

// lldpInterfaces returns a row for each port.
func (s *Server) lldpInterfaces(ports []softswitch.PortStatus, set settings) (*table.Table, error) {
	if s.opts.LLDP == nil {
		return nil, nil
	}
	b := table.NewBuilder(lldpInterfaces)
	name, config, enabled := b.TextKey("name"), b.Bool("config/enabled"), b.Bool("state/enabled")
	perPort := lldpCounters[:len(lldpCounters)-1]
	counts := make([]*table.UintAppender, len(perPort))
	for i, c := range perPort {
		counts[i] = b.Uint("state/counters/" + c.leaf)
	}
	for i := range ports {
		on, c, ok := s.opts.LLDP.PortState(ports[i].ID)
		if !ok {
			continue
		}
		name.Append(lldp.PortName(ports[i]))
		config.Append(set.port(ports[i], s.opts.Unconfigured).lldp)
		enabled.Append(on)
		for j, x := range perPort {
			counts[j].Append(x.of(&c))
		}
	}
	return b.Table()
}

// neighbors returns a row for each neighbor.
func (s *Server) neighbors(ports []softswitch.PortStatus, _ settings) (*table.Table, error) {
	if s.opts.LLDP == nil {
		return nil, nil
	}
	names := make(map[uint32]string, len(ports))
	for i := range ports {
		names[ports[i].ID] = lldp.PortName(ports[i])
	}
	b := table.NewBuilder(lldpNeighbors)
	on, id := b.TextKey("interface/name"), b.TextKey("id")
	sysName, sysAbout := b.Text("state/system-name"), b.Text("state/system-description")
	chassis, chassisKind := b.Text("state/chassis-id"), b.Text("state/chassis-id-type")
	port, portKind, portAbout := b.Text("state/port-id"), b.Text("state/port-id-type"), b.Text("state/port-description")
	ttl := b.Uint("state/ttl")
	address, addressKind := b.Text("state/management-address"), b.Text("state/management-address-type")
	for _, n := range s.opts.LLDP.Neighbors() {
		if names[n.Port] == "" {
			continue
		}
		on.Append(names[n.Port])
		id.Append(strconv.FormatUint(n.ID, 10))
		sysName.AppendSome(n.SystemName)
		sysAbout.AppendSome(n.SystemDescription)
		chassis.AppendSome(n.ChassisText())
		chassisKind.AppendSome(n.ChassisType())
		port.AppendSome(n.PortText())
		portKind.AppendSome(n.PortType())
		portAbout.AppendSome(n.PortDescription)
		ttl.Append(uint64(n.TTL))
		switch {
		case !n.Management.IsValid():
		case n.Management.Is4():
			address.Append(n.Management.String())
			addressKind.Append("IPV4")
		default:
			address.Append(n.Management.String())
			addressKind.Append("IPV6")
		}
	}
	return b.Table()
}
