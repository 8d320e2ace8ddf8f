// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory that cannot be written to is reported before anything is read or computed: the traces
// of these commands do not exist, and their errors would come next.
func TestDirectoriesAreCheckedFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	within := filepath.Join(file, "figures")
	for _, tc := range []struct{ flag, args string }{
		{"--plots", "sketches --trace records:none --plots " + within},
		{"--csv", "sketches --trace records:none --csv " + filepath.Join(within, "all.csv")},
		{"--out", "attention --figures 7 --out " + within},
	} {
		cmd := root()
		cmd.SetArgs(strings.Fields(tc.args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), tc.flag+": mkdir "+file) ||
			!strings.Contains(err.Error(), "name a writable directory") {
			t.Errorf("%s: %v", tc.args, err)
		}
	}
}
