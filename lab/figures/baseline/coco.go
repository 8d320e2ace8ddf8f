// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"math"
	"math/rand/v2"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// Coco is CocoSketch (Zhang et al. 2021), in the version for switches, with one row. A bucket
// counts all its packets, and each packet replaces the bucket's key with probability 1/count, so a
// flow's estimate has no bias.
type Coco[F family.Hash] struct {
	seed   uint64
	size   int
	cols   family.Range
	keys   []byte
	counts []uint32
	random *rand.PCG
}

// NewCoco returns an empty sketch. Its random choices follow from the seed.
func NewCoco[F family.Hash](memory, keyBytes int, seed uint64) (*Coco[F], error) {
	if err := checkKey(keyBytes); err != nil {
		return nil, err
	}
	if err := family.Check[F](1, seed); err != nil {
		return nil, err
	}
	n := memory / (keyBytes + 4)
	if n < 1 || memory > sketch.MaxMemory {
		return nil, tooSmall("CocoSketch", memory)
	}
	return &Coco[F]{
		seed: seed, size: keyBytes, cols: family.NewRange(uint32(n)), keys: make([]byte, n*keyBytes),
		counts: make([]uint32, n),
		random: rand.NewPCG(seed, 0x636f636f),
	}, nil
}

// Memory returns the size in bytes.
func (c *Coco[F]) Memory() int { return len(c.counts) * (c.size + 4) }

func (c *Coco[F]) key(i int) []byte { return c.keys[i*c.size : (i+1)*c.size] }

// Insert counts one packet.
func (c *Coco[F]) Insert(key []byte) error {
	if len(key) != c.size {
		return errKey
	}
	i := int(family.Column[F](family.Digest[F](c.seed, key), 0, &c.cols))
	if c.counts[i] < math.MaxUint32 {
		c.counts[i]++
	}
	// 32 random bits are below 2^32/n with probability 1/n, up to an error of 2^-32.
	if string(c.key(i)) != string(key) && c.random.Uint64()>>32*uint64(c.counts[i]) < 1<<32 {
		copy(c.key(i), key)
	}
	return nil
}

// Query returns the estimate of a key: its bucket's packets if the bucket has the key, otherwise
// 0.
func (c *Coco[F]) Query(key []byte) int64 {
	if len(key) != c.size {
		return 0
	}
	i := int(family.Column[F](family.Digest[F](c.seed, key), 0, &c.cols))
	if string(c.key(i)) != string(key) {
		return 0
	}
	return int64(c.counts[i])
}

// Heavy returns every flow that has a bucket.
func (c *Coco[F]) Heavy() (flows []Flow) {
	for i, n := range c.counts {
		if n > 0 {
			flows = append(flows, Flow{c.key(i), int64(n)})
		}
	}
	return flows
}
