// SPDX-License-Identifier: Apache-2.0

// Package shape checks the configurations of structures with equal rows. Its functions are pure.
package shape

import (
	"fmt"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// Rows completes and checks the shape of rows of equal width under a hash family: 0 rows mean 3,
// and a width of 0 means as many cells of the given size as fit the memory. Errors wrap
// sketch.ErrConfig and name the structure.
func Rows[F family.Hash](structure string, rows, width, memory, cell int, seed uint64) (int, int, error) {
	fail := func(format string, args ...any) (int, int, error) {
		return 0, 0, fmt.Errorf("%w: %s: %s", sketch.ErrConfig, structure, fmt.Sprintf(format, args...))
	}
	if rows < 0 || width < 0 || memory < 0 || width > 0 && memory > 0 {
		return fail("rows %d, width %d, memory %d: none may be negative, and only one of width and memory be given",
			rows, width, memory)
	}
	if rows == 0 {
		rows = 3
	}
	if err := family.Check[F](rows, seed); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", structure, err)
	}
	if width == 0 {
		width = memory / cell / rows
	}
	if limit := sketch.MaxMemory / cell / rows; width < 1 || width > limit {
		return fail("%d rows of %d cells; expected 1 to %d cells, which take %d bytes each", rows, width, limit, cell)
	}
	return rows, width, nil
}
