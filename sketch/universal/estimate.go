// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"cmp"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Estimate holds the statistics estimated from a reading. It is immutable.
type Estimate struct {
	reading *Reading
	layout  Layout
	levels  []level
	flows   []estimated // flows by level, then by hash, as in the reading
	known   map[flow.Key]int32
	packets float64 // exact if the data plane counts packets
	exact   bool
	sample  []Weighted
	// captured has how flows are kept in the sample, by the class of their size.
	captured []captured
	sampled  float64 // number of flows that the sample represents without adjustment

	count     float64 // number of flows
	deviation float64 // standard deviation of count; +Inf if it is unknown
}

// level is the state of one stratum. A stratum contains the flows whose deepest level it is.
type level struct {
	rest     []int32 // the cells minus the known flows
	moment   float64 // sum of squares of the flows' sizes
	noise    float64 // standard deviation of an estimate of a flow that is not among the known ones
	error    float64 // the same of a known flow, whoever chose it
	sizes    []int32 // sizes of the known flows, without sign, ascending
	distinct float64 // number of flows in this stratum
	spread   float64 // standard deviation of distinct; +Inf if unknown
	fill     float64 // distinct as a share of the largest number that the cells can count, on a logarithmic scale
	counted  bool    // distinct is used
}

// estimated is a key from the heavy-key slots, with its estimated size.
type estimated struct {
	candidate
	cells    [maxRows]int32 // the key's cell in each row, within the level
	negative uint8          // bit i is set if row i counts down
	size     int32
}

const maxRows = 5

// Flow is a flow and its estimated size.
type Flow struct {
	Key     flow.Key
	Packets float64 // packets; in a difference, negative if the flow shrank
	// Deviation is the standard deviation of Packets, which unknown flows in the same cells cause.
	Deviation float64
}

// Estimate returns the estimates of the reading. It takes a few milliseconds for 1 MB of cells.
// The reading must not be changed afterwards.
func (r *Reading) Estimate() *Estimate {
	e := &Estimate{reading: r, layout: r.layout, levels: make([]level, r.layout.Levels)}
	e.flows = make([]estimated, len(r.keys))
	e.known = make(map[flow.Key]int32, len(r.keys))
	for i, k := range r.keys {
		e.flows[i] = r.locate(k)
		e.known[k.key] = int32(i)
	}
	rest := make([]int32, len(r.cells))
	for i, v := range r.cells {
		rest[i] = int32(v)
	}
	flows := e.flows
	for i := range e.levels {
		lv := &e.levels[i]
		cells := r.layout.counter(i+1) - r.layout.counter(i)
		lv.rest, rest = rest[:cells:cells], rest[cells:]
		n, _ := slices.BinarySearchFunc(flows, int32(i+1),
			func(f estimated, l int32) int { return cmp.Compare(f.level, l) })
		users := lv.users(flows[:n], r.layout.Rows)
		e.peel(lv, flows[:n])
		e.split(lv, flows[:n], users)
		e.survey(i, flows[:n])
		lv.error = lv.uncertainty(flows[:n], users, r.layout.Rows)
		lv.sizes = sizesOf(flows[:n])
		flows = flows[n:]
	}
	e.count, e.deviation = e.combine()
	if !r.difference {
		e.weigh()
	}
	return e
}

// locate finds the cells of a key.
func (r *Reading) locate(k candidate) estimated {
	f := estimated{candidate: k}
	for row := range r.layout.Rows {
		column, negative := cellOf(k.hash, row, r.layout.Columns)
		f.cells[row] = int32(row*r.layout.columns(int(k.level)) + column>>shift(int(k.level)))
		f.negative |= uint8(negative << row)
	}
	return f
}

// peel estimates the known flows of a stratum together. Each flow's size is the median over its
// rows, as in a Count sketch, but the other known flows are first subtracted from the cells, so
// that only the unknown flows cause noise. A few rounds, beginning with the largest flows,
// converge.
func (e *Estimate) peel(lv *level, flows []estimated) {
	rows := e.layout.Rows
	type guess struct {
		flow *estimated
		size float64
	}
	order := make([]guess, len(flows))
	for i := range flows {
		order[i] = guess{&flows[i], math.Abs(float64(lv.median(&flows[i], rows)))}
	}
	slices.SortFunc(order, func(a, b guess) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.flow.hash, b.flow.hash))
	})
	for range peelRounds {
		changed := false
		for _, g := range order {
			if by := lv.median(g.flow, rows); by != 0 {
				lv.take(g.flow, rows, by)
				changed = true
			}
		}
		if !changed {
			break
		}
	}
}

// peelRounds bounds the rounds. Usually, the round before the last one already changes nothing.
const peelRounds = 8

