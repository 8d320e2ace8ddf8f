// SPDX-License-Identifier: Apache-2.0

package linear

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func build(low, high []int64, rows [][]int32, rights []int64) *System {
	s := &System{Low: slices.Clone(low), High: slices.Clone(high)}
	for i, r := range rows {
		s.Add(r, rights[i])
	}
	return s
}

func TestSolve(t *testing.T) {
	up := func(n int, v int64) []int64 { return slices.Repeat([]int64{v}, n) }
	tests := []struct {
		name      string
		high      []int64
		rows      [][]int32
		rights    []int64
		low, want []int64
		bad       bool
	}{
		{"one unknown", up(1, 9), [][]int32{{0}}, []int64{4}, []int64{4}, []int64{4}, false},
		{"zero fixes all", up(3, 9), [][]int32{{0, 1, 2}}, []int64{0}, up(3, 0), up(3, 0), false},
		{"the largest possible sum fixes all", up(2, 3), [][]int32{{0, 1}}, []int64{6}, up(2, 3), up(2, 3), false},
		// The paper's figure 5: two flows, two switches, one slot each.
		{"figure 5", up(4, 1), [][]int32{{0, 1}, {2, 3}, {0, 2}, {1, 3}}, []int64{1, 1, 1, 1}, up(4, 0), up(4, 1), false},
		// Only elimination sees that an odd cycle determines its unknowns.
		{"odd cycle", up(3, 9), [][]int32{{0, 1}, {1, 2}, {0, 2}}, []int64{5, 7, 6}, []int64{2, 3, 4}, []int64{2, 3, 4},
			false},
		{"odd cycle with half packets", up(3, 9), [][]int32{{0, 1}, {1, 2}, {0, 2}}, []int64{5, 7, 7}, nil, nil, true},
		{"partly determined", up(5, 9), [][]int32{{0, 1}, {1, 2}, {0, 2}, {2, 3, 4}}, []int64{5, 7, 6, 7},
			[]int64{2, 3, 4, 0, 0}, []int64{2, 3, 4, 3, 3}, false},
		{"only the first one", up(3, 9), [][]int32{{0, 1, 2}, {1, 2}}, []int64{9, 5}, []int64{4, 0, 0}, []int64{4, 5, 5},
			false},
		{"too much", up(2, 3), [][]int32{{0, 1}}, []int64{7}, nil, nil, true},
		{"contradiction", up(4, 9), [][]int32{{0, 1}, {2, 3}, {0, 2}, {1, 3}}, []int64{5, 5, 5, 6}, nil, nil, true},
		{"repeated equation", up(2, 9), [][]int32{{0, 1}, {0, 1}}, []int64{5, 5}, up(2, 0), up(2, 5), false},
	}
	for _, tc := range tests {
		s := build(make([]int64, len(tc.high)), tc.high, tc.rows, tc.rights)
		bad := s.Solve()
		if (len(bad) > 0) != tc.bad {
			t.Errorf("%s: contradictions %v", tc.name, bad)
		}
		if !tc.bad && (!slices.Equal(s.Low, tc.low) || !slices.Equal(s.High, tc.want)) {
			t.Errorf("%s: from %v to %v, want from %v to %v", tc.name, s.Low, s.High, tc.low, tc.want)
		}
	}
}

// TestContradictions: contradicting rows are named once, in order, whichever is found first. After
// one is found by bounds, elimination does not look for more: bounds have no meaning then.
func TestContradictions(t *testing.T) {
	late := func() *System { // the first row contradicts the second and third one, the last one itself
		s := build(make([]int64, 3), []int64{9, 9, 1}, [][]int32{{0, 1}}, []int64{4})
		s.Bound([]int32{0}, 3, 9)
		s.Bound([]int32{1}, 3, 9)
		s.Add([]int32{2}, 5)
		return s
	}
	if bad := late().Solve(); !slices.Equal(bad, []int{0, 3}) {
		t.Errorf("Solve names rows %v, want 0 and 3", bad)
	}
	if bad := late().Propagate(); !slices.Equal(bad, []int{0, 3}) {
		t.Errorf("Propagate names rows %v, want 0 and 3", bad)
	}
	cycle := build(make([]int64, 4), []int64{9, 9, 9, 1}, [][]int32{{0, 1}, {1, 2}, {0, 2}, {3}}, []int64{5, 7, 7, 5})
	if bad := cycle.Solve(); !slices.Equal(bad, []int{3}) {
		t.Errorf("Solve names rows %v, want 3", bad)
	}
	const high = 1_000_000 // so high that bounds alone do not show the contradiction
	wide := build(make([]int64, 5), []int64{high, high, high, high, 9}, [][]int32{{4}, {0, 1}, {2, 3}, {0, 2}, {1, 3}},
		[]int64{4, high, high, high, high + 1})
	if bad := wide.Solve(); !slices.Equal(bad, []int{1, 2, 3, 4}) {
		t.Errorf("Solve names rows %v, want 1 to 4", bad)
	}
}

