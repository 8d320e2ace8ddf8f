// SPDX-License-Identifier: Apache-2.0

package universal

import "math"

// stratum has what is known of the flows of a level.
type stratum struct {
	flows        []estimated // the known ones
	sum, squares float64     // of the sizes of all flows, and of their squares
}

// part returns the sums over those flows of a stratum that are smaller than size. All flows of at
// least this size are known.
func (s *stratum) part(size float64) (sum, squares float64) {
	sum, squares = s.sum, s.squares
	for i := range s.flows {
		if x := math.Abs(float64(s.flows[i].size)); x >= size {
			sum, squares = sum-x, squares-x*x
		}
	}
	return sum, max(squares, 0)
}

// total returns the sum of the sizes of all flows, each without its sign, and its standard
// deviation, which is +Inf if the sum is unknown.
//
// Where a stratum's flows can be counted, its cells give the sum. A fuller stratum has large flows,
// which are known, and small ones, which have about the same sum as those of this size in all
// strata below together: a flow is in either with equal probability, so the variance of the
// difference is the sum of squares over both.
func (e *Estimate) total() (sum, deviation float64) {
	strata := make([]stratum, len(e.levels))
	flows, least, variance := e.flows, 0.0, 0.0
	for i := len(strata) - 1; i >= 0; i-- {
		s, lv := &strata[i], &e.levels[i]
		first := len(flows)
		for first > 0 && int(flows[first-1].level) == i {
			first--
		}
		flows, s.flows = flows[:first], flows[first:]
		s.squares = lv.moment
		least = max(least, e.complete(i, math.MaxInt32))
		spread := math.Inf(1)
		if lv.counted {
			s.sum, spread = lv.sumFlows(e.complete(i, smallFlows), s.flows, e.layout.Rows)
		}
		switch {
		case !math.IsInf(spread, 1):
			variance += spread * spread
		case i == len(strata)-1:
			return 0, spread
		default:
			large, squares := s.part(least)
			s.sum, variance = -large, 4*variance+squares+float64(len(s.flows))*lv.noise*lv.noise
			for j := i + 1; j < len(strata); j++ {
				small, squares := strata[j].part(least)
				s.sum, variance = s.sum+small, variance+squares
			}
		}
		sum += s.sum
	}
	return sum, math.Sqrt(variance)
}
