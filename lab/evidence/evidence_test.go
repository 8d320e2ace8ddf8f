// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
)

var run = regexp.MustCompile(`^# (recorded in )?commit [0-9a-f]+(-dirty)?, \d{4}-\d\d-\d\d`)

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

// TestRecorded: all rows in docs/figures name their commit and day.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("../../docs/figures/*.csv")
	if err != nil || len(files) == 0 {
		t.Fatal("no rows in docs/figures", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !run.Match(text) {
			t.Errorf("%s does not begin with commit and day of its run", name)
		}
	}
}
