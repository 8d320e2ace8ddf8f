// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sdk

import (
	"os"

	"golang.org/x/sys/unix"
)

// splitStdout reserves the real standard output for go-plugin's handshake: os.Stdout becomes a
// private copy of it. Descriptor 1, to which foreign code and child processes write, becomes
// standard error.
func splitStdout() error {
	private, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	if err := dup2(2, 1); err != nil {
		return err
	}
	os.Stdout = os.NewFile(uintptr(private), "handshake")
	return nil
}
