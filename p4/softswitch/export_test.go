// SPDX-License-Identifier: Apache-2.0

package softswitch

// For tests outside of the package, which may import what imports it.
var (
	SharedTrace = sharedTrace
	CPUTime     = cpuTime
)
