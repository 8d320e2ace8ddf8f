// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"slices"
	"sync"
	"time"
	"unsafe"
)

func sortUnique(v []uint64) []uint64 {
	slices.Sort(v)
	return slices.Compact(v)
}

// register is a register array, stored in the narrowest integers that hold a cell. Packets of one lane, or of several holding its
// lock, read and write it; the control plane does while no packet runs.
type register struct {
	width  int
	size   uint64
	mask   uint64
	mask32 uint32
	b8     []uint8
	b16    []uint16
	b32    []uint32
	b64    []uint64
	wide   []uint64
	words  int
	cells  unsafe.Pointer // the first cell, and the bytes of each
	bytes  uint64
}

func newRegister(width, size int) *register {
	r := &register{width: width, size: uint64(size), mask: maskOf(width), mask32: uint32(maskOf(min(width, 32))), words: 1}
	switch {
	case width <= 8:
		r.b8 = make([]uint8, size)
	case width <= 16:
		r.b16 = make([]uint16, size)
	case width <= 32:
		r.b32 = make([]uint32, size)
	case width <= 64:
		r.b64 = make([]uint64, size)
	default:
		r.words = (width + 63) / 64
		r.wide = make([]uint64, size*r.words)
	}
	r.locate()
	return r
}

// locate finds where the cells are, for prefetch.
func (r *register) locate() {
	switch {
	case r.size == 0:
	case r.b8 != nil:
		r.cells, r.bytes = unsafe.Pointer(&r.b8[0]), 1
	case r.b16 != nil:
		r.cells, r.bytes = unsafe.Pointer(&r.b16[0]), 2
	case r.b32 != nil:
		r.cells, r.bytes = unsafe.Pointer(&r.b32[0]), 4
	case r.b64 != nil:
		r.cells, r.bytes = unsafe.Pointer(&r.b64[0]), 8
	default:
		r.cells, r.bytes = unsafe.Pointer(&r.wide[0]), 8*uint64(r.words)
	}
}

// get returns the low word of a cell in range.
func (r *register) get(i uint64) uint64 {
	switch {
	case r.b8 != nil:
		return uint64(r.b8[i])
	case r.b16 != nil:
		return uint64(r.b16[i])
	case r.b32 != nil:
		return uint64(r.b32[i])
	case r.b64 != nil:
		return r.b64[i]
	}
	return r.wide[i*uint64(r.words)]
}

func (r *register) set(i, v uint64) {
	v &= r.mask
	switch {
	case r.b8 != nil:
		r.b8[i] = uint8(v)
	case r.b16 != nil:
		r.b16[i] = uint16(v)
	case r.b32 != nil:
		r.b32[i] = uint32(v)
	case r.b64 != nil:
		r.b64[i] = v
	default:
		w := r.wide[i*uint64(r.words) : (i+1)*uint64(r.words)]
		clear(w)
		w[0] = v
	}
}

// cell returns the words of a cell wider than 64 bits.
func (r *register) cell(i uint64) []uint64 {
	return r.wide[i*uint64(r.words) : (i+1)*uint64(r.words)]
}

func (r *register) reset() {
	clear(r.b8)
	clear(r.b16)
	clear(r.b32)
	clear(r.b64)
	clear(r.wide)
}

// readAndClear is the inside of a read-out: cells from i on go to the slots of f from first on, step apart, and become zero.
func (r *register) readAndClear(p *packet, ro *readOut) {
	f := p.f
	i := f[ro.index]
	n := uint64(ro.count)
	if r.b32 != nil && i < r.size && r.size-i >= n && i+n <= ro.indexMask {
		cells := r.b32[i : i+n]
		at := ro.first
		for j, v := range cells {
			f[at] = uint64(v) & ro.mask
			cells[j] = 0
			at += ro.step
		}
		f[ro.index] = i + n
		return
	}
	at := ro.first
	for range ro.count {
		if i < r.size {
			f[at] = r.get(i) & ro.mask
			r.set(i, 0)
		} else {
			p.lane.stats.IndexErrors += 2
		}
		i = (i + 1) & ro.indexMask
		at += ro.step
	}
	f[ro.index] = i
}

// counterArray is an indirect counter: cells of each lane, so that lanes share no memory they write. The control plane reads and writes them
// while no packet runs.
type counterArray struct {
	size  int
	lanes [][]counterCell
}

type counterCell struct{ packets, bytes uint64 }

func newCounterArray(size, lanes int) *counterArray {
	c := &counterArray{size: size, lanes: make([][]counterCell, lanes)}
	for i := range c.lanes {
		c.lanes[i] = make([]counterCell, size)
	}
	return c
}

