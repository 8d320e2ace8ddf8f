// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"cmp"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Packets returns the number of packets. exact is true if the data plane counted them; otherwise n
// is an estimate.
func (e *Estimate) Packets() (n float64, exact bool) { return e.packets, e.exact }

// Reading returns the reading of the estimate.
func (e *Estimate) Reading() *Reading { return e.reading }

// Distinct returns the number of flows. It is unknown unless CountsFlows.
func (e *Estimate) Distinct() float64 { return e.count }

// Deviation returns the standard deviation of Distinct, in flows.
func (e *Estimate) Deviation() float64 { return e.deviation }

// MostDeviation bounds the standard deviation of a number of flows, a total change or a sum of a
// function that is given, relative to it. That of the first two is up to 0.08 with the P4 program
// univmon, and up to 0.12 with univmon-300k.
const MostDeviation = 0.2

// CountsFlows returns false if more flows crossed the sketch than its last level can count: between
// one for each counter of a row, if all flows have one packet, and two.
func (e *Estimate) CountsFlows() bool {
	return e.levels[len(e.levels)-1].fill <= mostFill && e.deviation <= MostDeviation*e.count+fewFlows
}

// fewFlows is a difference in the number of flows, or of changed packets, that is always tolerated.
const fewFlows = 5

// leastSampled is the smallest share of the flows that the sample must represent before it is
// adjusted to their number. In simulations with 100 to 4 million flows, of one packet each and with
// Zipf 1.0 and 1.4, whose flows could be counted, the share was at least 0.76 where the error of
// the entropy was below 3 %, and at most 0.21 where it was above.
const leastSampled = 0.5

// Represents returns false if the sample does not represent the flows: estimates over all flows
// (Sum, Sample, Entropy, FanIns) are unknown. The slots of the last level then hold too few of its
// flows, or its counters have so much noise that small flows cannot be told from it.
func (e *Estimate) Represents() bool {
	return e.CountsFlows() && e.sampled+fewFlows >= leastSampled*e.count
}

// Entropy returns the entropy of the packets over the flows, in bits (paper, section 4.3): 0 for no
// packets or one flow, log2 of the number of flows if all are equal. It is unknown unless
// Represents.
func (e *Estimate) Entropy() float64 {
	if e.packets <= 0 {
		return 0
	}
	h := math.Log2(e.packets) - e.Sum(XLogX)/e.packets
	return min(max(h, 0), math.Log2(max(e.count, 1)))
}

// EntropyDeviation returns the standard deviation of Entropy, in bits.
func (e *Estimate) EntropyDeviation() float64 {
	if e.packets <= 0 {
		return 0
	}
	return e.SumDeviation(XLogX) / e.packets
}

// Moment2 returns the second frequency moment F2: the sum of the squared sizes.
func (e *Estimate) Moment2() float64 {
	// Small flows are in the cells, whose sum of squares is more accurate for them than the sample.
	sum := 0.0
	for i := range e.levels {
		sum += e.levels[i].moment
	}
	return sum
}

// Size returns the estimated packets of any flow, whether it is among the heavy keys or not. A key
// whose fields differ from the layout's has 0 packets.
func (e *Estimate) Size(k flow.Key) float64 {
	return e.Flow(k).Packets
}

// Flow returns the estimate of any flow, as Size does.
func (e *Estimate) Flow(k flow.Key) Flow {
	if i, ok := e.known[k]; ok {
		return e.flow(&e.flows[i])
	}
	if k.Mask != e.layout.Key {
		return Flow{Key: k}
	}
	h := hashOf(&k, e.layout.Key)
	f := e.reading.locate(candidate{key: k, hash: h, level: int32(levelOf(h, e.layout.Levels))})
	lv := &e.levels[f.level]
	return Flow{Key: k, Packets: float64(lv.median(&f, e.layout.Rows)), Deviation: lv.error}
}

func (e *Estimate) flow(f *estimated) Flow {
	return Flow{Key: f.key, Packets: float64(f.size), Deviation: e.levels[f.level].deviation(f.size)}
}

// Above returns the flows among the heavy keys with at least the given number of packets (in a
// difference: that changed by at least as many), the largest first.
func (e *Estimate) Above(packets float64) []Flow {
	var found []Flow
	for i := range e.flows {
		f := &e.flows[i]
		if x := math.Abs(float64(f.size)); x >= packets && x > 0 {
			found = append(found, e.flow(f))
		}
	}
	slices.SortFunc(found, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Packets), math.Abs(a.Packets)), a.Key.Compare(b.Key))
	})
	return found
}
