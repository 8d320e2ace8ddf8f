// SPDX-License-Identifier: Apache-2.0

package universal

import "math"

// modelError is the relative error of the weights beyond chance: slots keep flows of a size with a
// probability that is itself estimated.
const modelError = 0.01

// unseenShare is the probability with which none of the flows of a size is in the sample, from
// which on this is taken to be possible.
const unseenShare = 0.05

// SumDeviation returns the standard deviation of Sum(g).
//
// The sum is a regression estimate: the weights are adjusted to the numbers of flows and packets,
// so only the residuals of g from its regression on one and the size vary with the sample. The
// number of flows adds its own deviation, as often as the regression counts a flow, and sizes add
// the noise of the counters.
func (e *Estimate) SumDeviation(g G) float64 {
	var s0, s1, s2, t0, t1 float64 // moments of the flows by their variances
	flows, packets := -e.count, -e.packets
	for i := range e.sample {
		w := &e.sample[i]
		flows, packets = flows+w.Weight, packets+w.Weight*w.Packets
		v, x := w.variance(), w.Packets
		s0, s1, s2 = s0+v, s1+v*x, s2+v*x*x
		t0, t1 = t0+v*g(x), t1+v*x*g(x)
	}
	var constant, slope float64
	if s0 > 0 {
		constant = t0 / s0
		if det := s0*s2 - s1*s1; e.exact && det > 1e-9*s0*s2 {
			constant, slope = (t0*s2-t1*s1)/det, (t1*s0-t0*s1)/det
		}
	}
	variance, bias, model := constant*constant*e.deviation*e.deviation, 0.0, 0.0
	missed := constant*flows + slope*packets // what the weights, of at least 1, are not adjusted by
	for i := range e.sample {
		w := &e.sample[i]
		weight := max(w.Weight, w.even) // an adjustment to 1 does not make a flow certain
		residual := g(w.Packets) - constant - slope*w.Packets
		variance += weight * (weight - 1) * residual * residual
		model += modelError * (weight - 1) * math.Abs(g(w.Packets))
		// Sizes are whole numbers: the noise moves one by at least 1, with a small probability.
		by := max(1, math.Round(w.noise))
		moved := w.noise * w.noise / (by * by)
		above, below := g(w.Packets+by), g(w.Packets-by)
		step := (above-below)/2 - slope*by
		variance += weight * weight * moved * step * step
		bias += weight * moved * (above + below - 2*g(w.Packets)) / 2
	}
	unseen := 0.0 // twice this deviation is the most that flows of a size can add of which the sample has none
	for class, c := range e.captured {
		flows := math.Log(unseenShare) / math.Log1p(-c.p)
		if x := sizeOf(uint8(class)); x > 0 && c.p > 0 && flows >= 1 {
			unseen = max(unseen, flows/2*math.Abs(g(x)-constant-slope*x))
		}
	}
	return math.Sqrt(unseen*unseen + variance + bias*bias + model*model + missed*missed)
}
