// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/netsketch/netsketch/sketch/flow"
)

// The flow table of bpf/omnimon.c: a flow is in one of eight buckets, which its hash selects. The
// first choice is at the start of the table, so that few flows are in few pages; the buckets of
// 2^20 flows are 8 MB. A packet waits for one bucket or two, and then for its entry and its slot at
// the same time.

const (
	choices = 8       // buckets that a flow may be in
	first   = 4096    // buckets that are the first choice
	inUse   = 1 << 31 // flag of a cell that is in use
)

// bucketsFor returns the number of buckets for a number of flows: at most half of the cells is in
// use, so that no flow finds all of its buckets full.
func bucketsFor(flows int) int { return 1 << bits.Len(uint((flows+3)/4-1)) }

// indexMask selects the index in a cell; the other bits are of the hash.
func indexMask(flows int) uint32 { return 1<<bits.Len(uint(flows-1)) - 1 }

// cell returns the cell of a flow, the place in map control that may have a copy of it, and the
// buckets that it may be in.
func (t *tables) cell(index uint32) (cell uint32, near *uint32, buckets [choices]uint64) {
	k := key(&t.entries[index].Key)
	h := k.Hash(t.seed)
	mask := uint64(len(t.buckets) - 1)
	buckets[0] = h & (first - 1) & mask
	for i := uint64(1); i < choices; i++ {
		buckets[i] = step(h, i) >> 20 & mask
	}
	near = &t.control.Cells[h%uint64(len(t.control.Cells))]
	return (uint32(h>>32)|inUse)&^indexMask(int(t.flows)) | index, near, buckets
}

// step is a step of flow.Key.Hash.
func step(h, word uint64) uint64 {
	h = (h ^ word) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// place returns where the table has the flow with an index, or nil.
func (t *tables) place(index uint32) *uint32 {
	cell, _, buckets := t.cell(index)
	for _, b := range buckets {
		for i := range t.buckets[b].Cells {
			if at := &t.buckets[b].Cells[i]; atomic.LoadUint32(at) == cell {
				return at
			}
		}
	}
	return nil
}

// The map hosts: an address is at the place that its hash selects, or at one of those behind it.
const (
	maxPlaces = 64

	kindIPv4 = 1
	kindIPv6 = 2
)

// placesFor returns the size of the map hosts for a number of addresses, of which at most a quarter
// is in use.
func placesFor(addresses int) int { return 1 << bits.Len(uint(4*addresses-1)) }

func key(k *omnimonKey) flow.Key {
	f := flow.Key{Proto: k.Proto, SrcPort: k.Sport, DstPort: k.Dport, Mask: flow.FiveTuple, V6: k.V6 != 0}
	for i := range k.Src {
		binary.LittleEndian.PutUint64(f.Src[8*i:], k.Src[i])
		binary.LittleEndian.PutUint64(f.Dst[8*i:], k.Dst[i])
	}
	return f
}
