// SPDX-License-Identifier: Apache-2.0

// A plugin's part of the network: its devices, and the objects that it reads.

package analysis

import (
	"slices"
	"sync"

	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// network returns the part of the network that the plugin is configured for.
func (p *plugin) network() sdk.Network {
	n := p.c.deps.Network.Model()
	cfg := p.config()
	n.Devices = slices.DeleteFunc(n.Devices, func(d sdk.Device) bool { return !cfg.Selects(d.Name) })
	return n
}

// model holds what schema.Network adds to rows, by the version of the network.
type model struct {
	sync.Mutex
	version uint64
	network *schema.Network
}

// model returns what is added to rows from the network: types of nodes and names of interfaces.
func (c *Component) model() *schema.Network {
	c.derived.Lock()
	defer c.derived.Unlock()
	if v := c.deps.Network.Version(); c.derived.network == nil || c.derived.version != v {
		n := c.deps.Network.Model()
		c.derived.version, c.derived.network = v, schema.NewNetwork(&n)
	}
	return c.derived.network
}

// bindings returns the objects that the plugin reads, by device. The map must not be changed.
func (p *plugin) bindings() map[string]map[string]bool {
	version := p.c.deps.Network.Version()
	p.mu.Lock()
	bound, settings, planned := p.bound, p.settings, p.planned
	current := bound != nil && p.version == version
	p.mu.Unlock()
	if current {
		return bound
	}
	network := p.network()
	list := settings.Bindings
	// If the settings have no bindings, and on devices added after the settings were made, the plugin
	// reads the objects of its description.
	all, _ := network.Bind(p.inst.Describe().Objects)
	for _, b := range all {
		if len(settings.Bindings) == 0 || !planned[b.Device] {
			list = append(list[:len(list):len(list)], b)
		}
	}
	bound = map[string]map[string]bool{}
	for _, b := range list {
		d := network.Device(b.Device)
		if d == nil || d.Object(b.Object) == nil {
			continue
		}
		if bound[b.Device] == nil {
			bound[b.Device] = map[string]bool{}
		}
		bound[b.Device][d.Object(b.Object).Name] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bound, p.version = bound, network.Version
	return bound
}

// Wanted returns the objects that each plugin reads, by plugin and device. The maps must not be
// changed.
func (c *Component) Wanted() map[string]map[string]map[string]bool {
	all := map[string]map[string]map[string]bool{}
	for _, p := range c.running() {
		all[p.name] = p.bindings()
	}
	return all
}
