// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Position is a place in a configuration file. Line and Column count from 1; zero means unknown.
type Position struct {
	File   string
	Line   int
	Column int
}

// String returns "file:line:column", the form that editors and terminals turn into a link.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one error in a configuration.
type Problem struct {
	Position
	// Path is the key concerned, such as "devices[2].address"; empty for the file as a whole.
	Path string
	// Message describes the error and what was expected.
	Message string
	// Excerpt is the line of the file, with a mark under the column; empty without a line. It may
	// hold a secret that is written in the file, so do not log it.
	Excerpt string
}

// Error returns "file:line:column: path: message".
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

// Problems are all errors in a configuration, in the order of the file.
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

// Unwrap returns every Problem, for errors.As.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// Err returns nil if there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// source is the text that problems refer to.
type source struct {
	file  string
	lines []string
}

// report collects the problems of a source.
type report struct {
	*source
	problems Problems
}

func newReport(file string, text []byte) *report {
	return &report{source: &source{file, strings.Split(string(text), "\n")}}
}

func (r *report) add(at Position, path, format string, args ...any) {
	r.problems = append(r.problems, r.problem(at, path, fmt.Sprintf(format, args...)))
}

// has reports whether there is a problem with the value at path.
func (r *report) has(path string) bool {
	return slices.ContainsFunc(r.problems, func(p Problem) bool { return p.Path == path })
}

// err returns the problems in the order of the file, nil if there are none.
func (r *report) err() error {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.problems.Err()
}

// problem locates a message in the source.
func (s *source) problem(at Position, path, message string) Problem {
	p := Problem{Position: at, Path: path, Message: message}
	p.File = s.file
	if at.Line > 0 && at.Line <= len(s.lines) {
		mark := strings.Repeat(" ", max(0, at.Column-1)) + "^"
		p.Excerpt = fmt.Sprintf("%6d | %s\n       | %s", at.Line, strings.TrimRight(s.lines[at.Line-1], "\r"), mark)
	}
	return p
}

// nearest returns the candidate that word most likely stands for, or "".
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

// foldKey maps deviceId, device_id and Device-ID to the same text.
func foldKey(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s))
}

// editDistance returns the number of single-character insertions, deletions, substitutions and
// swaps of adjacent characters that turn a into b (optimal string alignment).
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

// suggestion returns the end of a message about a word that is not among candidates.
func suggestion(word string, candidates []string) string {
	if near := nearest(word, candidates); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "expected " + oneOf(candidates)
}

// oneOf returns names for a message: `a`, `a or b`, `one of a, b, c`.
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

// KeyError is an error about one key of a section, relative to it.
type KeyError struct{ key, message string }

// Error describes the error and what was expected.
func (e *KeyError) Error() string { return e.message }

// Key returns the key, such as "spool.max-bytes".
func (e *KeyError) Key() string { return e.key }

// KeyErrors are the errors that a Validate method finds. The zero value has none.
type KeyErrors struct{ errs []error }

// Add adds an error about a key.
func (e *KeyErrors) Add(key, format string, args ...any) {
	e.errs = append(e.errs, &KeyError{key, fmt.Sprintf(format, args...)})
}

// Err joins the errors; nil without any.
func (e *KeyErrors) Err() error { return errors.Join(e.errs...) }
