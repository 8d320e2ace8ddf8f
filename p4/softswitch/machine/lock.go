// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"runtime"
	"sync/atomic"
	"time"
)

// spinLock is a lock that is held for microseconds at most: to wait in the scheduler would cost
// more than the protected code.
type spinLock struct{ held atomic.Bool }

// A waiter polls, then yields and polls again, then sleeps: the holder has lost its core.
const (
	spins    = 1 << 9
	goscheds = 4
	pause    = 20 * time.Microsecond
)

func (l *spinLock) lock() {
	if !l.held.CompareAndSwap(false, true) {
		l.wait()
	}
}

func (l *spinLock) tryLock() bool { return !l.held.Load() && l.held.CompareAndSwap(false, true) }

func (l *spinLock) wait() {
	for round := 0; ; round++ {
		for range spins {
			if !l.held.Load() && l.held.CompareAndSwap(false, true) {
				return
			}
		}
		if round < goscheds {
			runtime.Gosched()
		} else {
			time.Sleep(pause)
		}
	}
}

func (l *spinLock) unlock() { l.held.Store(false) }
