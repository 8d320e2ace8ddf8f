// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"encoding/binary"
	"fmt"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// FlowRadar (Li et al. 2016) encodes every flow once, which a Bloom filter ensures, into cells. A
// cell has the XOR of keys, the number of flows and the number of packets.
type FlowRadar[F family.Hash] struct {
	seed   uint64
	size   int
	bits   uint64
	filter []uint64
	cols   family.Range
	xor    []byte
	flows  []uint32
	counts []int64
}

const (
	radarRows    = 3
	radarFilters = 10 // number of the Bloom filter's hash functions
)

// NewFlowRadar returns an empty structure. A tenth of its memory is the filter.
func NewFlowRadar[F family.Hash](memory, keyBytes int, seed uint64) (*FlowRadar[F], error) {
	if err := checkKey(keyBytes); err != nil {
		return nil, err
	}
	if err := family.Check[F](radarRows, seed); err != nil {
		return nil, err
	}
	n := (memory - memory/10) / (keyBytes + 8) / radarRows
	words := memory / 10 / 8
	if n < 1 || words < 1 || memory > sketch.MaxMemory {
		return nil, tooSmall("FlowRadar", memory)
	}
	return &FlowRadar[F]{
		seed: seed, size: keyBytes, bits: uint64(words) * 64, filter: make([]uint64, words),
		cols:  family.NewRange(uint32(n)),
		xor:   make([]byte, radarRows*n*keyBytes),
		flows: make([]uint32, radarRows*n), counts: make([]int64, radarRows*n),
	}, nil
}

// Memory returns the size in bytes. A count has four bytes, as on a switch.
func (r *FlowRadar[F]) Memory() int { return len(r.filter)*8 + len(r.flows)*(r.size+8) }

// seen adds a digest to the filter, and reports whether the filter already contained it.
func (r *FlowRadar[F]) seen(d uint64) bool {
	a, b := d*0x9e3779b97f4a7c15, (d^d>>29)*0xd1342543de82ef95|1
	known := true
	for range radarFilters {
		bit := (a >> 11) % r.bits
		if r.filter[bit/64]>>(bit%64)&1 == 0 {
			known = false
			r.filter[bit/64] |= 1 << (bit % 64)
		}
		a += b
	}
	return known
}

// Insert counts n packets of a key.
func (r *FlowRadar[F]) Insert(key []byte, n int64) error {
	if len(key) != r.size {
		return errKey
	}
	d := family.Digest[F](r.seed, key)
	known := r.seen(d)
	for row := range radarRows {
		c := row*int(r.cols.Len()) + int(family.Column[F](d, row, &r.cols))
		r.counts[c] += n
		if !known {
			r.flows[c]++
			for i, v := range key {
				r.xor[c*r.size+i] ^= v
			}
		}
	}
	return nil
}

// Decode extracts flows from cells with a single flow. complete reports whether it extracted all
// flows.
func (r *FlowRadar[F]) Decode() (found []Flow, complete bool) {
	xor, flows, counts := append([]byte(nil), r.xor...), append([]uint32(nil), r.flows...),
		append([]int64(nil), r.counts...)
	var queue []int
	for c, n := range flows {
		if n == 1 {
			queue = append(queue, c)
		}
	}
	for len(queue) > 0 && len(found) <= len(flows) {
		c := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if flows[c] != 1 {
			continue
		}
		key := append([]byte(nil), xor[c*r.size:(c+1)*r.size]...)
		d, n := family.Digest[F](r.seed, key), counts[c]
		found = append(found, Flow{key, n})
		for row := range radarRows {
			at := row*int(r.cols.Len()) + int(family.Column[F](d, row, &r.cols))
			flows[at]--
			counts[at] -= n
			for i, v := range key {
				xor[at*r.size+i] ^= v
			}
			if flows[at] == 1 {
				queue = append(queue, at)
			}
		}
	}
	for _, n := range flows {
		if n != 0 {
			return found, false
		}
	}
	return found, true
}

// LossRadar (Li et al. 2016) encodes every packet, identified by its key and its number within the
// flow, into cells with an XOR and a count. Subtracting the packets that left from the packets that
// entered leaves the lost packets.
type LossRadar[F family.Hash] struct {
	seed   uint64
	size   int // length of a key
	cols   family.Range
	xor    []byte // the key and two bytes for the number
	counts []int32
}

// NewLossRadar returns an empty structure.
func NewLossRadar[F family.Hash](memory, keyBytes int, seed uint64) (*LossRadar[F], error) {
	if err := checkKey(keyBytes); err != nil {
		return nil, err
	}
	if err := family.Check[F](radarRows, seed); err != nil {
		return nil, err
	}
	n := memory / (keyBytes + 6) / radarRows
	if n < 1 || memory > sketch.MaxMemory {
		return nil, tooSmall("LossRadar", memory)
	}
	return &LossRadar[F]{seed: seed, size: keyBytes, cols: family.NewRange(uint32(n)),
		xor: make([]byte, radarRows*n*(keyBytes+2)), counts: make([]int32, radarRows*n)}, nil
}

// Memory returns the size in bytes.
func (r *LossRadar[F]) Memory() int { return len(r.counts) * (r.size + 6) }

// Insert records one packet with its number within the flow.
func (r *LossRadar[F]) Insert(key []byte, number uint16) error {
	if len(key) != r.size {
		return errKey
	}
	var buf [66]byte
	r.put(binary.BigEndian.AppendUint16(append(buf[:0], key...), number), 1)
	return nil
}

func (r *LossRadar[F]) put(packet []byte, n int32) [radarRows]int {
	var at [radarRows]int
	d := family.Digest[F](r.seed, packet)
	for row := range radarRows {
		c := row*int(r.cols.Len()) + int(family.Column[F](d, row, &r.cols))
		at[row] = c
		r.counts[c] += n
		for i, v := range packet {
			r.xor[c*len(packet)+i] ^= v
		}
	}
	return at
}

// Subtract subtracts the packets that o recorded.
func (r *LossRadar[F]) Subtract(o *LossRadar[F]) error {
	if o == nil || r.seed != o.seed || r.size != o.size || r.cols.Len() != o.cols.Len() {
		return fmt.Errorf("%w: LossRadar", sketch.ErrMismatch)
	}
	for i, v := range o.xor {
		r.xor[i] ^= v
	}
	for i, n := range o.counts {
		r.counts[i] -= n
	}
	return nil
}

// Decode returns the number of packets of each key. complete reports whether no packet is left.
// Decode empties the structure.
func (r *LossRadar[F]) Decode() (lost map[string]int64, complete bool) {
	lost = make(map[string]int64)
	n := r.size + 2
	var queue []int
	for c := range r.counts {
		queue = append(queue, c)
	}
	for budget := 8 * len(r.counts); len(queue) > 0 && budget > 0; {
		c := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		count := r.counts[c]
		if count != 1 && count != -1 {
			continue
		}
		var buf [66]byte
		packet := append(buf[:0], r.xor[c*n:(c+1)*n]...)
		row := c / int(r.cols.Len())
		if int(family.Column[F](family.Digest[F](r.seed, packet), row, &r.cols)) != c%int(r.cols.Len()) {
			continue
		}
		budget--
		lost[string(packet[:r.size])] += int64(count)
		at := r.put(packet, -count)
		queue = append(queue, at[:]...)
	}
	for c, count := range r.counts {
		if count != 0 || r.xor[c*n] != 0 {
			return lost, false
		}
	}
	return lost, true
}
