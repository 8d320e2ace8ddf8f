// SPDX-License-Identifier: Apache-2.0

//go:build unix

package command

import "syscall"

// signalRemove ends an agent that shall not be started again.
const signalRemove = syscall.SIGUSR1

func endProcess(pid int) error { return syscall.Kill(pid, signalRemove) }
