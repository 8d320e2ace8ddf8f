// SPDX-License-Identifier: Apache-2.0

//go:build unix

package softswitch

import (
	"syscall"
	"time"
)

// cpuTime is the processor time this process has had.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
