// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package pluginhost

import "syscall"

// processAttributes: a process group of its own. There is no parent-death signal;
// a plugin notices by its standard input that the collector is gone.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// waitUnreaped has no portable form.
func waitUnreaped(int) bool { return false }
