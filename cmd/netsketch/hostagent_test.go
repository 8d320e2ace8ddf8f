// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hostagent new writes the example with another name; the agent gets its other arguments.
func TestHostagentNew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my-role")
	if _, err := command(t, "", "hostagent", "new", "my-role", dir, "--netsketch", "../.."); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"main.go", "main_test.go", "README.md"} {
		want, err := os.ReadFile(filepath.Join("../../examples/hostagent-hello", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, bytes.ReplaceAll(want, []byte("hello"), []byte("my-role"))) {
			t.Errorf("%s differs from the example's (%v): run go generate ./internal/scaffold", name, err)
		}
	}
	for name, want := range map[string]string{"omnimon": "comes with netsketch", "My Role": "is not a plugin's name"} {
		if _, err := command(t, "", "hostagent", "new", name, "--netsketch", "../.."); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
