// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLevelsByTheBook compares a stratum's statistics with their definitions: what known flows
// leave in the cells, the noise of that, the second moment, and the deviations of sizes.
func TestLevelsByTheBook(t *testing.T) {
	for _, rows := range []int{3, 4, 5} {
		for _, n := range []int{40, 3000} {
			for _, shape := range []float64{0, 1.1} {
				l := src300K
				l.Rows, l.Columns = rows, 256
				d := draw(rand.New(rand.NewPCG(uint64(rows*n), 3)), n, shape)
				e := d.estimate(t, l)
				flows := e.flows
				for i := range e.levels {
					count := 0
					for count < len(flows) && int(flows[count].level) == i {
						count++
					}
					checkLevel(t, e, i, flows[:count])
					flows = flows[count:]
				}
				if len(flows) > 0 {
					t.Fatalf("%d flows have no level", len(flows))
				}
			}
		}
	}
}

// checkLevel checks a stratum with its known flows.
func checkLevel(t *testing.T, e *Estimate, i int, flows []estimated) {
	t.Helper()
	lv, rows := &e.levels[i], e.layout.Rows
	columns := len(lv.rest) / rows
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
			t.Errorf("%d rows, level %d, %d flows: %s is %v, want %v", rows, i, len(flows), what, got, want)
		}
	}
	// median returns the median over the rows of the mean of f over a row's cells.
	median := func(f func(cell int) (square float64, counts bool)) float64 {
		var means []float64
		for row := range rows {
			sum, n := 0.0, 0.0
			for column := range columns {
				if square, counts := f(row*columns + column); counts {
					sum, n = sum+square, n+1
				}
			}
			means = append(means, sum/max(n, 1))
		}
		slices.Sort(means)
		if rows%2 == 1 {
			return means[rows/2]
		}
		return means[rows/2-1]/2 + means[rows/2]/2
	}

	counted := e.reading.cells[e.layout.counter(i):e.layout.counter(i+1)]
	left, small := make([]float64, len(counted)), make([]float64, len(counted))
	used := make([]bool, len(counted))
	for c, v := range counted {
		left[c] = float64(int32(v))
	}
	var sizes []float64
	add := func(f *estimated, to []float64, sign float64) {
		for row := range rows {
			if f.negative>>row&1 == 1 {
				to[f.cells[row]] -= sign * float64(f.size)
			} else {
				to[f.cells[row]] += sign * float64(f.size)
			}
		}
	}
	for j := range flows {
		f := &flows[j]
		add(f, left, -1)
		for row := range rows {
			used[f.cells[row]] = true
		}
		sizes = append(sizes, math.Abs(float64(f.size)))
	}
	for c, v := range left {
		near("a cell", float64(lv.rest[c]), v)
	}
	noise := math.Sqrt(median(func(c int) (float64, bool) { return left[c] * left[c], true }) * 1.5 / float64(rows))
	near("the noise", lv.noise, noise)

	copy(small, left)
	moment := 0.0
	for j := range flows {
		if f := &flows[j]; sizes[j] < 4*noise {
			add(f, small, 1)
		} else {
			moment += sizes[j] * sizes[j]
		}
	}
	moment += median(func(c int) (float64, bool) { return small[c] * small[c], true }) * float64(columns)
	near("the moment", lv.moment, moment)

	free := median(func(c int) (float64, bool) { return left[c] * left[c], !used[c] })
	deviation := max(noise, math.Sqrt(free*(1+2*float64(len(flows))/float64(columns))*1.5/float64(rows)))
	near("the error", lv.error, deviation)

	slices.Sort(sizes)
	for j, size := range sizes {
		near("a size", float64(lv.sizes[j]), size)
	}
	for _, size := range []int32{0, 1, 2, 7, -30, 400} {
		x, step := math.Abs(float64(size)), math.Ceil(deviation)
		from := x - step
		if len(sizes) > 0 && from < sizes[0] {
			from = x
		}
		larger := func(x float64) (n float64) {
			for _, size := range sizes {
				if size >= x {
					n++
				}
			}
			return n + 1
		}
		bias := deviation * deviation * (math.Log(larger(from)/larger(from+step))/max(step, 1) + 1/max(x, 1))
		near("a size's deviation", lv.deviation(size), math.Hypot(deviation, min(bias, x)))
	}
}
