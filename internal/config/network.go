// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"

	"github.com/netsketch/netsketch/collector/topology"
)

// Topology returns the network that the file's devices, links and hosts describe, plus the links
// in further.
func (c *Config) Topology(further ...topology.Link) (*topology.Topology, error) {
	var b topology.Builder
	for _, d := range c.Devices {
		b.AddSwitch(topology.Switch{Name: d.Name})
	}
	for _, l := range c.Links {
		b.AddLink(topology.Link{A: l.From.port(), B: l.To.port()})
	}
	for _, l := range further {
		b.AddLink(l)
	}
	for _, h := range c.Hosts {
		prefixes := make([]netip.Prefix, len(h.Addresses))
		for i, p := range h.Addresses {
			prefixes[i] = p.Prefix
		}
		b.AddHost(topology.Host{Name: h.Name, MAC: topology.MAC(h.MAC), Prefixes: prefixes, Port: h.Port.port(),
			Agent: h.Agent})
	}
	return b.Build()
}

func (p PortRef) port() topology.Port { return topology.Port{Switch: p.Switch, Number: p.Port} }

// AgentHosts returns the names of the hosts with agents, in the order of the file.
func (c *Config) AgentHosts() (names []string) {
	for _, h := range c.Hosts {
		if h.Agent {
			names = append(names, h.Name)
		}
	}
	return names
}
