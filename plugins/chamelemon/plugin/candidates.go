// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"sync"
)

// candidates returns a function that estimates how many flows the classifier counts with at least x
// packets: the HH candidates at a threshold of x. With many small flows these are far more than the
// flows of x packets and more, because a flow of one packet is counted with two if another flow
// shares its counter in each row. A Th chosen by sizes alone overfills the HH part, and the next
// higher Th leaves it empty.
//
// A flow of s packets is counted with x if, in each row, the other flows in its counter have x - s
// packets or more, or the counter overflowed; a random counter models them. This holds at the end
// of the epoch, but packets are encoded during it, so callers scale the result by a measured number
// of candidates. The function takes one step for each flow size.
func (r *reading) candidates(iterations int) func(x uint32) float64 {
	type class struct{ packets, flows float64 }
	var above [2][]float64 // share of a row's counters with at least this many packets
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
		for s, n := range r.sizes.Small {
			if n > 0 && s > 0 {
				list = append(list, class{float64(s), n})
			}
		}
		for _, s := range r.sizes.Rest {
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
