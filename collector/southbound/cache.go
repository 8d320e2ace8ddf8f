// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// maxText bounds the text of a leaf, in bytes.
const maxText = 64 << 10

// cache holds the leaves that a switch has sent, as rows of lists, and marks those that are not in
// the store yet. It belongs to one goroutine.
type cache struct {
	target string
	limit  int
	tops   map[string]bool // top-level names that are accepted; nil accepts all
	leaves int
	lists  map[string]*list
	dirty  []*row        // in order of arrival
	at     time.Time     // timestamp of the dirty rows
	ready  []store.Batch // sealed batches with earlier timestamps
	// newFacts is set when a leaf that discovery uses has changed.
	newFacts bool
}

// list is a YANG list, or a top-level container.
type list struct {
	node  *yang.Node
	elems []string // element names of the path, without modules
	keys  []key
	rows  map[string]*row
	sent  bool // the store has rows of this list
}

// key is one key column. Keys of outer lists come first.
type key struct {
	column string
	name   string
	elem   int // index in elems
	kind   table.Kind
}

// row is a list entry.
type row struct {
	list   *list
	id     string
	keys   []string
	leaves map[string]any
	dirty  map[string]bool // leaves that have changed; nil if none has changed
	sent   bool            // the store has this row
}

func newCache(target string, limit int, subs []Subscription) *cache {
	c := &cache{target: target, limit: limit, lists: map[string]*list{}, tops: map[string]bool{}}
	for _, st := range factStreams() {
		subs = append(subs[:len(subs):len(subs)], st.subscriptions...)
	}
	for _, sub := range subs {
		elems := sub.Path.GetElem()
		if len(elems) == 0 || elems[0].GetName() == "*" || elems[0].GetName() == "..." {
			c.tops = nil
			break
		}
		name := elems[0].GetName()
		c.tops[name[strings.IndexByte(name, ':')+1:]] = true
	}
	return c
}

var errTooMany = errors.New("the device sends more leaves than the cache accepts from one device")

// apply enters a notification into the cache. report receives an error for each leaf that is
// dropped.
func (c *cache) apply(schema *yang.Schema, n *gpb.Notification, now time.Time, report func(error)) Stats {
	st := Stats{Notifications: 1}
	at := now
	if n.GetTimestamp() > 0 {
		at = time.Unix(0, n.GetTimestamp())
	}
	if !c.at.Equal(at) && len(c.dirty) > 0 {
		c.seal()
	}
	c.at = at
	skip := func(err error) {
		if errors.Is(err, yang.ErrUnknownPath) {
			st.Unknown++
		} else {
			st.Refused++
		}
		report(err)
	}
	r := &yang.UpdateReader{Schema: schema, Skip: skip, Found: func(u yang.LeafUpdate) error {
		if err := c.set(u); err != nil {
			skip(err)
			return nil
		}
		st.Updates++
		return nil
	}}
	prefix := n.GetPrefix().GetElem()
	if n.GetAtomic() {
		st.Updates += c.remove(prefix)
	}
	for _, d := range n.GetDelete() {
		st.Updates += c.remove(slices.Concat(prefix, d.GetElem()))
	}
	for _, u := range n.GetUpdate() {
		if err := r.Read(slices.Concat(prefix, u.GetPath().GetElem()), u.GetVal()); err != nil {
			skip(err)
		}
	}
	return st
}

// locate returns the list that a leaf belongs to, and the index of the path element at which the
// leaf's name within the list begins; nil for a top-level leaf.
func (c *cache) locate(u yang.LeafUpdate) (l *list, depth int) {
	n, depth := u.Leaf.Node.Parent, len(u.Elems)-1
	for n.Kind != yang.ListNode && n.Parent.Parent != nil {
		n, depth = n.Parent, depth-1
	}
	if n.Parent == nil {
		return nil, 0
	}
	l = c.lists[n.Path]
	if l == nil || l.node != n {
		fresh := newList(n)
		if l != nil { // a plugin has extended the schema: same list, new node
			fresh.rows, fresh.sent = l.rows, l.sent
			for _, r := range fresh.rows {
				r.list = fresh
			}
		}
		l = fresh
		c.lists[n.Path] = l
	}
	return l, depth
}

