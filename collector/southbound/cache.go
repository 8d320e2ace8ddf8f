// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
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

// maxBytes bounds the texts and keys of one switch, in bytes.
const maxBytes = 64 << 20

// cache holds the leaves that a switch has sent, as rows of lists, and marks those that are not in
// the store yet. It belongs to one goroutine.
//
// Each leaf keeps the timestamp that the switch gave it. An update or a delete with an older
// timestamp than the leaf's changes nothing, because notifications may arrive in any order (gNMI
// specification, section 3.5.1.4). For this comparison, a timestamp in the future counts as the
// time of arrival, so that a switch whose clock was ahead can update its leaves after the clock is
// corrected.
type cache struct {
	target string
	limit  int
	tops   map[string]bool // top-level names that are accepted; nil accepts all
	leaves int
	bytes  int // bytes of texts and keys
	lists  map[string]*list
	dirty  []*row        // changed rows in the order of arrival
	at     time.Time     // timestamp of the dirty rows
	ready  []store.Batch // sealed batches with earlier timestamps
	// newFacts is set when a leaf that discovery uses has changed.
	newFacts bool
	newest   int64 // newest timestamp of a notification, in nanoseconds since 1970; at most its time of arrival
	accepted bool  // a leaf was accepted since the session began
	stale    int   // leaves ignored as too old since the last accepted leaf
	// foreign is the last origin whose values were dropped; "" if there was none.
	foreign string
	// deleted holds recent deletes, so that older updates do not undo them.
	deleted deletes
	// atomic holds the containers that the switch replaces as a whole, by path.
	atomic map[string]atomic
}

// source is the stream that a notification arrives on.
type source struct {
	bit  uint64 // the stream's bit in leaf.from
	subs []Subscription
}

// atomic is a container that the switch replaces as a whole.
type atomic struct {
	elems []*gpb.PathElem
	at    int64  // time of the newest notification
	from  uint64 // the bit of the stream that sent it
}

// leaf is one leaf of a row.
type leaf struct {
	value any
	at    int64  // time in nanoseconds since 1970, for comparison
	from  uint64 // streams that have delivered the leaf, one bit each
}

// list is a YANG list, or a top-level container.
type list struct {
	node  *yang.Node
	elems []string // element names of the path, without modules
	keys  []key
	rows  map[string]*row
	sent  bool // whether the store has rows of this list
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
	at     int64 // time of the newest update
	leaves map[string]leaf
	dirty  map[string]bool // leaves that have changed; nil if none has changed
	sent   bool            // whether the store has this row
}

