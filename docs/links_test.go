// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	block   = regexp.MustCompile("(?s)```.*?```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	unnamed = regexp.MustCompile(`[^\pL\pN_ -]`) // characters that an anchor lacks
)

// TestLinks follows each link of a page to a file of the repository, and to a heading of it.
func TestLinks(t *testing.T) {
	checked := 0
	for _, path := range files(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(block.ReplaceAllString(read(t, path), ""), -1) {
			if strings.Contains(m[1], ":") {
				continue // elsewhere
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s is not there", path, m[1])
			} else if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: %s has no heading with that anchor", path, m[1])
			}
			checked++
		}
	}
	if checked < 500 {
		t.Errorf("checked %d links, expected those of the whole repository", checked)
	}
}

// anchors are what GitHub makes of the headings of a page.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(block.ReplaceAllString(page, ""), -1) {
		text := unnamed.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(m[1], "$1")), "")
		out[strings.ReplaceAll(text, " ", "-")] = true
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
