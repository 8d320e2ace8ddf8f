// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"

	"github.com/netsketch/netsketch/sketch"
)

// Limits of Decompound. classes is the largest number of classes into which counters are divided;
// the time grows with its square. emptiest is the least number of counters in the lowest class.
const (
	classes   = 1024
	emptiest  = 8
	perOctave = 4 // resolution of the result
	excess    = 3 // largest ratio of packets in the result and in the counters; noise gives up to 1.6
)

// Decompound estimates the numbers of flows with sizes from from to to-1, for sizes that are too
// large for MRAC. A counter is the sum of a Poisson-distributed number of flows, so its
// distribution is a compound Poisson distribution, and Panjer's recursion, solved for the sizes,
// gives their distribution. Counters are divided into at most 1,024 classes of equal width. The
// result has four sizes per power of two, each of which stands for the flows around it. Decompound
// fails with an error that wraps sketch.ErrLimit if almost all counters are in use, or if flows
// share so many counters that the recursion does not converge.
func Decompound(row []uint32, from, to uint32) (Distribution, error) {
	if len(row) == 0 || from < 1 || to <= from {
		return nil, fmt.Errorf("%w: estimate: sizes from %d up to %d, %d counters; expected ascending sizes and a counter",
			sketch.ErrConfig, from, to, len(row))
	}
	width := (to + classes - 1) / classes // width of a class
	share := make([]float64, (to+width/2)/width+1)
	most := 1.0 // packets of the flows, at most: the class of a counter is not below that of a flow in it
	for _, v := range row {
		if v+width/2 >= from {
			most += float64(v + width/2)
		}
		if k := (uint64(v) + uint64(width)/2) / uint64(width); k < uint64(len(share)) {
			share[k]++
		}
	}
	if share[0] < emptiest {
		return nil, fmt.Errorf("%w: estimate: %.0f of %d counters are below %d: too many flows for this row",
			sketch.ErrLimit, share[0], len(row), (width+1)/2)
	}
	weighted := make([]float64, len(share)) // class times flows per counter
	for k := 1; k < len(share); k++ {
		sum := float64(k) * share[k]
		for j := 1; j < k; j++ {
			sum -= weighted[j] * share[k-j]
		}
		weighted[k] = sum / share[0]
	}
	out := make(Distribution, to)
	for low := from; low < to; {
		high := min(max(low+low/perOctave, low+width), to)
		flows, packets := 0.0, 0.0
		for k := (low + width - 1) / width; k*width < high; k++ {
			flows += weighted[k] / float64(k)
			packets += weighted[k] * float64(width)
		}
		if flows > 0 { // a class without flows is noise
			at := min(max(uint32(packets/flows+0.5), low), high-1)
			out[at] += flows * float64(len(row))
		}
		low = high
	}
	if packets := out.Packets(); !(packets <= excess*most) { // infinite numbers may add up to none
		return nil, fmt.Errorf("%w: estimate: flows of %.3g packets in counters of %.3g: too many flows for this row",
			sketch.ErrLimit, packets, most)
	}
	return out, nil
}
