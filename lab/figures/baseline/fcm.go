// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"math"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
)

// FCM is FCM-Sketch with top-k (Song et al. 2020): the heavy part of ElasticSketch's switch
// version, and two trees of counters for the remaining packets. A leaf has 8 bits; its parent,
// shared by 16 leaves, has 16 bits; the root above 16 of these has 32 bits. A full counter
// continues in its parent. With one tree that has only leaves, it is ElasticSketch's switch
// version.
type FCM[F family.Hash] struct {
	seed  uint64
	heavy *stages
	cols  family.Range
	trees []tree
}

// tree is one k-ary tree. A counter whose bits are all ones is full.
type tree struct {
	leaves []uint8
	middle []uint16 // nil if leaves stop at their limit
	roots  []uint32
}

const (
	fcmArity = 16
	leafFull = math.MaxUint8
	midFull  = math.MaxUint16
)

// NewFCM returns an empty sketch with up to four tables of 3,072 flows; the trees get the rest of
// the memory.
func NewFCM[F family.Hash](memory, keyBytes int, seed uint64) (*FCM[F], error) {
	return newFCM[F]("FCM", memory, keyBytes, seed, 2, fcmArity)
}

// NewElasticSwitch returns ElasticSketch's switch version, with the tables of NewFCM and one row
// of 8-bit counters.
func NewElasticSwitch[F family.Hash](memory, keyBytes int, seed uint64) (*FCM[F], error) {
	return newFCM[F]("elastic", memory, keyBytes, seed, 1, 0)
}

func newFCM[F family.Hash](name string, memory, keyBytes int, seed uint64, trees, arity int) (*FCM[F], error) {
	if err := checkKey(keyBytes); err != nil {
		return nil, err
	}
	if err := family.Check[F](lightRow+trees, seed); err != nil {
		return nil, err
	}
	if memory < 0 || memory > sketch.MaxMemory {
		return nil, tooSmall(name, memory)
	}
	heavy, used := newStages(memory, keyBytes)
	if heavy == nil {
		return nil, tooSmall(name, memory)
	}
	each := (memory - used) / trees
	if arity > 0 {
		// One root with its 16 middle counters and 256 leaves.
		unit := arity*arity + 2*arity + 4
		each = each / unit * arity * arity
	}
	if each < 1 {
		return nil, tooSmall(name, memory)
	}
	s := &FCM[F]{seed: seed, heavy: heavy, cols: family.NewRange(uint32(each))}
	for range trees {
		t := tree{leaves: make([]uint8, each)}
		if arity > 0 {
			t.middle, t.roots = make([]uint16, each/arity), make([]uint32, each/arity/arity)
		}
		s.trees = append(s.trees, t)
	}
	return s, nil
}

// Memory returns the size in bytes. A flag counts as one bit of a count.
func (s *FCM[F]) Memory() int {
	n := len(s.heavy.keys) + 4*len(s.heavy.counts) + 4*len(s.heavy.votes)
	for _, t := range s.trees {
		n += len(t.leaves) + 2*len(t.middle) + 4*len(t.roots)
	}
	return n
}

// Insert counts one packet.
func (s *FCM[F]) Insert(key []byte) error {
	if len(key) != s.heavy.size {
		return errKey
	}
	if out, n := insert[F](s.heavy, s.seed, key); n > 0 {
		d := family.Digest[F](s.seed, out)
		for i := range s.trees {
			s.trees[i].add(int(family.Column[F](d, lightRow+i, &s.cols)), n)
		}
	}
	return nil
}

// add counts n packets: a counter of b bits counts to 2^b-2, and further packets go to its parent.
func (t *tree) add(leaf int, n uint32) {
	c := &t.leaves[leaf]
	if t.middle == nil {
		*c = uint8(min(uint32(*c)+min(n, leafFull), leafFull))
		return
	}
	v := uint64(n)
	if *c < leafFull {
		if v += uint64(*c); v < leafFull {
			*c = uint8(v)
			return
		}
		*c, v = leafFull, v-(leafFull-1)
	}
	m := &t.middle[leaf/fcmArity]
	if *m < midFull {
		if v += uint64(*m); v < midFull {
			*m = uint16(v)
			return
		}
		*m, v = midFull, v-(midFull-1)
	}
	r := &t.roots[leaf/fcmArity/fcmArity]
	*r = uint32(min(uint64(*r)+v, math.MaxUint32))
}

