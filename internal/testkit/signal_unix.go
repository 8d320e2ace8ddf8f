// SPDX-License-Identifier: Apache-2.0

//go:build unix

package testkit

import (
	"fmt"
	"syscall"
)

// Signal sends a signal to one process. Numbers below 1, which a status without a process has, are
// an error: kill(2) takes 0 for the process group of the test, with the go command and the shell
// that runs it.
func Signal(pid int, s syscall.Signal) error {
	if pid < 1 {
		return fmt.Errorf("signal %v to process %d: there is no such process", s, pid)
	}
	return syscall.Kill(pid, s)
}
