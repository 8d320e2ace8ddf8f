// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package chamelemon

import "time"

// ProcessorTime returns the time of day, because this system has no processor clock.
func ProcessorTime() time.Time { return time.Now() }
