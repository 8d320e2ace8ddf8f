// SPDX-License-Identifier: Apache-2.0

package plugin

import "math"

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
				t := r.sizes.tail()
				flows += t.atLeast(1)
				for i, x := range t.sizes {
					if w := t.number(i); w > 0 && x >= float64(from) && x < float64(to) {
						sizes, weights = append(sizes, x), append(weights, w)
					}
				}
			}
			n := crowd(d, sizes, weights)
			if flows > 0 {
				n = min(n, flows)
			}
			into.flows = max(into.flows, n)
			into.high = max(into.high, crowdMargin*n)
		}
	}
}

// crowdMargin is the upper bound of crowd's estimates, divided by the estimate.
const crowdMargin = 1.15

// crowd estimates the number of flows in a difference without empty buckets. A bucket counts the
// lost packets of the flows in it. With n flows in arrays of m buckets, the mean of e^(-s count)
// is therefore exp(-n/m (1 - φ)), where φ is the mean of e^(-s loss) over the flows; linear
// counting is the case of a large s. Two assumptions give φ: the flows' sizes are distributed like
// the given ones, and each flow loses the same share of its packets, but at least one. The share
// follows from the sum of all losses.
func crowd(d *encoder, sizes, weights []float64) float64 {
	var counts []float64
	total := 0.0
	for row := range arrays {
		for col := range d.Config().Width {
			n, _, _ := d.Bucket(row, col) // both are in range
			counts = append(counts, max(float64(n), 0))
			total += max(float64(n), 0)
		}
	}
	total /= arrays
	// With this mean, the buckets of about as many flows as there are buckets contribute to it.
	const exponent = 1.5
	s := bisect(1e-9, 40, func(s float64) bool {
		mean := 0.0
		for _, x := range counts {
			mean += math.Exp(-s * x)
		}
		return mean/float64(len(counts)) > math.Exp(-exponent)
	})
	least := exponent * float64(d.Config().Width) // the number of flows if φ is 0
	if len(sizes) == 0 {
		return least / -math.Expm1(-s) // each flow lost one packet: an upper bound
	}
	// number returns the number of flows by the mean of e^(-s count), and by the sum of the losses.
	number := func(share float64) (byMean, bySum float64) {
		flows, lost, phi := 0.0, 0.0, 0.0
		for i, x := range sizes {
			loss := max(1, math.Ceil(share*x))
			flows += weights[i]
			lost += weights[i] * loss
			phi += weights[i] * math.Exp(-s*loss)
		}
		return least / (1 - phi/flows), total * flows / lost
	}
	share := bisect(1e-7, 1, func(share float64) bool {
		byMean, bySum := number(share)
		return bySum > byMean // the flows lose more packets each
	})
	n, _ := number(share)
	return n
}

// bisect returns the number between low and high, to 0.01 %, up to which above is true.
func bisect(low, high float64, above func(float64) bool) float64 {
	for high > 1.0001*low {
		if x := math.Sqrt(low * high); above(x) {
			low = x
		} else {
			high = x
		}
	}
	return high
}
