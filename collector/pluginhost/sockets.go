// SPDX-License-Identifier: Apache-2.0

//go:build unix

package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	socketPrefix = "nsp-" // of the directory's name
	socketLock   = "lock" // file in it that its host has locked
	// socketTail is the length of the path below the parent: the host's directory, go-plugin's
	// directory and the socket, each with ten random digits.
	socketTail = len("/nsp-0123456789/plugin-dir0123456789/plugin0123456789")
	// maxSocketPath is below the longest path that all systems bind.
	maxSocketPath = 100
)

// socketDir is the private directory for plugin sockets, of mode 0700. A lock on a file in it shows
// other hosts that its owner runs.
type socketDir struct {
	path string
	lock *os.File
}

// newSocketDir makes a directory in parent, or in the system's directory for temporary files if
// parent is empty, and removes those that dead hosts left there. It calls sweep for each of these
// before.
func newSocketDir(parent string, sweep func(dir string)) (*socketDir, error) {
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
	sweepSockets(parent, sweep)
	for {
		dir, err := makeSocketDir(parent)
		if err != nil {
			return nil, fmt.Errorf("socket directory in %s: %w", parent, err)
		}
		if dir != nil {
			return dir, nil
		}
	}
}

// makeSocketDir makes and locks a directory. It returns nil if a sweep of another host removed the
// directory before it was locked.
func makeSocketDir(parent string) (*socketDir, error) {
	path, err := os.MkdirTemp(parent, socketPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, socketLock), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		os.RemoveAll(path)
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	swept := errors.Is(err, unix.EWOULDBLOCK) // by a sweep at this moment
	if err == nil {
		_, err = os.Stat(lock.Name())
		swept = errors.Is(err, fs.ErrNotExist)
	}
	if err == nil {
		return &socketDir{path: path, lock: lock}, nil
	}
	lock.Close()
	os.RemoveAll(path)
	if swept {
		return nil, nil
	}
	return nil, err
}

func (f *socketDir) remove() error {
	err := os.RemoveAll(f.path)
	f.lock.Close()
	return err
}

// sweepSockets removes the directories of dead hosts, whose lock is free. Directories that cannot
// be removed stay.
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
	lock, err := os.OpenFile(filepath.Join(path, socketLock), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		// A host that has just made the directory has not made the lock yet.
		if os.IsNotExist(err) && time.Since(info.ModTime()) > time.Minute {
			os.RemoveAll(path)
		}
		return
	}
	defer lock.Close() // held during the removal: a host that locks the directory now makes another one
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
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
