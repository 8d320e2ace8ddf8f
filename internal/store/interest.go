// SPDX-License-Identifier: Apache-2.0

// Watched rows: the rows that subscribers name with all their keys.

package store

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Watch is a watched row: at least one subscriber names it with all its keys. The row need not
// exist.
type Watch struct {
	Target string
	List   string   // schema path, as in table.Table.List
	Keys   []string // values in the schema's order
}

// interest counts the subscribers of each watched row. Callbacks run in order, one at a time,
// without holding the lock that guards the counts.
type interest struct {
	mu        sync.Mutex
	count     map[string]int
	watches   map[string]Watch
	callbacks map[int]func(added, removed []Watch)
	next      int

	calling sync.Mutex // held while callbacks run; taken before mu
}

// list returns the watched rows, sorted by target, list and keys.
func (n *interest) list() []Watch {
	out := make([]Watch, 0, len(n.watches))
	for _, id := range slices.Sorted(maps.Keys(n.watches)) {
		out = append(out, n.watches[id])
	}
	return out
}

// OnInterest calls call with the current watched rows, and then with each change of the set. Calls
// come one at a time, in the goroutine that subscribes or unsubscribes; call must neither block
// nor subscribe. stop ends the calls.
func (s *Store) OnInterest(call func(added, removed []Watch)) (stop func()) {
	n := &s.interest
	n.calling.Lock()
	defer n.calling.Unlock()
	n.mu.Lock()
	if n.callbacks == nil {
		n.callbacks = map[int]func(added, removed []Watch){}
	}
	id := n.next
	n.next++
	n.callbacks[id] = call
	now := n.list()
	n.mu.Unlock()
	if len(now) > 0 {
		call(now, nil)
	}
	return func() {
		n.mu.Lock()
		delete(n.callbacks, id)
		n.mu.Unlock()
	}
}

// change adds by (1 or -1) to the count of each watch, and reports changes of the set to the
// callbacks.
func (n *interest) change(watches []Watch, by int) {
	if len(watches) == 0 {
		return
	}
	n.calling.Lock()
	defer n.calling.Unlock()
	var added, removed []Watch
	n.mu.Lock()
	if n.count == nil {
		n.count, n.watches = map[string]int{}, map[string]Watch{}
	}
	for _, w := range watches {
		id := w.id()
		n.count[id] += by
		switch {
		case by > 0 && n.count[id] == 1:
			n.watches[id] = w
			added = append(added, w)
		case n.count[id] <= 0:
			delete(n.count, id)
			delete(n.watches, id)
			removed = append(removed, w)
		}
	}
	calls := make([]func(added, removed []Watch), 0, len(n.callbacks))
	for i := range n.next {
		if c := n.callbacks[i]; c != nil {
			calls = append(calls, c)
		}
	}
	n.mu.Unlock()
	if len(added)+len(removed) == 0 {
		return
	}
	for _, c := range calls {
		c(added, removed)
	}
}

func (w Watch) id() string {
	return w.Target + "\x00" + w.List + "\x00" + strings.Join(w.Keys, "\x00")
}

// watchesOf returns the rows that queries name with all their keys.
func (s *Store) watchesOf(queries []Query) []Watch {
	var out []Watch
	seen := map[string]bool{}
	for _, q := range queries {
		w, ok := s.WatchOf(q)
		if id := w.id(); ok && !seen[id] {
			seen[id] = true
			out = append(out, w)
		}
	}
	return out
}

// WatchOf returns the row that a query names with all its keys; false if the query may name several
// rows.
func (s *Store) WatchOf(q Query) (Watch, bool) {
	if q.Target == "*" {
		return Watch{}, false
	}
	w := Watch{Target: q.Target}
	if w.Target == "" {
		w.Target = s.opts.DefaultTarget
	}
	names := make([]string, 0, len(q.Elems))
	for _, e := range q.Elems {
		if e.Name == "*" || e.Name == "..." {
			return Watch{}, false
		}
		names = append(names, e.Name)
		path, keys, ok := s.listKeys(names)
		if !ok {
			if len(e.Keys) > 0 {
				return Watch{}, false
			}
			continue
		}
		w.List = path
		for _, k := range keys {
			v, given := e.Keys[k]
			if !given || v == "*" {
				return Watch{}, false
			}
			w.Keys = append(w.Keys, v)
		}
	}
	return w, len(w.Keys) > 0
}

// listKeys looks a list up in the schema or, if there is no schema, among the lists published so
// far.
func (s *Store) listKeys(elems []string) (string, []string, bool) {
	if s.opts.Schema != nil {
		return s.opts.Schema.ListKeys(elems)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range s.lists {
		if len(l.list.Keys) > 0 && slices.Equal(l.list.Elems, elems) {
			keys := make([]string, len(l.list.Keys))
			for i := range keys {
				keys[i] = l.list.Keys[i].Name
			}
			return l.list.Path, keys, true
		}
	}
	return "", nil, false
}
