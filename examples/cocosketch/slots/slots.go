// SPDX-License-Identifier: Apache-2.0

// Package slots has the slots that the program p4/own.p4, the agent and the plugin share: an
// example, CocoSketch (Zhang et al., SIGCOMM 2021) with two arrays of slots.
package slots

import (
	"fmt"
	"math/rand/v2"

	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// Arrays is the number of arrays. Words is the number of 32-bit cells of a slot: packets, hash of
// the flow, and the flow (flow.FromWords).
const (
	Arrays = 2
	Words  = 12
)

// odds are the factors of the arrays' hashes, as in p4/own.p4.
var odds = [Arrays]uint32{0x9e3779b1, 0x85ebca6b}

// Sketch counts packets as p4/own.p4 does.
type Sketch struct {
	Cells  []uint32 // Arrays × slots × Words
	slots  int      // of one array
	random *rand.Rand
	key    [flow.MaxBinary]byte
}

// New returns a sketch with two arrays of slots.
func New(slots int, seed uint64) *Sketch {
	return &Sketch{Cells: make([]uint32, Arrays*slots*Words), slots: slots, random: rand.New(rand.NewPCG(seed, 0))}
}

// Count counts a packet of a flow, which has all fields. It counts in the slot that holds the flow.
// If none does, the slot with fewer packets counts it, and takes over the flow with probability
// 1 / n, where n is the slot's number of packets with this one.
func (s *Sketch) Count(k *flow.Key) {
	h := rowhash.Key(k.AppendBinary(s.key[:0]))
	var slot []uint32
	for i, odd := range odds {
		at := (i*s.slots + int(rowhash.Mix(h, odd)%uint32(s.slots))) * Words
		c := s.Cells[at : at+Words]
		if c[1] == h && c[0] != 0 {
			c[0]++
			return
		}
		if slot == nil || c[0] < slot[0] {
			slot = c
		}
	}
	slot[0]++
	if s.random.Uint32N(slot[0]) == 0 {
		slot[1] = h
		k.PutWords(flow.FiveTuple, slot[2:])
	}
}

// Sizes returns the packets of the flows in the slots of one sketch, summed over equal keys with
// the given fields. A flow whose slots hold other flows is missing, and its packets are counted for
// them: the expected sum for any key is exact.
func Sizes(cells []uint32, fields flow.Fields) (map[flow.Key]uint64, error) {
	out := map[flow.Key]uint64{}
	for at := 0; at+Words <= len(cells); at += Words {
		slot := cells[at : at+Words]
		if slot[0] == 0 {
			continue
		}
		key, ok := flow.FromWords(flow.FiveTuple, slot[2:])
		if !ok {
			return nil, fmt.Errorf("slot %d: %d is not an IP version", at/Words, slot[2]>>8)
		}
		out[key.Project(fields)] += uint64(slot[0])
	}
	return out, nil
}
