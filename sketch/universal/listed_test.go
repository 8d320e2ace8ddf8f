// SPDX-License-Identifier: Apache-2.0

package universal_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// TestSizesOfListedFlows: of the flows that are listed because their estimate is large, 19 of 20
// estimates are within twice the standard deviation, though flows with positive noise are listed
// rather than others.
func TestSizesOfListedFlows(t *testing.T) {
	for _, c := range []struct {
		name          string
		skew, largest float64
		flows         int
	}{
		{"many flows near the threshold", 1.02, 150, 10505}, {"flat", 0.75, 14893, 7221},
		{"flat and small", 0.74, 2685, 6415}, {"steep", 1.2, 1e5, 30000}, {"flood", 1, 1, 4000},
	} {
		t.Run(c.name, func(t *testing.T) {
			listed, near, far, beyond := 0, 0, 0, 0
			for seed := range uint64(4) {
				e, truth, packets := zipfOf(t, c.skew, c.largest, c.flows, seed)
				for _, f := range e.Above(0.0005 * packets) {
					listed++
					switch z := math.Abs(f.Packets-truth[f.Key]) / f.Deviation; {
					case z > 4:
						beyond, far = beyond+1, far+1
					case z > 2:
						far++
					case z < 1:
						near++
					}
				}
			}
			if far > 3+listed/15 || beyond > 3+listed/50 {
				t.Errorf("of %d flows %d are beyond two standard deviations, %d beyond four", listed, far, beyond)
			}
			if c.largest > 1 && near > listed*95/100 {
				t.Errorf("of %d flows %d are within one standard deviation: it is too large", listed, near)
			}
		})
	}
}

// zipfOf returns the estimate of a small sketch, the packets of each flow, and all packets, which
// arrive in random order.
func zipfOf(t *testing.T, skew, largest float64, flows int, seed uint64) (*universal.Estimate, map[flow.Key]float64,
	float64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 3))
	s, err := universal.New(universal.Layout{Key: flow.Src, Levels: 16, Rows: 3, Columns: 512, Ways: 4, Slots: 32})
	if err != nil {
		t.Fatal(err)
	}
	truth := make(map[flow.Key]float64)
	var order []flow.Key
	for i := range flows {
		k := flow.Key{Mask: flow.Src}
		binary.BigEndian.PutUint32(k.Src[:], random.Uint32())
		for range max(1, int(largest*math.Pow(float64(i+1), -skew))) {
			truth[k]++
			order = append(order, k)
		}
	}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for i := range order {
		s.Update(&order[i])
	}
	return s.Reading().Estimate(), truth, float64(len(order))
}
