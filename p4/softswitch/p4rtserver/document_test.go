// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that docs/evidence/p4runtime.md names exists, and each requirement in its tables names
// a test.
func TestDocumentNamesTests(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/evidence/p4runtime.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, dir := range []string{".", "../../p4rt", "../../p4rt/p4values"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(b)
		}
	}
	for _, line := range strings.Split(string(doc), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") ||
			strings.HasPrefix(cells[len(cells)-1], "test") || strings.HasPrefix(cells[len(cells)-1], "benchmark") {
			continue
		}
		if !strings.HasPrefix(cells[len(cells)-1], "`") {
			t.Errorf("docs/evidence/p4runtime.md: no test shows %q", line)
		}
	}
	names := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(names) < 60 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, n := range names {
		if !strings.Contains(code.String(), "func "+n[1]+"(") {
			t.Errorf("docs/evidence/p4runtime.md names %s, and there is no such test", n[1])
		}
	}
}