// query returns the count along a leaf's path.
func (t *tree) query(leaf int) uint32 {
	n := uint32(t.leaves[leaf])
	if n < leafFull || t.middle == nil {
		return n
	}
	m := uint32(t.middle[leaf/fcmArity])
	if m < midFull {
		return leafFull - 1 + m
	}
	return uint32(min(leafFull-1+midFull-1+uint64(t.roots[leaf/fcmArity/fcmArity]), math.MaxUint32))
}

// counters returns the tree as one row. Full leaves that share a parent get equal parts of the
// parent's count, so that the row's sum is the number of packets.
func (t *tree) counters() []uint32 {
	row := make([]uint32, len(t.leaves))
	shared := make([]uint32, len(t.middle))
	for i, v := range t.leaves {
		if row[i] = uint32(v); v == leafFull && t.middle != nil {
			shared[i/fcmArity]++
		}
	}
	above := make([]uint32, len(t.roots))
	for m, v := range t.middle {
		if v == midFull {
			above[m/fcmArity]++
		}
	}
	for i, v := range t.leaves {
		if v < leafFull || t.middle == nil {
			continue
		}
		m := i / fcmArity
		n := uint32(t.middle[m])
		if n == midFull {
			n = midFull - 1 + t.roots[m/fcmArity]/above[m/fcmArity]
		}
		row[i] = leafFull - 1 + n/shared[m]
	}
	return row
}

func (s *FCM[F]) light(d uint64) uint32 {
	least := uint32(math.MaxUint32)
	for i := range s.trees {
		least = min(least, s.trees[i].query(int(family.Column[F](d, lightRow+i, &s.cols))))
	}
	return least
}

// Query returns the estimate of a key.
func (s *FCM[F]) Query(key []byte) uint32 {
	if len(key) != s.heavy.size {
		return 0
	}
	d := family.Digest[F](s.seed, key)
	n, whole := query[F](s.heavy, d, key)
	if whole {
		return n
	}
	return n + s.light(d)
}

// Heavy returns the flows of the tables with their estimates.
func (s *FCM[F]) Heavy() (flows []Flow) {
	s.heavy.flows(func(key []byte) { flows = append(flows, Flow{key, int64(s.Query(key))}) })
	return flows
}

// rest returns the first tree's counters without those of flows in the tables, and the factor that
// compensates for the missing counters.
func (s *FCM[F]) rest() (row []uint32, scale float64) {
	taken := make([]bool, len(s.trees[0].leaves))
	s.heavy.flows(func(key []byte) {
		d := family.Digest[F](s.seed, key)
		if _, whole := query[F](s.heavy, d, key); !whole {
			taken[family.Column[F](d, lightRow, &s.cols)] = true
		}
	})
	return remainder(s.trees[0].counters(), taken)
}

// remainder returns the counters that flows in the tables do not use.
func remainder(row []uint32, taken []bool) (rest []uint32, scale float64) {
	for i, v := range row {
		if !taken[i] {
			rest = append(rest, v)
		}
	}
	return rest, float64(len(row)) / float64(max(len(rest), 1))
}

// withHeavy multiplies a distribution by scale and adds flows.
func withHeavy(d estimate.Distribution, scale float64, flows []Flow) estimate.Distribution {
	for i := range d {
		d[i] *= scale
	}
	for _, f := range flows {
		if int(f.Count) >= len(d) {
			d = append(d, make(estimate.Distribution, int(f.Count)+1-len(d))...)
		}
		d[f.Count]++
	}
	return d
}

// Distribution estimates the flow sizes: MRAC on the first tree's counters of the flows that are
// in no table, plus the flows of the tables.
func (s *FCM[F]) Distribution() (estimate.Distribution, error) {
	m := estimate.MRAC{}
	if s.trees[0].middle == nil {
		m.Overflow = leafFull
	}
	row, scale := s.rest()
	d, err := m.Run(row)
	if err != nil {
		return nil, err
	}
	return withHeavy(d, scale, s.Heavy()), nil
}

// Cardinality estimates the number of flows: linear counting on the same counters, plus the flows
// of the tables.
func (s *FCM[F]) Cardinality() (float64, bool) {
	row, scale := s.rest()
	n, ok := estimate.Cardinality(len(row), estimate.Zeros(row))
	n *= scale
	s.heavy.flows(func([]byte) { n++ })
	return n, ok
}
