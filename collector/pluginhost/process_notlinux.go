// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package pluginhost

import "syscall"

// processAttributes gives a plugin its own process group. There is no parent-death signal; the end
// of its standard input shows a plugin that the collector has ended.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// waitUnreaped has no portable form.
func waitUnreaped(int) bool { return false }
