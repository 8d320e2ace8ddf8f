// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// ObjectIsCurrent fails if a source, eBPF object or bindings differ from digests.txt, which make
// bpf writes with sha256sum.
func ObjectIsCurrent(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("digests.txt")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for line := range strings.Lines(string(text)) {
		want, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			continue
		}
		files++
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s differs from the one that the object was built with: run make bpf", name)
		}
	}
	if files != 3 {
		t.Errorf("%d files in digests.txt, want source, object and bindings", files)
	}
}
