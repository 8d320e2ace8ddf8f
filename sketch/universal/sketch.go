// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// Sketch is one bank of the data plane's registers. Update changes them exactly as the P4 program
// does; Open wraps registers that were read.
//
// A Sketch is not safe for concurrent use while it is updated.
//
// The zero Sketch has no cells and can only be used for UnmarshalBinary.
type Sketch struct {
	layout   Layout
	counters []uint32 // two's complement
	heavy    []uint32
	packets  []uint32 // packets by level; nil if the program does not count packets

	cells, slots family.Range // compute remainders by twice the columns, and by the slots, without a division
}

func over(l Layout, counters, heavy, packets []uint32) *Sketch {
	return &Sketch{
		layout: l, counters: counters, heavy: heavy, packets: packets,
		cells: family.NewRange(uint32(2 * l.Columns)), slots: family.NewRange(uint32(l.Slots)),
	}
}

// New returns an empty sketch.
func New(l Layout) (*Sketch, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return over(l, make([]uint32, l.CounterCells()), make([]uint32, l.HeavyCells()), make([]uint32, l.Levels)), nil
}

// Open returns a sketch over register cells: counters, heavy-key slots, and the packets counted at
// each level, which may be nil if a program does not count them. The slices are used, not copied.
// Cells of packets beyond the levels are ignored, because that register is padded.
func Open(l Layout, counters, heavy, packets []uint32) (*Sketch, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if len(counters) != l.CounterCells() {
		return nil, fmt.Errorf("universal: %d counters, the layout (%v) has %d: %w", len(counters), l, l.CounterCells(),
			ErrMismatch)
	}
	if len(heavy) != l.HeavyCells() {
		return nil, fmt.Errorf("universal: %d heavy-key cells, the layout (%v) has %d: %w", len(heavy), l,
			l.HeavyCells(), ErrMismatch)
	}
	if packets != nil {
		if len(packets) < l.Levels {
			return nil, fmt.Errorf("universal: packet counts of %d levels, the layout (%v) has %d: %w", len(packets), l,
				l.Levels, ErrMismatch)
		}
		packets = packets[:l.Levels]
	}
	return over(l, counters, heavy, packets), nil
}

// Layout returns the sketch's shape.
func (s *Sketch) Layout() Layout { return s.layout }

// Counters returns the counter cells, without copying.
func (s *Sketch) Counters() []uint32 { return s.counters }

// Heavy returns the cells of the heavy-key slots, without copying.
func (s *Sketch) Heavy() []uint32 { return s.heavy }

// Packets returns the packets counted at each level, without copying; nil if unknown.
func (s *Sketch) Packets() []uint32 { return s.packets }

// Reset sets every cell to zero.
func (s *Sketch) Reset() {
	clear(s.counters)
	clear(s.heavy)
	clear(s.packets)
}

// Update counts one packet of the flow that k belongs to. k must have at least the fields of the
// layout's key; a 5-tuple has the fields of every layout. Update does not allocate.
func (s *Sketch) Update(k *flow.Key) {
	h := hashOf(k, s.layout.Key)
	level := levelOf(h, s.layout.Levels)
	if s.packets != nil {
		s.packets[level]++
	}
	if est := s.count(h, level); est > 0 {
		s.remember(k, h, level, uint32(est))
	}
}

// count adds one packet to every row of the level and returns the median of the first three rows'
// estimates.
func (s *Sketch) count(h uint32, level int) int32 {
	l := &s.layout
	base, columns, shift := l.counter(level), l.columns(level), shift(level)
	var est [3]int32
	for row := range l.Rows {
		v := family.Reduce[family.P4](rowhash.Mix(h, rowhash.Odd[row]), &s.cells) // same place as cellOf computes
		cell := &s.counters[base+row*columns+int(v>>1)>>shift]
		sign := 1 - 2*int32(v&1)
		*cell += uint32(sign)
		if row < len(est) {
			est[row] = int32(*cell) * sign
		}
	}
	return max(min(est[0], est[1]), min(max(est[0], est[1]), est[2]))
}

// remember writes the key to the slot that already holds it. Otherwise, if est is above the lowest
// count among the key's slots, it writes the key to the first slot with that count. With est equal
// to that count, the key with the smaller hash stays, so that neither the order of packets nor the
// switches that they cross decide which flows of one size are kept.
func (s *Sketch) remember(k *flow.Key, h uint32, level int, est uint32) {
	l := &s.layout
	words := l.Words()
	base, slots, shift := l.heavy(level), l.slots(level), shift(level)
	var best []uint32
	for way := range l.Ways {
		index := int(family.Reduce[family.P4](rowhash.Mix(h, rowhash.OddWay[way]), &s.slots)) >> shift
		slot := s.slot(base+way*slots+index, words)
		if slot[wordHash] == h && slot[wordCount] != 0 {
			slot[wordCount] = max(slot[wordCount], est)
			return
		}
		if best == nil || slot[wordCount] < best[wordCount] ||
			slot[wordCount] == best[wordCount] && slot[wordHash] > best[wordHash] {
			best = slot
		}
	}
	if est > best[wordCount] || est == best[wordCount] && h < best[wordHash] {
		best[wordCount] = est
		store(best, k, h, l.Key)
	}
}

func (s *Sketch) slot(index, words int) []uint32 {
	return s.heavy[index*words : (index+1)*words : (index+1)*words]
}

// hashOf returns crc32 over the canonical bytes of the key's fields f.
func hashOf(k *flow.Key, f flow.Fields) uint32 {
	var buf [flow.MaxBinary]byte
	n := 4
	if k.V6 {
		n = 16
	}
	switch f {
	case flow.Src:
		return rowhash.Key(k.Src[:n])
	case flow.Dst:
		return rowhash.Key(k.Dst[:n])
	}
	b := buf[:0]
	if f&flow.Src != 0 {
		b = append(b, k.Src[:n]...)
	}
	if f&flow.Dst != 0 {
		b = append(b, k.Dst[:n]...)
	}
	if f&flow.Proto != 0 {
		b = append(b, k.Proto)
	}
	if f&flow.SrcPort != 0 {
		b = binary.BigEndian.AppendUint16(b, k.SrcPort)
	}
	if f&flow.DstPort != 0 {
		b = binary.BigEndian.AppendUint16(b, k.DstPort)
	}
	return rowhash.Key(b)
}

// levelOf returns the deepest level that a key with hash h reaches: the number of leading ones in
// its level hash, so that each level has half the flows of the previous one.
func levelOf(h uint32, levels int) int {
	return min(bits.LeadingZeros32(^rowhash.Mix(h, rowhash.OddLevel)), levels-1)
}

// cellOf returns the column in a row, and 1 if the row counts down: v1model's crc32 modulo twice
// the columns, whose lowest bit is the sign.
func cellOf(h uint32, row, columns int) (column int, negative uint32) {
	v := rowhash.Mix(h, rowhash.Odd[row]) % uint32(2*columns)
	return int(v >> 1), v & 1
}
