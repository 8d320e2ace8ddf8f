// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes: a process group of its own, so that a terminal's Ctrl-C
// reaches the collector alone and a kill reaches the plugin's children; and
// death with the collector.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitUnreaped returns true when the child has ended, and leaves it to be waited
// for; false when it cannot tell.
func waitUnreaped(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
