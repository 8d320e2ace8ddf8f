// SPDX-License-Identifier: Apache-2.0

//go:build unix

package testkit

import (
	"fmt"
	"syscall"
)

// Signal sends a signal to one process. A number below 1, as in the status of a plugin without a
// process, is an error: kill(2) would signal the whole process group of the test for 0, which
// includes the go command and the shell.
func Signal(pid int, s syscall.Signal) error {
	if pid < 1 {
		return fmt.Errorf("signal %v to process %d: there is no such process", s, pid)
	}
	return syscall.Kill(pid, s)
}
