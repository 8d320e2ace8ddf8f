// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Position is a place in a query's text, from 1. Columns count characters.
type Position struct{ Line, Column int }

// Error is an error at a place of a query.
type Error struct {
	File string
	Position
	Message string
}

// Error returns "FILE:LINE:COLUMN: message".
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

type kind uint8

const (
	end kind = iota
	name
	number
	text
	address
	symbol
)

// token is one token; its text is as written, without the quotes of a string.
type token struct {
	kind kind
	text string
	at   Position
}

func (t token) String() string {
	switch t.kind {
	case end:
		return "the end of the query"
	case text:
		return fmt.Sprintf("the string %q", t.text)
	}
	return fmt.Sprintf("%q", t.text)
}

// symbols of two characters; all others have one.
var pairs = []string{"==", "!=", "<=", ">=", "&&", "||"}

const singles = "=<>!&|+-*/(),."

// lex divides a query into tokens. A comment extends from # to the end of the line.
func lex(file, source string) (tokens []token, err error) {
	at := Position{1, 1}
	advance := func(s string) {
		for _, r := range s {
			if at.Column++; r == '\n' {
				at = Position{at.Line + 1, 1}
			}
		}
	}
	for len(source) > 0 {
		r, size := utf8.DecodeRuneInString(source)
		n := size
		t := token{at: at}
		switch {
		case unicode.IsSpace(r):
			advance(source[:n])
			source = source[n:]
			continue
		case r == '#':
			n = len(source)
			if i := strings.IndexByte(source, '\n'); i >= 0 {
				n = i
			}
			advance(source[:n])
			source = source[n:]
			continue
		case strings.Count(source[:span(source, inAddress)], ":") >= 2:
			n = span(source, inAddress)
			t.kind, t.text = address, source[:n]
		case unicode.IsLetter(r) || r == '_':
			n = span(source, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' })
			t.kind, t.text = name, source[:n]
		case r >= '0' && r <= '9':
			n = span(source, func(r rune) bool { return r == 'x' || inAddress(r) })
			n = len(strings.TrimRight(source[:n], "./"))
			t.kind, t.text = number, source[:n]
			if strings.Contains(t.text, ".") {
				t.kind = address
			} else if i := strings.IndexByte(t.text, '/'); i >= 0 {
				n, t.text = i, t.text[:i]
			}
		case r == '"':
			i := strings.IndexAny(source[1:], "\"\n")
			if i < 0 || source[1+i] == '\n' {
				return nil, &Error{file, at, "the string has no closing quote on its line"}
			}
			n = i + 2
			t.kind, t.text = text, source[1:n-1]
		case len(source) > 1 && contains(pairs, source[:2]):
			n = 2
			t.kind, t.text = symbol, source[:2]
		case strings.ContainsRune(singles, r):
			t.kind, t.text = symbol, source[:n]
		default:
			return nil, &Error{file, at, fmt.Sprintf("unexpected character %q", r)}
		}
		tokens = append(tokens, t)
		advance(source[:n])
		source = source[n:]
	}
	return append(tokens, token{kind: end, at: at}), nil
}

func span(s string, in func(rune) bool) int {
	if i := strings.IndexFunc(s, func(r rune) bool { return !in(r) }); i >= 0 {
		return i
	}
	return len(s)
}

// inAddress reports whether an address or prefix may contain the character.
func inAddress(r rune) bool { return strings.ContainsRune("0123456789abcdefABCDEF.:/", r) }

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
