// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"

	"github.com/netsketch/netsketch/internal/config"
)

// Of returns the network that a configuration's devices, links and hosts describe, plus the links
// in further.
func Of(c *config.Config, further ...Link) (*Topology, error) {
	var b Builder
	for _, d := range c.Devices {
		b.AddSwitch(Switch{Name: d.Name})
	}
	for _, l := range c.Links {
		b.AddLink(Link{A: portOf(l.From), B: portOf(l.To)})
	}
	for _, l := range further {
		b.AddLink(l)
	}
	for _, h := range c.Hosts {
		prefixes := make([]netip.Prefix, len(h.Addresses))
		for i, p := range h.Addresses {
			prefixes[i] = p.Prefix
		}
		b.AddHost(Host{Name: h.Name, MAC: MAC(h.MAC), Prefixes: prefixes, Port: portOf(h.Port), Agent: h.Agent})
	}
	return b.Build()
}

func portOf(p config.PortRef) Port { return Port{Switch: p.Switch, Number: p.Port} }
