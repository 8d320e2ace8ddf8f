// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/meter"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// bound is an action call ready for execution.
type bound struct {
	action *program.Action
	pc     uint32
	params []uint64
}

// entryState is an installed entry. Its match and action change only while no packet runs; its
// counters are changed by packets of several lanes.
type entryState struct {
	run    bound
	next   uint32 // pc after the action
	hit    bool
	group  *groupState // selects the action instead of run; nil without a group
	member *memberState

	value, mask []uint64 // ternary: of the whole key; range fields: low and high end
	priority    int32
	seq         uint64
	chain       *entryState // ternary: the next entry with equal mask and value

	counter  directCounter
	lastHit  int64
	notified int64
	meter    *meter.Meter

	e   control.Entry
	key string
}

// Table holds the entries of a table, which do not change during lookups.
type Table struct {
	def     *program.Table
	st      *State
	dflt    *entryState
	dfltSet bool // the control plane has set the default
	plain   bool // a hit needs no counter, time, meter or member
	byKey   map[string]*entryState
	seq     uint64

	exact hashIndex
	lpm   lpmIndex
	tern  ternaryIndex // range and mixed tables too
}

// hitGrain is the resolution of an entry's last hit if lanes share it.
const hitGrain = time.Millisecond

// share prepares an entry for several lanes.
func (t *Table) share(e *entryState) {
	if t.def.Counts {
		e.counter.share(t.st.env.Lanes)
	}
}

// apply looks up the packet and enters the action; it returns the next instruction.
func (t *Table) apply(p *Packet) uint32 {
	d := t.def
	e := t.dflt
	if len(t.byKey) > 0 {
		if hit := t.find(p); hit != nil {
			e = hit
		}
	}
	if e == nil {
		return d.MissPC
	}
	if t.plain {
		for i, v := range e.run.params {
			p.f[p.prog.Params+i] = v
		}
		p.ret = e.next
		return e.run.pc
	}
	if d.Counts {
		e.counter.add(p)
	}
	if d.Ages {
		if p.Lane.serial {
			e.lastHit = int64(p.Now)
		} else if old := atomic.LoadInt64(&e.lastHit); int64(p.Now)-old >= int64(hitGrain) {
			atomic.StoreInt64(&e.lastHit, int64(p.Now))
		}
	}
	if d.Meter != nil && (e.hit || e.meter != nil && e.meter.Configured()) {
		p.f[d.Meter.Slot] = uint64(e.meter.Execute(p.Now, p.ingressLen)) & d.Meter.Mask
	}
	run, next := &e.run, e.next
	if e.group != nil {
		run = e.group.choose(p, t.st)
		if run == nil { // an empty group
			return t.after(nil, e.hit)
		}
		next = t.after(run.action, e.hit)
	} else if e.member != nil {
		run = &e.member.run
		next = t.after(run.action, e.hit)
	}
	copy(p.f[p.prog.Params:], run.params)
	p.ret = next
	return run.pc
}

// after returns the instruction that follows an action.
func (t *Table) after(a *program.Action, hit bool) uint32 {
	d := t.def
	switch {
	case d.HitMiss && hit:
		return d.OnHit
	case d.HitMiss:
		return d.OnMiss
	case a == nil:
		return d.MissPC
	}
	return d.Next[a.ID]
}

