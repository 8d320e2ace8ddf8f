// SPDX-License-Identifier: Apache-2.0

// Feeds: the rows that one set of queries selects, followed once for all subscribers with these
// queries.

package store

import (
	"slices"
	"strings"
	"sync"
)

// chunk is the number of rows that a feed processes before it releases its lock for subscribers.
const chunk = 2048

// feed keeps a slot for every row that its queries select. A slot holds the row's newest values and
// counts the changes of each leaf. A log holds the order in which slots last changed. A
// subscription keeps its position in the log and the change count of each leaf that it has sent. A
// slow subscriber thus finds the newest values and the number of missed changes, without a queue of
// its own.
type feed struct {
	store   *Store
	key     string
	queries []Query
	watches []Watch
	users   int // guarded by store.mu

	wake chan struct{} // capacity 1
	stop chan struct{}
	done chan struct{}

	offered struct {
		sync.Mutex
		next   map[listKey]offer
		wanted map[listKey]wanted // whether the queries select rows of a list, by list
	}

	eval sync.Mutex // one evaluation at a time; taken before mu

	mu     sync.Mutex // guards the fields below
	lists  map[listKey]*feedList
	slots  []slot
	free   []int32
	log    []logEntry
	seq    uint64 // number of the newest log entry
	stride int    // the largest number of leaves in any list
	subs   map[*Subscription]struct{}

	scratch struct {
		key    []byte
		leafs  []bool
		values []Value
	}
}

// offer is the newest snapshot of a list that the feed has not evaluated.
type offer struct {
	*snapshot
	skipped uint32 // earlier snapshots of the list, which it replaced before the feed evaluated them
}

type wanted struct {
	list *List
	is   bool
}

// feedList is a list in which the feed's queries select rows.
type feedList struct {
	plan *plan
	rows map[string]int32 // slots by key
	seen uint64           // version that the slots represent
}

// slot is the place of one row in a feed. A slot whose row was removed stays until the removal is
// sent to every subscriber that has the row.
type slot struct {
	list  *feedList
	row   *Row    // nil if the slot is free
	stamp *stamp  // the row's last publication, which may have changed nothing
	times []int64 // times of the leaves; nil if all have the time of stamp
	gen   uint32  // counts the rows that have used the slot
	known int32   // number of subscribers that have the row
	gone  bool    // the row was removed
	round uint64  // the last evaluation that found the row
	seq   uint64  // number of the slot's last log entry; entries with another number are stale
}

type logEntry struct {
	seq  uint64
	slot int32
}

func newFeed(s *Store, key string, queries []Query) *feed {
	f := &feed{
		store:   s,
		key:     key,
		queries: queries,
		watches: s.watchesOf(queries),
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
		lists:   map[listKey]*feedList{},
		subs:    map[*Subscription]struct{}{},
	}
	f.offered.next = map[listKey]offer{}
	f.offered.wanted = map[listKey]wanted{}
	return f
}

// feedKey returns a text that is equal for queries that select the same rows and leaves in the
// same rendering.
func feedKey(queries []Query, rendering string) string {
	texts := make([]string, len(queries))
	for i, q := range queries {
		texts[i] = q.String()
	}
	slices.Sort(texts)
	return rendering + "\x00" + strings.Join(slices.Compact(texts), "\x00")
}

// run follows the lists until the last subscriber leaves.
func (f *feed) run() {
	defer close(f.done)
	for {
		select {
		case <-f.stop:
			return
		case <-f.wake:
			f.evaluate()
		}
	}
}

// shut ends run and waits for it.
func (f *feed) shut() {
	close(f.stop)
	<-f.done
}

