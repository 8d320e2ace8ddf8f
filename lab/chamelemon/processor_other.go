// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package chamelemon

import "time"

// processorTime is the time of day: only differences count.
func processorTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
