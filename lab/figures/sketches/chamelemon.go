// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/tower"
)

// fermatBuckets is the number of buckets in chamelemon App. E: 2,500 are decoded in 99.9 % of the
// cases.
const fermatBuckets = 2500

// classified is the number of keys of a batch after which Tower+Fermat passes those above the
// threshold on: few enough for the second cache.
const classified = 1 << 14

// towerFermat is ChameleMon's combination: packets beyond the limit's half, which is the
// heavy-change threshold, go into Fermat. Its buckets take 8 bytes for an
// address and 20 for an IPv4 5-tuple, as the paper's.
func towerFermat[E fermat.Field]() kind {
	return kind{"Tower+Fermat", "8 and 16 bits, 2500 buckets", func(on *trace.Trace, memory int, limit float64,
		seed uint64) (*structure, error) {
		c := fermat.Config{Width: fermatBuckets / 3, KeyBytes: on.KeyBytes(), Seed: seed}
		if on.KeyBytes() == 4 {
			c.FragmentBits = 32 // one word for an address, also in Prime32
		}
		f, err := fermat.New[host, E](c)
		if err != nil {
			return nil, err
		}
		t, err := tower.New[host](tower.Config{Memory: memory - f.Memory(), Bits: []int{8, 16}, Seed: seed + 1})
		if err != nil {
			return nil, err
		}
		threshold, size := uint32(max(1, limit/2)), on.KeyBytes()
		var large map[string]float64
		s := &structure{
			insert: func(k []byte) {
				if t.InsertQuery(k) > threshold {
					_ = f.Insert(k)
				}
			},
			insertBatch: func(keys []byte) {
				above := make([]byte, 0, classified*size)
				for len(keys) > 0 {
					n := min(len(keys), classified*size)
					above, _ = t.InsertBatchAbove(keys[:n], size, threshold, above[:0])
					_ = f.InsertBatch(above, size)
					keys = keys[n:]
				}
			},
			seal: func() error {
				r, err := f.Decode()
				if err != nil {
					return err
				}
				large = make(map[string]float64)
				for _, x := range r.Flows {
					if x.Exact {
						large[string(x.Key)] = float64(x.Count) + float64(threshold)
					}
				}
				return nil
			},
			size: func(k []byte) float64 {
				if x, ok := large[string(k)]; ok {
					return x
				}
				return float64(t.Query(k))
			},
			heavy: func(limit float64) map[string]float64 {
				out := make(map[string]float64)
				for k, x := range large {
					if x >= limit {
						out[k] = x
					}
				}
				return out
			},
			distribution: func() (estimate.Distribution, error) {
				d, err := towerDistribution(t)
				if err != nil {
					return nil, err
				}
				d = d[:min(len(d), int(threshold)+1)]
				for _, x := range large {
					for int(x) >= len(d) {
						d = append(d, make(estimate.Distribution, int(x)+1-len(d))...)
					}
					d[int(x)]++
				}
				return d, nil
			},
			cardinality: func() float64 { return towerFlows(t) },
		}
		return s, nil
	}}
}

// accumulationRanks is the number of ranks of Figure 11's traffic, of which 63 thousand have a
// packet.
const accumulationRanks = 67_000

func chamelemonFigure11() suite.Suite {
	memories := kilobytes(200, 300, 400, 500, 600)
	return suite.New(suite.Suite{
		Name: "chamelemon-11",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			kinds := []kind{towerFermat[fermat.Prime32](), countMin(false, "CM"), countMin(true, "CU"), countHeap(),
				univmonKind(), elasticSwitch(), fcmKind(), hashPipe(), coco(), mrac()}
			// 2.3 million packets if the trace has the standard 2 million.
			like, err := t.Like(t.Len()*115/100, t.Len()*accumulationRanks/2_000_000, o.Seed)
			if err != nil {
				return nil, err
			}
			return accuracy(ctx, like.Sources(), o, kinds, memories, sixTasks)
		},
	})
}
