// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxProse is the longest line of a comment or a documentation page, in characters.
const maxProse = 100

// skipped directories hold what the project does not write, or generates.
var skipped = map[string]bool{
	".git": true, ".cache": true, "bin": true, "third_party": true, "testdata": true, "bindings": true,
	"pluginv1": true, "node_modules": true,
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// line is a line of prose and its place.
type line struct {
	number int
	text   string
}

// TestLineLengths checks every comment and documentation page of the repository.
func TestLineLengths(t *testing.T) {
	checked := 0
	for _, path := range files(t) {
		prose := proseOf(t, path)
		checked += len(prose)
		for _, p := range check(prose) {
			t.Errorf("%s:%s", strings.TrimPrefix(path, root), p)
		}
	}
	if checked < 10_000 {
		t.Errorf("checked %d lines of prose, expected the whole repository", checked)
	}
}

// TestCheckFindsViolations holds the check itself to its purpose.
func TestCheckFindsViolations(t *testing.T) {
	for text, want := range map[string]int{
		"A component receives an epoch.":           0,
		strings.Repeat("word ", 25):                1,
		"[a](" + strings.Repeat("long/", 30) + ")": 0,
	} {
		if got := check([]line{{number: 1, text: text}}); len(got) != want {
			t.Errorf("check(%q) = %q, want %d problems", text, got, want)
		}
	}
}

// root is the repository.
const root = "../"

// files lists the files that the project writes itself.
func files(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped[d.Name()]:
			return filepath.SkipDir
		case !d.IsDir():
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// goFiles lists the Go files that are not tests.
func goFiles(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(files(t), func(path string) bool {
		return filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go")
	})
}

// check returns the problems of prose, one string each.
func check(prose []line) (problems []string) {
	for _, l := range prose {
		if n := utf8.RuneCountInString(l.text); n > maxProse && breakable(l.text) {
			problems = append(problems, fmt.Sprintf("%d: prose of %d columns, at most %d", l.number, n, maxProse))
		}
	}
	return problems
}

// breakable reports whether a long line could be shorter: tables, links and code cannot.
func breakable(text string) bool {
	text = strings.TrimLeft(text, " \t/*")
	switch {
	case strings.HasPrefix(text, "|"), strings.HasPrefix(text, "go:"), strings.HasPrefix(text, "nolint"):
		return false
	}
	longest := 0
	for word := range strings.FieldsSeq(text) {
		longest = max(longest, len(word))
	}
	return longest < maxProse*2/3 && !strings.Contains(text, "](")
}

// proseOf returns the lines of a file that are for people: all of a documentation page, the
// comments of a source file.
func proseOf(t *testing.T, path string) []line {
	t.Helper()
	ext := filepath.Ext(path)
	switch ext {
	case ".go", ".md", ".yang", ".proto", ".p4", ".yaml", ".sh":
	default:
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case generated.Match(text):
		return nil
	case ext == ".go":
		return comments(path, text)
	case ext == ".md":
		return outsideCode(text)
	}
	var prose []line
	for i, l := range strings.Split(string(text), "\n") {
		if ext == ".yaml" || ext == ".sh" {
			_, l, _ = strings.Cut(l, "# ")
		}
		prose = append(prose, line{number: i + 1, text: l})
	}
	return prose
}

// outsideCode returns the lines of a Markdown page that are not in a code block.
func outsideCode(text []byte) (prose []line) {
	code := false
	for i, l := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			code = !code
			continue
		}
		if !code && !strings.HasPrefix(l, "    ") {
			prose = append(prose, line{number: i + 1, text: l})
		}
	}
	return prose
}

// comments returns the lines of a Go file's comments.
func comments(path string, text []byte) (prose []line) {
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	lines := bytes.Split(text, []byte("\n"))
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return prose
		}
		first := file.Position(pos)
		if tok != token.COMMENT {
			continue
		}
		for i, l := range strings.Split(lit, "\n") {
			n := first.Line + i
			if i == 0 && len(bytes.TrimSpace(lines[n-1][:first.Column-1])) == 0 {
				l = string(lines[n-1]) // with its indentation
			}
			prose = append(prose, line{number: n, text: l})
		}
	}
}