func (c *counterArray) count(p *packet, i uint64) {
	if i >= uint64(c.size) {
		p.lane.stats.IndexErrors++
		return
	}
	c.lanes[p.lane.id][i].add(p)
}

func (c *counterCell) add(p *packet) {
	c.packets++
	c.bytes += uint64(p.ingressLen)
}

func (c *counterArray) get(i int) (v CounterData) {
	for _, l := range c.lanes {
		v.Packets += l[i].packets
		v.Bytes += l[i].bytes
	}
	return v
}

func (c *counterArray) set(i int, v CounterData) {
	for _, l := range c.lanes {
		l[i] = counterCell{}
	}
	c.lanes[0][i] = counterCell{v.Packets, v.Bytes}
}

// directCounter is an entry's counter, with a cell for each lane when there are several.
type directCounter struct {
	one   counterCell
	lanes []laneCell
}

type laneCell struct {
	counterCell
	_ [112]byte
}

// share prepares the counter for several lanes.
func (c *directCounter) share(lanes int) {
	if lanes > 1 && c.lanes == nil {
		c.lanes = make([]laneCell, lanes)
	}
}

func (c *directCounter) add(p *packet) {
	if len(c.lanes) == 0 {
		c.one.add(p)
		return
	}
	c.lanes[p.lane.id].add(p)
}

func (c *directCounter) get() CounterData {
	v := CounterData{c.one.packets, c.one.bytes}
	for i := range c.lanes {
		v.Packets += c.lanes[i].packets
		v.Bytes += c.lanes[i].bytes
	}
	return v
}

func (c *directCounter) set(v CounterData) {
	clear(c.lanes)
	c.one = counterCell{v.Packets, v.Bytes}
}

// directMeterDef is a direct meter: where it puts the colour.
type directMeterDef struct {
	info int
	slot int
	mask uint64
	unit MeterUnit
}

// meterState is one meter: two token buckets that fill from the time the meter was configured, as in BMv2, on the packet's clock.
type meterState struct {
	mu    sync.Mutex
	unit  MeterUnit
	set   bool
	cfg   MeterConfig
	start time.Duration
	rates [2]bucket // peak first

	colours Colours
}

type bucket struct {
	perMicro float64
	burst    uint64
	tokens   uint64
	last     uint64
}

func (m *meterState) configure(cfg *MeterConfig, now time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cfg == nil {
		m.set = false
		return
	}
	m.set, m.cfg, m.start = true, *cfg, now
	m.rates[0] = bucket{perMicro: float64(cfg.PIR) / 1e6, burst: cfg.PBurst, tokens: cfg.PBurst}
	m.rates[1] = bucket{perMicro: float64(cfg.CIR) / 1e6, burst: cfg.CBurst, tokens: cfg.CBurst}
}

func (m *meterState) config() *MeterConfig {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.set {
		return nil
	}
	c := m.cfg
	return &c
}

// execute colours a packet: 0 green, 1 yellow, 2 red.
func (m *meterState) execute(p *packet) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.colour(p)
	m.colours[c].Packets++
	m.colours[c].Bytes += uint64(p.ingressLen)
	return c
}

func (m *meterState) coloured() Colours {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.colours
}

func (m *meterState) setColours(c Colours) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.colours = c
}

func (m *meterState) colour(p *packet) int {
	if !m.set {
		return 0
	}
	micros := max(0, (p.now - m.start).Microseconds())
	cost := uint64(1)
	if m.unit == MeterBytes {
		cost = uint64(p.ingressLen)
	}
	for i := range m.rates {
		r := &m.rates[i]
		since := uint64(float64(micros) * r.perMicro)
		if since > r.last { // packets of several ports may come a little out of order
			r.tokens = min(r.tokens+(since-r.last), r.burst)
			r.last = since
		}
		if r.tokens < cost {
			return 2 - i
		}
		r.tokens -= cost
	}
	return 0
}

// valueSet is the members of a parser value set.
type valueSet struct {
	members []valueSetMember
	matches [][]Match
}

// valueSetMember has the words of each key element, as selectOp has them.
type valueSetMember struct {
	value, mask []uint64
}

func (v *valueSet) has(p *packet, slots []uint32, mask []uint64) bool {
	for i := range v.members {
		m := &v.members[i]
		hit := len(m.value) == len(slots)
		for j := 0; hit && j < len(slots); j++ {
			k := m.mask[j]
			if mask != nil {
				k &= mask[j]
			}
			hit = p.f[slots[j]]&k == m.value[j]&k
		}
		if hit {
			return true
		}
	}
	return false
}
