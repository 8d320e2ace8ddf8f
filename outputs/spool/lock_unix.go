// SPDX-License-Identifier: Apache-2.0

//go:build unix

package spool

import (
	"fmt"
	"os"
	"syscall"
)

// lockFile takes a lock that lasts until the file is closed or the process ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another process or output has the spool open: %w", err)
	}
	return f, nil
}
