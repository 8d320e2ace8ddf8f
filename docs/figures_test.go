// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/lab/evidence"
)

var (
	figureNumber = regexp.MustCompile(`^(Table )?[0-9IVX]+(\([a-z]\))?`)
	pageLink     = regexp.MustCompile(`^\[[^\]]+\]\(([a-z0-9-]+)\.md\)$`)
)

// cells returns the trimmed cells of the rows of Markdown tables.
func cells(t *testing.T, path string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if row := cellsOf(line); row != nil {
			rows = append(rows, row)
		}
	}
	return rows
}

// cellsOf returns the trimmed cells of a row, and nil for another line.
func cellsOf(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") {
		return nil
	}
	row := strings.Split(strings.Trim(line, "|"), " | ")
	for i := range row {
		row[i] = strings.TrimSpace(row[i])
	}
	return row
}

// statements returns the verdicts of a page on a figure's statements. A statement about a part of
// the figure, or one that names none, counts for the figure. A page without a file of statements
// has them in a table.
func statements(t *testing.T, page, figure string) (verdicts []string) {
	t.Helper()
	text, file := "figures/"+page+".md", "figures/"+page+"-statements.csv"
	all := cells(t, text)
	if strings.Contains(read(t, text), filepath.Base(file)) {
		rows, err := evidence.ReadCSV(strings.NewReader(read(t, file)))
		if err != nil {
			t.Fatal(err)
		}
		all = rows
	}
	for _, row := range all {
		verdict := row[len(row)-1]
		if kind, _, _ := strings.Cut(verdict, ":"); kind != "yes" && kind != "no" && kind != "not comparable" {
			continue
		}
		about := !figureNumber.MatchString(row[0]) // a page of one figure
		for name := range strings.SplitSeq(row[0], ", ") {
			number := figureNumber.FindString(name)
			whole, _, _ := strings.Cut(number, "(")
			about = about || number != "" && (number == figure || whole == figure)
		}
		if about {
			verdicts = append(verdicts, verdict)
		}
	}
	return verdicts
}

// results are what the verdicts on a figure's statements allow the table to say: "worse" if one
// does not hold, else "not comparable" if one cannot be compared, and else "equal", or also
// "better" if one is better than stated and none holds by a tie.
func results(verdicts []string) []string {
	some := func(start string) bool {
		return slices.ContainsFunc(verdicts, func(v string) bool { return strings.HasPrefix(v, start) })
	}
	switch {
	case len(verdicts) == 0:
		return nil
	case some("no:") || slices.Contains(verdicts, "no"):
		return []string{"worse"}
	case some("not comparable"):
		return []string{"not comparable"}
	case some("yes: better") && !some("yes: a tie"):
		return []string{"better", "equal"}
	}
	return []string{"equal"}
}

func TestResults(t *testing.T) {
	for _, tt := range []struct {
		verdicts []string
		want     string
	}{
		{nil, ""},
		{[]string{"yes", "yes"}, "equal"},
		{[]string{"yes", "yes: better"}, "better equal"},
		{[]string{"yes: better", "yes: a tie"}, "equal"},
		{[]string{"yes: better", "no: a reason"}, "worse"},
		{[]string{"yes: better", "not comparable: hardware, a reason"}, "not comparable"},
		{[]string{"no", "not comparable: truth, a reason"}, "worse"},
	} {
		if got := strings.Join(results(tt.verdicts), " "); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.verdicts, got, tt.want)
		}
	}
}

// The results in the table of all figures follow from the statements of the figures' pages, and the
// table's counts are right.
func TestStatusOfFigures(t *testing.T) {
	words := []string{"better", "equal", "worse", "not comparable", "missing"}
	counts := map[string]map[string]int{"all": {}}
	stated, pages := map[string][]string{}, map[string]bool{}
	paper := "" // the heading above a table
	for line := range strings.Lines(read(t, "figures/README.md")) {
		if heading, ok := strings.CutPrefix(line, "### "); ok {
			paper = strings.TrimSpace(heading)
		}
		row := cellsOf(line)
		switch {
		case len(row) == 6 && row[0] != "paper":
			stated[row[0]] = row[1:]
		case len(row) == 5 && row[0] != "page":
			m := pageLink.FindStringSubmatch(row[0])
			if m != nil {
				pages[m[1]] = true
			} else if !strings.HasPrefix(row[0], "none: ") {
				t.Errorf("%s: %s is no link to a page", paper, row[0])
			}
			for i, column := range row[1:] {
				for figure := range strings.SplitSeq(column, ", ") {
					if figure == "" {
						continue
					}
					result := words[i]
					if counts[paper] == nil {
						counts[paper] = map[string]int{}
					}
					counts[paper][result]++
					counts["all"][result]++
					if m == nil {
						if result != "not comparable" {
							t.Errorf("%s, %s: %s without a page", paper, figure, result)
						}
					} else if allowed := results(statements(t, m[1], figure)); !slices.Contains(allowed, result) {
						t.Errorf("%s, %s: it is called %s; by its statements in %s.md it is %v", paper, figure, result, m[1], allowed)
					}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		for i, result := range words {
			if len(stated[name]) != 5 || stated[name][i] != strconv.Itoa(counts[name][result]) {
				t.Errorf("%s: the table of counts has %q, the rows have %d %s", name, stated[name], counts[name][result], result)
			}
		}
	}
	files, err := os.ReadDir("figures")
	if err != nil {
		t.Fatal(err)
	}
	// these are no figures of a paper
	other := []string{"README", "accuracy-t1", "chamelemon-literal", "chamelemon-losses", "omnimon-missing", "speed"}
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".md"); ok && !pages[name] && !slices.Contains(other, name) {
			t.Errorf("figures/%s.md is missing from the table of all figures", name)
		}
	}
}
