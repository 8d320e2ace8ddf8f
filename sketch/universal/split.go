// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"slices"
)

// splitRounds is the largest number of rounds of separate. Each round at least halves the errors.
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
	for len(crowded) > 0 {
		var group []*estimated
		group, crowded = together(crowded, rows)
		lv.separate(group, rows)
	}
}

// together parts flows into the first one with all that share cells with it, also through others,
// and the rest.
func together(flows []*estimated, rows int) (group, rest []*estimated) {
	group, rest = flows[:1:1], flows[1:]
	for i := 0; i < len(group); i++ {
		var others []*estimated
		for _, f := range rest {
			if slices.ContainsFunc(f.cells[:rows], func(c int32) bool { return slices.Contains(group[i].cells[:rows], c) }) {
				group = append(group, f)
			} else {
				others = append(others, f)
			}
		}
		rest = others
	}
	return group, rest
}

// separate sets the sizes of flows that share cells to their least squares, if less remains in the
// cells then. Otherwise an unknown flow in one of their cells would seem to be a part of them.
func (lv *level) separate(group []*estimated, rows int) {
	remains := func() (sum int) {
		for _, f := range group {
			for _, c := range f.cells[:rows] {
				sum += int(max(lv.rest[c], -lv.rest[c]))
			}
		}
		return sum
	}
	sizes, before := make([]int32, len(group)), remains()
	for i, f := range group {
		sizes[i] = f.size
	}
	changed := true
	for round := 0; round < splitRounds && changed; round++ {
		changed = false
		for _, f := range group {
			if by := lv.mean(f, rows); by != 0 {
				lv.take(f, rows, by)
				changed = true
			}
		}
	}
	if remains() < before {
		return
	}
	for i, f := range group {
		lv.take(f, rows, sizes[i]-f.size)
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
