// SPDX-License-Identifier: Apache-2.0

// Package files reads the files that users name in configurations and on command lines.
package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Open opens a regular file. It refuses pipes, devices and sockets before it opens them: a pipe
// that nobody writes to would block the process for good, and a device may never end.
func Open(path string) (*os.File, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Read returns the contents of a regular file, and refuses the same files as [Open].
func Read(path string) ([]byte, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// check refuses a file that exists and is not regular.
func check(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is %s; expected a regular file", path, Kind(info.Mode()))
	}
	return nil
}

// Same reports whether two paths lead to one file, which a program that writes to one of them would
// destroy. It is false for an empty path and for a device such as /dev/null.
func Same(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	one, err := os.Stat(a)
	if err != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	other, err := os.Stat(b)
	return err == nil && one.Mode().IsRegular() && os.SameFile(one, other)
}

// Kind names the kind of a file for messages, such as "a directory".
func Kind(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "a regular file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a pipe"
	case fs.ModeSocket:
		return "a socket"
	}
	return "a device"
}
