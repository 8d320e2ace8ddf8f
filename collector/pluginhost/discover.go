// SPDX-License-Identifier: Apache-2.0

// Which files of a folder may be run as plugins.

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
)

// FilePrefix begins the names of plugin binaries; it is not part of the
// plugin's name. A file without it is a plugin of its full name.
const FilePrefix = "netsketch-plugin-"

// Candidate is a file that may be run.
type Candidate struct {
	Name string // file name without FilePrefix
	Path string // absolute, symbolic links resolved
}

// Rejection is a file that will not be run, and why.
type Rejection struct {
	Path string
	Err  error // wraps ErrUntrusted
}

// Discover lists the plugins in dir, not below it, sorted by name, and the files
// it would not run. Hidden files are passed over in silence. It fails when the
// folder cannot be read or others may write into it.
func (h *Host) Discover(dir string) ([]Candidate, []Rejection, error) {
	root, err := filepath.EvalSymlinks(dir)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("plugin folder %s: %w", dir, err)
	}
	info, err := os.Stat(root)
	if err != nil {
		return nil, nil, fmt.Errorf("plugin folder %s: %w", dir, err)
	}
	if err := h.trustFolder(root, info); err != nil {
		return nil, nil, fmt.Errorf("plugin folder %s: %w", dir, err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, nil, fmt.Errorf("plugin folder %s: %w", dir, err)
	}
	var found []Candidate
	var rejected []Rejection
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") || entry.IsDir() {
			continue
		}
		path := filepath.Join(root, entry.Name())
		resolved, err := h.resolve(root, path)
		if err == nil {
			err = h.trustFile(resolved)
		}
		if err != nil {
			rejected = append(rejected, Rejection{Path: path, Err: err})
			continue
		}
		found = append(found, Candidate{Name: strings.TrimPrefix(entry.Name(), FilePrefix), Path: resolved})
	}
	slices.SortStableFunc(found, func(a, b Candidate) int { return strings.Compare(a.Name, b.Name) })
	return found, rejected, nil
}

// Find returns the plugin of that name (Candidate.Name) in dir, by the rules of
// Discover. The error says why a file of that name is not run, or what else there is.
func (h *Host) Find(dir, name string) (Candidate, error) {
	found, rejected, err := h.Discover(dir)
	if err != nil {
		return Candidate{}, err
	}
	names := make([]string, len(found))
	for i, c := range found {
		if c.Name == name {
			return c, nil
		}
		names[i] = c.Name
	}
	for _, r := range rejected {
		if fileName(r.Path) == name {
			return Candidate{}, fmt.Errorf("plugin %s (%s): %w", name, r.Path, r.Err)
		}
	}
	if len(names) == 0 {
		return Candidate{}, fmt.Errorf("plugin %s: there is no plugin in %s; put %s%s there", name, dir, FilePrefix, name)
	}
	return Candidate{}, fmt.Errorf("plugin %s: not in %s; there are %s", name, dir, strings.Join(names, ", "))
}

// resolve follows symbolic links, which must not lead out of root.
func (h *Host) resolve(root, path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	if !strings.HasPrefix(resolved, root+string(filepath.Separator)) {
		return "", fmt.Errorf("%w: it is a symbolic link to %s, outside of the plugin folder; copy the file instead", ErrUntrusted, resolved)
	}
	return resolved, nil
}

// trustFolder refuses a folder in which others can put or exchange files.
func (h *Host) trustFolder(dir string, info fs.FileInfo) error {
	switch {
	case !info.IsDir():
		return fmt.Errorf("%w: it is not a folder", ErrUntrusted)
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("%w: everybody may write into it (mode %#o); run chmod o-w %s", ErrUntrusted, info.Mode().Perm(), dir)
	}
	return h.trustOwner(dir, info)
}

// trustFile refuses a file that is not a program or that others can change.
func (h *Host) trustFile(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is no regular file (%s)", ErrUntrusted, info.Mode().Type())
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%w: it is not executable (mode %#o); run chmod +x %s if it is a plugin", ErrUntrusted, info.Mode().Perm(), path)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("%w: everybody may write it (mode %#o); run chmod o-w %s", ErrUntrusted, info.Mode().Perm(), path)
	}
	return h.trustOwner(path, info)
}

// trustOwner accepts root, the own user and Options.TrustedUIDs.
func (h *Host) trustOwner(path string, info fs.FileInfo) error {
	uid, ok := ownerOf(info)
	if !ok || uid == 0 || uid == os.Geteuid() || slices.Contains(h.opts.TrustedUIDs, uid) {
		return nil
	}
	return fmt.Errorf("%w: it belongs to user %d, neither root nor user %d, who runs the collector; run chown, or trust that user in the configuration",
		ErrUntrusted, uid, os.Geteuid())
}

// verify checks the file once more right before a start: its trust, and its
// digest where want, in hexadecimal, is not empty. The folder is checked too, so
// that nobody else can exchange the file between check and start.
func (h *Host) verify(path, want string) error {
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	if err := h.trustFolder(filepath.Dir(path), info); err != nil {
		return fmt.Errorf("its folder: %w", err)
	}
	if err := h.trustFile(path); err != nil {
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
