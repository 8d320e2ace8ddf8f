// SPDX-License-Identifier: Apache-2.0

// Package suggest finds the name that a misspelled name most resembles, for error messages.
package suggest

import "strings"

// Nearest returns the candidate that is most similar to word, or "" if none is similar enough.
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", 2
	if len(word) >= 4 {
		bestDistance = 1 + max(2, len(word)/3)
	}
	folded := foldKey(word)
	for _, c := range candidates {
		if foldKey(c) == folded {
			return c
		}
		if d := editDistance(strings.ToLower(word), c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// foldKey maps deviceId, device_id and Device-ID to the same text.
func foldKey(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s))
}

// editDistance returns the number of single-character insertions, deletions, substitutions and
// swaps of adjacent characters that turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
