// SPDX-License-Identifier: Apache-2.0

// The mirror: the leaves that a switch has sent, as rows of lists, and which of them the
// store has not been told of.

package southbound

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// maxText bounds a leaf's text.
const maxText = 64 << 10

// mirror belongs to one goroutine.
type mirror struct {
	target string
	limit  int
	tops   map[string]bool // names at the top that are taken over; nil is all
	leaves int
	lists  map[string]*list
	dirty  []*row // in the order in which they came
	at     time.Time
	ready  []store.Batch // of earlier moments
	// newFacts is set when a leaf that discovery looks at has changed.
	newFacts bool
}

// list is a YANG list, or a container that is in none.
type list struct {
	node  *yang.Node
	elems []string // names along the path, without modules
	keys  []key
	rows  map[string]*row
	sent  bool // the store has rows of it
}

// key is one key column: those of lists around this one first.
type key struct {
	column string
	name   string
	elem   int // index in elems
	kind   table.Kind
}

// row is an entry.
type row struct {
	list   *list
	id     string
	keys   []string
	leaves map[string]any
	dirty  map[string]bool // leaves that have changed; nil when none
	sent   bool            // the store has it
}

func newMirror(target string, limit int, subs []Subscription) *mirror {
	m := &mirror{target: target, limit: limit, lists: map[string]*list{}, tops: map[string]bool{}}
	for _, st := range discovery() {
		subs = append(subs[:len(subs):len(subs)], st.subscriptions...)
	}
	for _, sub := range subs {
		elems := sub.Path.GetElem()
		if len(elems) == 0 || elems[0].GetName() == "*" || elems[0].GetName() == "..." {
			m.tops = nil
			break
		}
		name := elems[0].GetName()
		m.tops[name[strings.IndexByte(name, ':')+1:]] = true
	}
	return m
}

var errTooMuch = errors.New("the device sends more leaves than are kept of one")

// apply takes a notification over. complain hears of what is left out.
func (m *mirror) apply(schema *yang.Schema, n *gpb.Notification, now time.Time, complain func(error)) Stats {
	st := Stats{Notifications: 1}
	at := now
	if n.GetTimestamp() > 0 {
		at = time.Unix(0, n.GetTimestamp())
	}
	if !m.at.Equal(at) && len(m.dirty) > 0 {
		m.seal()
	}
	m.at = at
	skip := func(err error) {
		if errors.Is(err, yang.ErrUnknownPath) {
			st.Unknown++
		} else {
			st.Refused++
		}
		complain(err)
	}
	r := &yang.UpdateReader{Schema: schema, Skip: skip, Found: func(u yang.LeafUpdate) error {
		if err := m.set(u); err != nil {
			skip(err)
			return nil
		}
		st.Updates++
		return nil
	}}
	prefix := n.GetPrefix().GetElem()
	if n.GetAtomic() {
		st.Updates += m.remove(prefix)
	}
	for _, d := range n.GetDelete() {
		st.Updates += m.remove(slices.Concat(prefix, d.GetElem()))
	}
	for _, u := range n.GetUpdate() {
		if err := r.Read(slices.Concat(prefix, u.GetPath().GetElem()), u.GetVal()); err != nil {
			skip(err)
		}
	}
	return st
}

// place finds the list that a leaf belongs to and the leaf's name in it.
func (m *mirror) place(u yang.LeafUpdate) (l *list, depth int) {
	n, depth := u.Leaf.Node.Parent, len(u.Elems)-1
	for n.Kind != yang.ListNode && n.Parent.Parent != nil {
		n, depth = n.Parent, depth-1
	}
	if n.Parent == nil {
		return nil, 0 // a leaf at the top, in no container
	}
	l = m.lists[n.Path]
	if l == nil || l.node != n {
		fresh := newList(n)
		if l != nil { // the schema has been widened: the node is another one of the same list
			fresh.rows, fresh.sent = l.rows, l.sent
			for _, r := range fresh.rows {
				r.list = fresh
			}
		}
		l = fresh
		m.lists[n.Path] = l
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

// set takes one leaf over.
func (m *mirror) set(u yang.LeafUpdate) error {
	if m.tops != nil && !m.tops[u.Elems[0].GetName()] {
		return fmt.Errorf("%s was not subscribed to: for this device it %w", yang.PathString(u.Elems), yang.ErrUnknownPath)
	}
	l, depth := m.place(u)
	if l == nil {
		return fmt.Errorf("%s is a leaf at the top, which is not taken over", yang.PathString(u.Elems))
	}
	if s, ok := u.Value.(string); ok && len(s) > maxText {
		return fmt.Errorf("%s: a text of %d bytes; at most %d are taken over", yang.PathString(u.Elems), len(s), maxText)
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
		if m.leaves >= m.limit {
			return errTooMuch
		}
		r = &row{list: l, id: id, keys: keys, leaves: map[string]any{}}
		l.rows[id] = r
		m.leaves++
		m.touch(r)
	}
	if l.repeatsKey(name) {
		return nil // the entry's key says it
	}
	old, had := r.leaves[name]
	if had && old == u.Value {
		m.touch(r) // not new, and yet true at a later time
		r.dirty[name] = true
		return nil
	}
	if !had {
		if m.leaves >= m.limit {
			return errTooMuch
		}
		m.leaves++
	}
	r.leaves[name] = u.Value
	m.touch(r)
	r.dirty[name] = true
	m.newFacts = m.newFacts || isFact(l.elems, name)
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

func (m *mirror) touch(r *row) {
	if r.dirty == nil {
		r.dirty = map[string]bool{}
		m.dirty = append(m.dirty, r)
	}
}

// remove deletes what is at and below a path, in which keys may be left out and elements be
// wildcards, and returns how many leaves that were.
func (m *mirror) remove(elems []*gpb.PathElem) (removed uint64) {
	for _, e := range elems {
		if _, local, ok := strings.Cut(e.GetName(), ":"); ok {
			e.Name = local
		}
	}
	for _, l := range m.lists {
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
					m.touch(r)
					r.dirty[name] = true
					m.newFacts = m.newFacts || isFact(l.elems, name)
				}
			}
			removed += uint64(before - len(r.leaves))
			m.leaves -= before - len(r.leaves)
			if whole || len(r.leaves) == 0 {
				m.touch(r)
				m.newFacts = m.newFacts || isFact(l.elems, "")
				delete(l.rows, r.id)
				m.leaves--
			}
		}
	}
	return removed
}

