// SPDX-License-Identifier: Apache-2.0

package softswitch

import "unsafe"

// prefetch has a cache line that will be written brought to this core.
//
//go:noescape
func prefetch(at unsafe.Pointer)
