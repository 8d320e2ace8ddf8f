// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Reports is where the last switches of packets send telemetry reports.
type Reports struct {
	// Host has an agent that receives them, with packets.source: reports.
	Host string `json:"host"`
	// MAC and Port are of that host; Port is of UDP, 0 stands for 32766.
	MAC  string `json:"mac"`
	Port uint16 `json:"port"`
	// Source is the IPv4 address from which all switches send. Their node ids distinguish them.
	Source string `json:"source"`
}

// reportPort is the port that Telemetry Report 2.0 recommends.
const reportPort = 32766

// reportSession is the clone session of reports on each switch.
const reportSession = 1

// reporting is Reports in a network.
type reporting struct {
	host            string
	mac             net.HardwareAddr
	address, source netip.Addr
	port            uint16
	ports           map[string]uint32 // to the host, by switch
}

// check appends the errors of the keys.
func (r *Reports) check(bad func(field, format string, args ...any)) {
	if r.Host == "" {
		bad("reports.host", "is missing; expected the name of a host with an agent that receives reports")
	}
	if m, err := net.ParseMAC(r.MAC); err != nil || len(m) != 6 {
		bad("reports.mac", "is %q; expected the MAC address of the host, such as 02:00:00:00:00:01", r.MAC)
	}
	if a, err := netip.ParseAddr(r.Source); err != nil || !a.Is4() {
		bad("reports.source", "is %q; expected the IPv4 address from which switches send, such as 192.0.2.1", r.Source)
	}
}

// collect finds the host of reports, and the port of each switch that leads there.
func (s *setup) collect(model *sdk.Network) error {
	r := s.config.Reports
	if r == nil {
		return nil
	}
	wrong := func(format string, args ...any) error {
		return sdk.FieldErrors{{Field: "reports.host", Message: fmt.Sprintf(format, args...)}}
	}
	at := slices.IndexFunc(model.Hosts, func(h sdk.Host) bool { return h.Name == r.Host })
	switch {
	case at < 0 && len(model.Hosts) == 0:
		return nil // the network is not known yet
	case at < 0:
		return wrong("is %q; expected a host of the collector's configuration", r.Host)
	case !model.Hosts[at].Agent:
		return wrong("is %q, which has no agent; set agent for it in the collector's configuration", r.Host)
	}
	c := &reporting{host: r.Host, port: r.Port, ports: map[string]uint32{}}
	if c.port == 0 {
		c.port = reportPort
	}
	c.mac, _ = net.ParseMAC(r.MAC) // check has parsed both
	c.source, _ = netip.ParseAddr(r.Source)
	for _, text := range model.Hosts[at].Addresses {
		a, _, _ := strings.Cut(text, "/")
		if ip, err := netip.ParseAddr(a); err == nil && ip.Is4() {
			c.address = ip
			break
		}
	}
	if !c.address.IsValid() {
		return wrong("is %q, which has no IPv4 address; switches send reports over IPv4", r.Host)
	}
	for _, name := range s.own {
		port, ok := c.toward(model, name)
		if !ok {
			s.settings.Missing = append(s.settings.Missing, sdk.MissingObject{Device: name, Object: "route to " + r.Host,
				Consequence: "this switch removes INT and sends no reports: the collector installs no route to " +
					c.address.String() + " on it"})
			continue
		}
		c.ports[name] = port
	}
	s.reports = c
	return nil
}

// toward returns the port of a switch that leads to the host of reports.
func (c *reporting) toward(model *sdk.Network, name string) (port uint32, ok bool) {
	for _, l := range model.Links {
		for _, e := range [][2]sdk.Endpoint{{l.A, l.B}, {l.B, l.A}} {
			if e[0].Node == name && e[1].Node == c.host {
				return e[0].Port, true
			}
		}
	}
	f := model.Device(name).Forwarding
	if f == nil {
		return 0, false
	}
	group, ok := sdk.NewRouteTable(f.Routes).Group(c.address)
	if !ok || group < 0 || group >= len(f.Groups) || len(f.Groups[group].Ports) == 0 {
		return 0, false
	}
	return f.Groups[group].Ports[0], true
}

// entries returns the clone session and the addresses of reports of a switch.
func (c *reporting) entries(port uint32) []sdk.DeviceWrite {
	return []sdk.DeviceWrite{
		{Op: sdk.Insert, Entry: sdk.TableEntry{Table: sdk.CloneSessions, Action: "clone",
			Matches: []sdk.FieldMatch{{Field: "session", Value: short(uint32(reportSession)), PrefixLen: -1}},
			Params:  []sdk.ActionParam{{Name: "port", Value: short(port)}}}},
		{Op: sdk.SetDefault, Entry: sdk.TableEntry{Table: "egress.sketchint.collector", Action: "egress.sketchint.send",
			Params: []sdk.ActionParam{{Name: "src_mac", Value: []byte{2, 0, 0, 0, 0, 0}}, {Name: "dst_mac", Value: c.mac},
				{Name: "src", Value: c.source.AsSlice()}, {Name: "dst", Value: c.address.AsSlice()},
				{Name: "src_port", Value: short(c.port)}, {Name: "dst_port", Value: short(c.port)}}}},
	}
}
