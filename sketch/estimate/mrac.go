// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"math"
	"time"

	"github.com/netsketch/netsketch/sketch"
)

// MRAC estimates the distribution of flow sizes from one row of counters by
// expectation maximization (Kumar et al. 2004).
//
// The flows of size x in a counter are Poisson distributed with a mean λₓ, so a counter's value
// is a compound Poisson variable, whose probabilities p follow from Panjer's
// recursion p(v) = Σ x λₓ p(v-x) / v; and the expected number of flows of size x in a
// counter of value v is λₓ p(v-x)/p(v). This covers every split of v into
// flows, not only those into two or three, in time that grows with the square of Largest only.
type MRAC struct {
	// Largest is the largest counter that is split, 1 to 4096; 0: 256. A larger counter counts as
	// one large flow plus the mean of the small ones.
	Largest int
	// Iterations bounds the iterations; 0: 20, because more of them fit noise. With the default
	// Largest they take 2 ms and a pass over the counters.
	Iterations int
	// Time, if above 0, is the time after which no iteration begins.
	Time time.Duration
	// Overflow, if above 0, is the value of an overflowed counter. The result omits the flows of
	// such counters.
	Overflow uint32
}

// Run estimates the distribution. A row without zero counters, and a size above 2^26, are errors
// that wrap ErrLimit.
func (m MRAC) Run(row []uint32) (Distribution, error) {
	if m.Largest == 0 {
		m.Largest = 256
	}
	if m.Iterations == 0 {
		m.Iterations = 20
	}
	if m.Largest < 1 || m.Largest > 4096 || m.Iterations < 1 || len(row) == 0 {
		return nil, fmt.Errorf("%w: MRAC: largest %d (1 to 4096), %d iterations, %d counters: the least of each is 1",
			sketch.ErrConfig, m.Largest, m.Iterations, len(row))
	}
	if m.Overflow > 0 {
		m.Largest = int(min(int64(m.Largest), int64(m.Overflow)-1))
	}
	if m.Largest < 1 {
		return nil, fmt.Errorf("%w: MRAC: counters that overflow at %d have no information", sketch.ErrConfig,
			m.Overflow)
	}
	start := time.Now()
	counts := make([]float64, m.Largest+1)
	var large []uint32
	for _, v := range row {
		switch {
		case int64(v) <= int64(m.Largest):
			counts[v]++
		case v > largestSize && (m.Overflow == 0 || v < m.Overflow):
			return nil, fmt.Errorf("%w: MRAC: a counter of %d; expected at most %d", sketch.ErrLimit, v, largestSize)
		default:
			large = append(large, v)
		}
	}
	if counts[0] == 0 {
		return nil, fmt.Errorf("%w: MRAC: none of %d counters is zero, so that flows cannot be separated",
			sketch.ErrLimit, len(row))
	}
	lambda, over := m.begin(counts, float64(len(row)))
	for i := range m.Iterations {
		if m.Time > 0 && i > 0 && time.Since(start) > m.Time {
			break
		}
		lambda, over = step(lambda, over, counts, float64(len(row)), float64(len(large)))
	}
	d := make(Distribution, len(lambda))
	mean := 0.0
	for x := 1; x < len(lambda); x++ {
		d[x] = lambda[x] * float64(len(row))
		mean += float64(x) * lambda[x]
	}
	for _, v := range large {
		if m.Overflow > 0 && v >= m.Overflow {
			continue
		}
		x := int(max(float64(v)-math.Round(mean), float64(m.Largest+1)))
		for x >= len(d) {
			d = append(d, make(Distribution, x+1-len(d))...)
		}
		d[x]++
	}
	return d, nil
}

// begin starts with one flow per counter, scaled to the number of linear counting. over is the mean
// number of flows larger than Largest in a counter.
func (m MRAC) begin(counts []float64, n float64) (lambda []float64, over float64) {
	flows, used := math.Log(n/counts[0]), n-counts[0]
	small := 0.0
	for _, c := range counts[1:] {
		small += c
	}
	// A little of every size, because EM never changes a zero.
	const some = 1e-3
	lambda = make([]float64, len(counts))
	total := used + some*float64(len(counts))
	for x := 1; x < len(counts); x++ {
		lambda[x] = (counts[x] + some) / total * flows
	}
	return lambda, (used - small + some) / total * flows
}

// step is one iteration. A counter above Largest has either a large flow or more small ones than
// the recursion covers.
func step(lambda []float64, over float64, counts []float64, n, large float64) (next []float64, nextOver float64) {
	total := over
	for _, l := range lambda {
		total += l
	}
	p := make([]float64, len(lambda))
	p[0] = math.Exp(-min(total, 600))
	beyond := 1 - p[0]
	for v := 1; v < len(p); v++ {
		sum := 0.0
		for x := 1; x <= v; x++ {
			sum += float64(x) * lambda[x] * p[v-x]
		}
		p[v] = sum / float64(v)
		beyond -= p[v]
	}
	next = make([]float64, len(lambda))
	for v := 1; v < len(p); v++ {
		if counts[v] == 0 || p[v] <= 0 {
			continue
		}
		share := counts[v] / p[v] / n
		for x := 1; x <= v; x++ {
			next[x] += share * lambda[x] * p[v-x]
		}
	}
	if large == 0 {
		return next, 0
	}
	share := large / n / max(beyond, 1e-9)
	within := 0.0 // probability that the other flows of a counter sum to at most Largest
	for x := len(p) - 1; x >= 1; x-- {
		within += p[len(p)-1-x]
		next[x] += share * lambda[x] * max(1-within, 0)
	}
	return next, share * over
}

// Rows combines the distributions of a tower's rows (SketchINT §V-A): row i provides the sizes that
// row i-1 cannot count. Row i's counters overflow at 2^bits[i]-1.
func Rows(rows [][]uint32, bits []int, m MRAC) (Distribution, error) {
	if len(rows) == 0 || len(rows) != len(bits) {
		return nil, fmt.Errorf("%w: MRAC: %d rows and %d widths", sketch.ErrConfig, len(rows), len(bits))
	}
	var out Distribution
	var last error
	from := 1
	for i, row := range rows {
		if bits[i] < 2 || bits[i] > 32 {
			return nil, fmt.Errorf("%w: MRAC: counters of %d bits; expected 2 to 32", sketch.ErrConfig, bits[i])
		}
		limit := int(uint64(1)<<bits[i] - 1)
		m.Overflow = uint32(limit)
		d, err := m.Run(row)
		if err != nil {
			last = err // a higher row may succeed
			continue
		}
		for x := from; x < min(limit, len(d)); x++ {
			for x >= len(out) {
				out = append(out, make(Distribution, len(d)-len(out))...)
			}
			out[x] = d[x]
		}
		from = limit
	}
	if out == nil && last != nil {
		return nil, last
	}
	return out, nil
}
