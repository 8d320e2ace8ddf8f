// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"math"

	"github.com/netsketch/netsketch/sketch/family"
)

// stages is ElasticSketch's heavy part on a switch (Yang et al. 2018, §4.2): several hash tables
// in a row, each with one bucket per key. A flow that loses the vote moves on to the next table,
// and from the last one into the light part.
type stages struct {
	size   int
	cols   family.Range
	keys   []byte
	counts []uint32
	flags  []bool // whether packets of the flow are in the light part
	votes  []uint32
	moving [2][64]byte
}

const (
	heavyStages = 4
	// stageBuckets is the number of buckets in a stage (chamelemon App. C).
	stageBuckets = 3072
	// stageLambda is the factor by which a bucket's packets must exceed the packets of its flow to
	// evict that flow.
	stageLambda = 32
	// lightRow is the number of the first hash that the light part uses.
	lightRow = heavyStages
)

// newStages uses at most three quarters of the memory, and at most the paper's 3,072 buckets a
// stage.
func newStages(memory, keyBytes int) (*stages, int) {
	bucket := keyBytes + 8 // the key, the flow's packets with a flag bit, and all packets
	n := min(stageBuckets, memory/4*3/bucket/heavyStages)
	if n < 1 {
		return nil, 0
	}
	return &stages{
		size: keyBytes, cols: family.NewRange(uint32(n)), keys: make([]byte, n*heavyStages*keyBytes),
		counts: make([]uint32, n*heavyStages),
		flags:  make([]bool, n*heavyStages), votes: make([]uint32, n*heavyStages),
	}, n * heavyStages * bucket
}

func (s *stages) key(c int) []byte { return s.keys[c*s.size : (c+1)*s.size] }

func at[F family.Hash](s *stages, d uint64, stage int) int {
	return stage*int(s.cols.Len()) + int(family.Column[F](d, stage, &s.cols))
}

// insert counts a packet. If out is not nil, n packets of this key must be counted in the light
// part.
func insert[F family.Hash](s *stages, seed uint64, key []byte) (out []byte, n uint32) {
	moving, next := s.moving[0][:s.size], s.moving[1][:s.size]
	copy(moving, key)
	d, n, flag := family.Digest[F](seed, key), uint32(1), false
	for stage := range heavyStages {
		c := at[F](s, d, stage)
		switch {
		case s.counts[c] == 0:
			copy(s.key(c), moving)
			s.counts[c], s.votes[c], s.flags[c] = n, n, flag
			return nil, 0
		case string(s.key(c)) == string(moving):
			s.counts[c] = uint32(min(uint64(s.counts[c])+uint64(n), math.MaxUint32))
			s.votes[c] = uint32(min(uint64(s.votes[c])+uint64(n), math.MaxUint32))
			s.flags[c] = s.flags[c] || flag
			return nil, 0
		}
		s.votes[c] = uint32(min(uint64(s.votes[c])+uint64(n), math.MaxUint32))
		if uint64(s.votes[c]) < stageLambda*uint64(s.counts[c]) {
			continue
		}
		copy(next, s.key(c))
		copy(s.key(c), moving)
		moving, next = next, moving
		count, was := s.counts[c], s.flags[c]
		s.counts[c], s.votes[c], s.flags[c] = n, n, true
		n, flag, d = count, was, family.Digest[F](seed, moving)
	}
	return moving, n
}

// query returns the packets of a key in the tables. whole reports that the light part has no
// packets of the key.
func query[F family.Hash](s *stages, d uint64, key []byte) (n uint32, whole bool) {
	whole = true
	for stage := range heavyStages {
		if c := at[F](s, d, stage); s.counts[c] > 0 && string(s.key(c)) == string(key) {
			n, whole = n+s.counts[c], whole && !s.flags[c]
		}
	}
	return n, whole && n > 0
}

// flows calls f once for every flow in the tables.
func (s *stages) flows(f func(key []byte)) {
	seen := make(map[string]bool)
	for c, n := range s.counts {
		if k := s.key(c); n > 0 && !seen[string(k)] {
			seen[string(k)] = true
			f(k)
		}
	}
}
