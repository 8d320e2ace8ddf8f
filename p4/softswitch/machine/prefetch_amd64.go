// SPDX-License-Identifier: Apache-2.0

package machine

// prefetch prefetches n cells for writing. It depends on the layout of fetchCell.
//
//go:noescape
func prefetch(cells *fetchCell, n int, entry *uint64)
