// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"math"

	"github.com/netsketch/netsketch/sketch/estimate"
)

// estimateCrowded estimates the number of victim flows in the parts whose differences have no empty
// buckets. Linear counting would then stop at a few flows per bucket, and a burst of victim flows
// would be followed in several steps, each of which costs two epochs.
func (a *analysis) estimateCrowded() {
	for f := range families {
		for part, d := range a.losses.crowded[f] {
			if d == nil {
				continue
			}
			into, from, to := &a.losses.hl[f], a.attention.Tl, uint32(math.MaxUint32)
			if part == lightPart {
				into, from, to = &a.losses.ll[f], 1, a.attention.Tl
			}
			sizes, weights := []float64{}, []float64{}
			flows := 0.0
			for _, r := range a.readings {
				r.totals(a.config.Iterations)
				t := r.guess().Tail()
				flows += t.AtLeast(1)
				for i, x := range t.Sizes {
					if w := t.Number(i); w > 0 && x >= float64(from) && x < float64(to) {
						sizes, weights = append(sizes, x), append(weights, w)
					}
				}
			}
			n := estimate.Crowd(lost(d), arrays, sizes, weights)
			if flows > 0 {
				n = min(n, flows)
			}
			into.flows = max(into.flows, n)
			into.high = max(into.high, crowdMargin*n)
		}
	}
}

// crowdMargin is the upper bound of Crowd's estimates, divided by the estimate.
const crowdMargin = 1.15

// lost returns the lost packets that the buckets of a difference counted.
func lost(d *encoder) (packets []float64) {
	for row := range arrays {
		for col := range d.Config().Width {
			n, _, _ := d.Bucket(row, col) // both are in range
			packets = append(packets, max(float64(n), 0))
		}
	}
	return packets
}
