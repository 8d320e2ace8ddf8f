// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentNamesTests: every test that docs/softswitch.md names is there.
func TestDocumentNamesTests(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "softswitch.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
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
			t.Errorf("docs/softswitch.md names %s, and there is no such test", n[1])
		}
	}
	golden := regexp.MustCompile("`TestGolden` ([a-z, ]+)").FindAllStringSubmatch(string(doc), -1)
	for _, g := range golden {
		for _, n := range strings.FieldsFunc(g[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			if goldenInputs[n] == nil {
				t.Errorf("docs/softswitch.md names TestGolden %q, and there is no such program", n)
			}
		}
	}
}
