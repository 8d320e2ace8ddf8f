// SPDX-License-Identifier: Apache-2.0

package zipf

import (
	"syscall"
	"time"
	"unsafe"
)

const threadCPUTime = 3 // CLOCK_THREAD_CPUTIME_ID of clock_gettime(2); getrusage lags by up to a tick

// ThreadTime returns the processor time of the calling thread; 0 if it is not available. The
// caller must have called runtime.LockOSThread.
func ThreadTime() time.Duration {
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&t)),
		0); errno != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}