func newList(n *yang.Node) *list {
	l := &list{node: n, rows: map[string]*row{}}
	for p := n; p.Parent != nil; p = p.Parent {
		l.elems = append(l.elems, p.Name)
	}
	slices.Reverse(l.elems)
	for _, k := range n.List.KeyColumns() {
		l.keys = append(l.keys, key{k.Name, k.Leaf.Node.Name, k.Elem, k.Leaf.Kind()})
	}
	return l
}

// set enters one leaf into the cache.
func (c *cache) set(u yang.LeafUpdate) error {
	if c.tops != nil && !c.tops[u.Elems[0].GetName()] {
		return fmt.Errorf("%s is not below a subscribed path: for this device it %w", yang.PathString(u.Elems),
			yang.ErrUnknownPath)
	}
	l, depth := c.locate(u)
	if l == nil {
		return fmt.Errorf("%s is a top-level leaf; only leaves in containers are republished", yang.PathString(u.Elems))
	}
	if s, ok := u.Value.(string); ok && len(s) > maxText {
		return fmt.Errorf("%s: a text of %d bytes; the limit is %d", yang.PathString(u.Elems), len(s), maxText)
	}
	keys := make([]string, len(l.keys))
	for i, k := range l.keys {
		keys[i] = u.Elems[k.elem].GetKey()[k.name]
	}
	id := strings.Join(keys, "\x00")
	r := l.rows[id]
	names := make([]string, 0, len(u.Elems)-depth)
	for _, e := range u.Elems[depth:] {
		names = append(names, e.GetName())
	}
	name := strings.Join(names, "/")
	if r == nil {
		if c.leaves >= c.limit {
			return errTooMany
		}
		r = &row{list: l, id: id, keys: keys, leaves: map[string]any{}}
		l.rows[id] = r
		c.leaves++
		c.touch(r)
	}
	if l.repeatsKey(name) {
		return nil // the key carries the value
	}
	old, had := r.leaves[name]
	if had && old == u.Value {
		c.touch(r) // the same value at a later time
		r.dirty[name] = true
		return nil
	}
	if !had {
		if c.leaves >= c.limit {
			return errTooMany
		}
		c.leaves++
	}
	r.leaves[name] = u.Value
	c.touch(r)
	r.dirty[name] = true
	c.newFacts = c.newFacts || isFact(l.elems, name)
	return nil
}

func (l *list) repeatsKey(name string) bool {
	for _, k := range l.node.List.Keys {
		if slices.Contains(k.RefersTo, name) {
			return true
		}
	}
	return false
}

func (c *cache) touch(r *row) {
	if r.dirty == nil {
		r.dirty = map[string]bool{}
		c.dirty = append(c.dirty, r)
	}
}

// remove deletes the leaves at and below a path, which may omit keys and contain wildcards. It
// returns the number of leaves deleted.
func (c *cache) remove(elems []*gpb.PathElem) (removed uint64) {
	for _, e := range elems {
		if _, local, ok := strings.Cut(e.GetName(), ":"); ok {
			e.Name = local
		}
	}
	for _, l := range c.lists {
		for _, r := range l.rows {
			before := len(r.leaves)
			whole := false
			if len(elems) <= len(l.elems) {
				if !l.under(r, elems) {
					continue
				}
				whole = true
			} else if !l.under(r, elems[:len(l.elems)]) {
				continue
			}
			for name := range r.leaves {
				if whole || below(name, elems[len(l.elems):]) {
					delete(r.leaves, name)
					c.touch(r)
					r.dirty[name] = true
					c.newFacts = c.newFacts || isFact(l.elems, name)
				}
			}
			removed += uint64(before - len(r.leaves))
			c.leaves -= before - len(r.leaves)
			if whole || len(r.leaves) == 0 {
				c.touch(r)
				c.newFacts = c.newFacts || isFact(l.elems, "")
				delete(l.rows, r.id)
				c.leaves--
			}
		}
	}
	return removed
}

// under reports whether a row is at or below a path that is not longer than its list's path.
func (l *list) under(r *row, elems []*gpb.PathElem) bool {
	for i, e := range elems {
		if e.GetName() != "*" && e.GetName() != l.elems[i] {
			return false
		}
		for j, k := range l.keys {
			if want, ok := e.GetKey()[k.name]; ok && k.elem == i && want != "*" && want != r.keys[j] {
				return false
			}
		}
	}
	return true
}

