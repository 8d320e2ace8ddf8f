// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fidelityStatus = []string{"exact", "better", "simplified", "different", "missing"}
	fidelityCode   = regexp.MustCompile("`([^`: ]+): ([A-Za-z0-9_]+)`")
)

// TestFidelity checks each row of evidence/fidelity.md: the status is a known one, and the places
// and tests that the row names exist. Only a missing mechanism may have no place and no test.
func TestFidelity(t *testing.T) {
	algorithm := ""
	for line := range strings.Lines(read(t, "evidence/fidelity.md")) {
		if title, found := strings.CutPrefix(line, "## "); found {
			algorithm = strings.TrimSpace(title)
		}
		cells := strings.Split(strings.TrimSpace(line), "|")
		if algorithm == "" || len(cells) == 1 || cells[1] == "---" || strings.TrimSpace(cells[1]) == "mechanism" {
			continue
		}
		if problem := fidelityProblem(cells); problem != "" {
			t.Errorf("evidence/fidelity.md, %s, row %q: %s", algorithm, cells[1], problem)
		}
	}
}

// TestFidelityRefuses holds the check of rows to rows with one fault each.
func TestFidelityRefuses(t *testing.T) {
	const place, test = "`sketch/tower: Bound`", "`sketch/tower: TestBound`"
	for _, c := range []struct {
		row, problem string
	}{
		{"| bound | 4 | exact | " + place + " | " + test + " |", ""},
		{"| bound | 4 | missing | | |", ""},
		{"| bound | 4 | equal | " + place + " | " + test + " |", "unknown status"},
		{"| bound | | exact | " + place + " | " + test + " |", "no section"},
		{"| bound | 4 | exact | | " + test + " |", "names no place"},
		{"| bound | 4 | exact | " + place + " | |", "names no test"},
		{"| bound | 4 | exact | `sketch/tower: NoSuchBound` | " + test + " |", "NoSuchBound is not in sketch/tower"},
		{"| bound | 4 | exact | " + place + " | `sketch/tower: TestNone` |", "TestNone is not in sketch/tower"},
		{"| bound | 4 | exact | " + place + " |", "has 4 columns"},
	} {
		got := fidelityProblem(strings.Split(c.row, "|"))
		if (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
			t.Errorf("%s: problem is %q, want %q", c.row, got, c.problem)
		}
	}
}

// fidelityProblem returns what is wrong with a row; "" if nothing is. cells is the row split at
// "|", so the first and the last cell are the empty text before and behind the row.
func fidelityProblem(cells []string) string {
	if len(cells) != 7 {
		return "has " + string(rune('0'+len(cells)-2)) + " columns, expected mechanism, section, status, place and tests"
	}
	section, status := strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])
	switch {
	case section == "":
		return "no section of the paper"
	case !slices.Contains(fidelityStatus, status):
		return "unknown status " + status
	}
	places, tests := fidelityCode.FindAllStringSubmatch(cells[4], -1), fidelityCode.FindAllStringSubmatch(cells[5], -1)
	if status != "missing" && len(places) == 0 {
		return "names no place in the code"
	}
	if status != "missing" && len(tests) == 0 {
		return "names no test"
	}
	for _, p := range places {
		if !declares(p[1], regexp.MustCompile(`\b`+p[2]+`\b`), false) {
			return p[2] + " is not in " + p[1]
		}
	}
	for _, p := range tests {
		if !declares(p[1], regexp.MustCompile(`(?m)^func `+p[2]+`\(`), true) {
			return p[2] + " is not in " + p[1]
		}
	}
	return ""
}

// declares reports whether the pattern is found in a file, or in one of a folder's files that are
// tests, or are not.
func declares(path string, pattern *regexp.Regexp, tests bool) bool {
	path = filepath.Join(root, path)
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		files, _ = filepath.Glob(filepath.Join(path, "*"))
	}
	return slices.ContainsFunc(files, func(file string) bool {
		data, err := os.ReadFile(file)
		return err == nil && strings.HasSuffix(file, "_test.go") == tests && pattern.Match(data)
	})
}
