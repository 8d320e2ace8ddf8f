// SPDX-License-Identifier: Apache-2.0

// Rows: what readers are given.

package store

import (
	"sync"
	"time"
)

// Row is one list entry, or one container, with the leaves that were asked for. It
// is immutable; a change makes a new Row.
type Row struct {
	Entry *Entry
	// List is the list's shape with all the leaves of Values.
	List *List
	// Values are by leaf of List; a leaf that is absent, or that nobody asked
	// for, is an absent Value.
	Values []Value

	changes []uint32 // by leaf: how often it has changed since the entry appeared
	once    sync.Once
	made    any
}

// Entry is what all the versions of a row have in common.
type Entry struct {
	Target string
	// List has the path and the keys; for leaves see Row.List, which may have more.
	List *List
	// Keys are by key of List.
	Keys []Value
	// Depth is how many elements under the entry the query spelled out: 0 when all
	// of the entry was asked for.
	Depth int

	once sync.Once
	made any
}

// Rendered returns what make makes of the row, made once for all the subscribers
// that share it. Subscribers with different renderings use different
// SubscribeOptions.Rendering.
func (r *Row) Rendered(make func(*Row) any) any {
	r.once.Do(func() { r.made = make(r) })
	return r.made
}

// Rendered returns what make makes of the entry, made once for all its rows.
func (e *Entry) Rendered(make func(*Entry) any) any {
	e.once.Do(func() { e.made = make(e) })
	return e.made
}

// Meta says when and with which epoch a row was last published.
type Meta struct {
	Time  time.Time
	Epoch uint64
}
