// SPDX-License-Identifier: Apache-2.0

package universal

import "math"

// splitRounds bounds the rounds of split; each round at least halves the errors.
const splitRounds = 16

// split corrects known flows that share most of their cells with other known flows. If two flows
// share most rows, the median assigns the sum of both to one of them. For these few flows, least
// squares over all of their cells separates them.
func (e *Estimate) split(lv *level, flows []estimated, users []uint8) {
	rows := e.layout.Rows
	var crowded []*estimated
	for i := range flows {
		shared := 0
		for row := range rows {
			if users[flows[i].cells[row]] > 1 {
				shared++
			}
		}
		if shared > (rows-1)/2 {
			crowded = append(crowded, &flows[i])
		}
	}
	for range splitRounds {
		changed := false
		for _, f := range crowded {
			if by := lv.mean(f, rows); by != 0 {
				lv.take(f, rows, by)
				changed = true
			}
		}
		if !changed {
			return
		}
	}
}

// mean returns the mean over the rows of the flow's cells in rest, which is the step to the flow's
// least-squares size while all other flows are fixed.
func (lv *level) mean(f *estimated, rows int) int32 {
	sum := 0
	for row := range rows {
		sum += int(lv.rest[f.cells[row]] * f.sign(row))
	}
	return int32(math.Round(float64(sum) / float64(rows)))
}
