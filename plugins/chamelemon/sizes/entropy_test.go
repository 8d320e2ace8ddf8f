// SPDX-License-Identifier: Apache-2.0

package sizes

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/sketch/estimate"
)

// TestEntropyByFlowsPerCounter measures the largest error of the entropy by the mean number of
// flows in a counter of the first row, with the classifier of docs/chamelemon-p4.md and flows of
// 1,000 packets and more known one by one. Sizes are 1, uniform to 10, or follow Pareto's and
// lognormal distributions. Up to Most the error is at most 1 %.
func TestEntropyByFlowsPerCounter(t *testing.T) {
	const counters, large, largest = 32768, 1000, 60_000
	pareto := func(r *rand.Rand, skew float64) float64 { return math.Pow(1-r.Float64(), -skew) }
	kinds := []func(r *rand.Rand) float64{
		func(*rand.Rand) float64 { return 1 },
		func(r *rand.Rand) float64 { return float64(1 + r.IntN(10)) },
		func(r *rand.Rand) float64 { return pareto(r, 1) },
		func(r *rand.Rand) float64 { return pareto(r, 0.6) },
		func(r *rand.Rand) float64 { return 1 + math.Exp(1+2.2*r.NormFloat64()) },
	}
	worst := func(load float64, seed uint64) (worst float64) {
		for _, draw := range kinds {
			r := rand.New(rand.NewPCG(seed, 3))
			rows := [2][]uint32{make([]uint32, counters), make([]uint32, counters/2)}
			actual, s := Sizes{Small: make(estimate.Distribution, large)}, Sizes{}
			for range int(load * counters) {
				x := uint32(min(draw(r), largest))
				if x < large {
					actual.Small[x]++
				} else {
					actual.Rest = append(actual.Rest, uint64(x))
				}
				for i, row := range rows {
					at := r.IntN(len(row))
					row[at] = min(row[at]+x, []uint32{255, 65535}[i])
				}
			}
			s.Rest = actual.Rest
			small, err := estimate.MRAC{Overflow: 255}.Run(rows[0])
			if err != nil {
				t.Fatal(err)
			}
			s.Small = small[:min(255, len(small))]
			if d, err := estimate.Decompound(rows[1], 255, large); err == nil {
				copy(d, s.Small)
				s.Small = d
			}
			worst = max(worst, math.Abs(s.Entropy()/actual.Entropy()-1))
		}
		return worst
	}
	for _, tt := range []struct{ load, least, most float64 }{{0.5, 0, 0.01}, {1, 0, 0.01}, {Most, 0, 0.01},
		{2, 0.01, 0.022}, {8, 0.06, 0.11}} {
		for seed := range uint64(3) {
			if e := worst(tt.load, seed); e < tt.least || e > tt.most {
				t.Errorf("%v flows in a counter, seed %d: error %.4f, expected %v to %v", tt.load, seed, e, tt.least, tt.most)
			}
		}
	}
}
