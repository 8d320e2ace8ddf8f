// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"slices"
	"sync"
)

// mostFill bounds the number of flows with which a stratum is counted, as a share of the largest
// number that its cells can count. Without this bound, a fuller stratum would be counted only if
// chance made its count too low.
const mostFill = 0.8

// combine adds up the strata, beginning with the deepest one, and returns the number of flows and
// its standard deviation, which is +Inf if no stratum could be counted. A stratum with too many
// flows to count, by its own count or by that of the strata below it, is inferred from the strata
// below it. Stratum i has as many flows as all deeper strata together, within √(2n): the stratum's
// own count corrects this expectation, and both are weighted by their variances (a Kalman filter).
func (e *Estimate) combine() (flows, deviation float64) {
	last := &e.levels[len(e.levels)-1]
	last.counted = last.fill <= mostFill
	n, variance := last.distinct, last.spread*last.spread
	for i := len(e.levels) - 2; i >= 0; i-- {
		lv := &e.levels[i]
		if lv.spread == 0 { // all flows of the stratum are known
			lv.counted = true
			n += lv.distinct
			continue
		}
		sum, spread := 2*n, 4*variance+2*n
		if !math.IsInf(lv.spread, 1) && (math.IsInf(variance, 1) || n*lv.fill <= mostFill*lv.distinct) {
			lv.counted = true
			toSum := 2*variance + 2*n
			innovation := variance + 2*n + lv.spread*lv.spread
			if math.IsInf(variance, 1) {
				sum, spread = 2*lv.distinct, 4*lv.spread*lv.spread+2*lv.distinct
			} else if innovation > 0 {
				sum += toSum / innovation * (lv.distinct - n)
				spread -= toSum * toSum / innovation
			}
		}
		n, variance = max(sum, 0), max(spread, 0)
	}
	return n, math.Sqrt(variance)
}

// countFlows returns the number of flows of a stratum, its standard deviation, and the number as a
// share of the largest number that the cells can count: from 0 to 1. Flows of at least the given
// size, of which nearly all are known, are counted directly.
func (lv *level) countFlows(size float64, flows []estimated, rows int) (n, spread, fill float64) {
	cells, large := lv.small(size, flows, rows)
	n, spread, fill = countCells(cells, len(lv.rest)/rows, rows)
	return float64(len(large)) + n, spread, fill
}

// countCells counts the flows of a stratum by the cells that no large flow uses.
func countCells(cells []int32, columns, rows int) (n, spread, fill float64) {
	const period = 256
	n, variance, fill := addUp(cells, period, func(float64) float64 { return 4.0 / period })
	return n * float64(columns), spreadOf(variance, n/float64(columns*rows), columns), fill
}

// sumFlows returns the sum of the sizes of a stratum's flows and its standard deviation, which is
// +Inf if it is unknown. As in countFlows, flows of at least a size are added up directly.
func (lv *level) sumFlows(size float64, flows []estimated, rows int) (sum, spread float64) {
	cells, large := lv.small(size, flows, rows)
	for _, f := range large {
		sum += math.Abs(float64(f.size))
	}
	period, squares := int32(256), 0.0
	for _, v := range cells {
		squares += float64(v) * float64(v) / float64(len(cells))
		for period <= mostPeriod && (v >= period/4 || v <= -period/4) {
			period *= 2
		}
	}
	if period > mostPeriod {
		return 0, math.Inf(1)
	}
	columns := len(lv.rest) / rows
	rest, variance, _ := addUp(cells, period, func(t float64) float64 {
		return 2 / (float64(period) * math.Sin(t/2) * math.Sin(t/2))
	})
	return sum + rest*float64(columns), spreadOf(variance, squares/float64(columns*rows), columns)
}

// spreadOf returns the standard deviation of a sum over the columns of a stratum, given the
// variance of one column. All rows hash the same flows, so the variance of the flows themselves
// does not count. If flows are unknown, the result is at least the deviation of rounding to whole
// numbers.
func spreadOf(variance, flows float64, columns int) float64 {
	if variance == 0 {
		return 0
	}
	return math.Sqrt(max((variance-flows)*float64(columns*columns), 0.25))
}

