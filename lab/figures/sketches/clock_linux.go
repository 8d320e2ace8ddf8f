// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pin keeps the calling thread, and the programs that it starts, on the last of its processors
// until unpin. The goroutine must be locked to its thread.
func pin() (unpin func() error, err error) {
	var all, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("processors of the thread: %w", err)
	}
	for i, left := 0, all.Count(); left > 0; i++ {
		if all.IsSet(i) {
			if left--; left == 0 {
				last.Set(i)
			}
		}
	}
	if err := unix.SchedSetaffinity(0, &last); err != nil {
		return nil, fmt.Errorf("keep the thread on one processor: %w", err)
	}
	return func() error { return unix.SchedSetaffinity(0, &all) }, nil
}
