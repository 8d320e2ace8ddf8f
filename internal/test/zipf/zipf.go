// SPDX-License-Identifier: Apache-2.0

// Package zipf generates the traffic of the sketches' tests and benchmarks: keys whose frequencies
// follow Zipf's law, from a seed. Its functions are pure.
package zipf

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sort"
)

// Trace holds packets as concatenated keys of Size bytes, and the exact counts.
type Trace struct {
	Size  int
	Keys  []byte
	Count map[string]uint32
}

// Key returns the key of packet i.
func (t *Trace) Key(i int) []byte { return t.Keys[i*t.Size : (i+1)*t.Size] }

// Len is the number of packets.
func (t *Trace) Len() int { return len(t.Keys) / t.Size }

// New generates packets: the flow of rank r has a share proportional to r^-skew of the packets.
// Keys are random. The same arguments give the same packets. With seed 1, 2 million packets,
// 200,000 ranks and skew 1.1, the trace has 124 thousand flows of 13-byte keys, as in the figures.
func New(seed uint64, packets, ranks int, skew float64, size int) *Trace {
	rng := rand.New(rand.NewPCG(seed, 0x7a697066))
	sum := make([]float64, ranks)
	total := 0.0
	for i := range sum {
		total += math.Pow(float64(i+1), -skew)
		sum[i] = total
	}
	keys := make([]byte, ranks*size+8)
	for i := 0; i < ranks*size; i += 8 {
		binary.LittleEndian.PutUint64(keys[i:], rng.Uint64())
	}
	t := &Trace{Size: size, Keys: make([]byte, 0, packets*size)}
	counts := make([]uint32, ranks)
	for range packets {
		i := sort.SearchFloat64s(sum, rng.Float64()*total)
		i = min(i, ranks-1)
		counts[i]++
		t.Keys = append(t.Keys, keys[i*size:(i+1)*size]...)
	}
	t.Count = make(map[string]uint32, ranks)
	for i, n := range counts {
		if n > 0 {
			t.Count[string(keys[i*size:(i+1)*size])] += n
		}
	}
	return t
}

// T1 is the trace of the speed figures: Zipf 1.1, 2 million packets of 13-byte keys.
func T1() *Trace { return New(1, 2_000_000, 200_000, 1.1, 13) }

// Errors returns the average relative and average absolute error of an estimator.
func (t *Trace) Errors(query func(key []byte) float64) (are, aae float64) {
	for k, n := range t.Count {
		d := math.Abs(query([]byte(k)) - float64(n))
		are += d / float64(n)
		aae += d
	}
	return are / float64(len(t.Count)), aae / float64(len(t.Count))
}