// small returns the flows of a stratum of at least a size, and the cells that none of them uses,
// with all other flows. Some of the latter are known, too. Such a flow is more often known if the
// flows in its cells add to its size than if they subtract from it, so cells without any known flow
// have fewer flows than the average.
func (lv *level) small(size float64, flows []estimated, rows int) (cells []int32, large []*estimated) {
	all, used := slices.Clone(lv.rest), make([]bool, len(lv.rest))
	for i := range flows {
		f := &flows[i]
		if math.Abs(float64(f.size)) < size {
			f.addTo(all, rows)
			continue
		}
		large = append(large, f)
		for row := range rows {
			used[f.cells[row]] = true
		}
	}
	cells = all[:0]
	for i, v := range all {
		if !used[i] {
			cells = append(cells, v)
		}
	}
	return cells, large
}

// smallFlows is the largest size of flows that are not counted directly where the slots hold none
// of this size and the counters have no noise.
const smallFlows = 4

// complete returns the size from which on nearly all flows of a level are known, at most a limit if
// the counters have so little noise.
func (e *Estimate) complete(level int, limit float64) float64 {
	size := 1.0
	for size < limit && !(e.reading.table.keepsAll(level, size) && e.reading.earlier.keepsAll(level, size)) {
		size += max(1, math.Floor(size/8))
	}
	return max(size, significant*e.levels[level].noise)
}

// mostPeriod bounds the period of addUp, and with it the time that it takes.
const mostPeriod = 1 << 14

// cosines[i] is cos(2πi/mostPeriod).
var cosines = sync.OnceValue(func() *[mostPeriod]float64 {
	c := new([mostPeriod]float64)
	for i := range c {
		c[i] = math.Cos(2 * math.Pi * float64(i) / mostPeriod)
	}
	return c
})

// addUp returns the sum of a function of the flows' sizes for each cell, the variance of this sum,
// and the number of flows as a share of the largest one with which it can be computed. With more
// flows, the variance is +Inf and the share 1. The function of the size s is the sum of
// weight(t)·(1 - cos(ts)) over the odd multiples t of 2π/period up to π, where the period is a
// power of two. With equal weights it is 1 for every size but multiples of half of the period. With
// 2/(period·sin²(t/2)) it is the size, up to half of the period.
//
// A cell of a Count sketch is a sum of flow sizes with random signs. With λ flows per cell on
// average, of which a share p(s) has size s, the characteristic function of a cell is ψ(t) =
// exp(λ(Σ p(s) cos(ts) - 1)). So -log ψ(t) is the sum of 1 - cos(ts) over the flows of a cell, for
// any sizes, and flows whose signs cancel are counted, too. It works up to about two flows per
// cell.
func addUp(cells []int32, period int32, weight func(t float64) float64) (sum, variance, fill float64) {
	type value struct {
		v                int32
		count, influence float64
	}
	bins := make([]float64, period/2+1)
	for _, v := range cells {
		v &= period - 1
		bins[min(v, period-v)]++
	}
	n := float64(len(cells))
	if bins[0] == n {
		return 0, 0, 0
	}
	var values []value
	for v, count := range bins {
		if count > 0 {
			values = append(values, value{v: int32(v), count: count})
		}
	}
	limit, least, cos := 4/math.Sqrt(n), 1.0, cosines()
	for k := int32(1); k < period/2; k += 2 {
		var mean, square float64
		for _, x := range values {
			c := cos[k*x.v*(mostPeriod/period)&(mostPeriod-1)]
			mean += x.count * c
			square += x.count * c * c
		}
		mean, square = mean/n, square/n
		if mean < limit {
			return 0, math.Inf(1), 1
		}
		least = min(least, mean)
		w := weight(2 * math.Pi * float64(k) / float64(period))
		// The logarithm of an average is too low by half of the average's relative variance.
		sum -= w * (math.Log(mean) + (square/(mean*mean)-1)/(2*n))
		for i := range values {
			values[i].influence -= w * cos[k*values[i].v*(mostPeriod/period)&(mostPeriod-1)] / mean
		}
	}
	var mean, square float64
	for _, x := range values {
		mean += x.count * x.influence
		square += x.count * x.influence * x.influence
	}
	mean, square = mean/n, square/n
	return sum, (square - mean*mean) / n, math.Log(least) / math.Log(limit)
}
