// SPDX-License-Identifier: Apache-2.0

package linear

import (
	"cmp"
	"math/bits"
	"slices"
)

// prime is the Mersenne prime 2^61-1; residues are below it.
const prime = 1<<61 - 1

func multiply(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	sum := low&prime + (low>>61 | high<<3)
	if sum >= prime {
		sum -= prime
	}
	return sum
}

func subtract(a, b uint64) uint64 {
	if a >= b {
		return a - b
	}
	return a + prime - b
}

func inverse(a uint64) uint64 {
	result, exponent := uint64(1), uint64(prime-2)
	for ; exponent > 0; exponent >>= 1 {
		if exponent&1 == 1 {
			result = multiply(result, a)
		}
		a = multiply(a, a)
	}
	return result
}

func residue(x int64) uint64 {
	if x %= prime; x < 0 {
		x += prime
	}
	return uint64(x)
}

// term is a coefficient other than zero.
type term struct {
	column int32
	value  uint64
}

// matrix is a component in the course of Gauss-Jordan elimination.
type matrix struct {
	rows    [][]term // sorted by column
	rights  []uint64
	pivot   []int32   // pivot column of each row; -1: the row has none yet
	columns [][]int32 // rows that have, or had, a term in each column
	budget  int
}

// eliminate determines the unknowns of a component that its equations determine modulo the prime.
// It returns whether it narrowed any unknown, and the rest of the budget of operations.
//
// Every solution in integers is a solution modulo the prime. An unknown that is determined modulo
// the prime therefore has the same residue in all solutions, and since its bounds are below the
// prime, the same value. If that value is out of bounds, there is no solution.
func (s *System) eliminate(c component, budget int) (found bool, rest int) {
	slices.Sort(c.unknowns)
	m := &matrix{budget: budget, columns: make([][]int32, len(c.unknowns))}
	for i, r := range c.rows {
		right := s.rights[r].low
		var row []term
		for _, v := range s.row(r) {
			if s.Low[v] == s.High[v] {
				right -= s.Low[v]
				continue
			}
			column, _ := slices.BinarySearch(c.unknowns, v)
			row = append(row, term{int32(column), 1})
			m.columns[column] = append(m.columns[column], int32(i))
		}
		slices.SortFunc(row, func(a, b term) int { return cmp.Compare(a.column, b.column) })
		m.rows = append(m.rows, row)
		m.rights = append(m.rights, residue(right))
		m.pivot = append(m.pivot, -1)
	}
	for m.step() {
	}
	if m.budget < 0 {
		return false, 0
	}
	for r, column := range m.pivot {
		switch {
		case column < 0 && m.rights[r] != 0: // no solution, even modulo the prime
			for _, r := range c.rows {
				s.bad = append(s.bad, int(r))
			}
			return false, m.budget
		case column < 0 || len(m.rows[r]) > 1:
			continue
		}
		v, value := c.unknowns[column], int64(m.rights[r])
		if value < s.Low[v] || value > s.High[v] {
			s.bad = append(s.bad, int(s.uses[v][0]))
			continue
		}
		s.narrow(v, value, value)
		found = true
	}
	return found, m.budget
}

// step eliminates one column: in the shortest row without a pivot, the column that the fewest rows
// have.
func (m *matrix) step() bool {
	best := -1
	for i, row := range m.rows {
		if m.pivot[i] < 0 && len(row) > 0 && (best < 0 || len(row) < len(m.rows[best])) {
			best = i
		}
	}
	m.budget -= len(m.rows)
	if best < 0 || m.budget < 0 {
		return false
	}
	row := m.rows[best]
	at := 0
	for i, t := range row {
		if len(m.columns[t.column]) < len(m.columns[row[at].column]) {
			at = i
		}
	}
	column := row[at].column
	m.pivot[best] = column
	if scale := row[at].value; scale != 1 {
		scale = inverse(scale)
		for i := range row {
			row[i].value = multiply(row[i].value, scale)
		}
		m.rights[best] = multiply(m.rights[best], scale)
	}
	for _, r := range m.columns[column] {
		if int(r) != best {
			m.reduce(int(r), best, column)
		}
	}
	m.columns[column] = []int32{int32(best)}
	return m.budget >= 0
}

// reduce subtracts a multiple of the pivot row from a row, so that the row has no term in the
// column.
func (m *matrix) reduce(r, pivot int, column int32) {
	at, ok := slices.BinarySearchFunc(m.rows[r], column, func(t term, c int32) int { return cmp.Compare(t.column, c) })
	if !ok {
		return
	}
	a, b, factor := m.rows[r], m.rows[pivot], m.rows[r][at].value
	m.budget -= len(a) + len(b)
	out := make([]term, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].column < b[0].column:
			out = append(out, a[0])
			a = a[1:]
		case len(a) == 0 || b[0].column < a[0].column:
			out = append(out, term{b[0].column, subtract(0, multiply(factor, b[0].value))})
			m.columns[b[0].column] = append(m.columns[b[0].column], int32(r))
			b = b[1:]
		default:
			if v := subtract(a[0].value, multiply(factor, b[0].value)); v != 0 {
				out = append(out, term{a[0].column, v})
			}
			a, b = a[1:], b[1:]
		}
	}
	m.rows[r] = out
	m.rights[r] = subtract(m.rights[r], multiply(factor, m.rights[pivot]))
}