// under reports whether a row is at or below a path that is not longer than its list's.
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

// flush returns what the store has not been told of, in batches by time.
func (m *mirror) flush(now time.Time) []store.Batch {
	if len(m.dirty) > 0 {
		if m.at.IsZero() {
			m.at = now
		}
		m.seal()
	}
	out := m.ready
	m.ready = nil
	return out
}

// seal makes a batch of the rows that have changed.
func (m *mirror) seal() {
	b := store.Batch{Target: m.target, Time: m.at}
	var order []*list
	changed, gone := map[*list][]*row{}, map[*list][]*row{}
	for _, r := range m.dirty {
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
		if len(l.keys) == 0 && gone[l] != nil {
			b.Tables = append(b.Tables, l.nothing())
		} else if t := l.table(gone[l], false); t != nil {
			b.Tables = append(b.Tables, store.Publication{Table: t, Delete: true})
		}
		if t := l.table(changed[l], true); t != nil {
			b.Tables = append(b.Tables, store.Publication{Table: t})
			l.sent = true
		}
	}
	for _, r := range m.dirty {
		r.dirty, r.sent = nil, r.list.rows[r.id] == r
	}
	m.dirty = m.dirty[:0]
	if len(b.Tables) > 0 {
		m.ready = append(m.ready, b)
	}
}

// clear forgets everything, and returns what takes it back from the store.
func (m *mirror) clear(now time.Time) []store.Batch {
	b := store.Batch{Target: m.target, Time: now}
	for _, l := range m.lists {
		if !l.sent {
			continue
		}
		b.Tables = append(b.Tables, l.nothing())
	}
	*m = mirror{target: m.target, limit: m.limit, tops: m.tops, lists: map[string]*list{}}
	if len(b.Tables) == 0 {
		return nil
	}
	slices.SortFunc(b.Tables, func(x, y store.Publication) int { return strings.Compare(x.Table.List, y.Table.List) })
	return []store.Batch{b}
}

// nothing takes the place of all of a list's rows. For a container, which cannot be
// without its one row, that is a row without leaves.
func (l *list) nothing() store.Publication {
	t := l.table([]*row{}, false)
	if len(l.keys) == 0 {
		b := table.NewBuilder(l.node.Path)
		for _, leaf := range l.node.List.Leaves {
			if !leaf.Many {
				valueColumn(b, leaf.Name, leaf.Kind())(nil)
				break
			}
		}
		if made, err := b.Table(); err == nil {
			t = made
		}
	}
	return store.Publication{Table: t, Replace: true}
}

// table makes a table of rows, with the leaves that have changed in any of them; nil when
// rows is nil.
func (l *list) table(rows []*row, values bool) *table.Table {
	if rows == nil {
		return nil
	}
	b := table.NewBuilder(l.node.Path)
	for i, k := range l.keys {
		appendKey := keyColumn(b, k)
		for _, r := range rows {
			appendKey(r.keys[i])
		}
	}
	if values {
		names := map[string]bool{}
		for _, r := range rows {
			for name := range r.dirty {
				names[name] = true
			}
		}
		sorted := make([]string, 0, len(names))
		for name := range names {
			sorted = append(sorted, name)
		}
		slices.Sort(sorted)
		for _, name := range sorted {
			add := valueColumn(b, name, l.kind(name))
			for _, r := range rows {
				add(r.leaves[name])
			}
		}
	}
	t, err := b.Table()
	if err != nil {
		return nil // the columns have one value a row
	}
	return t
}

// kind is that of a leaf's column.
func (l *list) kind(name string) table.Kind {
	n := l.node
	for part := range strings.SplitSeq(name, "/") {
		if n = n.Child(part); n == nil {
			return table.String
		}
	}
	return n.Leaf.Kind()
}

func keyColumn(b *table.Builder, k key) func(string) {
	switch k.kind {
	case table.Uint64:
		c := b.UintKey(k.column)
		return func(s string) {
			v, _ := strconv.ParseUint(s, 10, 64) // the schema has checked it
			c.Append(v)
		}
	case table.Int64:
		c := b.IntKey(k.column)
		return func(s string) {
			v, _ := strconv.ParseInt(s, 10, 64) // the schema has checked it
			c.Append(v)
		}
	case table.Bool:
		c := b.BoolKey(k.column)
		return func(s string) { c.Append(s == "true") }
	}
	return b.TextKey(k.column).Append
}

func valueColumn(b *table.Builder, name string, kind table.Kind) func(any) {
	switch kind {
	case table.Uint64:
		return column(b.Uint(name))
	case table.Int64:
		return column(b.Int(name))
	case table.Float64:
		return column(b.Float(name))
	case table.Bool:
		return column(b.Bool(name))
	}
	return column(b.Text(name))
}

// column appends values of one type, and null for what is not there.
func column[T any](c interface {
	Append(T)
	AppendNull()
}) func(any) {
	return func(v any) {
		if x, ok := v.(T); ok {
			c.Append(x)
		} else {
			c.AppendNull()
		}
	}
}
