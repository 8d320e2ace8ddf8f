// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// withdraw removes what a plugin that left has published, except in lists that another one publishes.
func (c *Collector) withdraw(left *pluginRun) {
	others := map[string]bool{}
	for _, r := range c.plugins.running() {
		for _, l := range r.inst.Describe().Lists {
			others[l.Path] = true
		}
	}
	for _, target := range c.store.Targets() {
		b := store.Batch{Target: target, Time: c.clock.Now()}
		for _, l := range left.inst.Describe().Lists {
			if others[l.Path] || c.store.Size(target, l.Path) == 0 {
				continue
			}
			list, err := c.schema.current().List(l.Path)
			if err != nil {
				continue
			}
			if t, err := emptyTable(list); err == nil {
				b.Tables = append(b.Tables, store.Publication{Table: t, Replace: true})
			}
		}
		if len(b.Tables) == 0 {
			continue
		}
		if err := c.store.Publish(b); err != nil {
			c.log.Error("results of a plugin that left stay", "plugin", left.config().Name, "target", target, "error", err)
		}
	}
}

// emptyTable is a table of a list without rows.
func emptyTable(l *yang.List) (*table.Table, error) {
	b := table.NewBuilder(l.Path)
	for _, k := range l.Keys {
		switch k.Kind() {
		case table.Uint64:
			b.UintKey(k.Name)
		case table.Int64:
			b.IntKey(k.Name)
		case table.Bool:
			b.BoolKey(k.Name)
		default:
			b.TextKey(k.Name)
		}
	}
	return b.Table()
}
