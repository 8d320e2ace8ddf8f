// SPDX-License-Identifier: Apache-2.0

package files

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Only regular files are read, also by way of symbolic links. Nothing else is opened: a pipe
// without a writer would block.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for link, target := range map[string]string{"to-pipe": "pipe", "to-file": "file", "to-none": "none"} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		at("pipe"): "a pipe; expected a regular file", at("to-pipe"): "a pipe", at("socket"): "a socket",
		dir: "a directory", "/dev/null": "a device", at("none"): "no such file", at("to-none"): "no such file",
	} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%s): %v, want %q", path, err, want)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%s): %v, want %q", path, err, want)
		}
	}
	for _, path := range []string{at("file"), at("to-file")} {
		if text, err := Read(path); err != nil || string(text) != "text" {
			t.Errorf("Read(%s): %q, %v", path, text, err)
		}
		f, err := Open(path)
		if err != nil {
			t.Errorf("Open(%s): %v", path, err)
			continue
		}
		f.Close()
	}
}
