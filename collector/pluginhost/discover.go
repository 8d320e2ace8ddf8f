// SPDX-License-Identifier: Apache-2.0

// Rules for which files of a directory may run as plugins.

package pluginhost

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/internal/suggest"
)

// FilePrefix begins the file names of plugins and is not part of a plugin's name. A file without
// the prefix is a plugin with the file's full name.
const FilePrefix = "netsketch-plugin-"

// Candidate is a file that may run as a plugin.
type Candidate struct {
	Name string // file name without FilePrefix
	Path string // absolute, with symbolic links as they are
}

// Rejection is a file that must not run as a plugin.
type Rejection struct {
	Path string
	Err  error // wraps ErrUntrusted
}

// Discover lists the plugins in dir (not in its subdirectories), sorted by name, and the files
// that it rejects. Hidden files are skipped. It fails if the directory cannot be read or if others
// may write to it.
func Discover(dir string) ([]Candidate, []Rejection, error) {
	found, rejected, err := discover(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("plugin directory %s: %w; name another one with plugins.directory or --plugins", dir, err)
	}
	return found, rejected, nil
}

func discover(dir string) (found []Candidate, rejected []Rejection, err error) {
	named, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, err
	}
	root, err := absolute(dir)
	if err != nil {
		return nil, nil, err
	}
	if err := trustDirectory(root); err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") || entry.IsDir() {
			continue
		}
		path := filepath.Join(root, entry.Name())
		resolved, err := resolve(root, path)
		if err == nil {
			err = trustFile(resolved)
		}
		if err != nil {
			rejected = append(rejected, Rejection{Path: path, Err: err})
			continue
		}
		found = append(found, Candidate{Name: fileName(entry.Name()), Path: filepath.Join(named, entry.Name())})
	}
	slices.SortStableFunc(found, func(a, b Candidate) int { return strings.Compare(a.Name, b.Name) })
	return found, rejected, nil
}

// Find returns the path of the plugin with a name (Candidate.Name) in dir, by the rules of
// Discover. A name with a slash is a path, and is returned as it is. The error says why the file
// must not run, or which plugins exist.
func Find(dir, name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	found, rejected, err := Discover(dir)
	if err != nil {
		return "", err
	}
	names := make([]string, len(found))
	for i, c := range found {
		if c.Name == name {
			return c.Path, nil
		}
		names[i] = c.Name
	}
	for _, r := range rejected {
		if fileName(r.Path) == name {
			return "", fmt.Errorf("plugin %s (%s): %w", name, r.Path, r.Err)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("plugin %s: the directory %s has no plugins; put %s%s there", name, dir, FilePrefix, name)
	}
	if near := suggest.Nearest(name, names); near != "" {
		return "", fmt.Errorf("plugin %s: not in %s; did you mean %q?", name, dir, near)
	}
	return "", fmt.Errorf("plugin %s: not in %s; there are %s", name, dir, strings.Join(names, ", "))
}

// resolve follows symbolic links, which must stay inside root.
func resolve(root, path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	if !strings.HasPrefix(resolved, root+string(filepath.Separator)) {
		return "", fmt.Errorf("%w: it is a symbolic link to %s, outside of the plugin directory; copy the file instead",
			ErrUntrusted, resolved)
	}
	return resolved, nil
}

// trustDirectory refuses a directory in which others can add or replace files.
func trustDirectory(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%w: it is not a directory", ErrUntrusted)
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("%w: everyone may write to it (mode %#o); run chmod o-w %s", ErrUntrusted, info.Mode().Perm(),
			dir)
	}
	return trustOwner(info)
}

// trustFile refuses a file that is not a program or that others can change.
func trustFile(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is %s, not a program", ErrUntrusted, files.Kind(info.Mode()))
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%w: it is not executable (mode %#o); run chmod +x %s if it is a plugin", ErrUntrusted,
			info.Mode().Perm(), path)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("%w: everyone may write to it (mode %#o); run chmod o-w %s", ErrUntrusted, info.Mode().Perm(),
			path)
	}
	return trustOwner(info)
}

// trustOwner accepts files that belong to root or to the user who runs the collector.
func trustOwner(info fs.FileInfo) error {
	uid, ok := ownerOf(info)
	if !ok || uid == 0 || uid == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("%w: it belongs to user %d, neither root nor user %d, who runs the collector; run chown",
		ErrUntrusted, uid, os.Geteuid())
}

// verify checks the file again right before a start: that it can be trusted and, unless want is
// empty, that its digest is want (hexadecimal). It also checks the directory, so that others
// cannot replace the file between the check and the start.
func verify(path, want string) error {
	if err := trustDirectory(filepath.Dir(path)); err != nil {
		return fmt.Errorf("its directory: %w", err)
	}
	if err := trustFile(path); err != nil {
		return err
	}
	if want == "" {
		return nil
	}
	have, err := digest(path)
	if err != nil {
		return err
	}
	if !strings.EqualFold(have, strings.TrimSpace(want)) {
		return fmt.Errorf("%w: the file has %s, pinned is %s", ErrChecksum, have, want)
	}
	return nil
}

// digest returns the file's SHA-256 in hexadecimal.
func digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
