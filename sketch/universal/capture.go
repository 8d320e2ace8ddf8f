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

// captured is how a class of sizes is kept.
type captured struct {
	p      float64 // probability that a flow reaches a level that keeps it and in which it exceeds the noise
	levels uint32  // bit i is set if level i keeps such flows
}

// capture returns how the classes of sizes are kept, up to the class of a size.
func (e *Estimate) capture(largest float64) []captured {
	classes := make([]captured, int(classOf(largest))+1)
	for class := range classes {
		c, size := &classes[class], sizeOf(uint8(class))
		for l := range e.levels {
			if size < significant*e.levels[l].noise {
				continue
			}
			kept := 0.0
			if class > 0 {
				kept = e.reading.table.keeps(l, size)
			}
			reach := math.Ldexp(1, -(l + 1))
			if l == len(e.levels)-1 {
				reach *= 2
			} else if kept < likely {
				continue
			}
			c.p += reach * kept
			c.levels |= 1 << l
		}
	}
	return classes
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

// keepsAll reports whether nearly all flows of x packets are in the level's slots.
func (t table) keepsAll(level int, x float64) bool { return t == nil || t.keeps(level, x) >= 0.95 }