// TestBoundsContainAllSolutions compares with all solutions of small random systems: the bounds
// contain each of them, and an unknown that the equations determine over the rational numbers is
// determined.
func TestBoundsContainAllSolutions(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	exact, total := 0, 0
	for range 4000 {
		n := 2 + r.IntN(5)
		truth, high := make([]int64, n), make([]int64, n)
		for i := range truth {
			high[i] = r.Int64N(4)
			truth[i] = r.Int64N(high[i] + 1)
		}
		var rows [][]int32
		var rights []int64
		for range 1 + r.IntN(5) {
			var row []int32
			sum := int64(0)
			for v := range int32(n) {
				if r.IntN(2) == 0 {
					row = append(row, v)
					sum += truth[v]
				}
			}
			if len(row) > 0 {
				rows, rights = append(rows, row), append(rights, sum)
			}
		}
		equations := build(make([]int64, n), high, rows, rights)
		s := build(make([]int64, n), high, rows, rights)
		var limits []bound // bounds of the inequalities, whose rows follow the rows of the equations
		var bounded [][]int32
		for range r.IntN(3) {
			var row []int32
			sum := int64(0)
			for v := range int32(n) {
				if r.IntN(2) == 0 {
					row = append(row, v)
					sum += truth[v]
				}
			}
			b := bound{max(sum-r.Int64N(3), 0), sum + r.Int64N(3)}
			if r.IntN(3) == 0 {
				b.high = Unlimited
			}
			s.Bound(row, b.low, b.high)
			bounded, limits = append(bounded, row), append(limits, b)
		}
		if bad := equations.Solve(); len(bad) > 0 {
			t.Fatalf("rows %v = %v: contradictions %v, although %v solves them", rows, rights, bad, truth)
		}
		if bad := s.Solve(); len(bad) > 0 {
			t.Fatalf("rows %v = %v: contradictions %v, although %v solves them", rows, rights, bad, truth)
		}
		least, most := slices.Clone(high), make([]int64, n)
		enumerate(high, rows, rights, func(x []int64) {
			for i, row := range bounded {
				sum := int64(0)
				for _, v := range row {
					sum += x[v]
				}
				if sum < limits[i].low || sum > limits[i].high {
					return
				}
			}
			for i, v := range x {
				least[i], most[i] = min(least[i], v), max(most[i], v)
				if v < s.Low[i] || v > s.High[i] {
					t.Fatalf("rows %v = %v: solution %v is not within %v and %v", rows, rights, x, s.Low, s.High)
				}
			}
		})
		for i := range n {
			if s.Low[i] < equations.Low[i] || s.High[i] > equations.High[i] {
				t.Fatalf("rows %v = %v: inequalities %v %v widen unknown %d", rows, rights, bounded, limits, i)
			}
			if len(bounded) > 0 { // bounds of single inequalities are not the best ones
				continue
			}
			if least[i] == most[i] {
				total++
				if s.Low[i] == s.High[i] {
					exact++
				}
			} else if s.Low[i] == s.High[i] {
				t.Fatalf("rows %v = %v: unknown %d is not determined", rows, rights, i)
			}
		}
	}
	if exact*100 < total*98 {
		t.Errorf("%d of %d determined unknowns found", exact, total)
	}
}

func enumerate(high []int64, rows [][]int32, rights []int64, f func([]int64)) {
	x := make([]int64, len(high))
	for {
		ok := true
		for i, row := range rows {
			sum := int64(0)
			for _, v := range row {
				sum += x[v]
			}
			ok = ok && sum == rights[i]
		}
		if ok {
			f(x)
		}
		i := 0
		for i < len(x) && x[i] == high[i] {
			x[i] = 0
			i++
		}
		if i == len(x) {
			return
		}
		x[i]++
	}
}

