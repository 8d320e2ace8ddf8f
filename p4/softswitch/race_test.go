// SPDX-License-Identifier: Apache-2.0

//go:build race

package softswitch

// The race detector makes sync.Pool drop entries, so that allocations cannot be counted under it.
func init() { underRace = true }
