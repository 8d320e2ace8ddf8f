// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package suite

import "time"

// ThreadTime is not available on this system: it is always 0.
func ThreadTime() time.Duration { return 0 }
