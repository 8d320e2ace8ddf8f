// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"math"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
)

// Elastic is ElasticSketch (Yang et al. 2018), in the software version: a heavy part whose buckets
// hold seven flows and a count of votes against them, and a light part of 8-bit counters.
type Elastic[F family.Hash] struct {
	seed    uint64
	size    int
	buckets family.Range
	cols    family.Range
	keys    []byte
	counts  []uint32 // seven per bucket
	flags   []bool   // whether packets of the flow are in the light part
	votes   []uint32 // one per bucket
	light   []uint8
}

const (
	elasticCells = 7
	// elasticLambda is the multiple of the smallest flow's packets at which the votes against that
	// flow evict it.
	elasticLambda = 8
)

// NewElastic returns an empty sketch whose heavy part gets a quarter of the memory, at most 150
// KB, as in the paper.
func NewElastic[F family.Hash](memory, keyBytes int, seed uint64) (*Elastic[F], error) {
	if err := checkKey(keyBytes); err != nil {
		return nil, err
	}
	if err := family.Check[F](2, seed); err != nil {
		return nil, err
	}
	// A cell has a key, a count and a flag; the paper's 8 bytes are a 4-byte key and a count.
	bucket := elasticCells*(keyBytes+4) + 4
	heavy := min(memory/4, 150_000)
	n := heavy / bucket
	if memory < 0 || memory > sketch.MaxMemory || n < 1 {
		return nil, tooSmall("elastic", memory)
	}
	light := memory - n*bucket
	return &Elastic[F]{
		seed: seed, size: keyBytes, buckets: family.NewRange(uint32(n)), cols: family.NewRange(uint32(light)),
		keys: make([]byte, n*elasticCells*keyBytes), counts: make([]uint32, n*elasticCells),
		flags: make([]bool, n*elasticCells),
		votes: make([]uint32, n), light: make([]uint8, light),
	}, nil
}

// Memory returns the size in bytes. A flag counts as one bit of a count.
func (e *Elastic[F]) Memory() int {
	return len(e.keys) + 4*len(e.counts) + 4*len(e.votes) + len(e.light)
}

func (e *Elastic[F]) key(cell int) []byte { return e.keys[cell*e.size : (cell+1)*e.size] }

// Insert counts one packet.
func (e *Elastic[F]) Insert(key []byte) error {
	if len(key) != e.size {
		return errKey
	}
	d := family.Digest[F](e.seed, key)
	b := int(family.Column[F](d, 0, &e.buckets))
	first := b * elasticCells
	least := first
	for c := first; c < first+elasticCells; c++ {
		switch {
		case e.counts[c] == 0:
			copy(e.key(c), key)
			e.counts[c], e.flags[c] = 1, false
			return nil
		case string(e.key(c)) == string(key):
			if e.counts[c] < math.MaxUint32 {
				e.counts[c]++
			}
			return nil
		case e.counts[c] < e.counts[least]:
			least = c
		}
	}
	e.votes[b]++
	if uint64(e.votes[b]) < elasticLambda*uint64(e.counts[least]) {
		e.toLight(d, 1)
		return nil
	}
	e.toLight(family.Digest[F](e.seed, e.key(least)), e.counts[least])
	copy(e.key(least), key)
	e.counts[least], e.flags[least], e.votes[b] = 1, true, 0
	return nil
}

func (e *Elastic[F]) toLight(d uint64, n uint32) {
	c := &e.light[family.Column[F](d, 1, &e.cols)]
	*c = uint8(min(uint32(*c)+min(n, 255), 255))
}

// Query returns the estimate of a key.
func (e *Elastic[F]) Query(key []byte) uint32 {
	if len(key) != e.size {
		return 0
	}
	d := family.Digest[F](e.seed, key)
	light := uint32(e.light[family.Column[F](d, 1, &e.cols)])
	first := int(family.Column[F](d, 0, &e.buckets)) * elasticCells
	for c := first; c < first+elasticCells; c++ {
		if e.counts[c] > 0 && string(e.key(c)) == string(key) {
			if e.flags[c] {
				return e.counts[c] + light
			}
			return e.counts[c]
		}
	}
	return light
}

// Heavy returns the flows of the heavy part with their estimates.
func (e *Elastic[F]) Heavy() (flows []Flow) {
	for c, n := range e.counts {
		if n > 0 {
			flows = append(flows, Flow{e.key(c), int64(e.Query(e.key(c)))})
		}
	}
	return flows
}

// rest returns the light part's counters that no flow of the heavy part uses, and the factor that
// compensates for the other counters.
func (e *Elastic[F]) rest() (row []uint32, scale float64) {
	taken := make([]bool, len(e.light))
	for c, n := range e.counts {
		if n > 0 && e.flags[c] {
			taken[family.Column[F](family.Digest[F](e.seed, e.key(c)), 1, &e.cols)] = true
		}
	}
	row = make([]uint32, len(e.light))
	for i, v := range e.light {
		row[i] = uint32(v)
	}
	return remainder(row, taken)
}

// Distribution estimates the flow sizes: MRAC on the light part's counters that no flow of the
// heavy part uses, plus the heavy flows.
func (e *Elastic[F]) Distribution() (estimate.Distribution, error) {
	row, scale := e.rest()
	d, err := estimate.MRAC{Overflow: 255}.Run(row)
	if err != nil {
		return nil, err
	}
	return withHeavy(d, scale, e.Heavy()), nil
}

// Cardinality estimates the number of flows: linear counting on the same counters, plus the heavy
// flows.
func (e *Elastic[F]) Cardinality() (float64, bool) {
	row, scale := e.rest()
	n, ok := estimate.Cardinality(len(row), estimate.Zeros(row))
	n *= scale
	for _, count := range e.counts {
		if count > 0 {
			n++
		}
	}
	return n, ok
}
