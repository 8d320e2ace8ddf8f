// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package zipf

import "time"

// ThreadTime is not available on this system.
func ThreadTime() time.Duration { return 0 }
