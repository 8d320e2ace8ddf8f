// SPDX-License-Identifier: Apache-2.0

//go:build unix

package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	socketPrefix = "nsp-" // begins the directory's name
	// socketTail is the length of a socket's path below the parent directory: the host's directory,
	// go-plugin's directory and the socket, each with ten random digits.
	socketTail = len("/nsp-0123456789/plugin-dir0123456789/plugin0123456789")
	// maxSocketPath is shorter than the longest socket path that every system supports.
	maxSocketPath = 100
)

// socketDirs manages the private directory for plugin sockets, which has mode 0700. The host keeps
// the directory locked, which shows other hosts and systemd-tmpfiles that its owner is running.
type socketDirs struct {
	parent string
	sweep  func(dir string)

	mu   sync.Mutex
	path string
	lock *os.File // the open directory, which holds the lock
}

// newSocketDirs makes a directory in parent. If parent is empty, it uses the directory that
// systemd gives the service (RuntimeDirectory), or else the system's directory for temporary
// files. It also removes the directories that dead hosts left there, and calls sweep for each of
// them first.
func newSocketDirs(parent string, sweep func(dir string)) (*socketDirs, error) {
	if parent == "" {
		parent, _, _ = strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	}
	if parent == "" {
		parent = os.TempDir()
		if len(parent)+socketTail > maxSocketPath {
			parent = "/tmp"
		}
	}
	if len(parent)+socketTail > maxSocketPath {
		return nil, fmt.Errorf("socket directory %s: the path is too long for a socket (at most %d characters); set a "+
			"shorter one",
			parent, maxSocketPath-socketTail)
	}
	d := &socketDirs{parent: parent, sweep: sweep}
	_, err := d.ensure()
	return d, err
}

// ensure returns the directory, and makes it again if it was removed.
func (d *socketDirs) ensure() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock != nil && isAt(d.lock, d.path) {
		return d.path, nil
	}
	d.close()
	sweepSockets(d.parent, d.sweep)
	for {
		path, lock, err := makeSocketDir(d.parent)
		if err != nil {
			return "", fmt.Errorf("socket directory in %s: %w", d.parent, err)
		}
		if lock != nil {
			d.path, d.lock = path, lock
			return path, nil
		}
	}
}

// makeSocketDir makes and locks a directory. lock is nil if another host's sweep removed the
// directory before it was locked.
func makeSocketDir(parent string) (path string, lock *os.File, err error) {
	if path, err = os.MkdirTemp(parent, socketPrefix); errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(parent, 0o700); err == nil { // the parent was removed, too
			path, err = os.MkdirTemp(parent, socketPrefix)
		}
	}
	if err != nil {
		return "", nil, err
	}
	if lock, err = os.Open(path); errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	} else if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(path))
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch swept := errors.Is(err, unix.EWOULDBLOCK); { // another host sweeps at this moment
	case err == nil && isAt(lock, path):
		return path, lock, nil
	case err == nil || swept:
		return "", nil, lock.Close()
	}
	return "", nil, errors.Join(err, lock.Close(), os.RemoveAll(path))
}

// isAt reports whether path still leads to the open directory.
func isAt(dir *os.File, path string) bool {
	open, err := dir.Stat()
	if err != nil {
		return false
	}
	at, err := os.Lstat(path)
	return err == nil && os.SameFile(open, at)
}

// remove removes the directory.
func (d *socketDirs) remove() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := os.RemoveAll(d.path)
	d.close()
	return err
}

func (d *socketDirs) close() {
	if d.lock != nil {
		_ = d.lock.Close()
		d.lock = nil
	}
}

// sweepSockets removes the directories of dead hosts, which are recognized because no process has
// locked them. Directories that cannot be removed stay.
func sweepSockets(parent string, sweep func(dir string)) {
	paths, err := filepath.Glob(filepath.Join(parent, socketPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		sweepSocketDir(path, sweep)
	}
}

func sweepSocketDir(path string, sweep func(dir string)) {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return
	}
	if uid, ok := ownerOf(info); !ok || uid != os.Geteuid() {
		return
	}
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer dir.Close() // the lock is held during the removal: a host that locks the directory now makes another one
	if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		sweep(path)
		os.RemoveAll(path)
	}
}

// ownerOf returns the user who owns the file.
func ownerOf(info fs.FileInfo) (int, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
