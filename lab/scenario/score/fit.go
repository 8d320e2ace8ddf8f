// SPDX-License-Identifier: Apache-2.0

package score

import (
	"fmt"
	"strings"
)

// Continued breaks a command that is longer than a number of columns into lines that a shell joins.
func Continued(command string, columns int) (lines []string) {
	for columns > 2 && len(command) > columns {
		at := strings.LastIndexByte(command[:columns-2], ' ')
		if at <= 0 {
			break
		}
		lines, command = append(lines, command[:at]+" \\"), "  "+command[at+1:]
	}
	return append(lines, command)
}

// Fit cuts a screen to the terminal, so that its top stays where it is: long lines end early, and
// the last line has the number of omitted lines.
func Fit(text string, columns, rows int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if rows > 1 && len(lines) > rows-1 { // the cursor stays on a line of its own
		left := len(lines) - max(rows-2, 0)
		lines = append(lines[:len(lines)-left], fmt.Sprintf("… %d more lines in a larger terminal", left))
	}
	if columns > 0 {
		for i := range lines {
			lines[i] = cut(lines[i], columns)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// cut keeps a number of visible columns, and every control sequence.
func cut(line string, columns int) string {
	var b strings.Builder
	control := false
	for _, r := range line {
		switch {
		case r == '\x1b':
			control = true
		case control: // a parameter, or the letter that ends the sequence
			control = r == '[' || r < '@' || r > '~'
		case columns == 0:
			continue
		default:
			columns--
		}
		b.WriteRune(r)
	}
	return b.String()
}
