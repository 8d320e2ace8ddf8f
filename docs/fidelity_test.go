// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/lab/evidence"
)

var (
	fidelityStatus = []string{"exact", "better", "simplified", "different", "missing"}
	fidelityCode   = regexp.MustCompile(`^([^: ]+): ([A-Za-z0-9_]+)$`)
)

// TestFidelity checks each row of evidence/fidelity.csv: the status is a known one, and the places
// and tests that the row names exist. Only a missing mechanism may have no place and no test. The
// page has the rows that are not as in the paper nor better, and counts all.
func TestFidelity(t *testing.T) {
	rows, err := evidence.ReadCSV(strings.NewReader(read(t, "evidence/fidelity.csv")))
	if err != nil || len(rows) < 100 {
		t.Fatal(len(rows), err)
	}
	page := read(t, "evidence/fidelity.md")
	counts, papers := map[string]int{}, []string{}
	for _, row := range rows[1:] {
		if problem := fidelityProblem(row); problem != "" {
			t.Errorf("evidence/fidelity.csv, %q: %s", row, problem)
			continue
		}
		if !slices.Contains(papers, row[0]) {
			papers = append(papers, row[0])
		}
		counts[row[0]+row[3]]++
		line := "| " + strings.ReplaceAll(strings.Join(row[:4], "\x00"), "|", `\|`)
		line = strings.ReplaceAll(line, "\x00", " | ") + " |\n"
		worse := row[3] != "exact" && row[3] != "better"
		if strings.Contains(page, line) != worse {
			t.Errorf("evidence/fidelity.md has %q: %t, want %t", line, !worse, worse)
		}
	}
	for _, paper := range papers {
		line := "| " + paper
		for _, status := range fidelityStatus {
			line += fmt.Sprintf(" | %d", counts[paper+status])
		}
		if !strings.Contains(page, line+" |\n") {
			t.Errorf("evidence/fidelity.md lacks the counts %q", line)
		}
	}
}

// TestFidelityRefuses holds the check of rows to rows with one fault each.
func TestFidelityRefuses(t *testing.T) {
	const place, test = "sketch/tower: Bound", "sketch/tower: TestBound"
	for _, c := range []struct {
		row     []string
		problem string
	}{
		{[]string{"P", "bound", "4", "exact", place, test}, ""},
		{[]string{"P", "bound", "4", "missing", "", ""}, ""},
		{[]string{"P", "bound", "4", "equal", place, test}, "unknown status"},
		{[]string{"P", "bound", "", "exact", place, test}, "no section"},
		{[]string{"P", "bound", "4", "exact", "", test}, "names no place"},
		{[]string{"P", "bound", "4", "exact", place, ""}, "names no test"},
		{[]string{"P", "bound", "4", "exact", "sketch/tower: NoSuchBound", test}, "NoSuchBound is not in sketch/tower"},
		{[]string{"P", "bound", "4", "exact", place, "sketch/tower: TestNone"}, "TestNone is not in sketch/tower"},
		{[]string{"P", "bound", "4", "exact", place, test + ", TestNone"}, "is no reference"},
		{[]string{"P", "bound", "4", "exact", place}, "has 5 columns"},
	} {
		got := fidelityProblem(c.row)
		if (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
			t.Errorf("%s: problem is %q, want %q", c.row, got, c.problem)
		}
	}
}

// fidelityProblem returns what is wrong with a row; "" if nothing is.
func fidelityProblem(row []string) string {
	if len(row) != 6 {
		return fmt.Sprintf("has %d columns, expected paper, mechanism, section, status, place and tests", len(row))
	}
	section, status := row[2], row[3]
	switch {
	case section == "":
		return "no section of the paper"
	case !slices.Contains(fidelityStatus, status):
		return "unknown status " + status
	case status != "missing" && row[4] == "":
		return "names no place in the code"
	case status != "missing" && row[5] == "":
		return "names no test"
	}
	for i, format := range []string{`\b%s\b`, `(?m)^func %s\(`} {
		for reference := range strings.SplitSeq(row[4+i], "; ") {
			m := fidelityCode.FindStringSubmatch(reference)
			switch {
			case reference == "":
			case m == nil:
				return reference + " is no reference"
			case !declares(m[1], regexp.MustCompile(fmt.Sprintf(format, m[2])), i == 1):
				return m[2] + " is not in " + m[1]
			}
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
