// SPDX-License-Identifier: Apache-2.0

package universal

import "math"

// modelError is the relative error of the weights beyond chance: slots keep flows of a size with a
// probability that is itself estimated.
const modelError = 0.01

// SumDeviation returns the standard deviation of Sum(g).
//
// The sum is a regression estimate: the weights are adjusted to the numbers of flows and packets,
// so only the residuals of g from its regression on one and the size vary with the sample. The
// number of flows adds its own deviation, as often as the regression counts a flow, and sizes add
// the noise of the counters.
func (e *Estimate) SumDeviation(g G) float64 {
	var s0, s1, s2, t0, t1 float64 // moments of the adjustable part of the sample
	for i := range e.sample {
		w := &e.sample[i]
		extra, x := w.Weight-1, w.Packets
		s0, s1, s2 = s0+extra, s1+extra*x, s2+extra*x*x
		t0, t1 = t0+extra*g(x), t1+extra*x*g(x)
	}
	var constant, slope float64
	if s0 > 0 {
		constant = t0 / s0
		if det := s0*s2 - s1*s1; e.exact && det > 1e-9*s0*s2 {
			constant, slope = (t0*s2-t1*s1)/det, (t1*s0-t0*s1)/det
		}
	}
	variance, bias, model := constant*constant*e.deviation*e.deviation, 0.0, 0.0
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
	unseen := 0.0 // as of one flow of a size of which the sample may have none
	for class, c := range e.captured {
		if x := sizeOf(uint8(class)); x > 0 && c.p > 0 && c.p < 1 {
			residual := g(x) - constant - slope*x
			unseen = max(unseen, (1-c.p)/(c.p*c.p)*residual*residual)
		}
	}
	return math.Sqrt(unseen + variance + bias*bias + model*model)
}
