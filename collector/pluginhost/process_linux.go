// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes gives a plugin its own process group, so that a terminal's Ctrl-C reaches only
// the collector and a kill reaches the plugin's children, and the parent-death signal.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitUnreaped waits until the child has ended, without reaping it. It returns false if the system
// does not support that.
func waitUnreaped(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
