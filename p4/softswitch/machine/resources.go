// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/meter"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

func sortUnique(v []uint64) []uint64 {
	slices.Sort(v)
	return slices.Compact(v)
}

// Register is a register array, stored in the narrowest integers that hold a cell. With several
// lanes, actions hold the register's lock while they read and write it. The control plane reads and
// writes it only while no packet runs.
type Register struct {
	name   string
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
}

func newRegister(name string, width, size int) *Register {
	r := &Register{name: name, width: width, size: uint64(size), mask: wide.Mask(width),
		mask32: uint32(wide.Mask(min(width, 32))), words: 1}
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
	return r
}

// get returns the low word of a cell in range.
func (r *Register) get(i uint64) uint64 {
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

func (r *Register) set(i, v uint64) {
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
func (r *Register) cell(i uint64) []uint64 {
	return r.wide[i*uint64(r.words) : (i+1)*uint64(r.words)]
}

func (r *Register) Reset() {
	clear(r.b8)
	clear(r.b16)
	clear(r.b32)
	clear(r.b64)
	clear(r.wide)
}

// Counter is an indirect counter with cells for each lane, so that lanes share no memory that they
// write. The control plane reads and writes them while no packet runs.
type Counter struct {
	name  string
	size  int
	lanes [][]counterCell
}

type counterCell struct{ packets, bytes uint64 }

func newCounterArray(name string, size, lanes int) *Counter {
	c := &Counter{name: name, size: size, lanes: make([][]counterCell, lanes)}
	for i := range c.lanes {
		c.lanes[i] = make([]counterCell, size)
	}
	return c
}

func (c *Counter) count(p *Packet, i uint64) {
	if i >= uint64(c.size) {
		p.Lane.Stats.IndexErrors++
		return
	}
	c.lanes[p.Lane.ID][i].add(p)
}

func (c *counterCell) add(p *Packet) {
	c.packets++
	c.bytes += uint64(p.ingressLen)
}

func (c *Counter) get(i int) (v control.CounterData) {
	for _, l := range c.lanes {
		v.Packets += l[i].packets
		v.Bytes += l[i].bytes
	}
	return v
}

func (c *Counter) set(i int, v control.CounterData) {
	for _, l := range c.lanes {
		l[i] = counterCell{}
	}
	c.lanes[0][i] = counterCell{v.Packets, v.Bytes}
}

// directCounter is an entry's counter, with one cell for each lane if there are several.
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

func (c *directCounter) add(p *Packet) {
	if len(c.lanes) == 0 {
		c.one.add(p)
		return
	}
	c.lanes[p.Lane.ID].add(p)
}

func (c *directCounter) get() control.CounterData {
	v := control.CounterData{Packets: c.one.packets, Bytes: c.one.bytes}
	for i := range c.lanes {
		v.Packets += c.lanes[i].packets
		v.Bytes += c.lanes[i].bytes
	}
	return v
}

func (c *directCounter) set(v control.CounterData) {
	clear(c.lanes)
	c.one = counterCell{v.Packets, v.Bytes}
}

// Meter is an indirect meter.
type Meter struct {
	name  string
	cells []meter.Meter
}

// valueSet is the members of a parser value set.
type valueSet struct {
	members []valueSetMember
	matches [][]control.Match
}

// valueSetMember has the words of each key element, in the order of a Select.
type valueSetMember struct {
	value, mask []uint64
}

func (v *valueSet) has(p *Packet, slots []uint32, mask []uint64) bool {
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
