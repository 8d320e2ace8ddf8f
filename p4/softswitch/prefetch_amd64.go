// SPDX-License-Identifier: Apache-2.0

package softswitch

// prefetch has n cells brought to this core, to be written. It knows fetchCell's layout.
//
//go:noescape
func prefetch(cells *fetchCell, n int, entry *uint64)