// find returns the entry that matches, or nil.
func (t *Table) find(p *Packet) *entryState {
	d := t.def
	if d.Lookup == control.MatchExact && d.Words == 1 && len(d.Pieces) == 1 {
		pc := &d.Pieces[0]
		return t.exact.find1(p.f[pc.Slot] & pc.Mask)
	}
	if d.Lookup == control.MatchLPM && d.Words == 1 && len(d.Pieces) == 1 {
		pc := &d.Pieces[0]
		return t.lpm.find1(p.f[pc.Slot] & pc.Mask)
	}
	var fixed [8]uint64
	key := fixed[:]
	if d.Words > len(fixed) {
		key = p.f[p.prog.KeyScratch : p.prog.KeyScratch+d.Words]
	}
	key = key[:d.Words]
	clear(key)
	for i := range d.Pieces {
		pc := &d.Pieces[i]
		key[pc.Word] |= (p.f[pc.Slot] & pc.Mask) << pc.Shift
	}
	switch d.Lookup {
	case control.MatchExact:
		return t.exact.find(key)
	case control.MatchLPM:
		return t.lpm.find(key, p.f[p.prog.KeyScratch+d.Words:])
	}
	return t.tern.find(key, p.f[p.prog.KeyScratch+d.Words:])
}

func (e *entryState) matches(d *program.Table, key []uint64) bool {
	if d.Lookup == control.MatchTernary {
		for i, k := range key {
			if k&e.mask[i] != e.value[i] {
				return false
			}
		}
		return true
	}
	for i := range d.KeyFields {
		k := &d.KeyFields[i]
		w := key[k.Word : k.Word+k.Words]
		lo, hi := e.value[k.Word:k.Word+k.Words], e.mask[k.Word:k.Word+k.Words]
		if k.Kind == control.MatchRange {
			if wide.LessUnsigned(w, lo) || wide.LessUnsigned(hi, w) {
				return false
			}
			continue
		}
		for j := range w {
			if w[j]&hi[j] != lo[j] {
				return false
			}
		}
	}
	return true
}

// hashIndex finds entries by all words of a key, with open addressing, at most half full.
type hashIndex struct {
	words int
	keys  []uint64
	vals  []*entryState
	used  int
	gone  int
}

var tombstone = &entryState{}

func hashWords(key []uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, w := range key {
		hi, lo := bits.Mul64(h^w, 0xd6e8feb86659fd93)
		h = hi ^ lo
	}
	return h
}

func (x *hashIndex) find1(k uint64) *entryState {
	if len(x.vals) == 0 {
		return nil
	}
	mask := uint64(len(x.vals) - 1)
	hi, lo := bits.Mul64(0x9e3779b97f4a7c15^k, 0xd6e8feb86659fd93)
	for i := (hi ^ lo) & mask; ; i = (i + 1) & mask {
		e := x.vals[i]
		if e == nil {
			return nil
		}
		if x.keys[i] == k && e != tombstone {
			return e
		}
	}
}

func (x *hashIndex) slot(key []uint64) (at uint64, found bool) {
	mask := uint64(len(x.vals) - 1)
	for i := hashWords(key) & mask; ; i = (i + 1) & mask {
		e := x.vals[i]
		if e == nil {
			return i, false
		}
		if e != tombstone && equalWords(x.keys[int(i)*x.words:], key) {
			return i, true
		}
	}
}

func equalWords(a, b []uint64) bool {
	for i, w := range b {
		if a[i] != w {
			return false
		}
	}
	return true
}

func (x *hashIndex) find(key []uint64) *entryState {
	if len(x.vals) == 0 {
		return nil
	}
	if i, ok := x.slot(key); ok {
		return x.vals[i]
	}
	return nil
}

func (x *hashIndex) put(key []uint64, e *entryState) {
	if 2*(x.used+x.gone+1) > len(x.vals) {
		x.rehash(max(16, 4*(x.used+1)))
	}
	i, ok := x.slot(key)
	if !ok {
		x.used++
	}
	copy(x.keys[int(i)*x.words:], key)
	x.vals[i] = e
}

func (x *hashIndex) rehash(n int) {
	size := 1 << bits.Len(uint(n-1))
	old := *x
	x.keys, x.vals, x.used, x.gone = make([]uint64, size*x.words), make([]*entryState, size), 0, 0
	for i, e := range old.vals {
		if e != nil && e != tombstone {
			x.put(old.keys[i*x.words:(i+1)*x.words], e)
		}
	}
}

