// SPDX-License-Identifier: Apache-2.0

package zipf

import (
	"syscall"
	"time"
)

const rusageThread = 1 // RUSAGE_THREAD of getrusage(2)

// ThreadTime is the processor time that the calling thread has used; 0 where it is not known. The
// caller holds its thread with runtime.LockOSThread.
func ThreadTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
