// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"slices"
)

// significant is the size, in standard deviations of the level's noise, from which a flow is part
// of the sample. Smaller flows may be noise.
const significant = 4

// likely is the smallest probability of being kept at which a level contributes. The last level
// always contributes, so that every size is covered.
const likely = 0.5

// Sizes are grouped into classes, exact up to smallSizes packets and in steps of an eighth above,
// so that probabilities are computed for few sizes only.
const smallSizes = 16

// classOf returns the class of a size.
func classOf(x float64) uint8 {
	if x < smallSizes {
		return uint8(max(x, 0))
	}
	return uint8(smallSizes + min(8*math.Log2(x/smallSizes), math.MaxUint8-smallSizes))
}

// sizeOf returns the smallest size of a class.
func sizeOf(class uint8) float64 {
	if class <= smallSizes {
		return float64(class)
	}
	return smallSizes * math.Exp2(float64(class-smallSizes)/8)
}

// seen holds the sizes of a flow as classes: change in the reading, where it must exceed the noise,
// and before and after in the data plane, which decided whether to keep the flow. Only a difference
// has both before and after.
type seen struct{ change, before, after uint8 }

// capture returns a function for the probability that a flow of these sizes reaches a level that
// keeps it and in which it exceeds the noise. The probability is 0 if the given level keeps no such
// flow.
func (e *Estimate) capture(r *Reading) func(level int32, s seen) float64 {
	type result struct {
		p      float64
		levels uint32
	}
	results := make(map[seen]result)
	before, after := newCurve(r.earlier), newCurve(r.table)
	return func(level int32, s seen) float64 {
		res, ok := results[s]
		if !ok {
			for l := range e.levels {
				if sizeOf(s.change) < significant*e.levels[l].noise {
					continue
				}
				kept := 1 - (1-after.at(l, s.after))*(1-before.at(l, s.before))
				reach := math.Ldexp(1, -(l + 1))
				if l == len(e.levels)-1 {
					reach *= 2
				} else if kept < likely {
					continue
				}
				res.p += reach * kept
				res.levels |= 1 << l
			}
			results[s] = res
		}
		if res.levels>>level&1 == 0 {
			return 0
		}
		return res.p
	}
}

// curve is, for each level and class of sizes, the probability that a flow of this size is in the
// slots of a sketch.
type curve struct {
	table table
	known [][math.MaxUint8 + 1]float64 // by level: the probability plus 1, or 0 before it is computed
}

func newCurve(t table) *curve {
	return &curve{table: t, known: make([][math.MaxUint8 + 1]float64, len(t))}
}

func (c *curve) at(level int, class uint8) float64 {
	if c.table == nil || class == 0 {
		return 0
	}
	p := &c.known[level][class]
	if *p == 0 {
		*p = 1 + c.table.keeps(level, sizeOf(class))
	}
	return *p - 1
}

// keeps returns the probability that a flow of x packets is in the level's slots. A flow is in
// them unless all of its slots hold larger flows. Flows of equal size have equal probability.
func (t table) keeps(level int, x float64) float64 {
	lost := 1.0
	for _, counts := range t[level] {
		if len(counts) == 0 {
			continue
		}
		above, _ := slices.BinarySearch(counts, uint32(min(x, math.MaxInt32))+1)
		equal, _ := slices.BinarySearch(counts[:above], uint32(math.Ceil(min(x, math.MaxInt32))))
		lost *= (float64(len(counts)-above) + float64(above-equal)/2) / float64(len(counts))
	}
	return 1 - lost
}
