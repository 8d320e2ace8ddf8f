// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"slices"
	"sync"
)

// shown estimates how many flows the classifier shows with at least x packets. These are the HH
// candidates at a threshold of x. They are more than the flows of that size, by far where flows are
// many and small: a flow of one packet is shown with two as soon as another flow shares its counter
// in each row. So a Th that is chosen by sizes alone fills the HH part beyond what can be decoded, and one
// that is then raised by one leaves it empty.
//
// A flow of s packets is shown with x if in each row a counter taken at random, which is what
// other flows have put into its own, has x - s or more, or has overflowed. That is as at the epoch's end; a
// flow is encoded when its packets come, so the number is to be brought to the scale of a
// number of candidates that was measured. The function costs a step for each size of flow.
func (r *reading) shown(iterations int) func(x uint32) float64 {
	type class struct{ packets, flows float64 }
	var above [2][]float64 // share of a row's counters with at least so many packets
	classes := sync.OnceValue(func() (list []class) {
		r.totals(iterations)
		for i, row := range r.rows {
			above[i] = make([]float64, int(slices.Max(row))+1)
			for _, v := range row {
				above[i][v]++
			}
			for v := len(above[i]) - 2; v >= 0; v-- {
				above[i][v] += above[i][v+1]
			}
			for v := range above[i] {
				above[i][v] /= float64(len(row))
			}
		}
		for s, n := range r.sizes.small {
			if n > 0 && s > 0 {
				list = append(list, class{float64(s), n})
			}
		}
		for _, s := range r.sizes.rest {
			list = append(list, class{float64(s), 1})
		}
		return list
	})
	return func(x uint32) (flows float64) {
		for _, c := range classes() {
			p := 1.0
			if rest := float64(x) - c.packets; rest > 0 {
				for i := range above {
					switch v := int(min(rest, float64(r.full(i)))); {
					case v < len(above[i]):
						p *= above[i][v]
					default:
						p = 0
					}
				}
			}
			flows += c.flows * p
		}
		return flows
	}
}
