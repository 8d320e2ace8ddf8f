// SPDX-License-Identifier: Apache-2.0

//go:build unix

package chamelemon

import (
	"syscall"
	"time"
)

// ProcessorTime returns the processor time used by all threads of the process.
func ProcessorTime() time.Time {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return time.Now()
	}
	return time.Unix(0, u.Utime.Nano()+u.Stime.Nano())
}
