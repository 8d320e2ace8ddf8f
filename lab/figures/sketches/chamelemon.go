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

// fermatBuckets are the numbers of buckets in chamelemon App. E: 2,500 decode 99.9 % of the time.
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
			c.FragmentBits = 32 // one word for an address, in Prime32 too
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
	const kb = 1000
	memories := kilobytes(200, 300, 400, 500, 600)
	all := []string{"Tower+Fermat", "HashPipe", "Elastic", "FCM", "Coco", "Count-heap", "CM", "CU", "UnivMon"}
	return suite.Suite{
		Name: "chamelemon-11", Title: "ChameleMon, Figure 11: accumulation tasks",
		Setup: "The paper: four CAIDA traces of 2.3 million packets of 63 thousand source addresses each. Here: as " +
			"many generated ones; the source address is the flow. Heavy hitters and changes as in " +
			"SketchINT's Figure 5; means over the hash seeds of `--runs`. " +
			"Configured as in the paper's Appendix C: Fermat's 2,500 buckets of 8 bytes; Elastic and FCM with four " +
			"tables of 3,072 buckets of 12 bytes; Count-heap's heap of 4,096; HashPipe's six stages; Coco's one " +
			"row. UnivMon has 12 levels and heavy keys in proportion to its memory (28 bytes each, as they can " +
			"be IPv6), not 14 of 1,000. " +
			"HashPipe and Coco do not estimate flows that they do not keep.",
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
		Plots: memoryPlots("chamelemon-11", sixTasks...),
		Claims: []suite.Claim{
			suite.Within("11(a)", "200 KB: F1 of Tower+Fermat is 0.998, comparable with HashPipe's", 200*kb,
				"heavy hitters", "F1", []string{"Tower+Fermat", "HashPipe"}, []float64{0.998}, true,
				"its sizes are never too small, so a flow just below the limit may count as heavy"),
			suite.Beyond("11(a)", "and above the others'; Elastic's and FCM's are below 0.99", 200*kb, "heavy hitters",
				"F1", []string{"Elastic", "FCM", "Coco", "Count-heap", "CM", "CU", "UnivMon"}, 0.99, true,
				"the largest flows of generated traffic stand out more, so Elastic, FCM and CU find them, too"),
			suite.Times("11(b)", "200 KB: ARE of Tower+Fermat is 4.51 times below CM's", 200*kb, "flow size", "ARE",
				"Tower+Fermat", []string{"CM"}, 4.51, ""),
			suite.Times("11(b)", "200 KB: 3.19 times below CU's", 200*kb, "flow size", "ARE", "Tower+Fermat",
				[]string{"CU"}, 3.19, "by a hundredth"),
			suite.Times("11(b)", "200 KB: 2.09 times below Elastic's", 200*kb, "flow size", "ARE", "Tower+Fermat",
				[]string{"Elastic"}, 2.085, ""),
			suite.Times("11(b)", "200 KB: 1.59 times below FCM's", 200*kb, "flow size", "ARE", "Tower+Fermat",
				[]string{"FCM"}, 1.59, ""),
			suite.Best("11(b)", "ARE: comparable with FCM, better than the others", "flow size", "ARE", memories, false,
				"Tower+Fermat", []string{"Elastic", "CU", "CM", "Count-heap", "UnivMon"}, ""),
			suite.Within("11(c)", "400 KB: F1 of Tower+Fermat is 0.996", 400*kb, "heavy changes", "F1",
				[]string{"Tower+Fermat"}, []float64{0.996}, true, ""),
			suite.Beyond("11(c)", "400 KB: F1 of the others is below 0.99", 400*kb, "heavy changes", "F1", all[1:],
				0.99, true, "in generated traffic a changing flow changes by all of its packets, which most "+
					"structures detect"),
			suite.Within("11(d)", "600 KB: WMRE of Tower+Fermat is 0.039, comparable with MRAC's", 600*kb,
				"flow size distribution", "WMRE", []string{"Tower+Fermat", "MRAC"}, []float64{0.039}, false, ""),
			suite.Times("11(d)", "600 KB: 1.09 times below Elastic's, 1.42 below FCM's", 600*kb,
				"flow size distribution", "WMRE", "Tower+Fermat", []string{"Elastic", "FCM"}, 1.09,
				"the light counters of flows in the tables are left out of MRAC here, after which Elastic and FCM, "+
					"whose 400 thousand small counters are more than the Tower's 290 thousand, are better than in "+
					"the paper"),
			suite.Within("11(e)", "600 KB: entropy error of Tower+Fermat is 0.003", 600*kb, "entropy", "RE",
				[]string{"Tower+Fermat"}, []float64{0.003}, false, ""),
			suite.Times("11(e)", "600 KB: 3.3 times below UnivMon's, comparable with Elastic's and FCM's", 600*kb,
				"entropy", "RE", "Tower+Fermat", []string{"UnivMon"}, 3.3,
				"both errors are below the paper's, UnivMon's more so: its heavy keys grow with its memory"),
			suite.Within("11(f)", "600 KB: RE of Tower+Fermat is 0.0016", 600*kb, "cardinality", "RE",
				[]string{"Tower+Fermat"}, []float64{0.0016}, false,
				"linear counting of 63 thousand flows on the 290 thousand small counters has a standard error of 0.0014; the "+
					"number of hash seeds is five"),
			suite.Times("11(f)", "600 KB: 13.125 times below UnivMon's, 10.08 below Elastic's, 4.57 below FCM's",
				600*kb, "cardinality", "RE", "Tower+Fermat", []string{"UnivMon", "Elastic", "FCM"}, 4.57,
				"linear counting on Elastic's and FCM's light counters, with the flows of the tables added, is as "+
					"good as the theory, and they have more small counters; UnivMon is closer than in the paper, too"),
		},
	}
}