func newCache(target string, limit int, subs []Subscription) *cache {
	c := &cache{target: target, limit: limit, lists: map[string]*list{}, tops: map[string]bool{}}
	for _, sub := range slices.Concat(factSubscriptions(), subs) {
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

var (
	errTooMany = errors.New("the device sends more leaves than the cache accepts from one device")
	errTooLong = errors.New("the device sends more text than the cache accepts from one device")
)

// apply enters a notification into the cache. report receives the path without keys and an error
// for each leaf that is dropped. stop ends a notification that takes too long.
func (c *cache) apply(schema *yang.Schema, n *gpb.Notification, src source, now time.Time, stop func() bool,
	report func(leaf string, err error),
) Stats {
	st := Stats{Notifications: 1}
	at := timeOf(n.GetTimestamp(), now)
	if !c.at.Equal(at) && len(c.dirty) > 0 {
		c.seal()
	}
	c.at = at
	order := min(at.UnixNano(), now.UnixNano())
	if n.GetTimestamp() <= 0 { // without a time stamp, the notification counts as the newest
		order = c.newest
	}
	c.newest = max(c.newest, order)
	skip := func(leaf string, err error) {
		if errors.Is(err, yang.ErrUnknownPath) {
			st.Unknown++
		} else {
			st.Refused++
		}
		report(leaf, err)
	}
	r := &yang.UpdateReader{Schema: schema, Skip: skip, Found: func(u yang.LeafUpdate) error {
		switch newer, err := c.set(u, order, src); {
		case err != nil:
			skip(yang.NamesOf(u.Elems), err)
		case newer:
			st.Updates++
			c.stale = 0
		default:
			st.Stale++
			c.stale++
		}
		return nil
	}}
	isForeign := func(p *gpb.Path) bool {
		if !Foreign(p) {
			return false
		}
		c.foreign = strings.Clone(p.GetOrigin())
		skip("/", fmt.Errorf("the origin %.100q %w", c.foreign, yang.ErrUnknownPath))
		return true
	}
	prefix := local(yang.Elems(n.GetPrefix()))
	if isForeign(n.GetPrefix()) {
		st.Unknown += uint64(max(len(n.GetUpdate())+len(n.GetDelete()), 1) - 1)
		return st
	}
	if n.GetAtomic() && len(prefix) > 0 {
		removed, stale := c.replace(prefix, order, src, n.GetTimestamp() > 0)
		if stale {
			st.Stale += uint64(len(n.GetUpdate()))
			return st
		}
		st.Updates += removed
	}
	for _, d := range n.GetDelete() {
		if stop() || isForeign(d) {
			continue
		}
		st.Updates += c.delete(slices.Concat(prefix, local(yang.Elems(d))), order, src)
	}
	for _, u := range n.GetUpdate() {
		if stop() || isForeign(u.GetPath()) {
			continue
		}
		_ = r.Read(slices.Concat(prefix, yang.Elems(u.GetPath())), u.GetVal()) // skip receives the errors
	}
	return st
}

// timeOf returns the time of a notification: its arrival if the device gives none. Some devices
// count seconds, milliseconds or microseconds instead of nanoseconds: if the timestamp lies within
// the last ten years when it is read in one of these units, timeOf reads it in that unit.
func timeOf(stamp int64, arrival time.Time) time.Time {
	if stamp <= 0 {
		return arrival
	}
	if arrival.Year() < 2020 { // the clock of this machine is not set
		return time.Unix(0, stamp)
	}
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if stamp > math.MaxInt64/int64(unit) {
			continue
		}
		at := time.Unix(0, stamp*int64(unit))
		if age := arrival.Sub(at); age > -24*time.Hour && age < 10*365*24*time.Hour {
			return at
		}
	}
	return time.Unix(0, stamp)
}

// Foreign reports whether a path belongs to a tree of another origin than OpenConfig's, such as a
// device's command line. The origin rfc7951 of Cisco's devices stands for every model.
func Foreign(p *gpb.Path) bool {
	o := strings.ToLower(p.GetOrigin())
	return o != "" && o != "rfc7951" && !strings.HasPrefix(o, "openconfig")
}

// local returns a path without the names of modules. It cuts elements deeper than the schema,
// because the schema has no node there.
func local(elems []*gpb.PathElem) []*gpb.PathElem {
	const most = 64
	out := make([]*gpb.PathElem, 0, len(elems))
	for _, e := range elems[:min(len(elems), most)] {
		name, keys := withoutModule(e.GetName()), e.GetKey()
		for k, v := range e.GetKey() {
			if strings.Contains(k, ":") {
				keys = maps.Clone(keys)
				delete(keys, k)
				keys[withoutModule(k)] = v
			}
		}
		out = append(out, &gpb.PathElem{Name: name, Key: keys})
	}
	return out
}

func withoutModule(name string) string { return name[strings.IndexByte(name, ':')+1:] }

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

// set enters one leaf into the cache. It returns false if the cache knows something newer.
func (c *cache) set(u yang.LeafUpdate, at int64, src source) (newer bool, err error) {
	if c.tops != nil && !c.tops[u.Elems[0].GetName()] {
		return false, fmt.Errorf("%s is not below a subscribed path: for this device it %w", yang.PathString(u.Elems),
			yang.ErrUnknownPath)
	}
	l, depth := c.locate(u)
	if l == nil {
		return false, fmt.Errorf("%s is a top-level leaf; only leaves in containers are republished",
			yang.PathString(u.Elems))
	}
	text, _ := u.Value.(string)
	if len(text) > maxText {
		return false, fmt.Errorf("%s: a text of %d bytes; the limit is %d", yang.PathString(u.Elems), len(text), maxText)
	}
	keys := make([]string, len(l.keys))
	for i, k := range l.keys {
		keys[i] = u.Elems[k.elem].GetKey()[k.name]
	}
	id := strings.Join(keys, "\x00")
	names := make([]string, 0, len(u.Elems)-depth)
	for _, e := range u.Elems[depth:] {
		names = append(names, e.GetName())
	}
	name := strings.Join(names, "/")
	repeated := l.repeatsKey(name) // the key carries the value
	r := l.rows[id]
	var old leaf
	had := false
	if r != nil {
		old, had = r.leaves[name]
	}
	if had && at < old.at {
		old.from |= src.bit
		r.leaves[name] = old
		return false, nil
	}
	if !had && c.deleted.covers(u.Elems, at) {
		return false, nil
	}
	if r == nil {
		if len(id) > maxText {
			return false, fmt.Errorf("%s: keys of %d bytes; the limit is %d", yang.NamesOf(u.Elems), len(id), maxText)
		}
		if err := c.reserve(1, len(id)); err != nil {
			return false, err
		}
		r = &row{list: l, id: id, keys: keys, leaves: map[string]leaf{}}
		l.rows[id] = r
		c.touch(r)
		c.newFacts = c.newFacts || isFact(l.elems, "")
	}
	r.at, c.accepted = max(r.at, at), true
	if repeated {
		return true, nil
	}
	more := 0
	if !had {
		more = 1
	}
	before, _ := old.value.(string)
	if err := c.reserve(more, len(text)-len(before)); err != nil {
		return false, err
	}
	r.leaves[name] = leaf{value: u.Value, at: at, from: old.from | src.bit}
	c.touch(r)
	r.dirty[name] = true
	if !had || old.value != u.Value {
		c.newFacts = c.newFacts || isFact(l.elems, name)
	}
	return true, nil
}

// reserve counts further leaves and bytes, or fails if the switch has too many.
func (c *cache) reserve(leaves, bytes int) error {
	switch {
	case leaves > 0 && c.leaves+leaves > c.limit:
		return errTooMany
	case bytes > 0 && c.bytes+bytes > maxBytes:
		return errTooLong
	}
	c.leaves += leaves
	c.bytes += bytes
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

// delete enters a delete by the switch. A delete inside a container that the switch replaces as a
// whole deletes all leaves of the container that the stream subscribes to (gNMI specification,
// section 2.1.1). delete returns the number of leaves deleted.
func (c *cache) delete(elems []*gpb.PathElem, at int64, src source) (removed uint64) {
	for _, a := range c.atomic {
		if whole := a.elems; len(whole) < len(elems) && overlap(elems[:len(whole)], whole) {
			removed += c.remove(whole, at, src.subs)
			c.deleted.add(whole, at, src.subs)
		}
	}
	c.deleted.add(elems, at, nil)
	for _, l := range c.lists { // a path with wildcards is remembered for each row that it selects
		for r := range l.matching(elems) {
			c.deleted.add(r.path(elems), at, nil)
		}
	}
	return removed + c.remove(elems, at, nil)
}

// path returns a path that selects a row, or leaves of it, with the names and keys of the row.
func (r *row) path(elems []*gpb.PathElem) []*gpb.PathElem {
	out := slices.Clone(elems)
	for i := range min(len(out), len(r.list.elems)) {
		out[i] = &gpb.PathElem{Name: r.list.elems[i], Key: map[string]string{}}
		for j, k := range r.list.keys {
			if k.elem == i {
				out[i].Key[k.name] = r.keys[j]
			}
		}
	}
	return out
}

// replace begins an atomic notification: it deletes the container's leaves that the stream
// subscribes to. stale is set if the container was deleted at a later time. Switches split an
// atomic notification that is too long into parts with the same timestamp; only the first part
// deletes.
func (c *cache) replace(container []*gpb.PathElem, at int64, src source, stamped bool) (removed uint64, stale bool) {
	const most = 4096 // containers of one switch
	path := string(appendPath(nil, container))
	if c.atomic == nil {
		c.atomic = map[string]atomic{}
	}
	a, known := c.atomic[path]
	switch {
	case known && c.deleted.covers(container, at):
		return 0, true
	case known && stamped && a.at == at && a.from == src.bit:
		return 0, false
	case known, len(c.atomic) < most && len(path) < maxText:
		c.atomic[path] = atomic{container, at, src.bit}
	}
	removed = c.remove(container, at, src.subs)
	c.deleted.add(container, at, src.subs)
	return removed, false
}

// remove deletes the leaves at and below a path that are not newer than at. The path may omit keys
// and contain wildcards. If subs is not nil, remove deletes only leaves that one of these
// subscriptions selects. It returns the number of leaves deleted.
func (c *cache) remove(elems []*gpb.PathElem, at int64, subs []Subscription) (removed uint64) {
	for _, l := range c.lists {
		for r := range l.matching(elems) {
			whole := len(elems) <= len(l.elems)
			removed += c.drop(r, whole, func(name string, f leaf) bool {
				return f.at <= at && (whole || below(name, elems[len(l.elems):])) && (subs == nil || l.selects(subs, r, name))
			}, at)
		}
	}
	return removed
}

// forget deletes the leaves that only streams among ended have delivered, and returns their number.
func (c *cache) forget(ended uint64) (removed uint64) {
	for _, l := range c.lists {
		for _, r := range l.rows {
			removed += c.drop(r, false, func(name string, f leaf) bool {
				if f.from&ended == 0 {
					return false
				}
				f.from &^= ended
				r.leaves[name] = f
				return f.from == 0
			}, 0)
		}
	}
	return removed
}

// drop deletes the leaves of a row for which gone returns true, and then a row without leaves, if
// drop deleted its last leaf, or if whole is set and the row has no update after at.
func (c *cache) drop(r *row, whole bool, gone func(name string, f leaf) bool, at int64) (removed uint64) {
	for name, f := range r.leaves {
		if !gone(name, f) {
			continue
		}
		text, _ := f.value.(string)
		c.bytes -= len(text)
		c.leaves--
		removed++
		delete(r.leaves, name)
		c.touch(r)
		r.dirty[name] = true
		c.newFacts = c.newFacts || isFact(r.list.elems, name)
	}
	if len(r.leaves) == 0 && (removed > 0 || whole && r.at <= at) {
		c.touch(r)
		c.newFacts = c.newFacts || isFact(r.list.elems, "")
		delete(r.list.rows, r.id)
		c.bytes -= len(r.id)
		c.leaves--
	}
	return removed
}

// matching returns the rows at and below a path, or above the leaves that the path selects.
func (l *list) matching(elems []*gpb.PathElem) iter.Seq[*row] {
	head := elems[:min(len(elems), len(l.elems))]
	return func(yield func(*row) bool) {
		keys := make([]string, 0, len(l.keys))
		for _, k := range l.keys {
			if k.elem >= len(head) {
				break
			}
			if v, ok := head[k.elem].GetKey()[k.name]; ok && v != "*" {
				keys = append(keys, v)
			}
		}
		if len(l.keys) > 0 && len(keys) == len(l.keys) { // one row
			if r := l.rows[strings.Join(keys, "\x00")]; r != nil && l.under(r, head) {
				yield(r)
			}
			return
		}
		for _, r := range l.rows {
			if l.under(r, head) && !yield(r) {
				return
			}
		}
	}
}

// selects reports whether a subscription selects a leaf of a row.
func (l *list) selects(subs []Subscription, r *row, name string) bool {
	return slices.ContainsFunc(subs, func(sub Subscription) bool {
		elems := local(sub.Path.GetElem())
		if i := slices.IndexFunc(elems, func(e *gpb.PathElem) bool { return e.GetName() == "..." }); i >= 0 {
			elems = elems[:i] // the path selects everything below the elements before "..."
		}
		n := min(len(elems), len(l.elems))
		return l.under(r, elems[:n]) && below(name, elems[n:])
	})
}

// overlap reports whether two paths of the same length may select the same node. Keys may be
// omitted or "*".
func overlap(a, b []*gpb.PathElem) bool {
	for i := range a {
		if a[i].GetName() != "*" && a[i].GetName() != b[i].GetName() {
			return false
		}
		for k, v := range a[i].GetKey() {
			if w, ok := b[i].GetKey()[k]; ok && v != "*" && w != "*" && v != w {
				return false
			}
		}
	}
	return true
}

// deletes holds the newest deletes of a switch, up to a bound.
type deletes struct {
	byPath map[string]deletion
	order  []string // paths, oldest first
}

type deletion struct {
	at   int64
	subs []Subscription // nil for all leaves below the path
}

// add remembers a delete of a path without wildcards.
func (d *deletes) add(elems []*gpb.PathElem, at int64, subs []Subscription) {
	const most = 4096
	for _, e := range elems {
		for _, v := range e.GetKey() {
			if v == "*" || len(v) > maxText {
				return
			}
		}
		if e.GetName() == "*" || e.GetName() == "..." {
			return
		}
	}
	path := string(appendPath(nil, elems))
	if len(path) > 1024 {
		return
	}
	if d.byPath == nil {
		d.byPath = map[string]deletion{}
	}
	old, ok := d.byPath[path]
	switch {
	case ok && old.at >= at:
		return
	case !ok:
		if len(d.order) == most {
			delete(d.byPath, d.order[0])
			d.order = d.order[1:]
		}
		d.order = append(d.order, path)
	}
	d.byPath[path] = deletion{at, subs}
}

// covers reports whether a node was deleted after a time.
func (d *deletes) covers(elems []*gpb.PathElem, at int64) bool {
	if len(d.byPath) == 0 {
		return false
	}
	var path []byte
	for n := range len(elems) + 1 {
		if n > 0 {
			path = appendPath(path, elems[n-1:n])
		}
		if del, ok := d.byPath[string(path)]; ok && del.at > at && selected(del.subs, elems) {
			return true
		}
	}
	return false
}

// selected reports whether subscriptions may select a node; nil stands for all nodes.
func selected(subs []Subscription, elems []*gpb.PathElem) bool {
	return subs == nil || slices.ContainsFunc(subs, func(sub Subscription) bool {
		sel := local(sub.Path.GetElem())
		n := min(len(sel), len(elems))
		return overlap(sel[:n], elems[:n])
	})
}

// appendPath appends a path in a form that is the same for equal paths.
func appendPath(b []byte, elems []*gpb.PathElem) []byte {
	for _, e := range elems {
		b = append(append(b, '/'), e.GetName()...)
		for _, k := range slices.Sorted(maps.Keys(e.GetKey())) {
			b = append(append(append(b, 0), k...), 0)
			b = append(b, e.GetKey()[k]...)
		}
	}
	return b
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
		for _, rows := range sameLeaves(changed[l]) {
			b.Tables = append(b.Tables, store.Publication{Table: l.changes(rows)})
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

// sameLeaves divides rows by the leaves that have changed, because a table sets the time of every
// cell that it has.
func sameLeaves(rows []*row) [][]*row {
	var out [][]*row
	index := map[string]int{}
	for _, r := range rows {
		id := strings.Join(slices.Sorted(maps.Keys(r.dirty)), " ")
		i, ok := index[id]
		if !ok {
			i = len(out)
			index[id], out = i, append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// changes returns a table of rows with their changed leaves. All rows have the same changed leaves.
func (l *list) changes(rows []*row) *table.Table {
	t := l.table(rows)
	for _, name := range slices.Sorted(maps.Keys(rows[0].dirty)) {
		if leaf := l.node.List.Leaf(name); leaf != nil {
			t.Values = append(t.Values, table.ColumnOf(name, leaf.Kind(), len(rows),
				func(row int) any { return rows[row].leaves[name].value }))
		}
	}
	return t
}
