// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// tableDef is a table of the program.
type tableDef struct {
	TableInfo
	index   int
	keys    []keyDef
	words   int // of a key
	pieces  []keyPiece
	lookup  MatchKind // exact, lpm, ternary (range and mixed tables too)
	lpm     int       // the lpm key, or -1
	actions map[int]bool
	byName  map[string]*action
	next    map[int]uint32 // action id to pc
	hitMiss bool
	onHit   uint32
	onMiss  uint32
	profile int // or -1
	meter   *directMeterDef
	count   bool
	age     bool
	entries []entrySeed
	def     *seedAction
	missPC  uint32 // where a table without any default action goes
}

// keyDef is where a key field sits in the words of a key.
type keyDef struct {
	KeyInfo
	word, shift int // of fields up to 64 bits
	words       int
	mask        []uint64 // static mask, full width
	valid       bool     // match_type "valid"
}

// keyPiece fills part of a key word from a slot.
type keyPiece struct {
	slot  uint32
	word  uint32
	shift uint8
	mask  uint64
}

type entrySeed struct {
	entry Entry
	act   seedAction
}

type seedAction struct {
	action *action
	params []uint64
	konst  bool
}

// bound is an action with its parameters, as the data plane needs it.
type bound struct {
	action *action
	pc     uint32
	params []uint64
}

// entryState is an entry at work. Its match and action are read by packets and changed only while no packet runs; the counters are
// changed by packets of several lanes.
type entryState struct {
	run    bound
	next   uint32 // pc after the action
	hit    bool
	group  *groupState // instead of run
	member *memberState

	value, mask []uint64 // ternary: of the whole key; range fields: low and high end
	priority    int32
	seq         uint64
	chain       *entryState // ternary: the next of equal masks and values

	counter  directCounter
	lastHit  int64
	notified int64
	meter    *meterState

	e   Entry
	key string
}

// tableState is a table's entries. Lookups run while changes are excluded.
type tableState struct {
	def     *tableDef
	st      *state
	dflt    *entryState
	dfltSet bool // the control plane chose the default
	byKey   map[string]*entryState
	seq     uint64

	exact hashIndex
	lpm   lpmIndex
	tern  ternaryIndex // range and mixed tables too
}

// hitGrain is how exact the time of an entry's last hit is when lanes share it.
const hitGrain = time.Millisecond

// share prepares an entry to be hit by packets of several lanes.
func (t *tableState) share(e *entryState) {
	if t.def.count {
		e.counter.share(len(t.st.sw.lanes))
	}
}

// apply looks the packet up and enters the action; it returns where to go on.
func (t *tableState) apply(p *packet) uint32 {
	d := t.def
	e := t.dflt
	if len(t.byKey) > 0 {
		if hit := t.find(p); hit != nil {
			e = hit
		}
	}
	if e == nil {
		return d.missPC
	}
	if d.count {
		e.counter.add(p)
	}
	if d.age {
		if p.lane.serial {
			e.lastHit = int64(p.now)
		} else if old := atomic.LoadInt64(&e.lastHit); int64(p.now)-old >= int64(hitGrain) {
			atomic.StoreInt64(&e.lastHit, int64(p.now))
		}
	}
	if d.meter != nil && (e.hit || e.meter != nil && e.meter.set) {
		p.f[d.meter.slot] = uint64(e.meter.execute(p)) & d.meter.mask
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
	copy(p.f[p.prog.params:], run.params)
	p.ret = next
	return run.pc
}

// after returns where the pipeline goes on after an action.
func (t *tableState) after(a *action, hit bool) uint32 {
	d := t.def
	switch {
	case d.hitMiss && hit:
		return d.onHit
	case d.hitMiss:
		return d.onMiss
	case a == nil:
		return d.missPC
	}
	return d.next[a.id]
}

// find returns the entry that matches, or nil.
func (t *tableState) find(p *packet) *entryState {
	d := t.def
	if d.lookup == MatchExact && d.words == 1 && len(d.pieces) == 1 {
		pc := &d.pieces[0]
		return t.exact.find1(p.f[pc.slot] & pc.mask)
	}
	if d.lookup == MatchLPM && d.words == 1 && len(d.pieces) == 1 {
		pc := &d.pieces[0]
		return t.lpm.find1(p.f[pc.slot] & pc.mask)
	}
	var fixed [8]uint64
	key := fixed[:]
	if d.words > len(fixed) {
		key = p.f[p.prog.keyScratch : p.prog.keyScratch+d.words]
	}
	key = key[:d.words]
	clear(key)
	for i := range d.pieces {
		pc := &d.pieces[i]
		key[pc.word] |= (p.f[pc.slot] & pc.mask) << pc.shift
	}
	switch d.lookup {
	case MatchExact:
		return t.exact.find(key)
	case MatchLPM:
		return t.lpm.find(key, p.f[p.prog.keyScratch+d.words:])
	}
	return t.tern.find(key, p.f[p.prog.keyScratch+d.words:])
}

func (d *tableDef) matches(e *entryState, key []uint64) bool {
	if d.lookup == MatchTernary {
		for i, k := range key {
			if k&e.mask[i] != e.value[i] {
				return false
			}
		}
		return true
	}
	for i := range d.keys {
		k := &d.keys[i]
		w := key[k.word : k.word+k.words]
		lo, hi := e.value[k.word:k.word+k.words], e.mask[k.word:k.word+k.words]
		if k.Kind == MatchRange {
			if lessWords(w, lo) || lessWords(hi, w) {
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

// lessWords compares numbers, least significant word first.
func lessWords(a, b []uint64) bool {
	for i := len(a) - 1; i >= 0; i-- {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// hashIndex finds entries by all words of a key: open addressing, at most half full.
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

// lpmIndex finds the longest prefix. Few entries over one word are kept as sorted intervals; else there is a hash index for each
// prefix length in use, asked from the longest.
type lpmIndex struct {
	def     *tableDef
	byLen   []*lpmLength // longest first
	starts  []uint64     // intervals: start of each, and the entry that covers it
	covers  []*entryState
	ordered bool // starts and covers are in use
}

type lpmLength struct {
	bits  int
	mask  []uint64
	index hashIndex
}

const maxIntervals = 256 // entries up to which intervals are kept

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
		l = &lpmLength{bits: bits, mask: e.mask, index: hashIndex{words: x.def.words}}
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

// rebuild makes the intervals after a change.
func (x *lpmIndex) rebuild(entries map[string]*entryState) {
	x.ordered = false
	if x.def.words != 1 || len(x.def.pieces) != 1 || len(entries) > maxIntervals {
		return
	}
	all := make([]*entryState, 0, len(entries))
	marks := make([]uint64, 0, 2*len(entries)+1)
	marks = append(marks, 0)
	full := maskOf(x.def.keys[x.def.lpm].Width)
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

// idle tells for how long an entry had no hit.
func (e *entryState) idle(now time.Duration) time.Duration {
	return max(0, now-time.Duration(e.lastHit))
}
