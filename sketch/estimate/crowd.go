// SPDX-License-Identifier: Apache-2.0

package estimate

import "math"

// Crowd estimates the number of flows in counters none of which is zero, where linear counting
// fails. The counters are of several rows, each of which counts all flows, and a counter is the
// sum of its flows' packets. With n flows in rows of m counters, the mean of e^(-s counter) is
// therefore exp(-n/m (1 - φ)), where φ is the mean of e^(-s packets) over the flows; linear
// counting is the case of a large s. Two assumptions give φ: the flows are a random selection of
// flows with the given sizes, and each counted the same share of its packets, but at least one.
// The share follows from the sum of the counters. Without sizes, the result is an upper bound.
func Crowd(counters []float64, rows int, sizes, weights []float64) (flows float64) {
	total := 0.0
	for _, x := range counters {
		total += x / float64(rows)
	}
	// With this mean, the counters that contribute most have about one and a half flows.
	const exponent = 1.5
	s := bisect(1e-9, 40, func(s float64) bool {
		mean := 0.0
		for _, x := range counters {
			mean += math.Exp(-s * x)
		}
		return mean/float64(len(counters)) > math.Exp(-exponent)
	})
	least := exponent * float64(len(counters)) / float64(rows) // the number of flows if φ is 0
	if len(sizes) == 0 {
		return least / -math.Expm1(-s) // no flow has more than one packet
	}
	// number returns the number of flows by the mean of e^(-s counter), and by the sum.
	number := func(share float64) (byMean, bySum float64) {
		n, packets, phi := 0.0, 0.0, 0.0
		for i, x := range sizes {
			counted := max(1, math.Ceil(share*x))
			n += weights[i]
			packets += weights[i] * counted
			phi += weights[i] * math.Exp(-s*counted)
		}
		return least / (1 - phi/n), total * n / packets
	}
	share := bisect(1e-7, 1, func(share float64) bool {
		byMean, bySum := number(share)
		return bySum > byMean // each flow counted more packets
	})
	flows, _ = number(share)
	return flows
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
