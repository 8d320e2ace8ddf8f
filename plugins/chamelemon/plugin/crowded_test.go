// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/sketch/estimate"
)

// TestCrowd: the number of victim flows in a part without empty buckets is estimated, whatever
// share of their packets the flows lose, and exceeds the estimate by the margin at most.
func TestCrowd(t *testing.T) {
	least, most := 1.0, 1.0
	for _, workload := range []string{"DCTCP", "CACHE", "VL2", "HADOOP"} {
		points, err := traffic.Workload(workload)
		if err != nil {
			t.Fatal(err)
		}
		for _, width := range []int{129, 513, 1793} {
			for _, load := range []float64{9, 25, 100} { // flows per bucket of an array
				for _, share := range []float64{1e-6, 0.003, 0.05, 0.3, 1} {
					r := rand.New(rand.NewPCG(uint64(width), uint64(1000*share)))
					part, err := newPart(0, width)
					if err != nil {
						t.Fatal(err)
					}
					n := int(load * float64(width))
					key := make([]byte, keyBytes[0])
					for i := range n {
						binary.BigEndian.PutUint32(key, uint32(i))
						size := traffic.Size(points, r.Float64())
						if err := part.Add(key, max(1, int64(math.Ceil(share*float64(size))))); err != nil {
							t.Fatal(err)
						}
					}
					var sizes, weights []float64 // of other flows of the same distribution
					for range 20_000 {
						sizes, weights = append(sizes, float64(traffic.Size(points, r.Float64()))), append(weights, 1)
					}
					got := estimate.Crowd(lost(part), arrays, sizes, weights) / float64(n)
					least, most = min(least, got), max(most, got)
					if got > 1.3 || got < 1/crowdMargin {
						t.Errorf("%s, %d flows in %d buckets an array, share %g lost: estimated as %.3f times as many", workload, n,
							width, share, got)
					}
				}
			}
		}
	}
	t.Logf("estimated as %.3f to %.3f times as many", least, most)
}
