// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// TestObjectIsCurrent fails if bpf/sketchint.c was changed without make bpf. The digests are from
// sha256sum.
func TestObjectIsCurrent(t *testing.T) {
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
