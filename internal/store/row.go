// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"time"
)

// Row is one list entry, or one container, with the selected leaves. It is immutable; a change
// makes a new Row.
type Row struct {
	Entry *Entry
	// List is the shape of the list, with all leaves that Values has.
	List *List
	// Values has one value for each leaf of List; a leaf that is missing or not selected is an absent
	// Value.
	Values []Value

	changes []uint32 // number of changes of each leaf since the entry appeared
	once    sync.Once
	made    any
}

// Entry is the part that all versions of a row share.
type Entry struct {
	Target string
	// List has the path and the keys. Its leaves may be fewer than those of Row.List.
	List *List
	// Keys has one value for each key of List.
	Keys []Value
	// Depth is the number of elements of the query's path below the entry: 0 if the query selects the
	// whole entry.
	Depth int

	once sync.Once
	made any
}

// Rendered returns the result of make, which is called once for all subscribers that share the
// row. Subscribers that render rows differently set different SubscribeOptions.Rendering.
func (r *Row) Rendered(make func(*Row) any) any {
	r.once.Do(func() { r.made = make(r) })
	return r.made
}

// Rendered returns the result of make, which is called once for all rows of the entry.
func (e *Entry) Rendered(make func(*Entry) any) any {
	e.once.Do(func() { e.made = make(e) })
	return e.made
}

// Meta is the time and epoch of a row's last publication.
type Meta struct {
	Time  time.Time
	Epoch uint64

	leaves []int64 // times of the leaves in nanoseconds since 1970; nil if all leaves have Time
}

// LeafTime returns when a leaf was measured, in nanoseconds since 1970. It is before the row's time
// if later publications of the row left the leaf out. leaf is the index in Row.List.Leaves.
func (m *Meta) LeafTime(leaf int) int64 {
	if leaf < len(m.leaves) {
		return m.leaves[leaf]
	}
	return m.Time.UnixNano()
}

// Uniform reports whether all leaves have the time of the row.
func (m *Meta) Uniform() bool { return m.leaves == nil }
