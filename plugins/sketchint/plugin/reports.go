// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
)

// reportSession is the clone session of reports on each switch.
const reportSession = 1

// reporting is Reports in a network.
type reporting struct {
	host            string
	mac             net.HardwareAddr
	address, source netip.Addr
	port            uint16
	ports           map[string]uint32 // port that leads to the host, by switch
}

// collect finds the host of reports, and the port of each switch that leads there.
func (s *setup) collect(model *sdk.Network) error {
	r := s.config.Reports
	if r == nil {
		return nil
	}
	wrong := func(format string, args ...any) error {
		return settings.KeyErrors{{Key: "reports.host", Message: fmt.Sprintf(format, args...)}}
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
	c.mac, _ = net.ParseMAC(r.MAC) // Validate has parsed the address
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