func (x *hashIndex) remove(key []uint64) {
	if len(x.vals) == 0 {
		return
	}
	if i, ok := x.slot(key); ok {
		x.vals[i] = tombstone
		x.used--
		x.gone++
	}
}

// lpmIndex finds the longest prefix. A few entries over one word are kept as sorted intervals;
// otherwise there is a hash index for each prefix length, tried from the longest.
type lpmIndex struct {
	def     *program.Table
	byLen   []*lpmLength // longest first
	starts  []uint64     // starts of intervals, and the entries that cover them
	covers  []*entryState
	ordered bool // starts and covers are in use
}

type lpmLength struct {
	bits  int
	mask  []uint64
	index hashIndex
}

const maxIntervals = 256 // entries up to which intervals are used

func (x *lpmIndex) length(bits int) *lpmLength {
	for _, l := range x.byLen {
		if l.bits == bits {
			return l
		}
	}
	return nil
}

func (x *lpmIndex) put(e *entryState, bits int) {
	l := x.length(bits)
	if l == nil {
		l = &lpmLength{bits: bits, mask: e.mask, index: hashIndex{words: x.def.Words}}
		at := 0
		for at < len(x.byLen) && x.byLen[at].bits > bits {
			at++
		}
		x.byLen = append(x.byLen, nil)
		copy(x.byLen[at+1:], x.byLen[at:])
		x.byLen[at] = l
	}
	l.index.put(e.value, e)
}

func (x *lpmIndex) remove(e *entryState, bits int) {
	l := x.length(bits)
	if l == nil {
		return
	}
	l.index.remove(e.value)
	if l.index.used == 0 {
		for i := range x.byLen {
			if x.byLen[i] == l {
				x.byLen = append(x.byLen[:i:i], x.byLen[i+1:]...)
				break
			}
		}
	}
}

func (x *lpmIndex) find1(k uint64) *entryState {
	if x.ordered {
		lo, hi := 0, len(x.starts) // the last start <= k is in [lo, hi)
		for hi-lo > 1 {
			if mid := int(uint(lo+hi) >> 1); x.starts[mid] <= k {
				lo = mid
			} else {
				hi = mid
			}
		}
		return x.covers[lo]
	}
	for _, l := range x.byLen {
		if e := l.index.find1(k & l.mask[0]); e != nil {
			return e
		}
	}
	return nil
}

func (x *lpmIndex) find(key, masked []uint64) *entryState {
	masked = masked[:len(key)]
	for _, l := range x.byLen {
		for i, w := range key {
			masked[i] = w & l.mask[i]
		}
		if e := l.index.find(masked); e != nil {
			return e
		}
	}
	return nil
}

// rebuild rebuilds the intervals after a change.
func (x *lpmIndex) rebuild(entries map[string]*entryState) {
	x.ordered = false
	if x.def.Words != 1 || len(x.def.Pieces) != 1 || len(entries) > maxIntervals {
		return
	}
	all := make([]*entryState, 0, len(entries))
	marks := make([]uint64, 0, 2*len(entries)+1)
	marks = append(marks, 0)
	full := wide.Mask(x.def.KeyFields[x.def.LPM].Width)
	for _, e := range entries {
		all = append(all, e)
		marks = append(marks, e.value[0])
		if end := e.value[0] | full&^e.mask[0]; end < full {
			marks = append(marks, end+1)
		}
	}
	marks = sortUnique(marks)
	x.starts, x.covers = marks, make([]*entryState, len(marks))
	for i, m := range marks {
		best := -1
		for _, e := range all {
			if m&e.mask[0] == e.value[0] && bits.OnesCount64(e.mask[0]) > best {
				best, x.covers[i] = bits.OnesCount64(e.mask[0]), e
			}
		}
	}
	x.ordered = true
}

// idle returns the time since an entry's last hit.
func (e *entryState) idle(now time.Duration) time.Duration {
	return max(0, now-time.Duration(e.lastHit))
}
