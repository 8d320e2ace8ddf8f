// SPDX-License-Identifier: Apache-2.0

// The writer combines deltas into Notifications and sends them.

package server

import (
	"bytes"
	"cmp"
	"slices"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/netsketch/netsketch/internal/store"
)

const (
	// noteSize is the size above which no further rows are added to a Notification. With one more row
	// and gRPC's header, it fits in one HTTP/2 frame of 16 KiB, for which gRPC has a pool of buffers
	// (the next size is 32 KiB).
	noteSize = 15 << 10
	// wholeSize is the largest size of a list that is sent whole, because clients accept messages of
	// 4 MiB.
	wholeSize = 3 << 20
	// ownNote is the number of leaves from which a row gets its own Notification, so that the keys
	// are in the prefix instead of in each leaf.
	ownNote = 4
)

// writer combines the deltas of a stream. Only the stream's sender uses it.
type writer struct {
	server   *Server
	send     func(*gpb.SubscribeResponse) error
	encoding gpb.Encoding
	filter   filter
	origin   string
	target   string // target of the request: replies leave out "", and "*" becomes the target of each row
	quiet    bool   // leaves out the count of duplicates

	head   []byte // origin and target of the open note's prefix
	prefix []byte // path elements of the open note's prefix
	note   []byte // updates and deletes of the open note, the Notification that is being built
	time   int64
	atomic bool
	leaves int
	opened bool
	out    []byte
	masks  map[*listInfo][]bool

	dirty []*listInfo // lists to be sent whole, with their targets
	whose []string
}

// begin opens a note with this prefix and time. If the open note differs, begin sends it first.
func (w *writer) begin(target string, prefix [2][]byte, time int64, atomic bool) error {
	head := w.headFor(target)
	if w.opened {
		same := !atomic && !w.atomic && time == w.time && len(w.note) < noteSize && bytes.Equal(head, w.head) &&
			len(w.prefix) == len(prefix[0])+len(prefix[1]) &&
			bytes.HasPrefix(w.prefix, prefix[0]) && bytes.HasSuffix(w.prefix, prefix[1])
		if same {
			return nil
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.head = append(w.head[:0], head...)
	w.prefix = append(append(w.prefix[:0], prefix[0]...), prefix[1]...)
	w.note, w.time, w.atomic, w.leaves, w.opened = w.note[:0], time, atomic, 0, true
	return nil
}

func (w *writer) headFor(target string) []byte {
	if w.target != "*" || w.server.opts.AnyTarget {
		target = w.target
	}
	var buf [64]byte
	return appendPathHead(buf[:0], w.origin, target)
}

// flush sends the open note, if any.
func (w *writer) flush() error {
	if !w.opened {
		return nil
	}
	w.opened = false
	if len(w.note) == 0 && !w.atomic {
		return nil
	}
	size := 1 + protowire.SizeVarint(uint64(w.time)) + len(w.note)
	path := len(w.head) + len(w.prefix)
	if path > 0 {
		size += 1 + protowire.SizeBytes(path)
	}
	if w.atomic {
		size += 2
	}
	b := protowire.AppendTag(w.out[:0], responseUpdate, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = appendVarint(b, noteTimestamp, uint64(w.time))
	if path > 0 {
		b = appendPath(b, notePrefix, w.head, w.prefix)
	}
	b = append(b, w.note...)
	if w.atomic {
		b = appendVarint(b, noteAtomic, 1)
	}
	w.out = b
	return w.message(b, w.leaves)
}

// message sends an encoded SubscribeResponse.
func (w *writer) message(b []byte, leaves int) error {
	st := &w.server.stats
	st.messages.Add(1)
	st.bytes.Add(uint64(len(b)))
	st.updates.Add(uint64(leaves))
	return w.send(response(b))
}

// appendPath appends a Path, given as two runs of encoded fields.
func appendPath(b []byte, field protowire.Number, head, tail []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(head)+len(tail)))
	return append(append(b, head...), tail...)
}

// delete adds a delete to the open note.
func (w *writer) delete(head, tail []byte) {
	w.note = appendPath(w.note, noteDelete, head, tail)
	w.leaves++
}

// delta writes the changes of a row.
func (w *writer) delta(d *store.Delta) error {
	info := w.server.info(d.Row.List)
	if info.atomic > 0 {
		w.whole(info, d.Row.Entry.Target)
		return nil
	}
	leaves := d.Leaves
	if !w.filter.none() {
		mask := w.mask(info)
		leaves = slices.DeleteFunc(slices.Clone(leaves), func(l store.LeafDelta) bool { return !mask[l.Leaf] })
		if len(leaves) == 0 {
			return nil
		}
	}
	w.count(leaves)
	for _, l := range leaves {
		if info.leaves[l.Leaf].atomic >= 0 {
			return w.deltaAtomic(d, info, leaves)
		}
	}
	return w.plain(d, info, leaves)
}

// count adds the number of duplicates to the statistics.
func (w *writer) count(leaves []store.LeafDelta) {
	if w.quiet {
		return
	}
	n := uint64(0)
	for _, l := range leaves {
		n += uint64(l.Duplicates)
	}
	if n > 0 {
		w.server.stats.coalesced.Add(n)
	}
}

// plain writes leaves that are not part of an atomic container.
func (w *writer) plain(d *store.Delta, info *listInfo, leaves []store.LeafDelta) error {
	if !d.Meta.Uniform() && !d.Removed {
		for _, same := range byTime(d, leaves) {
			if err := w.plainAt(d, info, same, d.Meta.LeafTime(same[0].Leaf)); err != nil {
				return err
			}
		}
		return nil
	}
	return w.plainAt(d, info, leaves, d.Meta.Time.UnixNano())
}

// byTime divides leaves by their time, oldest first.
func byTime(d *store.Delta, leaves []store.LeafDelta) [][]store.LeafDelta {
	sorted := slices.Clone(leaves)
	at := func(l store.LeafDelta) int64 { return d.Meta.LeafTime(l.Leaf) }
	slices.SortStableFunc(sorted, func(a, b store.LeafDelta) int { return cmp.Compare(at(a), at(b)) })
	var out [][]store.LeafDelta
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && at(sorted[n]) == at(sorted[0]) {
			n++
		}
		out = append(out, sorted[:n:n])
		sorted = sorted[n:]
	}
	return out
}

