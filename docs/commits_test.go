// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ran is the commit at which a measurement was made, as suites write it above their rows.
var ran = regexp.MustCompile(`\bcommit ([0-9a-f]{8,40})(?:-dirty)?, [0-9]{4}-`)

// TestCommits: each commit that a page or a file of rows names is one of this repository's history.
// A rebase gives commits other names.
func TestCommits(t *testing.T) {
	if out, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output(); err != nil {
		t.Skipf("the history is not here: git rev-parse: %v", err)
	} else if strings.TrimSpace(string(out)) != "false" {
		t.Skip("this clone has only a part of the history")
	}
	out, err := exec.Command("git", "rev-list", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	history, checked := "\n"+string(out), 0
	for _, path := range files(t) {
		if ext := filepath.Ext(path); ext != ".md" && ext != ".csv" {
			continue
		}
		for _, m := range ran.FindAllStringSubmatch(read(t, path), -1) {
			if checked++; !strings.Contains(history, "\n"+m[1]) {
				t.Errorf("%s names commit %s, which is not in the history of HEAD", path, m[1])
			}
		}
	}
	if checked < 20 {
		t.Errorf("found %d commits, expected those of the files of rows", checked)
	}
}
