// SPDX-License-Identifier: Apache-2.0

// Watched rows: rows that subscribers name with all their keys, for which plugins publish results
// in each epoch.

package analysis

import (
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// watch handles changes of the watched rows in the store.
func (c *Component) watch(added, removed []store.Watch) {
	c.mu.Lock()
	for _, w := range removed {
		delete(c.watched, watchID(w))
	}
	for _, w := range added {
		c.watched[watchID(w)] = w
	}
	own := make([]store.Watch, 0, len(c.watched))
	for _, w := range c.watched {
		own = append(own, w)
	}
	c.mu.Unlock()
	if c.deps.Cluster != nil {
		c.deps.Cluster.Watch(own)
	}
	c.Rewatch()
}

// Rewatch passes the watched rows to the plugins: the rows that subscribers of this and of the
// other collectors watch.
func (c *Component) Rewatch() {
	for _, p := range c.running() {
		p.inst.SetWatched(c.watchedBy(p))
	}
}

func watchID(w store.Watch) string {
	return w.Target + "\x00" + w.List + "\x00" + strings.Join(w.Keys, "\x00")
}

// watchedBy returns the watched rows of a plugin's watchable lists, sorted.
func (c *Component) watchedBy(p *plugin) []sdk.RowKey {
	watchable := map[string]bool{}
	for _, l := range p.inst.Describe().Lists {
		if l.Watchable {
			watchable[l.Path] = true
		}
	}
	all := map[string]store.Watch{}
	add := func(w store.Watch) {
		if watchable[w.List] {
			all[watchID(w)] = w
		}
	}
	if c.deps.Cluster != nil {
		for _, w := range c.deps.Cluster.Watched() {
			add(w)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watched {
		add(w)
	}
	rows := make([]sdk.RowKey, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		w := all[id]
		list, err := c.deps.Schema.Current().List(w.List)
		if err != nil || len(list.Keys) != len(w.Keys) {
			continue // the list has changed since
		}
		row := sdk.RowKey{List: w.List, Target: w.Target, Keys: map[string]string{}}
		if row.Target == c.deps.Store.DefaultTarget() {
			row.Target = ""
		}
		for i, k := range list.Keys {
			row.Keys[k.Name] = w.Keys[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// WatchedRows returns the number of watched rows.
func (c *Component) WatchedRows() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watched)
}
