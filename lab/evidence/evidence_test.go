// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var (
	run = regexp.MustCompile(`\bcommit [0-9a-f]{7,}(-dirty)?,\s+\d{4}-\d\d-\d\d`)
	// written is a part of a page that a suite writes from a run.
	written = regexp.MustCompile("(?s)<!-- (?:[a-z]+: written by|`make findings`).*?<!-- end -->")
	// suite is a command whose figures people copy into a page.
	suite = regexp.MustCompile("`make (cost|scale|soak-cluster|netns-harm|console-check)[`\" ]")
)

func TestCSV(t *testing.T) {
	lines := [][]string{{"structure", "value"}, {"a, b", "1"}}
	var b bytes.Buffer
	if err := WriteCSV(&b, lines); err != nil {
		t.Fatal(err)
	}
	read, err := ReadCSV(bytes.NewReader(b.Bytes()))
	if err != nil || !reflect.DeepEqual(read, lines) {
		t.Errorf("read %v, %v; want %v", read, err, lines)
	}
	if text := Run(); !regexp.MustCompile(`^commit \S+, \d{4}-\d\d-\d\d, \d+ processors, load \d`).MatchString(text) {
		t.Errorf("a run is %q", text)
	}
}

// TestRecorded: all rows in docs, the parts of pages that suites write, and the sections with
// tables of suites name the commit and the day of their run.
func TestRecorded(t *testing.T) {
	rows, parts, sections := 0, 0, 0
	for _, pattern := range []string{"../../docs/*/*.csv", "../../docs/*.md", "../../docs/*/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(name) == ".csv" && !bytes.HasPrefix(text, []byte("# tests in ")) &&
				!bytes.HasPrefix(text, []byte("# statements of the paper")) {
				rows++
				first, _, _ := bytes.Cut(text, []byte("\n"))
				if !bytes.HasPrefix(first, []byte("# ")) || !run.Match(first) {
					t.Errorf("%s does not begin with commit and day of its run", name)
				}
			}
			for section := range bytes.SplitSeq(text, []byte("\n## ")) {
				if strings.Contains(name, "/evidence/") && suite.Match(section) && bytes.Contains(section, []byte("\n|---")) {
					sections++
					if !run.Match(section) {
						t.Errorf("%s: a table of %s lacks commit and day of its run", name, suite.Find(section))
					}
				}
			}
			for _, part := range written.FindAll(text, -1) {
				parts++
				if !run.Match(part) {
					t.Errorf("%s: the table of %.60q lacks commit and day of its run", name, part)
				}
			}
		}
	}
	if rows < 10 || parts < 3 || sections < 5 {
		t.Errorf("%d files of rows, %d written parts and %d sections of pages", rows, parts, sections)
	}
}