// plainAt writes leaves that have the same time.
func (w *writer) plainAt(d *store.Delta, info *listInfo, leaves []store.LeafDelta, time int64) error {
	eb := entryOf(d.Row.Entry)
	form, prefix, own := fromAbove, [2][]byte{eb.above}, eb.last
	if len(leaves) >= ownNote && !d.Removed {
		form, prefix, own = fromEntry, [2][]byte{eb.above, eb.last}, nil
	}
	if err := w.begin(d.Row.Entry.Target, prefix, time, false); err != nil {
		return err
	}
	if d.Removed && d.Row.Entry.Depth == 0 && w.filter.none() {
		w.delete(own, nil)
		return nil
	}
	for _, l := range leaves {
		if d.Row.Values[l.Leaf].Absent() {
			w.delete(own, info.leaves[l.Leaf].tail)
			continue
		}
		dup := l.Duplicates
		if w.quiet {
			dup = 0
		}
		w.note = appendUpdate(w.note, w.body(d.Row, info, form, l.Leaf), dup)
		w.leaves++
	}
	return nil
}

// deltaAtomic writes a delta whose leaves include some in containers that are sent whole.
func (w *writer) deltaAtomic(d *store.Delta, info *listInfo, leaves []store.LeafDelta) error {
	if d.Removed && d.Row.Entry.Depth == 0 && w.filter.none() {
		return w.plain(d, info, leaves)
	}
	var rest []store.LeafDelta
	done := map[string]bool{}
	for _, l := range leaves {
		f := &info.leaves[l.Leaf]
		if f.atomic < 0 {
			rest = append(rest, l)
			continue
		}
		path := d.Row.List.Leaves[l.Leaf].Path[:f.atomic]
		id := joinPath(path)
		if done[id] {
			continue
		}
		done[id] = true
		if err := w.container(d, info, path, leaves); err != nil {
			return err
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return w.plain(d, info, rest)
}

// container writes the selected leaves of one container within an entry as an atomic Notification
// whose prefix is the container.
func (w *writer) container(d *store.Delta, info *listInfo, path []string, changed []store.LeafDelta) error {
	eb := entryOf(d.Row.Entry)
	elems := slices.Clone(eb.last)
	for _, name := range path {
		elems = appendElem(elems, name)
	}
	var mask []bool
	if !w.filter.none() {
		mask = w.mask(info)
	}
	inside := func(i int) bool {
		leaf := d.Row.List.Leaves[i].Path
		return !d.Row.Values[i].Absent() && (mask == nil || mask[i]) && len(leaf) > len(path) &&
			slices.Equal(leaf[:len(path)], path)
	}
	at := int64(0) // time of the newest leaf
	for i := range d.Row.Values {
		if inside(i) {
			at = max(at, d.Meta.LeafTime(i))
		}
	}
	if at == 0 {
		at = d.Meta.Time.UnixNano()
	}
	if err := w.begin(d.Row.Entry.Target, [2][]byte{eb.above, elems}, at, true); err != nil {
		return err
	}
	dups := map[int]uint32{}
	for _, l := range changed {
		dups[l.Leaf] = l.Duplicates
	}
	var body, tail []byte
	for i, v := range d.Row.Values {
		if !inside(i) {
			continue
		}
		leaf := d.Row.List.Leaves[i].Path
		tail = tail[:0]
		for _, name := range leaf[len(path):] {
			tail = appendElem(tail, name)
		}
		body = appendBody(body[:0], w.encoding, nil, tail, &info.leaves[i], v)
		dup := dups[i]
		if w.quiet {
			dup = 0
		}
		w.note = appendUpdate(w.note, body, dup)
		w.leaves++
	}
	if w.leaves == 0 { // the container has no leaves any more
		w.delete(nil, nil)
	}
	return w.flush()
}

// whole records that a list must be sent whole after the deltas.
func (w *writer) whole(info *listInfo, target string) {
	for i, d := range w.dirty {
		if d.list.Path == info.list.Path && w.whose[i] == target {
			w.dirty[i] = info
			return
		}
	}
	w.dirty, w.whose = append(w.dirty, info), append(w.whose, target)
}

// finish sends the lists that must be sent whole, and then the open note.
func (w *writer) finish(queries []store.Query) error {
	if err := w.flush(); err != nil {
		return err
	}
	dirty, whose := w.dirty, w.whose
	w.dirty, w.whose = nil, nil
	for i, info := range dirty {
		if err := w.list(info, whose[i], w.server.opts.Store.View(), queries); err != nil {
			return err
		}
	}
	return nil
}

// list sends the selected rows of a list in one atomic Notification whose prefix is their
// container.
func (w *writer) list(info *listInfo, target string, view *store.View, queries []store.Query) error {
	var prefix []byte
	n := len(info.list.Elems)
	for _, name := range info.list.Elems[:min(info.atomic, n)] {
		prefix = appendElem(prefix, name)
	}
	var meta store.Meta
	var body, path []byte
	leaves := 0
	note := w.note[:0]
	for row, m := range view.List(target, info.list.Path, queries...) {
		if m.Time.After(meta.Time) {
			meta = m
		}
		rinfo := w.server.info(row.List)
		mask := w.mask(rinfo)
		for i, v := range row.Values {
			if v.Absent() || !mask[i] {
				continue
			}
			// The prefix of an atomic list is the path above the list: if the prefix contained the list's
			// name, there would be no place for the keys.
			path = appendElems(path[:0], row.Entry, min(info.atomic, n-1), n)
			body = appendBody(body[:0], w.encoding, path, rinfo.leaves[i].tail, &rinfo.leaves[i], v)
			note = appendUpdate(note, body, 0)
			leaves++
		}
	}
	if meta.Time.IsZero() {
		meta.Time = w.server.opts.Now()
	}
	if info.atomic == n {
		prefix = prefix[:0]
		for _, name := range info.list.Elems[:n-1] {
			prefix = appendElem(prefix, name)
		}
	}
	fits := len(note) <= w.server.whole
	w.note = note[:0]
	if err := w.begin(target, [2][]byte{prefix}, meta.Time.UnixNano(), fits); err != nil {
		return err
	}
	if fits && leaves > 0 {
		w.note, w.leaves = note, leaves
		return w.flush()
	}
	w.delete(nil, nil)
	if err := w.flush(); err != nil || leaves == 0 {
		return err
	}
	// The list is larger than clients accept in one message, so it is sent as a delete and then row
	// by row.
	var scratch []store.LeafDelta
	for row, m := range view.List(target, info.list.Path, queries...) {
		rinfo := w.server.info(row.List)
		mask := w.mask(rinfo)
		scratch = scratch[:0]
		for i, v := range row.Values {
			if !v.Absent() && mask[i] {
				scratch = append(scratch, store.LeafDelta{Leaf: i})
			}
		}
		if err := w.plain(&store.Delta{Row: row, Meta: m, Leaves: scratch}, rinfo, scratch); err != nil {
			return err
		}
	}
	return w.flush()
}

// row writes a whole row, for ONCE and POLL.
func (w *writer) row(row *store.Row, meta store.Meta, scratch []store.LeafDelta) ([]store.LeafDelta, error) {
	scratch = scratch[:0]
	for i, v := range row.Values {
		if !v.Absent() {
			scratch = append(scratch, store.LeafDelta{Leaf: i})
		}
	}
	if len(scratch) == 0 {
		return scratch, nil
	}
	return scratch, w.delta(&store.Delta{Row: row, Meta: meta, Leaves: scratch})
}

// mask reports for each leaf of a list whether it passes the filter.
func (w *writer) mask(info *listInfo) []bool {
	m := w.masks[info]
	if m == nil {
		m = make([]bool, len(info.leaves))
		for i := range m {
			m[i] = w.filter.matches(&info.leaves[i])
		}
		if w.masks == nil {
			w.masks = map[*listInfo][]bool{}
		}
		w.masks[info] = m
	}
	return m
}

func joinPath(p []string) string {
	b := []byte{}
	for _, e := range p {
		b = append(append(b, '/'), e...)
	}
	return string(b)
}
