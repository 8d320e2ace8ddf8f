// SPDX-License-Identifier: Apache-2.0

// Rows as encoded updates. They are kept with the store's rows, for all streams that share the
// rows.

package server

import (
	"sync"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/internal/store"
)

// entryBytes is the encoded path of a row's entry.
type entryBytes struct {
	above []byte // path elements above the entry
	last  []byte // path element of the entry, with its keys
}

func renderEntry(e *store.Entry) any {
	n := len(e.List.Elems)
	return &entryBytes{above: appendElems(nil, e, 0, n-1), last: appendElems(nil, e, n-1, n)}
}

func entryOf(e *store.Entry) *entryBytes { return e.Rendered(renderEntry).(*entryBytes) }

// rowBytes holds the bodies of Updates for a row's leaves in two forms. One has paths below the
// entry, for a Notification whose prefix is the entry. The other has paths that begin with the
// entry's element, for a prefix above it.
type rowBytes struct {
	from [2]struct {
		once sync.Once
		buf  []byte
		ends []uint32
	}
}

// The two forms of a body.
const (
	fromEntry = iota
	fromAbove
)

func newRowBytes(*store.Row) any { return new(rowBytes) }

// body returns one leaf's body in one of the forms.
func (w *writer) body(row *store.Row, info *listInfo, form, leaf int) []byte {
	rb := row.Rendered(newRowBytes).(*rowBytes)
	f := &rb.from[form]
	f.once.Do(func() {
		var head []byte
		if form == fromAbove {
			head = entryOf(row.Entry).last
		}
		f.ends = make([]uint32, len(row.Values))
		for i, v := range row.Values {
			if !v.Absent() {
				f.buf = appendBody(f.buf, w.encoding, head, info.leaves[i].tail, &info.leaves[i], v)
			}
			f.ends[i] = uint32(len(f.buf))
		}
	})
	start := uint32(0)
	if leaf > 0 {
		start = f.ends[leaf-1]
	}
	return f.buf[start:f.ends[leaf]]
}

// appendBody appends an Update's path, given as two runs of elements, and its value.
func appendBody(b []byte, enc gpb.Encoding, head, tail []byte, f *leafInfo, v store.Value) []byte {
	b = appendPath(b, updatePath, head, tail)
	return appendValue(b, enc, f, v)
}
