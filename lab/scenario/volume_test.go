// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/lab/scenario"
)

// TestShippedScenariosBoundRows: every shipped scenario bounds the rows that its plugins publish in
// an epoch, to 2,000 unless its configuration of a plugin asks for more and a comment says so.
// Playing it shows whether the bound holds.
func TestShippedScenariosBoundRows(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shipped := 0
	for _, file := range append(files, "default.yaml") {
		s, err := scenario.Load(file)
		if err != nil {
			if !strings.Contains(err.Error(), "topology") { // a configuration of a collector or an agent
				t.Logf("%s is no scenario: %v", file, err)
			}
			continue
		}
		shipped++
		i := slices.IndexFunc(s.Expect, func(b scenario.Bound) bool { return b.Measure == scenario.Rows })
		if i < 0 || s.Expect[i].AtMost == nil || s.Expect[i].Algorithm != "" {
			t.Errorf("%s does not bound the rows of an epoch", file)
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		asks := strings.Contains(string(text), "limit: ") && strings.Contains(string(text), "# More than 2,000 rows: ")
		if *s.Expect[i].AtMost > 2000 && !asks {
			t.Errorf("%s has up to %v rows in an epoch; no limit of a plugin asks for them, or no comment says so", file,
				*s.Expect[i].AtMost)
		}
	}
	if shipped < 22 {
		t.Errorf("%d scenarios", shipped)
	}
}
