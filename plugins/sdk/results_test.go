// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// A list keeps the same ranks of each part, as many as fit, and at least the first.
func TestCutByRank(t *testing.T) {
	for _, c := range []struct {
		limit   int
		rows    [3]int
		kept    [3]int
		omitted uint64
	}{
		{10, [3]int{}, [3]int{}, 0},
		{10, [3]int{3, 0, 7}, [3]int{3, 0, 7}, 0},
		{9, [3]int{3, 0, 7}, [3]int{3, 0, 6}, 1},
		{5, [3]int{3, 0, 7}, [3]int{2, 0, 2}, 6}, // a third row of each is one too many
		{4, [3]int{9, 9, 1}, [3]int{1, 1, 1}, 16},
		{1, [3]int{3, 2, 1}, [3]int{1, 1, 1}, 3},
		{0, [3]int{3, 2, 1}, [3]int{}, 6},
	} {
		var parts [3][]int
		for i, n := range c.rows {
			parts[i] = make([]int, n)
		}
		omitted := sdk.CutByRank(c.limit, &parts[0], &parts[1], &parts[2])
		kept := [3]int{len(parts[0]), len(parts[1]), len(parts[2])}
		if kept != c.kept || omitted != c.omitted {
			t.Errorf("%d rows of %v: %v kept, %d omitted; want %v, %d", c.limit, c.rows, kept, omitted, c.kept, c.omitted)
		}
	}
}
