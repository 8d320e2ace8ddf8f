// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"slices"
)

// significant is the size, in standard deviations of its level's noise, from which a flow is part
// of the sample; smaller ones may be noise.
const significant = 4

// likely is the smallest probability of being kept with which a level contributes. The last level
// always does, so that every size is covered.
const likely = 0.5

// Sizes have classes, exact up to smallSizes packets and then in steps of an eighth, so that
// probabilities are computed for few sizes only.
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

// seen holds the sizes of a flow, in classes: in the reading, where it must exceed the noise, and
// in the data plane, which decided whether the flow was kept. In a difference there are two of the
// latter.
type seen struct{ change, before, after uint8 }

// capture returns the probability that a flow of these sizes reaches a level where it is kept and
// exceeds the noise; 0 if the given level is not one of these.
func (e *Estimate) capture(r *Reading) func(level int32, s seen) float64 {
	type result struct {
		p      float64
		levels uint32
	}
	results := make(map[seen]result)
	before, after := newCurve(r.earlier, len(e.levels)), newCurve(r.tables, len(e.levels))
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
// slots of one of the switches, with equal probability for each.
type curve struct {
	tables []table
	known  [][math.MaxUint8 + 1]float64 // by level; the probability plus 1, or 0
}

func newCurve(tables []table, levels int) *curve {
	return &curve{tables: tables, known: make([][math.MaxUint8 + 1]float64, levels)}
}

func (c *curve) at(level int, class uint8) float64 {
	if len(c.tables) == 0 || class == 0 {
		return 0
	}
	p := &c.known[level][class]
	if *p == 0 {
		sum := 0.0
		for _, t := range c.tables {
			sum += t.keeps(level, sizeOf(class))
		}
		*p = 1 + sum/float64(len(c.tables))
	}
	return *p - 1
}

// keeps returns the probability that a flow of x packets is in the level's slots: it is, unless all
// of its slots have larger flows. Equal flows have equal probability.
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
