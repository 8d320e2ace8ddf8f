// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder that cannot be written to is told before anything is read or computed: each command is given a trace, or
// a scenario, that is not there, and would name that next.
func TestFoldersAreSeenToBeforeTheWork(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	within := filepath.Join(file, "figures")
	for _, tc := range []struct{ flag, args string }{
		{"--plots", "bench-sketch --trace records:none --plots " + within},
		{"--csv", "bench-sketch --trace records:none --csv " + filepath.Join(within, "all.csv")},
		{"--out", "bench-chamelemon --figures 7 --out " + within},
		{"--plot", "demo --plugins " + dir + " --plot " + filepath.Join(within, "run")},
	} {
		cmd := root()
		cmd.SetArgs(strings.Fields(tc.args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), tc.flag+": mkdir "+file) || !strings.Contains(err.Error(), "name a folder that can be written to") {
			t.Errorf("%s: %v", tc.args, err)
		}
	}
}

// A folder that is not there is made, and nothing stays in it.
func TestWritable(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	if err := writable("--out", folder); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v (%v)", left, err)
	}
}
