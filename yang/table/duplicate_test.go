// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestDuplicate compares Duplicate with a map of the rows' paths, on tables of random sizes, kinds
// of keys and numbers of distinct values.
func TestDuplicate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 2000 {
		n := r.IntN(40)
		distinct := 1 + r.IntN(2000)
		kinds := make([]int, r.IntN(4))
		var keys []Column
		for i := range kinds {
			texts, uints, ints, bools := make([]string, n), make([]uint64, n), make([]int64, n), make([]bool, n)
			for row := range n {
				v := r.IntN(distinct)
				texts[row], uints[row], ints[row], bools[row] = fmt.Sprint("v", v), uint64(v), int64(-v), v%2 == 0
			}
			name := fmt.Sprint("k", i)
			keys = append(keys, []Column{Strings(name, texts), Uint64s(name, uints), Int64s(name, ints),
				Bools(name, bools)}[r.IntN(4)])
		}
		table := &Table{List: "/m:top/list", Keys: keys, Values: []Column{Uint64s("v", make([]uint64, n))}}
		want, seen := -1, map[string]bool{}
		for row := range n {
			path := table.RowPath(row)
			if len(keys) > 0 && seen[path] {
				want = row
				found++
				break
			}
			seen[path] = true
		}
		if got := table.Duplicate(); got != want {
			t.Fatalf("%d rows with the keys %v: row %d is a duplicate, want %d", n, keys, got, want)
		}
		if n > 1 {
			from := r.IntN(n)
			if got := table.Slice(from, n).Duplicate(); want >= 0 && from == 0 && got != want {
				t.Fatalf("of a slice, row %d is a duplicate, want %d", got, want)
			}
		}
	}
	if found < 100 {
		t.Errorf("%d tables with duplicates were drawn", found)
	}
}
