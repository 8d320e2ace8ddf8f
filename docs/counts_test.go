// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const number = `(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|` +
	`seventeen|eighteen|nineteen|twenty|(?:a|one|two|some) dozen|[0-9]+)`

var (
	// counted is a number of things of this repository, which is wrong as soon as one is added.
	counted = regexp.MustCompile(`(?i)(?:^|[^=\w])` + number + ` (?:built-in |included |bundled |other )?` +
		`(?:(?:[a-z]+ )?(?:dashboards|plugins|algorithms|subcommands|scenarios|suites|panels|faults|tasks|` +
		`carriers|tutorials|screens|alert rules)|(?:commands|targets|examples|pages|roles|measures|cases|` +
		`queries|test files|modules|outputs|` +
		`statistics|methods|workloads|kinds of metadata))\b`)
	// measured matches counts that a run or a configuration had, which are no counts of a list.
	measured = regexp.MustCompile(`(?i)[0-9]+ of [0-9]+ cases|a run of all [0-9]+ cases|at most (?:ten|[0-9]+) commands|` +
		`[0-9,]+ (?:queries|cases) (?:a|per) |[0-9]+ and [0-9]+ queries|` +
		`(?:two|three|[0-9]+) (?:other )?(?:plugins|modules|outputs|queries) (?:with|that|of one|on)`)
	// announced matches a count that announces the list or the table behind the paragraph.
	announced = regexp.MustCompile(`(?i)(?:^|\. |\b(?:has|have|are|these|those|the|all|one of|in|by|calls|takes|` +
		`needs|knows|with) )(` + number + `) [a-z-]+s(?: [a-z]+){0,4}[.:]$`)
)

// values of number words; digits are read as they are.
var values = map[string]int{"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
	"ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17,
	"eighteen": 18, "nineteen": 19, "twenty": 20}

// countsOf returns the counts in a page that become wrong unnoticed: counts of things of the
// repository, and counts in front of a list or table with another number of entries.
func countsOf(page string) (wrong []string) {
	paragraphs := strings.Split(block.ReplaceAllString(page, ""), "\n\n")
	for i, p := range paragraphs {
		text := strings.Join(strings.Fields(p), " ")
		wrong = append(wrong, counted.FindAllString(measured.ReplaceAllString(text, ""), -1)...)
		m := announced.FindStringSubmatch(text)
		if m == nil || i+1 == len(paragraphs) {
			continue
		}
		want, ok := values[strings.ToLower(m[1])]
		if entries := entriesOf(paragraphs[i+1]); ok && entries > 0 && entries != want {
			wrong = append(wrong, m[0])
		}
	}
	return wrong
}

var entry = regexp.MustCompile(`(?m)^(?:[-*] |[0-9]+\. )`)

// entriesOf returns the number of entries of a list, or of rows of a table below its head; 0 for
// other text.
func entriesOf(paragraph string) int {
	if strings.HasPrefix(paragraph, "|") {
		return strings.Count(strings.TrimSpace(paragraph), "\n") - 1
	}
	return len(entry.FindAllString(paragraph, -1))
}

// A page does not count lists that grow, because nobody corrects the count when an entry is added.
func TestCounts(t *testing.T) {
	for _, path := range files(t) {
		if ext := filepath.Ext(path); ext != ".md" && ext != ".yaml" && ext != ".yml" && filepath.Base(path) != "Makefile" ||
			filepath.Base(path) == "CHANGELOG.md" || strings.Contains(path, "docs/figures/") ||
			strings.Contains(path, "figures/suite/pages/") {
			continue // figures have the numbers of papers
		}
		for _, c := range countsOf(read(t, path)) {
			t.Errorf("%s: %q: leave out the count, or name the things", strings.TrimPrefix(path, root), c)
		}
	}
}

func TestCountsOf(t *testing.T) {
	for page, want := range map[string]int{
		"Five dashboards show points.":                                 1,
		"They have the five built-in\nplugins in bin.":                 1,
		"The newest run: 54 of 54 cases.":                              0,
		"A dashboard for each plugin.":                                 0,
		"It has two parts:\n\n- one\n- two\n- three":                   1,
		"It has two parts:\n\n- one\n- two":                            0,
		"Three files:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n":            1,
		"```\nfive plugins\n```":                                       0,
		"A scenario of the six faults in turn.":                        1,
		"It computes six measurement tasks.":                           1,
		"A value with three methods.":                                  1,
		"A dozen plugins.":                                             1,
		"Thirteen scenarios.":                                          1,
		"It is written in one of two ways.\n\n- a\n- b\n- c":           1,
		"Three properties make sketches useful here:\n\n- a":           1,
		"Three properties make sketches useful here:\n\n- a\n- b\n- c": 0,
		"It calls two controls of your file:\n\n| a |\n|---|\n| b |\n": 1,
	} {
		if got := countsOf(page); len(got) != want {
			t.Errorf("%q: %q, want %d", page, got, want)
		}
	}
}
