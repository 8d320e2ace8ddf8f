// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/netsketch/netsketch/yang/table"
)

// DefaultTarget is the default of Options.DefaultTarget.
const DefaultTarget = "netsketch"

// ErrClosed is returned once the store is closed.
var ErrClosed = errors.New("store: closed")

// Schema is the part of the YANG schema that the store uses.
type Schema interface {
	// ListKeys returns, for the list at a path of names, the schema path as in table.Table.List, and
	// the keys in the schema's order; false if the schema has no such list.
	ListKeys(elems []string) (path string, keys []string, ok bool)
	// KeyLeaves returns the leaves below an entry of the list that repeat a key, the targets of its
	// leafrefs, as in {"state/node": "node"}. Tables may omit them; the store adds them.
	KeyLeaves(list string) map[string]string
}

// Options are a store's settings. The zero value is usable.
type Options struct {
	// DefaultTarget is the target of batches and queries that name no target; "netsketch" if empty.
	DefaultTarget string
	// Schema provides the keys of lists. Without it, a row can be watched only after its list has
	// rows.
	Schema Schema
	// MaxListBytes bounds the rows of one list of one target. A list above the bound accepts only
	// tables that replace the whole list. The default is 256 MiB.
	MaxListBytes int
}

// ErrListFull is wrapped by Publish when a list exceeds Options.MaxListBytes.
var ErrListFull = errors.New("the list is full")

// Store holds the newest results. See the package comment.
type Store struct {
	opts Options

	pub    sync.Mutex // one Publish at a time; guards taps and closed
	taps   map[*Tap]struct{}
	closed bool

	mu      sync.RWMutex // guards the fields below; held only to copy or replace pointers
	version uint64
	lists   map[listKey]*snapshot
	feeds   map[string]*feed
	stopped bool

	interest interest
}

type listKey struct{ target, list string }

// New returns an empty store.
func New(opts Options) *Store {
	if opts.DefaultTarget == "" {
		opts.DefaultTarget = DefaultTarget
	}
	opts.MaxListBytes = cmp.Or(opts.MaxListBytes, 256<<20)
	return &Store{
		opts:  opts,
		taps:  map[*Tap]struct{}{},
		lists: map[listKey]*snapshot{},
		feeds: map[string]*feed{},
	}
}

// DefaultTarget returns the target of batches and queries that name no target.
func (s *Store) DefaultTarget() string { return s.opts.DefaultTarget }

// Publish makes the whole batch visible at once. It fails, and changes nothing, if a table does not
// fit the remaining rows of its list. It does not wait for subscribers.
func (s *Store) Publish(b Batch) error {
	if err := b.check(); err != nil {
		return err
	}
	if b.Target == "" {
		b.Target = s.opts.DefaultTarget
	}
	s.pub.Lock()
	defer s.pub.Unlock()
	if s.closed {
		return ErrClosed
	}
	next, err := s.prepare(&b)
	if err != nil {
		return err
	}
	s.commit(next)
	for t := range s.taps {
		t.offer(&b)
	}
	return nil
}

// Preview returns a view of the batch alone, as if it had been published to an empty store.
func (s *Store) Preview(b Batch) (*View, error) {
	scratch := New(s.opts)
	if err := scratch.Publish(b); err != nil {
		return nil, err
	}
	return scratch.View(), nil
}

// prepare applies a batch to the current lists. The caller holds s.pub.
func (s *Store) prepare(b *Batch) ([]*snapshot, error) {
	s.mu.RLock()
	st := &stamp{version: s.version + 1, time: b.Time, epoch: b.Epoch}
	work := make(map[string]*snapshot, len(b.Tables))
	for i := range b.Tables {
		list := b.Tables[i].Table.List
		work[list] = s.lists[listKey{b.Target, list}]
	}
	s.mu.RUnlock()

	// All checks come before the first change, because a row that was marked dead stays dead.
	kinds := make(map[string]map[string]table.Kind, len(work))
	isOnce := len(work) == len(b.Tables) // whether the batch has at most one table per list
	for i := range b.Tables {
		p := &b.Tables[i]
		list := p.Table.List
		if work[list] == nil {
			l, err := s.newList(p.Table)
			if err != nil {
				return nil, err
			}
			work[list] = &snapshot{target: b.Target, list: l}
		}
		if kinds[list] == nil && !(isOnce && p.Replace) {
			kinds[list] = work[list].kinds()
		}
		if err := p.fits(work[list].list, kinds[list]); err != nil {
			return nil, err
		}
		if held := work[list].bytes(); held > s.opts.MaxListBytes && !p.Delete && !p.Replace {
			return nil, fmt.Errorf("store: table %s: %w: it has %d bytes of rows, at most %d are kept; publish "+
				"it with Replace, or Delete rows",
				list, ErrListFull, held, s.opts.MaxListBytes)
		}
	}
	out := make([]*snapshot, 0, len(work))
	for i := range b.Tables {
		p := &b.Tables[i]
		work[p.Table.List] = work[p.Table.List].apply(p, st)
	}
	for _, name := range slices.Sorted(maps.Keys(work)) {
		out = append(out, work[name])
	}
	return out, nil
}

func (s *Store) newList(t *table.Table) (*List, error) {
	var extra map[string]string
	if s.opts.Schema != nil {
		extra = s.opts.Schema.KeyLeaves(t.List)
	}
	return newList(t, extra)
}

