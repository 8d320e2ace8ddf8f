// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"slices"
)

// frequencies is the number of points in (0, π) at which the characteristic function of the cells
// is computed. Flows whose size is a multiple of twice this number are miscounted.
const frequencies = 64

// period is the number of cell values after which the cosines below repeat.
const period = 4 * frequencies

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
	last := e.levels[len(e.levels)-1]
	n, variance := last.distinct, last.spread*last.spread
	for i := len(e.levels) - 2; i >= 0; i-- {
		lv := e.levels[i]
		if lv.spread == 0 { // all flows of the stratum are known
			n += lv.distinct
			continue
		}
		sum, spread := 2*n, 4*variance+2*n
		if !math.IsInf(lv.spread, 1) && (math.IsInf(variance, 1) || n*lv.fill <= mostFill*lv.distinct) {
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
// share of the largest number that the cells can count: from 0 to 1.
//
// A cell of a Count sketch is a sum of flow sizes with random signs. With λ flows per cell on
// average, of which a share p(s) has size s, the characteristic function of a cell is ψ(t) =
// exp(λ(Σ p(s) cos(ts) - 1)), and as no flow has size 0 the mean of log ψ over (0, π) is -λ: the
// cells give the number of flows for any sizes, and flows whose signs cancel are counted, too. It
// works up to about two flows per cell.
//
// Flows of at least the given size, of which nearly all are known, are counted directly, and the
// others by the cells that none of the former uses. Some flows of other sizes are known, too. Such
// a flow is more often known if the flows in its cells add to its size than if they subtract from
// it, so cells without any known flow have fewer flows than the average.
func (lv *level) countFlows(size float64, flows []estimated, rows, columns int) (n, spread, fill float64) {
	cells := slices.Clone(lv.rest)
	used := make([]bool, len(cells))
	large := 0
	for i := range flows {
		f := &flows[i]
		if math.Abs(float64(f.size)) < size {
			f.addTo(cells, rows)
			continue
		}
		large++
		for row := range rows {
			used[f.cells[row]] = true
		}
	}
	var bins [period]float64
	free := 0.0
	for i, v := range cells {
		if !used[i] {
			bins[v&(period-1)]++
			free++
		}
	}
	n, spread, fill = countCells(&bins, free, float64(columns), float64(rows))
	return float64(large) + n, spread, fill
}

// complete returns the size from which on nearly all flows of a level are known.
func (e *Estimate) complete(level int) float64 {
	size := 1.0
	for size < 4 && e.reading.table.keeps(level, size) < 0.95 {
		size++
	}
	return max(size, significant*e.levels[level].noise)
}

// cosines[i] is cos(πi/(2·frequencies)).
var cosines = func() (c [period]float64) {
	for i := range c {
		c[i] = math.Cos(math.Pi * float64(i) / (2 * frequencies))
	}
	return c
}()

// countCells estimates the number of flows from a histogram of the values, modulo period, of some
// cells of a stratum with the given shape. Its results are those of countFlows.
func countCells(bins *[period]float64, cells, columns, rows float64) (n, spread, fill float64) {
	if bins[0] == cells {
		return 0, 0, 0
	}
	limit, least := 4/math.Sqrt(cells), 1.0
	var used []int
	for v, count := range bins {
		if count > 0 {
			used = append(used, v)
		}
	}
	var influence [period]float64
	sum := 0.0
	for m := range frequencies {
		var mean, square float64
		for _, v := range used {
			c := cosines[(2*m+1)*v&(period-1)]
			mean += bins[v] * c
			square += bins[v] * c * c
		}
		mean, square = mean/cells, square/cells
		if mean < limit {
			return 0, math.Inf(1), 1
		}
		least = min(least, mean)
		// The logarithm of an average is too low by half of the average's relative variance.
		sum -= math.Log(mean) + (square/(mean*mean)-1)/(2*cells)
		for _, v := range used {
			influence[v] -= cosines[(2*m+1)*v&(period-1)] / mean
		}
	}
	n = columns * sum / frequencies
	var mean, square float64
	for _, v := range used {
		mean += bins[v] * influence[v]
		square += bins[v] * influence[v] * influence[v]
	}
	mean, square = mean/cells, square/cells
	variance := columns * columns / cells * (square - mean*mean) / (frequencies * frequencies)
	// All rows hash the same flows, so the variance of the number of flows does not count here.
	return n, math.Sqrt(max(variance-n/rows, 0.25)), math.Log(least) / math.Log(limit)
}
