// SPDX-License-Identifier: Apache-2.0

package score

import (
	"strings"
	"testing"
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
		if got := Fit(text, tc.columns, tc.lines); got != tc.want {
			t.Errorf("%d columns, %d lines: %q, want %q", tc.columns, tc.lines, got, tc.want)
		}
	}
}

// A long command is broken into lines that a shell joins.
func TestCommandsFitTheTerminal(t *testing.T) {
	const command = "gnmic -a 127.0.0.1:9339 --insecure subscribe --path /univmon/heavy-hitters"
	for columns, want := range map[int]string{
		0: command, 80: command,
		40: "gnmic -a 127.0.0.1:9339 --insecure \\\n  subscribe --path \\\n  /univmon/heavy-hitters",
	} {
		if got := strings.Join(Continued(command, columns), "\n"); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", columns, got, want)
		}
	}
}
