// SPDX-License-Identifier: Apache-2.0

package softswitch

// Exported for tests outside of the package, which may import packages that import this one.
var (
	SharedTrace = sharedTrace
	CPUTime     = cpuTime
)
