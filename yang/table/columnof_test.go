// SPDX-License-Identifier: Apache-2.0

package table

import (
	"math"
	"testing"
)

// A column made from another column's values, or from their texts, equals the other column.
func TestColumnOf(t *testing.T) {
	nulls := func(c Column) Column { c, _ = c.WithNulls([]uint64{2}); return c }
	for _, want := range []Column{
		nulls(Uint64s("u", []uint64{1, 0, math.MaxUint64})), nulls(Int64s("i", []int64{-1, 0, math.MinInt64})),
		nulls(Float64s("f", []float64{0.1, 0, -3e9})), nulls(Bools("b", []bool{true, false, false})),
		nulls(Strings("s", []string{"a", "", "b c"})),
	} {
		fromText := func(row int) any {
			if want.Null(row) {
				return nil
			}
			v, err := ParseText(want.Kind, string(want.AppendText(nil, row)))
			if err != nil {
				t.Error(err)
			}
			return v
		}
		for _, value := range []func(int) any{want.Value, fromText} {
			got := ColumnOf(want.Name, want.Kind, want.Len(), value)
			if got.Name != want.Name || got.Kind != want.Kind || got.Len() != want.Len() {
				t.Errorf("%+v, want %+v", got, want)
			}
			for row := range want.Len() {
				if got.Value(row) != want.Value(row) {
					t.Errorf("%s row %d: %v, want %v", want.Name, row, got.Value(row), want.Value(row))
				}
			}
		}
		other := ColumnOf(want.Name, want.Kind, 1, func(int) any { return struct{}{} })
		if !other.Null(0) {
			t.Errorf("%s: a value of another kind is %v, want null", want.Name, other.Value(0))
		}
	}
	for _, kind := range []Kind{Uint64, Int64, Float64, Bool} {
		if v, err := ParseText(kind, "x"); err == nil {
			t.Errorf("%s: x is %v", kind, v)
		}
	}
}
