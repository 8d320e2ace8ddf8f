// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/netsketch/netsketch/sketch/flow"
)

// The flow table of bpf/omnimon.c: a flow is in one of two buckets, which its hash selects. A
// bucket is one cache line, so that a packet waits for two lines at most before it reads the flow's
// slot.

const (
	bucketCells = 8
	indexBits   = 24 // of a cell; the others are of the hash
	inUse       = 1 << 63
)

// bucketsFor returns the count of buckets for a count of flows: at most a quarter of the cells is
// in use, so that hardly a flow finds both of its buckets full.
func bucketsFor(flows int) int { return 1 << bits.Len(uint((flows+1)/2-1)) }

// cell returns the cell of a flow, and the buckets that it may be in.
func (t *tables) cell(index uint32) (cell uint64, buckets [2]uint64) {
	k := key(&t.entries[index].Key)
	h := k.Hash(t.seed)
	tag := (h | inUse) >> indexBits
	mask := uint64(len(t.buckets) - 1)
	return tag<<indexBits | uint64(index), [2]uint64{h & mask, tag & mask}
}

// place returns where the table has the flow with an index, or nil.
func (t *tables) place(index uint32) *uint64 {
	cell, buckets := t.cell(index)
	for _, b := range buckets {
		for i := range t.buckets[b].Cells {
			if at := &t.buckets[b].Cells[i]; atomic.LoadUint64(at) == cell {
				return at
			}
		}
	}
	return nil
}

func key(k *omnimonKey) flow.Key {
	f := flow.Key{Proto: k.Proto, SrcPort: k.Sport, DstPort: k.Dport, Mask: flow.FiveTuple, V6: k.V6 != 0}
	for i := range k.Src {
		binary.LittleEndian.PutUint64(f.Src[8*i:], k.Src[i])
		binary.LittleEndian.PutUint64(f.Dst[8*i:], k.Dst[i])
	}
	return f
}
