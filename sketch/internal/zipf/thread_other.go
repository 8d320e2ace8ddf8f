// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package zipf

import "time"

// ThreadTime is not known here.
func ThreadTime() time.Duration { return 0 }
