// SPDX-License-Identifier: Apache-2.0

package universal

import "math"

// G is a function of the number of a flow's packets. Its sum over all flows can be estimated if
// g(0) = 0 and if g is monotonic and grows no faster than the square (paper, section 4.1).
type G func(packets float64) float64

// Packets sums packets (L1). This and the following function serve the paper's tasks.
func Packets(x float64) float64 { return x }

// XLogX is x·log2 x, from which the entropy follows.
func XLogX(x float64) float64 {
	if x <= 0 {
		return 0
	}
	return x * math.Log2(x)
}

// Weighted is a flow that represents Weight similar flows, including itself.
type Weighted struct {
	Flow
	Weight float64
	// even is the weight if it is adjusted to the number of flows alone, by one factor. The adjustment
	// of Weight is linear in the flow's size, so it is wrong for flows that are larger or smaller than
	// most, such as those of an attack.
	even float64
	// drawn is the weight before it is adjusted.
	drawn float64
	// noise is the standard deviation of the size.
	noise float64
}

// Sum estimates the sum of g over all flows (the paper's G-sum).
//
// It is Algorithm 2 in closed form. A flow of x packets is found if it reaches a level whose heavy
// keys and counters are good enough for its size. The probability π(x) of that follows from how
// full the levels' slots and how noisy their counters are, so each flow found represents 1/π(x)
// flows. In the paper's algorithm, π is a power of 1/2. The weights of flows that represent others
// are then adjusted to the number of flows, which the counters give more accurately (see
// Distinct), and to the number of packets, which the data plane counts exactly.
//
// A difference of readings has no sample; see Change.Total.
func (e *Estimate) Sum(g G) float64 {
	sum := 0.0
	for _, w := range e.sample {
		sum += w.Weight * g(w.Packets)
	}
	return sum
}

// Sample returns the terms of Sum in a fixed order. The caller must not change it.
func (e *Estimate) Sample() []Weighted { return e.sample }

// weigh builds the sample.
func (e *Estimate) weigh() {
	largest := 0.0
	for i := range e.flows {
		largest = max(largest, math.Abs(float64(e.flows[i].size)))
	}
	e.captured = e.capture(largest)
	e.sample = make([]Weighted, 0, len(e.flows))
	for i := range e.flows {
		f := &e.flows[i]
		x := math.Abs(float64(f.size))
		if c := e.captured[classOf(x)]; c.p > 0 && c.levels>>f.level&1 != 0 {
			p := c.p
			e.sample = append(e.sample, Weighted{Flow: Flow{Key: f.key, Packets: x}, Weight: 1 / p, even: 1 / p,
				drawn: 1 / p, noise: e.levels[f.level].noise})
		}
	}
	n, exact := e.reading.Packets()
	e.exact = exact
	if e.exact {
		e.packets = float64(n)
	}
	e.calibrate()
	if !e.exact {
		e.packets = e.Sum(Packets)
	}
}

// calibrate adjusts the weights of flows that represent others, so that the sample's numbers of
// flows and packets equal those of the strata (regression estimation). A weight w changes by
// w·(w-1) times a linear function of the flow's size, so that the variance of sums is the least:
// flows with large weights, which make the numbers inexact, change the most. Weights that would
// become less than 1 are 1, and the others are adjusted again. If the number of packets is unknown,
// the function is constant.
func (e *Estimate) calibrate() {
	var extra float64 // flows that are not in the sample themselves
	for i := range e.sample {
		e.sampled += e.sample[i].drawn
		extra += e.sample[i].drawn - 1
	}
	if extra == 0 {
		return
	}
	even := max(1+(e.count-e.sampled)/extra, 0)
	least := make([]bool, len(e.sample)) // weights that are 1
	for range calibrateRounds {
		da, db := e.count, e.packets
		var s0, s1, s2 float64 // moments of the flows by their variances
		for i := range e.sample {
			w := &e.sample[i]
			if w.Weight = w.drawn; least[i] {
				w.Weight = 1
			} else {
				v := w.variance()
				s0, s1, s2 = s0+v, s1+v*w.Packets, s2+v*w.Packets*w.Packets
			}
			da, db = da-w.Weight, db-w.Weight*w.Packets
		}
		if s0 == 0 {
			break
		}
		a, b := da/s0, 0.0
		if det := s0*s2 - s1*s1; e.exact && det > 1e-9*s0*s2 {
			a, b = (da*s2-db*s1)/det, (db*s0-da*s1)/det
		}
		changed := false
		for i := range e.sample {
			w := &e.sample[i]
			w.even = 1 + (w.drawn-1)*even
			if least[i] {
				continue
			}
			if w.Weight = w.drawn + w.variance()*(a+b*w.Packets); w.Weight < 1 {
				w.Weight, least[i], changed = 1, true, true
			}
		}
		if !changed {
			break
		}
	}
}

// calibrateRounds bounds the rounds of calibrate. Few are used.
const calibrateRounds = 8

// variance is the variance of the number of flows that w represents.
func (w *Weighted) variance() float64 { return w.drawn * (w.drawn - 1) }
