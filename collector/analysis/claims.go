// SPDX-License-Identifier: Apache-2.0

// What belongs to one plugin only: the registers that it reads, and the tables of switches that it
// writes.

package analysis

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// deviceTable is a table of a device.
type deviceTable struct{ device, table string }

// claim records that a plugin writes tables. It fails without a record if another plugin writes one
// of them. Any plugin may write clone sessions.
func (c *Component) claim(p *plugin, writes []sdk.DeviceWrite) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var tables []deviceTable
	for _, w := range writes {
		t := deviceTable{w.Device, w.Entry.Table}
		if t.table == sdk.CloneSessions {
			continue
		}
		if other, ok := c.tables[t]; ok && other != p.name {
			return fmt.Errorf("plugin %s writes table %s of %s, which has entries of plugin %s: give each a table of its own, "+
				"or other switches with the key devices", p.name, t.table, t.device, other)
		}
		tables = append(tables, t)
	}
	for _, t := range tables {
		c.tables[t] = p.name
	}
	return nil
}

// release ends the claims of a plugin.
func (c *Component) release(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.tables, func(_ deviceTable, owner string) bool { return owner == name })
}

// admit makes a plugin part of the component, with its standing plan. It fails if the plugin needs
// a register or table that belongs to a plugin admitted before it. c.changing is held.
func (c *Component) admit(p *plugin) error {
	if err := c.readsAlone(p); err != nil {
		return err
	}
	p.mu.Lock()
	plan := p.settings.Plan
	p.mu.Unlock()
	if plan != nil {
		if err := c.claim(p, plan.Writes); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.plugins[p.name] = p
	c.admitted++
	p.turn = c.admitted
	c.mu.Unlock()
	p.begin()
	p.addPlan(plan)
	return nil
}

// contested returns why the plugin analyzes no epochs: after a change of the network or of a
// configuration, it needs a register or table that belongs to a plugin admitted before it. A
// standing plan that was held back for this reason is added once no other plugin has its tables.
func (p *plugin) contested() error {
	p.mu.Lock()
	standing := p.held
	p.held = nil
	p.mu.Unlock()
	err := p.c.readsAlone(p)
	if err == nil && standing != nil {
		err = p.c.claim(p, standing.Writes)
	}
	p.mu.Lock()
	if err != nil && p.held == nil {
		p.held = standing
	}
	changed := (err == nil) != (p.conflict == nil)
	p.conflict = err
	p.mu.Unlock()
	if err == nil {
		p.addPlan(standing)
	}
	if changed && err != nil {
		p.c.log.Error("two plugins want one object", "error", err)
	}
	if changed {
		p.c.deps.StatusChanged()
	}
	return err
}

// readsAlone returns an error that names the first register that the plugin and one that was
// admitted before read, unless one of them declares that it shares the register.
func (c *Component) readsAlone(p *plugin) error {
	network, mine := sync.OnceValue(p.network), p.bindings()
	for _, q := range c.running() {
		if q == p || p.turn > 0 && q.turn > p.turn {
			continue
		}
		other := q.bindings()
		for _, name := range slices.Sorted(maps.Keys(mine)) {
			for _, object := range slices.Sorted(maps.Keys(mine[name])) {
				if !other[name][object] {
					continue
				}
				n := network()
				if d := n.Device(name); p.readsAlong(d, object) || q.readsAlong(d, object) {
					continue
				}
				return fmt.Errorf("plugin %s reads register %s of %s, which plugin %s reads: ask in Describe for an annotation "+
					"that only your register has, set Shared there if the plugin reads along with another one, or select other "+
					"switches with the key devices", p.name, object, name, q.name)
			}
		}
	}
	return nil
}

// readsAlong reports whether the plugin declares that others may read a register, too.
func (p *plugin) readsAlong(d *sdk.Device, object string) bool {
	return slices.ContainsFunc(p.inst.Describe().Objects, func(need sdk.ObjectNeed) bool {
		return need.Shared && slices.ContainsFunc(d.Select(need), func(o sdk.Object) bool { return o.Name == object })
	})
}
