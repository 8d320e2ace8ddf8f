// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package fermat

// addSums calls addSumsGo on processors without an assembly version.
func addSums(a, b, c *uint32, low, high uint64) { addSumsGo(a, b, c, low, high) }
