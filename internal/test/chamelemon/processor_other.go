// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package chamelemon

import "time"

// ProcessorTime is the time of day on this system.
func ProcessorTime() time.Time { return time.Now() }
