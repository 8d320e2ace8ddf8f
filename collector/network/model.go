// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"strings"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Version returns the version of the model, which changes with every change of the model.
func (c *Component) Version() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// Topology returns the configured network with the links that LLDP reports.
func (c *Component) Topology() *topology.Topology {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.topology
}

// Model returns the network model that plugins receive.
func (c *Component) Model() sdk.Network {
	devices := c.all()
	c.mu.Lock()
	topo, version := c.topology, c.version
	c.mu.Unlock()
	n := sdk.Network{Version: version}
	for _, d := range devices {
		n.Devices = append(n.Devices, c.deviceModel(d, topo))
	}
	for _, h := range topo.Hosts() {
		n.Hosts = append(n.Hosts, hostModel(h))
		n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: h.Name},
			B: sdk.Endpoint{Node: h.Port.Switch, Port: h.Port.Number}})
	}
	slices.SortFunc(n.Hosts, func(a, b sdk.Host) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range topo.Links() {
		n.Links = append(n.Links, sdk.Link{
			A: sdk.Endpoint{Node: l.A.Switch, Port: l.A.Number}, B: sdk.Endpoint{Node: l.B.Switch, Port: l.B.Number},
		})
	}
	return n
}

func (c *Component) deviceModel(m *managed, topo *topology.Topology) sdk.Device {
	d := m.device
	out := sdk.Device{Name: d.Name(), Role: d.Role(), Program: d.Program(), Unread: d.Unread()}
	if d.Measured() {
		out.Objects = d.Objects()
	}
	for _, p := range topo.Ports(d.Name()) {
		out.Ports = append(out.Ports, sdk.Port{Number: p, Name: c.deps.PortName(d.Name(), p)})
	}
	if m.cfg.Forwarding == config.ForwardingManaged {
		out.Forwarding = forwardingModel(topo.Routes(d.Name()))
	}
	return out
}

func forwardingModel(r topology.Routes) *sdk.Forwarding {
	out := &sdk.Forwarding{Seed: r.Seed}
	for _, g := range r.Groups {
		ports := make([]uint32, len(g.Hops))
		for i, h := range g.Hops {
			ports[i] = h.Port
		}
		out.Groups = append(out.Groups, sdk.PortGroup{Ports: ports})
	}
	for _, route := range r.Routes {
		out.Routes = append(out.Routes, sdk.Route{Prefix: route.Prefix.String(), Group: int(route.Group) - 1})
	}
	return out
}

func hostModel(h topology.Host) sdk.Host {
	out := sdk.Host{Name: h.Name, Agent: h.Agent}
	for _, p := range h.Prefixes {
		if p.IsSingleIP() {
			out.Addresses = append(out.Addresses, p.Addr().String())
		} else {
			out.Addresses = append(out.Addresses, p.String())
		}
	}
	return out
}
