// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ObjectIsCurrent fails if a source, header, eBPF object or bindings file differs from
// digests.txt, which "make bpf" writes with sha256sum.
func ObjectIsCurrent(t *testing.T) {
	t.Helper()
	if files := digestsMatch(t, "make bpf"); len(files) < 3 {
		t.Errorf("%d files in digests.txt, want sources, object and bindings", len(files))
	}
}

// GeneratedIsCurrent fails if a file differs from digests.txt, or if digests.txt lacks a file that
// matches a pattern. command writes digests.txt with sha256sum of its sources and its output.
func GeneratedIsCurrent(t *testing.T, command string, patterns ...string) {
	t.Helper()
	known := digestsMatch(t, command)
	for _, p := range patterns {
		files, err := filepath.Glob(p)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files match %s: %v", p, err)
		}
		for _, f := range files {
			if info, err := os.Stat(f); err == nil && !info.IsDir() && !slices.Contains(known, f) {
				t.Errorf("%s is not in digests.txt: run %s", f, command)
			}
		}
	}
}

// digestsMatch compares files with digests.txt and returns their names.
func digestsMatch(t *testing.T, command string) (files []string) {
	t.Helper()
	text, err := os.ReadFile("digests.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		want, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			continue
		}
		files = append(files, name)
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s differs from its sum in digests.txt: run %s", name, command)
		}
	}
	return files
}
