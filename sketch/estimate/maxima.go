// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"math"

	"github.com/netsketch/netsketch/sketch"
)

// Flows estimates the number of flows by linear counting on several rows that count the same
// flows. Each row is weighted by its variance, which is m(e^t-t-1) for m counters with t flows
// each. ok is false if every row is full.
func Flows(rows ...[]uint32) (flows float64, ok bool) {
	counters, zeros := make([]int, len(rows)), make([]int, len(rows))
	for i, row := range rows {
		counters[i], zeros[i] = len(row), Zeros(row)
	}
	return FlowsByZeros(counters, zeros)
}

// FlowsByZeros does the work of Flows, given each row's number of counters and of zero counters.
func FlowsByZeros(counters, zeros []int) (flows float64, ok bool) {
	var sum, weights float64
	for i, m := range counters {
		n, ok := Cardinality(m, zeros[i])
		if !ok {
			continue
		}
		if n == 0 {
			return 0, true
		}
		m := float64(m)
		w := 1 / (m * (math.Exp(n/m) - n/m - 1))
		sum, weights = sum+w*n, weights+w
	}
	if weights == 0 {
		return math.Inf(1), false
	}
	return sum / weights, true
}

// largestSize bounds the memory of a distribution estimated from counters.
const largestSize = 1 << 26

// Maxima estimates the distribution of flow sizes from rows of counters under conservative
// insertion (CU, Tower-CU). Such a counter is not the sum of its flows, as MRAC assumes, but
// little more than its largest flow. If n flows are larger than v, a share exp(-n/m) of m counters
// is therefore at most v, which is linear counting at every v.
//
// Row i overflows at limits[i], 2^b-1 for counters of b bits, and provides the sizes that earlier
// rows cannot count; rows with the same limit are averaged. Maxima fails with an error that wraps
// sketch.ErrLimit if the rows are too full, or for sizes above 2^26.
func Maxima(rows [][]uint32, limits []uint32) (Distribution, error) {
	if len(rows) != len(limits) {
		return nil, fmt.Errorf("%w: %d rows and %d limits", sketch.ErrConfig, len(rows), len(limits))
	}
	var d Distribution
	from := uint32(1)
	for i, j := 0, 0; i < len(rows); i = j {
		for j = i + 1; j < len(rows) && limits[j] == limits[i]; j++ {
		}
		largest := uint32(0)
		for _, row := range rows[i:j] {
			for _, v := range row {
				if v < limits[i] {
					largest = max(largest, v)
				}
			}
		}
		if largest > largestSize {
			return nil, fmt.Errorf("%w: estimate: a counter of %d; expected at most %d", sketch.ErrLimit, largest,
				largestSize)
		}
		if largest < from {
			continue
		}
		d = append(d, make(Distribution, int(largest)+1-len(d))...)
		for _, row := range rows[i:j] {
			if err := addMaxima(d, row, from, largest, 1/float64(j-i)); err != nil {
				return nil, err
			}
		}
		from = largest + 1
	}
	return d, nil
}

// addMaxima adds a row's numbers of flows with sizes from from to to, multiplied by share.
func addMaxima(d Distribution, row []uint32, from, to uint32, share float64) error {
	counts := make([]int, to+1)
	for _, v := range row {
		if v <= to {
			counts[v]++
		}
	}
	atMost, m := 0, float64(len(row))
	for _, n := range counts[:from] {
		atMost += n
	}
	if atMost == 0 {
		return fmt.Errorf("%w: estimate: no counter is below %d: too many flows for this row", sketch.ErrLimit, from)
	}
	above := m * math.Log(m/float64(atMost))
	for v := from; v <= to; v++ {
		if counts[v] == 0 {
			continue
		}
		atMost += counts[v]
		next := m * math.Log(m/float64(atMost))
		d[v] += share * (above - next)
		above = next
	}
	return nil
}
