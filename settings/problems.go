// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/netsketch/netsketch/internal/suggest"
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
	// Message describes the error and the expected value.
	Message string
	// Excerpt has the keys of the line, with a mark under the problem, and no values, which may be
	// secrets. It is empty without a line, and within a secret.
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

// Source is the text that problems refer to.
type Source struct {
	file      string
	lines     []string
	variables map[string]string // names of environment variables whose values are in the text, by value
}

// Variable notes an environment variable that the text uses. Messages show its name for its value.
func (s *Source) Variable(name, value string) {
	if len(value) < shortestSecret {
		return // a short value would be found inside many words
	}
	if s.variables == nil {
		s.variables = map[string]string{}
	}
	s.variables[value] = name
}

// shortestSecret is the length in bytes of the shortest value of a variable that messages hide.
const shortestSecret = 4

// hide replaces values of environment variables in the quoted parts of a message by the variables'
// names. Long values come first, because one may contain another.
func (s *Source) hide(message string) string {
	values := slices.SortedFunc(maps.Keys(s.variables), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	var replace []string
	for _, value := range values {
		quoted := strconv.Quote(value)
		replace = append(replace, quoted[1:len(quoted)-1], "${"+s.variables[value]+"}")
	}
	if replace == nil {
		return message
	}
	return quotedText.ReplaceAllStringFunc(message, strings.NewReplacer(replace...).Replace)
}

var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Report collects the problems of a source.
type Report struct {
	*Source
	Problems Problems
}

// NewReport returns a report without problems on the text of a file.
func NewReport(file string, text []byte) *Report {
	return &Report{Source: &Source{file: file, lines: strings.Split(string(text), "\n")}}
}

// Add adds a problem.
func (r *Report) Add(at Position, path, format string, args ...any) {
	r.Problems = append(r.Problems, r.problem(at, path, fmt.Sprintf(format, args...)))
}

// Has reports whether a problem concerns the value at path.
func (r *Report) Has(path string) bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Path == path })
}

// Err returns the problems in the order of the file, nil if there are none.
func (r *Report) Err() error {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.Problems.Err()
}

// problem locates a message in the source.
func (s *Source) problem(at Position, path, message string) Problem {
	p := Problem{Position: at, Path: path, Message: s.hide(message)}
	p.File = s.file
	if at.Line > 0 && at.Line <= len(s.lines) && public(path, message) {
		line := []rune(strings.TrimRight(s.lines[at.Line-1], "\r"))
		if text, column, ok := excerpt(line, max(0, at.Column-1)); ok {
			p.Excerpt = fmt.Sprintf("%6d | %s\n       | %s^", at.Line, text, strings.Repeat(" ", column))
		}
	}
	return p
}

// Suggestion returns `did you mean "..."?` if a candidate is similar to word, otherwise an empty
// text.
func Suggestion(word string, candidates []string) string {
	if near := suggest.Nearest(word, candidates); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "expected " + OneOf(candidates)
}

// OneOf returns names for a message: `a`, `a or b`, `one of a, b, c`.
func OneOf(names []string) string {
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

// KeyError is an error about one key of a section.
type KeyError struct {
	// Key is the path of the key inside the section, such as "dimensions[0].name"; empty for the
	// section as a whole.
	Key string `json:"key"`
	// Message describes the error and the expected value.
	Message string `json:"message"`
}

// Error returns the key and the message.
func (e KeyError) Error() string {
	if e.Key == "" {
		return e.Message
	}
	return e.Key + ": " + e.Message
}

// KeyErrors are the errors in a section. A nil or empty KeyErrors is not an error: use Err to get
// one.
type KeyErrors []KeyError

// Add adds an error about a key.
func (e *KeyErrors) Add(key, format string, args ...any) {
	*e = append(*e, KeyError{key, fmt.Sprintf(format, args...)})
}

// Err returns nil if there is no error.
func (e KeyErrors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

func (e KeyErrors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// public reports whether the place of a problem may be shown: the place is not in the value of a
// secret. A value that the parser cannot read may be a secret.
func public(path, message string) bool {
	if strings.HasPrefix(message, "not YAML") {
		return false
	}
	return !slices.ContainsFunc(strings.Split(path, "."), func(step string) bool {
		name, _, _ := strings.Cut(step, "[")
		return SecretKey(name)
	})
}

// excerpt returns the keys of a line that lead to a column, and the column among them. Values may
// be secrets and are left out. ok is false if the column is before the first key.
func excerpt(line []rune, column int) (text string, at int, ok bool) {
	column = min(column, len(line))
	first := firstKey.FindStringSubmatch(string(line))
	text = first[1]
	at = utf8.RuneCountInString(text)
	if column < at {
		return "", 0, false
	}
	if column > at {
		text += first[2]
		at = utf8.RuneCountInString(text)
	}
	key := strings.TrimSpace(keyAtStart.FindString(string(line[column:])))
	switch {
	case key == "":
		return text + "…", at, true
	case at < column:
		text += "… "
	}
	return text + key + " …", utf8.RuneCountInString(text), true
}

var (
	keyAtStart = regexp.MustCompile(`^["']?[^\s:"'{}\[\],]+["']?:(?:\s|$)`)
	firstKey   = regexp.MustCompile(`^(\s*(?:- +)*)((?:["']?[^\s:"'{}\[\],]+["']?:\s+)?)`)
)

// secretKey matches the names of keys whose values are usually secrets.
var secretKey = regexp.MustCompile(`(?i)(token|secret|pass|credential|community|auth|(^|[-_.])key$)`)

// SecretKey reports whether a key's name says that its value is a secret. Messages must show
// nothing that is written at or below this key.
func SecretKey(name string) bool { return secretKey.MatchString(name) }
