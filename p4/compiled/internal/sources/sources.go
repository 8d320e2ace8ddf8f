// SPDX-License-Identifier: Apache-2.0

// Package sources finds the P4 programs, the files each is made of, and the digest
// of those files. The compiler driver writes digests, the test of package compiled
// compares them. It has no state; everything in it is safe for concurrent use.
package sources

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Programs returns the names of the programs in fsys, sorted: its *.p4 files at the
// top level, without the suffix.
func Programs(fsys fs.FS) ([]string, error) {
	files, err := fs.Glob(fsys, "*.p4")
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".p4")
	}
	slices.Sort(files)
	return files, nil
}

// Files returns the paths of a program's files, sorted: its own and all that it includes with
// quotes, directly or not. Files ignores conditions of the preprocessor.
func Files(fsys fs.FS, program string) ([]string, error) {
	todo := []string{program + ".p4"}
	seen := map[string]bool{todo[0]: true}
	for i := 0; i < len(todo); i++ {
		text, err := fs.ReadFile(fsys, todo[i])
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", program, err)
		}
		for line := range strings.Lines(string(text)) {
			name, ok := includes(line)
			if !ok {
				continue
			}
			name = path.Join(path.Dir(todo[i]), name)
			if !seen[name] {
				seen[name] = true
				todo = append(todo, name)
			}
		}
	}
	slices.Sort(todo)
	return todo, nil
}

// includes returns the file name in a line #include "name".
func includes(line string) (string, bool) {
	line, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
	if !ok {
		return "", false
	}
	line, ok = strings.CutPrefix(strings.TrimSpace(line), "include")
	if !ok {
		return "", false
	}
	line, ok = strings.CutPrefix(strings.TrimSpace(line), `"`)
	if !ok {
		return "", false
	}
	name, _, ok := strings.Cut(line, `"`)
	return name, ok
}

// Digest returns the SHA-256, in hexadecimal, of a program's files: of the path, length and content
// of each, in the order of Files.
func Digest(fsys fs.FS, program string) (string, error) {
	files, err := Files(fsys, program)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, f := range files {
		text, err := fs.ReadFile(fsys, f)
		if err != nil {
			return "", fmt.Errorf("program %s: %w", program, err)
		}
		fmt.Fprintf(h, "%s %d\n", f, len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
