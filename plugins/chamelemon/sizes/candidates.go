// SPDX-License-Identifier: Apache-2.0

package sizes

import (
	"slices"
	"sync"

	"github.com/netsketch/netsketch/sketch/estimate"
)

// Classifier has the counters of ChameleMon's classifier. A counter of row i stops at Full[i].
type Classifier struct {
	Rows [2][]uint32
	Full [2]uint32
}

// Candidates returns a function that estimates how many flows the classifier counts with at least x
// packets: the HH candidates at a threshold of x. With many small flows these are far more than the
// flows of x packets and more, because a flow of one packet is counted with two if another flow
// shares its counter in each row. A Th chosen by sizes alone overfills the HH part, and the next
// higher Th leaves it empty.
//
// A flow of s packets is counted with x if, in each row, the other flows in its counter have x - s
// packets or more, or the counter overflowed; a random counter models them. This holds at the end
// of the epoch, but packets are encoded during it, so callers scale the result by a measured number
// of candidates. The first call of the function calls sizes; each call takes one step for each flow
// size.
func (c *Classifier) Candidates(sizes func() *Sizes) func(x uint32) float64 {
	type class struct{ packets, flows float64 }
	var above [2][]float64 // share of a row's counters with at least this many packets
	classes := sync.OnceValue(func() (list []class) {
		for i, row := range c.Rows {
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
		known := sizes()
		for s, n := range known.Small {
			if n > 0 && s > 0 {
				list = append(list, class{float64(s), n})
			}
		}
		for _, s := range known.Rest {
			list = append(list, class{float64(s), 1})
		}
		return list
	})
	return func(x uint32) (flows float64) {
		for _, class := range classes() {
			p := 1.0
			if rest := float64(x) - class.packets; rest > 0 {
				for i := range above {
					switch v := int(min(rest, float64(c.Full[i]))); {
					case v < len(above[i]):
						p *= above[i][v]
					default:
						p = 0
					}
				}
			}
			flows += class.flows * p
		}
		return flows
	}
}

// Guess adds flows to sizes that lack those of from packets and more, but fewer than to, because
// flows share too many counters for an estimate. In the guess each counter of the second row holds
// one large flow and the mean of the small flows. If from is 1, no counter of the first row is
// zero, and the number of small flows is an upper bound. So a Th that is chosen by the result may
// be too high at first; the control lowers it by the measured number of candidates.
func (c *Classifier) Guess(s *Sizes, from, to uint32) *Sizes {
	out := &Sizes{Small: s.Small[:min(int(from), len(s.Small))]}
	if from == 1 {
		counters := make([]float64, len(c.Rows[0]))
		for i, v := range c.Rows[0] {
			counters[i] = float64(v)
		}
		out.Small = estimate.Distribution{1: estimate.Crowd(counters, 1, nil, nil)}
	}
	mean := out.Small.Packets() / float64(len(c.Rows[1]))
	for _, v := range c.Rows[1] {
		if x := float64(v) - mean; x >= float64(c.Full[0]) && x < float64(to) {
			out.Rest = append(out.Rest, uint64(x))
		}
	}
	out.Rest = append(out.Rest, s.Rest...)
	return out
}