// median returns the median over the rows of the flow's cells in rest.
func (lv *level) median(f *estimated, rows int) int32 {
	var v [maxRows]int32
	for row := range rows {
		v[row] = lv.rest[f.cells[row]] * f.sign(row)
	}
	if rows == 3 {
		return max(min(v[0], v[1]), min(max(v[0], v[1]), v[2]))
	}
	slices.Sort(v[:rows])
	return (v[(rows-1)/2] + v[rows/2]) / 2
}

func (f *estimated) sign(row int) int32 { return 1 - 2*int32(f.negative>>row&1) }

// addTo adds the flow's size to its cells.
func (f *estimated) addTo(cells []int32, rows int) {
	for row := range rows {
		cells[f.cells[row]] += f.size * f.sign(row)
	}
}

// take adds by to the flow's size and subtracts it from the flow's cells.
func (lv *level) take(f *estimated, rows int, by int32) {
	f.size += by
	for row := range rows {
		lv.rest[f.cells[row]] -= by * f.sign(row)
	}
}

// users returns, for each cell of the stratum, the number of known flows that use it.
func (lv *level) users(flows []estimated, rows int) []uint8 {
	users := make([]uint8, len(lv.rest))
	for i := range flows {
		for row := range rows {
			if c := flows[i].cells[row]; users[c] < math.MaxUint8 {
				users[c]++
			}
		}
	}
	return users
}

// survey estimates, from the remaining cells, the noise of estimates and the number of flows.
func (e *Estimate) survey(i int, flows []estimated) {
	lv := &e.levels[i]
	rows := e.layout.Rows
	columns := len(lv.rest) / rows
	lv.noise = math.Sqrt(moment(lv.rest, rows) / float64(columns) * 1.5 / float64(rows))
	cells := slices.Clone(lv.rest)
	for i := range flows {
		if f := &flows[i]; math.Abs(float64(f.size)) < significant*lv.noise {
			f.addTo(cells, rows) // the size of so small a flow may be noise
		} else {
			lv.moment += float64(f.size) * float64(f.size)
		}
	}
	lv.moment += moment(cells, rows)
	lv.distinct, lv.spread, lv.fill = lv.countFlows(e.complete(i, smallFlows), flows, rows)
}

// uncertainty returns the standard deviation of a known flow's size, from the cells that no known
// flow uses. Cells of known flows have less than the noise left, because the sizes follow it.
func (lv *level) uncertainty(flows []estimated, users []uint8, rows int) float64 {
	var squares [maxRows]float64
	columns := len(lv.rest) / rows
	for row := range rows {
		sum, free := 0.0, 0
		for c := row * columns; c < (row+1)*columns; c++ {
			if users[c] == 0 {
				sum, free = sum+float64(lv.rest[c])*float64(lv.rest[c]), free+1
			}
		}
		squares[row] = sum / float64(max(free, 1))
	}
	slices.Sort(squares[:rows])
	square := (squares[(rows-1)/2] + squares[rows/2]) / 2
	// Errors of the known flows in the same cells add to the noise. The factor of 2 is measured.
	crowd := 1 + 2*float64(len(flows))/float64(columns)
	return max(lv.noise, math.Sqrt(square*crowd*1.5/float64(rows)))
}

// sizesOf returns flows' sizes without sign, ascending.
func sizesOf(flows []estimated) []int32 {
	sizes := make([]int32, len(flows))
	for i := range flows {
		sizes[i] = max(flows[i].size, -flows[i].size)
	}
	slices.Sort(sizes)
	return sizes
}

// deviation returns the standard deviation of the size of a flow that was chosen for its size.
// Where small flows are many more than large ones, a flow with this estimate is probably a smaller
// one with positive noise. By Tweedie's formula the mean of this bias is the variance of the noise
// times the rate at which the logarithm of the density of sizes falls. The rate at which the number
// of larger flows falls is that of the density for an exponential tail; 1/x more for a power law.
func (lv *level) deviation(size int32) float64 {
	x := max(size, -size)
	from, to := x-int32(math.Ceil(lv.error)), x
	if len(lv.sizes) > 0 && from < lv.sizes[0] { // the slots have no smaller flows
		from, to = x, x+int32(math.Ceil(lv.error))
	}
	larger := func(x int32) float64 {
		n, _ := slices.BinarySearch(lv.sizes, x)
		return float64(len(lv.sizes) - n + 1)
	}
	bias := lv.error * lv.error * (math.Log(larger(from)/larger(to))/max(float64(to-from), 1) + 1/max(float64(x), 1))
	return math.Hypot(lv.error, min(bias, float64(x)))
}

// moment returns the sum of squares of the sizes of the flows in cells: the median of the rows.
func moment(cells []int32, rows int) float64 {
	var squares [maxRows]float64
	columns := len(cells) / rows
	for row := range rows {
		for _, v := range cells[row*columns : (row+1)*columns] {
			squares[row] += float64(v) * float64(v)
		}
	}
	slices.Sort(squares[:rows])
	return (squares[(rows-1)/2] + squares[rows/2]) / 2
}
