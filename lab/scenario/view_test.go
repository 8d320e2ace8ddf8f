// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

func TestScreenIsCutToTheTerminal(t *testing.T) {
	text := "\x1b[1mabcdef\x1b[0m\n1…3456\nxyz\nlast\n"
	for _, tc := range []struct {
		columns, lines int
		want           string
	}{
		{0, 0, text},
		{80, 24, text},
		{80, 5, text},
		{4, 24, "\x1b[1mabcd\x1b[0m\n1…34\nxyz\nlast\n"},
		{80, 4, "\x1b[1mabcdef\x1b[0m\n1…3456\n… 2 more lines in a larger terminal\n"},
		{6, 2, "… 4 mo\n"},
	} {
		if got := fit(text, func() (int, int) { return tc.columns, tc.lines }); got != tc.want {
			t.Errorf("%d columns, %d lines: %q, want %q", tc.columns, tc.lines, got, tc.want)
		}
	}
}

// Only a run on a too slow machine reports it.
func TestSlowMachineIsReported(t *testing.T) {
	for _, tc := range []struct {
		lag      time.Duration
		partial  float64
		reported bool
	}{
		{870 * time.Millisecond, 0.1, true},
		{870 * time.Millisecond, 0, false},
		{20 * time.Millisecond, 0.1, false},
	} {
		r := Report{Network: NetworkStats{LagNS: int64(tc.lag)},
			Totals: []score.Total{{Measure: PartialEpochs, Value: tc.partial}}}
		got := r.slow(time.Second)
		if tc.reported != (got != "") || tc.reported &&
			(!strings.Contains(got, "870ms late") || !strings.Contains(got, "--virtual")) {
			t.Errorf("%v late, %v partial: %q", tc.lag, tc.partial, got)
		}
	}
}
