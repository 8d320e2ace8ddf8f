// SPDX-License-Identifier: Apache-2.0

//go:build unix

// The private folder for plugin sockets.

package pluginhost

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	socketPrefix = "nsp-" // of the folder's name
	socketLock   = "lock" // file in it that the living host has locked
	// socketTail is the length of what comes after the parent folder: ours,
	// go-plugin's folder, and the socket, each with ten random digits.
	socketTail = len("/nsp-0123456789/plugin-dir0123456789/plugin0123456789")
	// maxSocketPath is the longest path that all systems bind, less a little.
	maxSocketPath = 100
)

// socketFolder is a folder of mode 0700 that one host owns. A lock on a file in
// it shows other hosts that its owner lives.
type socketFolder struct {
	path string
	lock *os.File
}

// newSocketFolder makes a folder in parent, or in the system's folder for
// temporary files when parent is empty, and removes those that dead hosts left
// there.
func newSocketFolder(parent string) (*socketFolder, error) {
	if parent == "" {
		parent = os.TempDir()
		if len(parent)+socketTail > maxSocketPath {
			parent = "/tmp"
		}
	}
	if len(parent)+socketTail > maxSocketPath {
		return nil, fmt.Errorf("socket folder %s: the path is too long for a socket (at most %d characters); set a shorter one",
			parent, maxSocketPath-socketTail)
	}
	sweepSockets(parent)
	path, err := os.MkdirTemp(parent, socketPrefix)
	if err != nil {
		return nil, fmt.Errorf("socket folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, socketLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		os.RemoveAll(path)
		return nil, fmt.Errorf("socket folder %s: %w", path, err)
	}
	return &socketFolder{path: path, lock: lock}, nil
}

func (f *socketFolder) remove() error {
	err := os.RemoveAll(f.path)
	f.lock.Close()
	return err
}

// sweepSockets removes the folders of hosts that are dead: nobody holds the
// lock. What cannot be removed is left alone.
func sweepSockets(parent string) {
	paths, err := filepath.Glob(filepath.Join(parent, socketPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		if abandoned(path) {
			os.RemoveAll(path)
		}
	}
}

func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return false
	}
	if uid, ok := ownerOf(info); !ok || uid != os.Geteuid() {
		return false
	}
	lock, err := os.OpenFile(filepath.Join(path, socketLock), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		// A host that has just made the folder has not made the lock yet.
		return os.IsNotExist(err) && time.Since(info.ModTime()) > time.Minute
	}
	defer lock.Close()
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// ownerOf returns the user that the file belongs to.
func ownerOf(info fs.FileInfo) (int, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
