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
	// List is the list's shape with all the leaves of Values.
	List *List
	// Values are by leaf of List; a leaf that is absent or not selected is an absent Value.
	Values []Value

	changes []uint32 // by leaf: the number of changes since the entry appeared
	once    sync.Once
	made    any
}

// Entry is the part that all versions of a row share.
type Entry struct {
	Target string
	// List has the path and the keys; for leaves see Row.List, which may have more.
	List *List
	// Keys are by key of List.
	Keys []Value
	// Depth is the number of elements below the entry that the query names: 0 if it selects the
	// whole entry.
	Depth int

	once sync.Once
	made any
}

// Rendered returns the result of make, which is called once for all subscribers that share the row.
// Subscribers with different renderings use different SubscribeOptions.Rendering.
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
}
