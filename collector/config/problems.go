// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"sort"
	"strings"
)

// Position is a place in a configuration file. Line and Column count from 1; zero means unknown.
type Position struct {
	File   string
	Line   int
	Column int
}

// String gives "file:line", the form that editors and terminals turn into a link.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Position
	// Path is the key it is about, such as "devices[2].address"; empty for the file as a whole.
	Path string
	// Message says what is wrong and what was expected.
	Message string
}

// Error is "file:line: path: message".
func (p Problem) Error() string {
	var b strings.Builder
	if place := p.Position.String(); place != "" {
		b.WriteString(place)
		b.WriteString(": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path)
		b.WriteString(": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems are all the things that are wrong with a configuration, in the order of the file.
// A nil or empty Problems is not an error: use Err to get one.
type Problems []Problem

// Error lists one problem per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As access to every Problem.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// Err is nil when there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

func (ps Problems) sortByPosition() {
	sort.SliceStable(ps, func(i, j int) bool {
		if ps[i].Line != ps[j].Line {
			return ps[i].Line < ps[j].Line
		}
		return ps[i].Column < ps[j].Column
	})
}

// nearest returns the candidate that word was probably meant to be, or "".
func nearest(word string, candidates []string) string {
	best, bestDistance := "", 2
	if len(word) >= 4 {
		bestDistance = 1 + max(2, len(word)/3)
	}
	folded := foldKey(word)
	for _, c := range candidates {
		if foldKey(c) == folded {
			return c
		}
		if d := editDistance(strings.ToLower(word), c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// foldKey makes deviceId, device_id and Device-ID the same.
func foldKey(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s))
}

// editDistance is the number of single-character insertions, deletions, substitutions and
// swaps of neighbours that turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// suggestion is the end of a message about a word that is not among candidates.
func suggestion(word string, candidates []string) string {
	if near := nearest(word, candidates); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "expected " + oneOf(candidates)
}

// oneOf lists names for a message: `a`, `a or b`, `one of a, b, c`.
func oneOf(names []string) string {
	switch len(names) {
	case 0:
		return "nothing"
	case 1:
		return names[0]
	case 2:
		return names[0] + " or " + names[1]
	}
	return "one of " + strings.Join(names, ", ")
}
