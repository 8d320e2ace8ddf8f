// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	figureNumber = regexp.MustCompile(`^(Table )?[0-9IVX]+(\([a-z]\))?`)
	pageLink     = regexp.MustCompile(`^\[([a-z0-9-]+)\]\(([a-z0-9-]+)\.md\)$`)
)

// cells returns the trimmed cells of the rows of Markdown tables.
func cells(t *testing.T, path string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") {
			continue
		}
		row := strings.Split(strings.Trim(line, "|"), " | ")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	return rows
}

// holds returns whether all statements of a page about a figure hold, and whether there are any. A
// statement about a part of the figure, or one that names none, counts for the figure.
func holds(t *testing.T, page, figure string) (all, any bool) {
	all = true
	for _, row := range cells(t, "figures/"+page+".md") {
		verdict, _, _ := strings.Cut(row[len(row)-1], ":")
		if verdict != "yes" && verdict != "no" {
			continue
		}
		about := !figureNumber.MatchString(row[0]) // a page of one figure
		for name := range strings.SplitSeq(row[0], ", ") {
			number := figureNumber.FindString(name)
			whole, _, _ := strings.Cut(number, "(")
			about = about || number != "" && (number == figure || whole == figure)
		}
		if about {
			all, any = all && verdict == "yes", true
		}
	}
	return all, any
}

// The table of all figures agrees with the pages: a figure is as good as the paper's only if every
// statement holds, and worse only if one does not. Its counts are those of its rows.
func TestStatusOfFigures(t *testing.T) {
	results := []string{"better", "equal", "worse", "not comparable", "missing"}
	counts := map[string]map[string]int{"all": {}}
	stated, pages := map[string][]string{}, map[string]bool{}
	for _, row := range cells(t, "figures/README.md") {
		switch {
		case len(row) == 6 && row[0] != "paper":
			stated[row[0]] = row[1:]
		case len(row) == 5 && slices.Contains(results, row[4]):
			paper, figure, link, result := row[0], row[1], row[3], row[4]
			if counts[paper] == nil {
				counts[paper] = map[string]int{}
			}
			counts[paper][result]++
			counts["all"][result]++
			if measured := result != "missing" && result != "not comparable"; measured != (link != "") {
				t.Errorf("%s, %s: %s, with the page %q", paper, figure, result, link)
			}
			if link == "" {
				continue
			}
			m := pageLink.FindStringSubmatch(link)
			if m == nil || m[1] != m[2] {
				t.Errorf("%s, %s: the page %s is no link", paper, figure, link)
				continue
			}
			pages[m[1]] = true
			all, any := holds(t, m[1], figure)
			if !any {
				t.Errorf("%s, %s: %s.md has no statement about it", paper, figure, m[1])
			} else if all == (result == "worse") {
				t.Errorf("%s, %s: it is called %s; that all statements of %s.md hold is %v", paper, figure, result, m[1], all)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		for i, result := range results {
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
