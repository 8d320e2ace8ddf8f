// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"container/heap"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/countsketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// CountHeap is a Count sketch with a heap of the largest flows (Charikar et al. 2002).
type CountHeap[F family.Hash] struct {
	s     *countsketch.Sketch[F]
	size  int
	limit int
	flows []Flow         // min-heap
	at    map[string]int // position in the heap
}

// NewCountHeap returns an empty sketch that keeps the given number of flows. Their keys count as
// part of the memory.
func NewCountHeap[F family.Hash](memory, keyBytes, flows int, seed uint64) (*CountHeap[F], error) {
	if err := checkKey(keyBytes); err != nil {
		return nil, err
	}
	rest := memory - flows*(keyBytes+4)
	if flows < 1 || rest < 12 || memory > sketch.MaxMemory {
		return nil, tooSmall("Count-heap", memory)
	}
	s, err := countsketch.New[F](countsketch.Config{Rows: 3, Memory: rest, Seed: seed})
	if err != nil {
		return nil, err
	}
	return &CountHeap[F]{s: s, size: keyBytes, limit: flows, at: make(map[string]int)}, nil
}

// Memory returns the size in bytes.
func (c *CountHeap[F]) Memory() int { return c.s.Memory() + c.limit*(c.size+4) }

// Insert counts one packet.
func (c *CountHeap[F]) Insert(key []byte) error {
	if len(key) != c.size {
		return errKey
	}
	c.s.Insert(key)
	n := int64(c.s.Query(key))
	if i, ok := c.at[string(key)]; ok {
		c.flows[i].Count = n
		heap.Fix((*flowHeap[F])(c), i)
		return nil
	}
	if len(c.flows) < c.limit {
		heap.Push((*flowHeap[F])(c), Flow{append([]byte(nil), key...), n})
	} else if n > c.flows[0].Count {
		delete(c.at, string(c.flows[0].Key))
		copy(c.flows[0].Key, key)
		c.flows[0].Count = n
		c.at[string(key)] = 0
		heap.Fix((*flowHeap[F])(c), 0)
	}
	return nil
}

// Query returns the estimate of a key.
func (c *CountHeap[F]) Query(key []byte) int64 { return int64(c.s.Query(key)) }

// Heavy returns the flows of the heap.
func (c *CountHeap[F]) Heavy() []Flow { return c.flows }

type flowHeap[F family.Hash] CountHeap[F]

func (h *flowHeap[F]) Len() int           { return len(h.flows) }
func (h *flowHeap[F]) Less(i, j int) bool { return h.flows[i].Count < h.flows[j].Count }
func (h *flowHeap[F]) Swap(i, j int) {
	h.flows[i], h.flows[j] = h.flows[j], h.flows[i]
	h.at[string(h.flows[i].Key)], h.at[string(h.flows[j].Key)] = i, j
}

func (h *flowHeap[F]) Push(x any) {
	f := x.(Flow)
	h.at[string(f.Key)] = len(h.flows)
	h.flows = append(h.flows, f)
}

// Pop is required by heap.Interface and never called, because flows are replaced in place.
func (h *flowHeap[F]) Pop() any {
	f := h.flows[len(h.flows)-1]
	h.flows = h.flows[:len(h.flows)-1]
	delete(h.at, string(f.Key))
	return f
}

// HashPipe is the pipeline of tables of Sivaraman et al. (2017): a new key always enters the first
// table, and the smaller one of two flows moves on to the next table.
type HashPipe[F family.Hash] struct {
	seed   uint64
	size   int
	stages int
	cols   family.Range
	keys   []byte
	counts []uint32
	moving [2][64]byte
}

// NewHashPipe returns an empty pipeline; the paper uses 6 stages.
func NewHashPipe[F family.Hash](memory, keyBytes, stages int, seed uint64) (*HashPipe[F], error) {
	if err := checkKey(keyBytes); err != nil {
		return nil, err
	}
	if err := family.Check[F](stages, seed); err != nil {
		return nil, err
	}
	n := memory / (keyBytes + 4) / stages
	if n < 1 || memory > sketch.MaxMemory {
		return nil, tooSmall("HashPipe", memory)
	}
	return &HashPipe[F]{seed: seed, size: keyBytes, stages: stages, cols: family.NewRange(uint32(n)),
		keys: make([]byte, n*stages*keyBytes), counts: make([]uint32, n*stages)}, nil
}

// Memory returns the size in bytes.
func (p *HashPipe[F]) Memory() int { return len(p.counts) * (p.size + 4) }

func (p *HashPipe[F]) at(key []byte, stage int) int {
	return stage*int(p.cols.Len()) + int(family.Column[F](family.Digest[F](p.seed, key), stage, &p.cols))
}

func (p *HashPipe[F]) key(i int) []byte { return p.keys[i*p.size : (i+1)*p.size] }

// Insert counts one packet.
func (p *HashPipe[F]) Insert(key []byte) error {
	if len(key) != p.size {
		return errKey
	}
	moving, out, n := p.moving[0][:p.size], p.moving[1][:p.size], uint32(1)
	copy(moving, key)
	for stage := range p.stages {
		i := p.at(moving, stage)
		switch {
		case p.counts[i] == 0:
			copy(p.key(i), moving)
			p.counts[i] = n
			return nil
		case string(p.key(i)) == string(moving):
			p.counts[i] += n
			return nil
		case stage == 0 || p.counts[i] < n:
			copy(out, p.key(i))
			copy(p.key(i), moving)
			moving, out = out, moving
			p.counts[i], n = n, p.counts[i]
		}
	}
	return nil
}

// Query returns the packets of a key in the tables.
func (p *HashPipe[F]) Query(key []byte) (n int64) {
	if len(key) != p.size {
		return 0
	}
	for stage := range p.stages {
		if i := p.at(key, stage); p.counts[i] > 0 && string(p.key(i)) == string(key) {
			n += int64(p.counts[i])
		}
	}
	return n
}

// Heavy returns every flow in the tables once.
func (p *HashPipe[F]) Heavy() (flows []Flow) {
	seen := make(map[string]bool)
	for i, n := range p.counts {
		if k := p.key(i); n > 0 && !seen[string(k)] {
			seen[string(k)] = true
			flows = append(flows, Flow{k, p.Query(k)})
		}
	}
	return flows
}
