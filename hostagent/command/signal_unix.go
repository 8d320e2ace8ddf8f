// SPDX-License-Identifier: Apache-2.0

//go:build unix

package command

import (
	"errors"
	"syscall"
)

// signalRemove ends an agent that shall not be started again.
const signalRemove = syscall.SIGUSR1

// endProcess signals an agent. It succeeds if the process has ended already.
func endProcess(pid int) error {
	if err := syscall.Kill(pid, signalRemove); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
