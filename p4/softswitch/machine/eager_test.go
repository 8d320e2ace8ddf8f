// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
)

// TestEager: where many packets need an answer, nothing is deferred; where few do, it is again.
func TestEager(t *testing.T) {
	t.Parallel()
	var g registerGroup
	g.awaited, g.others = reviewPeriod, 16*reviewPeriod-1
	if g.review(); !g.eager.Load() {
		t.Error("more than one action in 16 needs an answer, and actions are still put off")
	}
	if g.awaited+g.others != 0 {
		t.Error("the counts are kept")
	}
	g.awaited, g.others = reviewPeriod, 16*reviewPeriod
	if g.review(); g.eager.Load() {
		t.Error("few actions need an answer, and none is put off")
	}
}