// TestRank: a random system with as many independent equations as unknowns is determined, one with
// fewer is not, and no wrong value is returned.
func TestRank(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const n = 200
	truth, high := make([]int64, n), make([]int64, n)
	for i := range truth {
		truth[i], high[i] = 1+r.Int64N(1000), 1_000_000
	}
	for _, equations := range []int{150, 400} {
		var rows [][]int32
		var rights []int64
		for range equations {
			var row []int32
			sum := int64(0)
			for range 3 {
				if v := int32(r.IntN(n)); !slices.Contains(row, v) {
					row = append(row, v)
					sum += truth[v]
				}
			}
			rows, rights = append(rows, row), append(rights, sum)
		}
		s := build(make([]int64, n), high, rows, rights)
		if bad := s.Solve(); len(bad) > 0 {
			t.Fatalf("contradictions %v", bad)
		}
		determined := 0
		for i := range truth {
			if truth[i] < s.Low[i] || truth[i] > s.High[i] {
				t.Fatalf("%d equations: unknown %d is %d, bounds %d and %d", equations, i, truth[i], s.Low[i], s.High[i])
			}
			if s.Low[i] == s.High[i] {
				determined++
			}
		}
		if equations > n && determined < n-10 || equations < n && determined > equations {
			t.Errorf("%d of %d unknowns determined by %d equations", determined, n, equations)
		}
	}
}

// TestLimits: inequalities and lower bounds narrow unknowns, by single rows and with elimination,
// and a system that was in contradiction can be solved again.
func TestLimits(t *testing.T) {
	solve := func(s *System) []int { return s.Solve() }
	for name, method := range map[string]func(*System) []int{"Solve": solve, "Propagate": (*System).Propagate} {
		s := &System{Low: []int64{3, 0, 0}, High: []int64{9, 9, 9}}
		s.Add([]int32{0, 1}, 8)
		s.Bound([]int32{1, 2}, 13, 14)
		if bad := method(s); len(bad) > 0 || !slices.Equal(s.Low, []int64{3, 4, 8}) ||
			!slices.Equal(s.High, []int64{4, 5, 9}) {
			t.Errorf("%s: contradictions %v, from %v to %v", name, bad, s.Low, s.High)
		}
		s = &System{Low: []int64{5, 5, 0}, High: []int64{9, 9, 9}}
		s.Add([]int32{0, 1}, 9)
		s.Add([]int32{2}, 10)
		if bad := method(s); !slices.Equal(bad, []int{0, 1}) {
			t.Errorf("%s: contradictions %v", name, bad)
		}
		s.Low, s.High = []int64{0, 0, 0}, []int64{9, 9, 10}
		if bad := method(s); len(bad) > 0 || s.Low[2] != 10 {
			t.Errorf("%s again: contradictions %v, from %v to %v", name, bad, s.Low, s.High)
		}
	}
}

// TestLargeCoefficients: a chain of equations doubles z up to 2^60 z, and x + 2^60 z = 2^60. Both
// values of z solve it, so nothing is determined.
func TestLargeCoefficients(t *testing.T) {
	s := &System{}
	unknown := func(high int64) int32 {
		s.Low, s.High = append(s.Low, 0), append(s.High, high)
		return int32(len(s.Low) - 1)
	}
	z := unknown(1)
	double := z
	for bit := 1; bit <= 60; bit++ { // v = 2^bit z, rest = 2^bit - v
		high := int64(1) << bit
		v, rest, again := unknown(high), unknown(high), unknown(high/2)
		half := unknown(high / 2)
		s.Add([]int32{double, half}, high/2)
		s.Add([]int32{again, half}, high/2) // again = double
		s.Add([]int32{double, again, rest}, high)
		s.Add([]int32{v, rest}, high)
		double = v
	}
	x := unknown(1 << 60)
	s.Add([]int32{x, double}, 1<<60)
	if bad := s.Solve(); len(bad) > 0 || s.High[z] != 1 || s.Low[x] != 0 || s.High[x] != 1<<60 {
		t.Errorf("contradictions %v, z from %d to %d, x from %d to %d", bad, s.Low[z], s.High[z], s.Low[x], s.High[x])
	}
}

func TestModularArithmetic(t *testing.T) {
	for _, x := range []int64{0, 1, -1, 5, 1 << 40, -(1 << 59), prime, -prime} {
		a := residue(x)
		if a >= prime || a != residue(x+prime) {
			t.Errorf("the residue of %d is %d", x, a)
		}
		if a != 0 && multiply(a, inverse(a)) != 1 {
			t.Errorf("the inverse of %d is wrong", x)
		}
	}
	if got := multiply(prime-1, prime-1); got != 1 {
		t.Errorf("(-1)^2 = %d", got)
	}
}
