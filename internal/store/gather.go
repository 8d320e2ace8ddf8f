// SPDX-License-Identifier: Apache-2.0

package store

import "github.com/netsketch/netsketch/yang/table"

// cellRef is a row of a segment; a nil segment stands for an absent row.
type cellRef struct {
	g   *segment
	row int
}

// gather returns the column of the given name, with rows from several segments. The cell of a row
// whose table lacks the column, or has it with another kind, is null.
func gather(name string, kind table.Kind, src []cellRef) table.Column {
	var (
		nulls []uint64
		last  *segment
		from  *table.Column
	)
	value := func(i int) (*table.Column, int) {
		r := src[i]
		if r.g != last {
			last, from = r.g, nil
			if r.g != nil {
				from = r.g.t.Column(name)
			}
		}
		if from == nil || from.Kind != kind || from.Null(r.row) {
			if nulls == nil {
				nulls = make([]uint64, (len(src)+63)/64)
			}
			nulls[i>>6] |= 1 << (i & 63)
			return nil, 0
		}
		return from, r.row
	}
	var out table.Column
	switch kind {
	case table.Uint64:
		out = table.Uint64s(name, fill(len(src), value, (*table.Column).Uint64))
	case table.Int64:
		out = table.Int64s(name, fill(len(src), value, (*table.Column).Int64))
	case table.Float64:
		out = table.Float64s(name, fill(len(src), value, (*table.Column).Float64))
	case table.Bool:
		out = table.Bools(name, fill(len(src), value, (*table.Column).Bool))
	default:
		out = table.Strings(name, fill(len(src), value, (*table.Column).Text))
	}
	if nulls != nil {
		out, _ = out.WithNulls(nulls) // nulls is always long enough
	}
	return out
}

func fill[T any](n int, value func(int) (*table.Column, int), get func(*table.Column, int) T) []T {
	out := make([]T, n)
	for i := range out {
		if c, row := value(i); c != nil {
			out[i] = get(c, row)
		}
	}
	return out
}
