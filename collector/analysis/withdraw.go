// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// withdraw removes the results of a stopped plugin from the store, except lists that another
// plugin also publishes.
func (c *Component) withdraw(stopped *plugin) {
	others := map[string]bool{}
	for _, p := range c.running() {
		for _, l := range p.inst.Describe().Lists {
			others[l.Path] = true
		}
	}
	for _, target := range c.deps.Store.Targets() {
		b := store.Batch{Target: target, Time: c.deps.Clock.Now()}
		for _, l := range stopped.inst.Describe().Lists {
			if others[l.Path] || c.deps.Store.Size(target, l.Path) == 0 {
				continue
			}
			list, err := c.deps.Schema.Current().List(l.Path)
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
		if err := c.deps.Store.Publish(b); err != nil {
			c.log.Error("results of a stopped plugin stay published", "plugin", stopped.name, "target", target, "error",
				err)
		}
	}
}

// emptyTable returns a table of the list without rows.
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
