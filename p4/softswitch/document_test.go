// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentNamesTests: every test that docs/evidence/softswitch.md names exists.
func TestDocumentNamesTests(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "evidence", "softswitch.md"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{"*_test.go", "machine/*_test.go"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	var code strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(b)
	}
	names := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(names) < 40 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, n := range names {
		if !strings.Contains(code.String(), "func "+n[1]+"(") {
			t.Errorf("docs/evidence/softswitch.md names %s, and there is no such test", n[1])
		}
	}
	for _, line := range strings.Split(string(doc), "\n") { // the column of constructs that are compared with BMv2
		cells := strings.Split(line, " | ")
		if len(cells) < 2 || !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, part := range strings.Split(cells[1], "; ") {
			suite, list, _ := strings.Cut(part, " ")
			for _, n := range regexp.MustCompile("[a-z]+").FindAllString(
				regexp.MustCompile("\\(.*\\)|, also.*|, and.*|`[^`]*`").ReplaceAllString(list, ""), -1) {
				switch suite {
				case "`TestGolden`":
					if goldenInputs[n] == nil {
						t.Errorf("docs/evidence/softswitch.md names TestGolden %q, and there is no such program", n)
					}
				case "parity":
					if _, err := os.Stat("../../lab/parity/switches/testdata/" + n + ".p4"); err != nil {
						t.Errorf("docs/evidence/softswitch.md names the parity suite's %q, and there is no such program", n)
					}
				}
			}
		}
	}
}
