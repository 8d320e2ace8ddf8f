// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// requirements are the tables of what must hold and its tests, with the columns of compiled
// programs whose packets a test compares with BMv2's.
var requirements = map[string]struct {
	least    int // rows
	programs map[string]string
}{
	"evidence/gnmi.csv":      {least: 45},
	"evidence/p4runtime.csv": {least: 60},
	"evidence/softswitch.csv": {least: 25, programs: map[string]string{
		"TestGolden": "p4/softswitch/testdata", "parity": "lab/parity/switches/testdata"}},
}

// TestRequirements: each row of these tables names a test or a compiled program, and all that a row
// names exist. The first line of a file names the directories of its tests.
func TestRequirements(t *testing.T) {
	for name, want := range requirements {
		first, table, _ := strings.Cut(read(t, name), "\n")
		directories, ok := strings.CutPrefix(first, "# tests in ")
		rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
		if err != nil || !ok || len(rows) <= want.least {
			t.Fatalf("%s: %d rows, first line %q: %v", name, len(rows), first, err)
		}
		var code strings.Builder
		for directory := range strings.FieldsSeq(directories) {
			files, err := filepath.Glob(filepath.Join(root, directory, "*_test.go"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %s has no tests: %v", name, directory, err)
			}
			for _, file := range files {
				code.WriteString(read(t, file))
			}
		}
		for _, row := range rows[1:] {
			shown := 0
			for i, column := range rows[0] {
				for text := range strings.FieldsSeq(row[i]) {
					switch directory := want.programs[column]; {
					case directory != "":
						shown++
						if _, err := os.Stat(filepath.Join(root, directory, text+".p4")); err != nil {
							t.Errorf("%s: %q: there is no program %s: %v", name, row, text, err)
						}
					case column == "tests":
						shown++
						if !regexp.MustCompile(`(?m)^func ` + text + `\(`).MatchString(code.String()) {
							t.Errorf("%s: %q: there is no test %s in %s", name, row, text, directories)
						}
					}
				}
			}
			if shown == 0 {
				t.Errorf("%s: no test shows %q", name, row)
			}
		}
	}
}

// TestNamedTests: every test that a page of evidence names exists.
func TestNamedTests(t *testing.T) {
	declares := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	names := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)`")
	declared := map[string]bool{}
	for _, path := range files(t) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range declares.FindAllStringSubmatch(read(t, path), -1) {
				declared[m[1]] = true
			}
		}
	}
	named := 0
	for _, path := range files(t) {
		if filepath.Ext(path) != ".md" || filepath.Base(filepath.Dir(path)) != "evidence" {
			continue
		}
		for _, m := range names.FindAllStringSubmatch(read(t, path), -1) {
			if named++; !declared[m[1]] {
				t.Errorf("%s names %s, and there is no such test", path, m[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d tests are named", named)
	}
}
