// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package spool

import "os"

// lockFile opens the lock file; this system has no lock that ends with the process.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}
