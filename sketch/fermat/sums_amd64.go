// SPDX-License-Identifier: Apache-2.0

package fermat

// addSums adds four fragments, each below the prime and two per word, to the four sums that begin
// at a, at b and at c. It does the work of addSumsGo with SSE2 instructions, which every amd64
// processor has.
//
//go:noescape
func addSums(a, b, c *uint32, low, high uint64)
