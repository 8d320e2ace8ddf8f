// SPDX-License-Identifier: Apache-2.0

//go:build unix

package chamelemon

import (
	"syscall"
	"time"
)

// ProcessorTime is a clock that runs while the process does, with all its threads.
func ProcessorTime() time.Time {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return time.Now()
	}
	return time.Unix(0, u.Utime.Nano()+u.Stime.Nano())
}