// offer passes new snapshots to the feed, which keeps the newest of each list. It does not wait for
// an evaluation.
func (f *feed) offer(next []*snapshot) {
	some := false
	f.offered.Lock()
	for _, n := range next {
		key := listKey{n.target, n.list.Path}
		w, ok := f.offered.wanted[key]
		if !ok || w.list != n.list {
			w.list = n.list
			w.is = planFor(f.queries, n.target, n.target == f.store.opts.DefaultTarget, n.list) != nil
			f.offered.wanted[key] = w
		}
		if w.is {
			earlier, waits := f.offered.next[key]
			o := offer{n, earlier.skipped}
			if waits && earlier.version < n.version {
				o.skipped++
			}
			f.offered.next[key] = o
			some = true
		}
	}
	f.offered.Unlock()
	if some {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// evaluate updates the slots from the offered snapshots and signals subscribers.
func (f *feed) evaluate() {
	f.eval.Lock()
	defer f.eval.Unlock()
	f.offered.Lock()
	work := make([]offer, 0, len(f.offered.next))
	for _, n := range f.offered.next {
		work = append(work, n)
	}
	clear(f.offered.next)
	f.offered.Unlock()
	slices.SortFunc(work, func(a, b offer) int {
		if a.target != b.target {
			return compare(a.target, b.target)
		}
		return compare(a.list.Path, b.list.Path)
	})

	f.mu.Lock()
	before := f.seq
	for _, n := range work {
		f.take(n)
	}
	f.compact()
	if f.seq != before {
		for sub := range f.subs {
			sub.signal()
		}
	}
	f.mu.Unlock()
}

// take updates the slots of one list to a snapshot. The caller holds eval and mu; take releases mu
// between chunks.
func (f *feed) take(n offer) {
	key := listKey{n.target, n.list.Path}
	fl := f.lists[key]
	if fl == nil {
		fl = &feedList{rows: map[string]int32{}}
		f.lists[key] = fl
	}
	if fl.plan == nil || fl.plan.list != n.list {
		fl.plan = planFor(f.queries, n.target, n.target == f.store.opts.DefaultTarget, n.list)
		f.stride = max(f.stride, len(n.list.Leaves))
	}
	if fl.plan == nil || n.version <= fl.seen {
		return
	}
	since := fl.seen
	fl.seen = n.version
	if fl.plan.exact() {
		f.takeKeyed(fl, n, since)
	} else {
		f.takeAll(fl, n, since)
	}
}

// takeKeyed looks up the rows that the queries name by all their keys.
func (f *feed) takeKeyed(fl *feedList, n offer, since uint64) {
	f.mu.Unlock() // the search for many rows takes time
	found := n.lookup(fl.plan.terms)
	f.mu.Lock()
	for i, at := range found {
		if at.g == nil {
			if id, had := fl.rows[string(fl.plan.terms[i].key)]; had {
				f.remove(n.snapshot, id)
			}
		} else if at.g.stamp(at.row).version > since {
			f.update(fl, n, at.g, at.g.leafColumns(n.list), at.row)
		}
	}
}

// takeAll processes the rows that are newer than the slots, and then finds the slots whose rows
// are gone.
func (f *feed) takeAll(fl *feedList, n offer, since uint64) {
	fresh := true // every row in the list is newer than the slots
	count := 0
	for _, g := range n.segs {
		if g.one == nil || g.one.version <= since {
			fresh = false
		}
		if g.newer <= since {
			continue
		}
		col := g.leafColumns(n.list)
		for row := range g.rows() {
			if g.stamp(row).version > since && g.alive(row, n.version) {
				f.update(fl, n, g, col, row)
			}
			if count++; count%chunk == 0 {
				f.mu.Unlock()
				f.mu.Lock()
			}
		}
	}
	if n.removed <= since {
		return
	}
	for key, id := range fl.rows {
		if f.slots[id].round == n.version {
			continue
		}
		if !fresh {
			if _, _, ok := n.find([]byte(key)); ok {
				continue
			}
		}
		f.remove(n.snapshot, id)
	}
}

// update updates the slot of a row if the queries select the row.
func (f *feed) update(fl *feedList, n offer, g *segment, col []int, row int) {
	sc := &f.scratch
	if len(sc.leafs) < len(n.list.Leaves) {
		sc.leafs = make([]bool, len(n.list.Leaves))
		sc.values = make([]Value, len(n.list.Leaves))
	}
	leafs, values := sc.leafs[:len(n.list.Leaves)], sc.values[:len(n.list.Leaves)]
	ok, depth := fl.plan.selects(g, row, leafs)
	if !ok {
		return
	}
	for i, on := range leafs {
		values[i] = Value{}
		if on {
			values[i] = g.value(n.list, col, i, row)
		}
	}
	sc.key = appendKey(sc.key[:0], g.t.Keys, row)
	id, had := fl.rows[string(sc.key)]
	if !had {
		entry := &Entry{Target: n.target, List: n.list, Keys: g.keys(row), Depth: depth}
		for i := range entry.Keys {
			entry.Keys[i] = entry.Keys[i].clone()
		}
		id = f.allocate(fl, &Row{Entry: entry, List: n.list})
		fl.rows[string(sc.key)] = id
	}
	s := &f.slots[id]
	s.stamp, s.times, s.round = g.stamp(row), g.leafTimes(n.list, row), n.version
	if next := s.row.with(n.list, values, 1+n.skipped); next != s.row {
		s.row, s.gone = next, false
		f.append(id)
	}
}

// with returns the row with new values, or the row itself if the new values equal its own. Each
// leaf with another value has changed at most so many times.
func (r *Row) with(l *List, values []Value, changes uint32) *Row {
	same := true
	for i, v := range values {
		if i >= len(r.Values) && !v.Absent() || i < len(r.Values) && v != r.Values[i] {
			same = false
			break
		}
	}
	if same {
		return r
	}
	next := &Row{Entry: r.Entry, List: l, Values: make([]Value, len(values)), changes: make([]uint32, len(values))}
	copy(next.changes, r.changes)
	for i, v := range values {
		if i < len(r.Values) && v == r.Values[i] {
			next.Values[i] = r.Values[i]
			continue
		}
		if i < len(r.Values) || !v.Absent() {
			next.changes[i] += changes
		}
		if k := l.Leaves[i].KeyOf; k >= 0 && !v.Absent() {
			next.Values[i] = r.Entry.Keys[k]
		} else {
			next.Values[i] = v.clone()
		}
	}
	return next
}

// allocate returns a slot for a new row.
func (f *feed) allocate(fl *feedList, row *Row) int32 {
	var id int32
	if n := len(f.free); n > 0 {
		id = f.free[n-1]
		f.free = f.free[:n-1]
	} else {
		id = int32(len(f.slots))
		f.slots = append(f.slots, slot{})
	}
	s := &f.slots[id]
	*s = slot{list: fl, row: row, gen: s.gen + 1}
	return id
}

// remove marks a slot's row as removed.
func (f *feed) remove(n *snapshot, id int32) {
	s := &f.slots[id]
	if s.gone {
		return
	}
	s.row = s.row.with(s.row.List, make([]Value, len(s.row.Values)), 1)
	s.gone = true
	s.stamp, s.times = n.stamp, nil
	if s.known == 0 {
		f.release(id)
		return
	}
	f.append(id)
}

// release frees the slot of a removed row that no subscriber has.
func (f *feed) release(id int32) {
	s := &f.slots[id]
	var key []byte
	for _, v := range s.row.Entry.Keys {
		key = appendKeyValue(key, v)
	}
	delete(s.list.rows, string(key))
	*s = slot{gen: s.gen}
	f.free = append(f.free, id)
}

// append logs that a slot has changed.
func (f *feed) append(id int32) {
	f.seq++
	f.slots[id].seq = f.seq
	f.log = append(f.log, logEntry{f.seq, id})
}

// compact drops stale log entries when they are the majority, which bounds the log to about twice
// the number of slots.
func (f *feed) compact() {
	if len(f.log) <= 2*len(f.slots)+chunk {
		return
	}
	f.log = slices.DeleteFunc(f.log, func(e logEntry) bool { return f.slots[e.slot].seq != e.seq })
}