// commit makes the snapshots current and offers them to the feeds. The caller holds s.pub.
func (s *Store) commit(next []*snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	for _, n := range next {
		s.lists[listKey{n.target, n.list.Path}] = n
	}
	for _, f := range s.feeds {
		f.offer(next)
	}
}

// Targets returns the targets that have rows, sorted.
func (s *Store) Targets() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	seen := map[string]bool{}
	for key, l := range s.lists {
		if l.size() > 0 {
			seen[key.target] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Close ends all feeds and taps. Afterwards, subscriptions get no more changes and Publish returns
// ErrClosed; the rows can still be viewed.
func (s *Store) Close() {
	s.pub.Lock()
	s.closed = true
	for t := range s.taps {
		t.close()
	}
	s.pub.Unlock()

	s.mu.Lock()
	s.stopped = true
	feeds := make([]*feed, 0, len(s.feeds))
	for _, f := range s.feeds {
		feeds = append(feeds, f)
	}
	clear(s.feeds)
	s.mu.Unlock()
	for _, f := range feeds {
		f.shut()
	}
}

// Stats are the store's sizes.
type Stats struct {
	Rows          int // rows of all lists, superseded rows included
	Subscriptions int
}

// Stats returns the store's current sizes.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var st Stats
	for _, l := range s.lists {
		st.Rows += l.size()
	}
	for _, f := range s.feeds {
		st.Subscriptions += f.users
	}
	return st
}

// snapshots returns all lists. The caller holds s.mu.
func (s *Store) snapshots() []*snapshot {
	out := make([]*snapshot, 0, len(s.lists))
	for _, l := range s.lists {
		out = append(out, l)
	}
	return out
}

// View is the store at one moment, so that any number of queries return consistent rows. A view is
// cheap to make, and keeps the tables it refers to in memory.
type View struct {
	lists []*snapshot
	def   string
}

// View returns the current store.
func (s *Store) View() *View {
	s.mu.RLock()
	v := &View{lists: s.snapshots(), def: s.opts.DefaultTarget}
	s.mu.RUnlock()
	slices.SortFunc(v.lists, func(a, b *snapshot) int {
		if a.target != b.target {
			return compare(a.target, b.target)
		}
		return compare(a.list.Path, b.list.Path)
	})
	return v
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// HasTarget reports whether the target ("" is the default one) has rows.
func (v *View) HasTarget(name string) bool {
	for _, l := range v.lists {
		if (l.target == name || name == "" && l.target == v.def) && l.size() > 0 {
			return true
		}
	}
	return false
}

// Rows yields each row that matches any of the queries once, with the selected leaves: targets and
// lists in the order of their names, and rows in the order of publication. Rows share memory with
// the tables.
func (v *View) Rows(queries ...Query) func(yield func(*Row, Meta) bool) {
	return func(yield func(*Row, Meta) bool) {
		for _, l := range v.lists {
			p := planFor(queries, l.target, l.target == v.def, l.list)
			if p != nil && !l.walk(p, yield) {
				return
			}
		}
	}
}

// List yields the rows of one list of one target that match any of the queries.
func (v *View) List(target, list string, queries ...Query) func(yield func(*Row, Meta) bool) {
	return func(yield func(*Row, Meta) bool) {
		for _, l := range v.lists {
			if l.target != target || l.list.Path != list {
				continue
			}
			if p := planFor(queries, l.target, l.target == v.def, l.list); p != nil {
				l.walk(p, yield)
			}
		}
	}
}

// walk yields the rows that a plan selects and reports whether to continue.
func (s *snapshot) walk(p *plan, yield func(*Row, Meta) bool) bool {
	leafs := make([]bool, len(s.list.Leaves))
	if p.exact() {
		seen := make(map[place]bool, len(p.terms))
		for _, at := range s.lookup(p.terms) {
			if at.g == nil || seen[at] {
				continue
			}
			seen[at] = true
			if !s.emit(p, at.g, at.g.leafColumns(s.list), at.row, leafs, yield) {
				return false
			}
		}
		return true
	}
	for _, g := range s.segs {
		col := g.leafColumns(s.list)
		for row := range g.rows() {
			if g.alive(row, s.version) && !s.emit(p, g, col, row, leafs, yield) {
				return false
			}
		}
	}
	return true
}

// emit yields one row if the plan selects it, and reports whether to continue.
func (s *snapshot) emit(p *plan, g *segment, col []int, row int, leafs []bool, yield func(*Row, Meta) bool) bool {
	ok, depth := p.selects(g, row, leafs)
	if !ok {
		return true
	}
	r := &Row{
		Entry:  &Entry{Target: s.target, List: s.list, Keys: g.keys(row), Depth: depth},
		List:   s.list,
		Values: make([]Value, len(leafs)),
	}
	for i, on := range leafs {
		if on {
			r.Values[i] = g.value(s.list, col, i, row)
		}
	}
	st := g.stamp(row)
	return yield(r, Meta{Time: st.time, Epoch: st.epoch, leaves: g.leafTimes(s.list, row)})
}

// Size returns the number of rows of a list of a target ("" is the default one).
func (s *Store) Size(target, list string) int {
	if target == "" {
		target = s.opts.DefaultTarget
	}
	s.mu.RLock()
	l := s.lists[listKey{target, list}]
	s.mu.RUnlock()
	if l == nil {
		return 0
	}
	return l.rows()
}
