// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"math"
	"slices"
)

// lowerBound returns a lower bound of the cost of every manifest: the larger of two bounds.
//
//   - The linear program of Figure 4, whose variables may be fractions. The coverage of all
//     dimensions is the same, so the mean of a solution over the dimensions, weighted by their
//     bytes, is a solution as well. One variable for each switch is therefore enough: the program
//     has as many variables as switches, whatever the number of dimensions.
//   - The sum of bounds of its parts, each rounded up to what whole sketches can cost.
//
// Odd cycles and cliques of paths with two switches make the bound tighter: a sketch on every
// second switch is not enough for them.
func lowerBound(p *Problem, sets [][]int) float64 {
	if len(sets) == 0 || len(p.Dimensions) == 0 {
		return 0
	}
	all, unit := 0, 0
	var sizes []int
	for _, d := range p.Dimensions {
		all += d.Bytes
		unit = gcd(unit, d.Bytes)
		sizes = append(sizes, d.Bytes)
	}
	slices.Sort(sizes)
	n, demands := len(p.Switches), demandsOf(len(p.Switches), sets)
	most := 0.0
	for _, d := range p.Dimensions {
		most = max(most, float64(d.Bytes)) // some switch keeps the sketch
	}
	for _, d := range demands {
		mean := d.sketches / float64(len(d.of)) // mean of each dimension on a switch
		most = max(most, roundUp(float64(all)*mean, unit))
		least := 0.0 // the smallest sketches on a switch with at least the mean number
		for _, size := range sizes[:int(math.Ceil(float64(len(sizes))*mean-1e-9))] {
			least += float64(size)
		}
		most = max(most, least)
	}
	sum, sketches := 0.0, math.Ceil(fractional(n, demands, 0, 0)-1e-6)
	for _, d := range p.Dimensions {
		sum += sketches * float64(d.Bytes)
	}
	return max(float64(all)*fractional(n, demands, n, most/float64(all))*(1-1e-9), float64(n)*most+sum)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func roundUp(x float64, unit int) float64 {
	return math.Ceil(x/float64(unit)-1e-9) * float64(unit)
}

// demand is the least number of sketches of each dimension on a set of switches.
type demand struct {
	of       []int
	sketches float64
}

// demandsOf returns the demands of a problem: one sketch for each set; (L + 1) / 2 sketches for an
// odd cycle of L sets of two switches; n - 1 sketches for a clique of n switches, at least four,
// in which every two switches are a set. Cliques occur where only the ends of paths are known.
func demandsOf(n int, sets [][]int) (out []demand) {
	links, linked := make([][]int, n), make(map[[2]int]bool)
	for _, set := range sets {
		out = append(out, demand{set, 1})
		if len(set) == 2 {
			links[set[0]] = append(links[set[0]], set[1])
			links[set[1]] = append(links[set[1]], set[0])
			linked[[2]int{set[0], set[1]}], linked[[2]int{set[1], set[0]}] = true, true
		}
	}
	seen, in := make(map[[3]int]bool), make([]bool, n)
	for j := range n {
		if in[j] {
			continue
		}
		if all := clique(links, linked, j); len(all) > 4 {
			out = append(out, demand{all, float64(len(all) - 1)})
			for _, i := range all {
				in[i] = true
			}
		}
	}
	most := len(out) + 4*n
	for j := range n {
		if cycle := oddCycle(links, j); cycle != nil {
			slices.Sort(cycle)
			if name := [3]int{cycle[0], cycle[1], cycle[2]}; !seen[name] {
				seen[name] = true
				out = append(out, demand{cycle, float64(len(cycle)+1) / 2})
			}
		}
	}
	for a := range links {
		for _, b := range links[a] {
			for _, c := range links[a] {
				if len(out) >= most || a >= b || b >= c || !linked[[2]int{b, c}] {
					continue
				}
				for _, d := range links[a] {
					if c < d && linked[[2]int{b, d}] && linked[[2]int{c, d}] {
						out = append(out, demand{[]int{a, b, c, d}, 3})
					}
				}
			}
		}
	}
	return out
}

// clique returns switches, sorted, that are linked with each other, with one of them given. The
// search is greedy, so there can be larger ones.
func clique(links [][]int, linked map[[2]int]bool, with int) []int {
	all := []int{with}
	for _, j := range slices.SortedFunc(slices.Values(links[with]), func(a, b int) int {
		return cmp.Or(len(links[b])-len(links[a]), a-b)
	}) {
		if !slices.ContainsFunc(all, func(i int) bool { return !linked[[2]int{i, j}] }) {
			all = append(all, j)
		}
	}
	slices.Sort(all)
	return all
}

// oddCycle returns the switches of a shortest walk of odd length from a switch back to it, if none
// occurs twice.
func oddCycle(links [][]int, from int) []int {
	type place struct{ at, parity int }
	before := map[place]place{{from, 0}: {from, 0}}
	for queue := []place{{from, 0}}; len(queue) > 0; queue = queue[1:] {
		for _, to := range links[queue[0].at] {
			next := place{to, 1 - queue[0].parity}
			if _, seen := before[next]; !seen {
				before[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	end := place{from, 1}
	if _, odd := before[end]; !odd {
		return nil
	}
	var cycle []int
	for at := end; at != (place{from, 0}); at = before[at] {
		if slices.Contains(cycle, at.at) {
			return nil
		}
		cycle = append(cycle, at.at)
	}
	return cycle
}

// fractional returns the least weight × m + sum(x) over all x ≥ 0, one for each of n switches, and
// m ≥ max(x) and m ≥ floor, where the x of each demand's switches sum up to its sketches. By
// duality it is the greatest sum of sketches × y + floor × u over all y, z, u ≥ 0 with sum(y of the
// demands of switch j) - z_j ≤ 1 for each j and u + sum(z) ≤ weight. The simplex method begins at
// 0, and every solution that it passes is a lower bound; so it may end early.
func fractional(n int, demands []demand, weight int, floor float64) float64 {
	// One row for each switch, one for the weight, the last one for the objective; columns of y, of
	// z and u if there is a weight, of slack, and the right-hand side.
	z := len(demands)
	slack := z
	if weight > 0 {
		slack += n + 1
	}
	width := slack + n + 2
	rows := make([][]float64, n+2)
	for j := range rows {
		rows[j] = make([]float64, width)
		if j <= n {
			rows[j][slack+j] = 1
			rows[j][width-1] = 1
		}
	}
	for i, d := range demands {
		for _, j := range d.of {
			rows[j][i] = 1
		}
		rows[n+1][i] = -d.sketches
	}
	rows[n][width-1] = float64(weight)
	for c := z; c < slack; c++ {
		rows[n][c] = 1
		if c < slack-1 {
			rows[c-z][c] = -1
		} else {
			rows[n+1][c] = -floor
		}
	}
	for work := 0; work < maxWork; work += width * n {
		if !pivot(rows) {
			break
		}
	}
	return rows[n+1][width-1]
}

// pivot makes one step of the simplex method; false at the optimum. The entering column has the
// largest coefficient, the leaving row the least ratio.
func pivot(rows [][]float64) bool {
	objective := rows[len(rows)-1]
	last := len(objective) - 1
	const tiny = 1e-9
	column, most := -1, -tiny
	for c, v := range objective[:last] {
		if v < most {
			column, most = c, v
		}
	}
	if column < 0 {
		return false
	}
	row, least := -1, math.Inf(1)
	for r := range len(rows) - 1 {
		if a := rows[r][column]; a > tiny {
			if ratio := rows[r][last] / a; ratio < least {
				row, least = r, ratio
			}
		}
	}
	if row < 0 {
		return false
	}
	by := rows[row][column]
	for c := range rows[row] {
		rows[row][c] /= by
	}
	for r := range rows {
		if f := rows[r][column]; r != row && f != 0 {
			for c, v := range rows[row] {
				rows[r][c] -= f * v
			}
		}
	}
	return true
}