// below reports whether a leaf is at or below a path within its row.
func below(name string, elems []*gpb.PathElem) bool {
	parts := strings.Split(name, "/")
	if len(elems) > len(parts) {
		return false
	}
	for i, e := range elems {
		if e.GetName() != "*" && e.GetName() != parts[i] {
			return false
		}
	}
	return true
}

// flush returns the changes that the store does not have yet, one batch per timestamp.
func (c *cache) flush(now time.Time) []store.Batch {
	if len(c.dirty) > 0 {
		if c.at.IsZero() {
			c.at = now
		}
		c.seal()
	}
	out := c.ready
	c.ready = nil
	return out
}

// seal moves the changed rows into a batch.
func (c *cache) seal() {
	b := store.Batch{Target: c.target, Time: c.at}
	var order []*list
	changed, gone := map[*list][]*row{}, map[*list][]*row{}
	for _, r := range c.dirty {
		l := r.list
		if changed[l] == nil && gone[l] == nil {
			order = append(order, l)
		}
		if l.rows[r.id] == r {
			changed[l] = append(changed[l], r)
		} else if r.sent {
			gone[l] = append(gone[l], r)
		}
	}
	for _, l := range order {
		switch {
		case len(gone[l]) == 0:
		case len(l.keys) == 0:
			b.Tables = append(b.Tables, l.empty())
		default:
			b.Tables = append(b.Tables, store.Publication{Table: l.table(gone[l]), Delete: true})
		}
		if len(changed[l]) > 0 {
			b.Tables = append(b.Tables, store.Publication{Table: l.changes(changed[l])})
			l.sent = true
		}
	}
	for _, r := range c.dirty {
		r.dirty, r.sent = nil, r.list.rows[r.id] == r
	}
	c.dirty = c.dirty[:0]
	if len(b.Tables) > 0 {
		c.ready = append(c.ready, b)
	}
}

// clear empties the cache, and returns the batch that deletes its rows from the store.
func (c *cache) clear(now time.Time) []store.Batch {
	b := store.Batch{Target: c.target, Time: now}
	for _, l := range c.lists {
		if !l.sent {
			continue
		}
		b.Tables = append(b.Tables, l.empty())
	}
	*c = cache{target: c.target, limit: c.limit, tops: c.tops, lists: map[string]*list{}}
	if len(b.Tables) == 0 {
		return nil
	}
	slices.SortFunc(b.Tables, func(x, y store.Publication) int { return strings.Compare(x.Table.List, y.Table.List) })
	return []store.Batch{b}
}

// empty replaces all rows of a list by no rows. A container always has one row, which is replaced
// by a row without leaves.
func (l *list) empty() store.Publication {
	t := l.table(nil)
	if len(l.keys) == 0 {
		leaves := l.node.List.Leaves
		if i := slices.IndexFunc(leaves, func(leaf *yang.Leaf) bool { return !leaf.Many }); i >= 0 {
			t.Values = []table.Column{
				table.ColumnOf(leaves[i].Name, leaves[i].Kind(), 1, func(int) any { return nil }),
			}
		}
	}
	return store.Publication{Table: t, Replace: true}
}

// table returns a table of rows with their keys only.
func (l *list) table(rows []*row) *table.Table {
	t := &table.Table{List: l.node.Path}
	for i, k := range l.keys {
		t.Keys = append(t.Keys, table.ColumnOf(k.column, k.kind, len(rows), func(row int) any {
			v, _ := table.ParseText(k.kind, rows[row].keys[i]) // checked by the schema
			return v
		}))
	}
	return t
}

// changes returns a table of rows with the leaves that have changed in any of them.
func (l *list) changes(rows []*row) *table.Table {
	t := l.table(rows)
	names := map[string]bool{}
	for _, r := range rows {
		maps.Copy(names, r.dirty)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if leaf := l.node.List.Leaf(name); leaf != nil {
			t.Values = append(t.Values, table.ColumnOf(name, leaf.Kind(), len(rows),
				func(row int) any { return rows[row].leaves[name] }))
		}
	}
	return t
}
