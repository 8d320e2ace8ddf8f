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
	// Largest is the largest counter that is split, 1 to 4096; 0 means 256. A larger counter counts
	// as one large flow plus the mean of the small flows.
	Largest int
	// Iterations bounds the iterations; 0 means 20, because further iterations fit noise. With the
	// default Largest, they take 2 ms and one pass over the counters.
	Iterations int
	// Time, if above 0, is the time after which no further iteration begins.
	Time time.Duration
	// Overflow, if above 0, is the value of an overflowed counter. The result omits the flows of
	// such counters.
	Overflow uint32
}

const mostSplit = 4096

// Histogram holds the number of counters with each value. The zero value is empty.
type Histogram struct {
	small [mostSplit + 1]int // counts of small values, by value
	large map[uint32]int     // counts of values above mostSplit
	n     int
}

// Add adds n counters with a value, or removes them if n is negative.
func (h *Histogram) Add(value uint32, n int) {
	h.n += n
	if value <= mostSplit {
		h.small[value] += n
		return
	}
	if h.large == nil {
		h.large = make(map[uint32]int)
	}
	if h.large[value] += n; h.large[value] == 0 {
		delete(h.large, value)
	}
}

// AtLeast returns the number of counters of at least a value.
func (h *Histogram) AtLeast(value uint32) (n int) {
	for v := value; v <= mostSplit; v++ {
		n += h.small[v]
	}
	for v, count := range h.large {
		if v >= value {
			n += count
		}
	}
	return n
}

// Run estimates the distribution. It fails with an error that wraps ErrLimit if the row has no
// zero counter, or a counter above 2^26.
func (m MRAC) Run(row []uint32) (Distribution, error) {
	h := new(Histogram)
	for _, v := range row {
		h.Add(v, 1)
	}
	return m.RunHistogram(h)
}

// RunHistogram estimates the distribution of a row that is given as a histogram of its counters.
func (m MRAC) RunHistogram(h *Histogram) (Distribution, error) {
	if m.Largest == 0 {
		m.Largest = 256
	}
	if m.Iterations == 0 {
		m.Iterations = 20
	}
	if m.Largest < 1 || m.Largest > mostSplit || m.Iterations < 1 || h.n < 1 {
		return nil, fmt.Errorf("%w: MRAC: largest %d (1 to %d), %d iterations, %d counters: the least of each is 1",
			sketch.ErrConfig, m.Largest, mostSplit, m.Iterations, h.n)
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
	large := h.n // number of counters above Largest
	for v := range counts {
		counts[v] = float64(h.small[v])
		large -= h.small[v]
	}
	for v := range h.large {
		if v > largestSize && (m.Overflow == 0 || v < m.Overflow) {
			return nil, fmt.Errorf("%w: MRAC: a counter of %d; expected at most %d", sketch.ErrLimit, v, largestSize)
		}
	}
	if counts[0] == 0 {
		return nil, fmt.Errorf("%w: MRAC: none of %d counters is zero, so that flows cannot be separated",
			sketch.ErrLimit, h.n)
	}
	lambda, over := m.begin(counts, float64(h.n))
	for i := range m.Iterations {
		if m.Time > 0 && i > 0 && time.Since(start) > m.Time {
			break
		}
		lambda, over = step(lambda, over, counts, float64(h.n), float64(large))
	}
	d := make(Distribution, len(lambda))
	mean := 0.0
	for x := 1; x < len(lambda); x++ {
		d[x] = lambda[x] * float64(h.n)
		mean += float64(x) * lambda[x]
	}
	add := func(v uint32, n int) {
		if m.Overflow > 0 && v >= m.Overflow {
			return
		}
		x := int(max(float64(v)-math.Round(mean), float64(m.Largest+1)))
		for x >= len(d) {
			d = append(d, make(Distribution, x+1-len(d))...)
		}
		d[x] += float64(n)
	}
	for v := m.Largest + 1; v <= mostSplit; v++ {
		if n := h.small[v]; n > 0 {
			add(uint32(v), n)
		}
	}
	for v, n := range h.large {
		add(v, n)
	}
	return d, nil
}

// begin returns the start of the iteration: one flow per counter, scaled to the number from linear
// counting. over is the mean number of flows per counter that are larger than Largest.
func (m MRAC) begin(counts []float64, n float64) (lambda []float64, over float64) {
	flows, used := math.Log(n/counts[0]), n-counts[0]
	small := 0.0
	for _, c := range counts[1:] {
		small += c
	}
	// Every size begins above zero, because EM never changes a zero.
	const some = 1e-3
	lambda = make([]float64, len(counts))
	total := used + some*float64(len(counts))
	for x := 1; x < len(counts); x++ {
		lambda[x] = (counts[x] + some) / total * flows
	}
	return lambda, (used - small + some) / total * flows
}

// step computes one iteration. A counter above Largest has either a large flow or more small flows
// than the recursion covers.
func step(lambda []float64, over float64, counts []float64, n, large float64) (next []float64, nextOver float64) {
	total := over
	for _, l := range lambda {
		total += l
	}
	p := make([]float64, len(lambda))
	p[0] = math.Exp(-min(total, 600))
	beyond := 1 - p[0]
	packets := make([]float64, len(lambda)) // expected number of packets per counter, by size
	for x := range packets {
		packets[x] = float64(x) * lambda[x]
	}
	for v := 1; v < len(p); v++ {
		p[v] = convolved(packets[1:v+1], p[:v]) / float64(v)
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
	within := 0.0 // probability that the other flows of a counter have at most Largest packets together
	for x := len(p) - 1; x >= 1; x-- {
		within += p[len(p)-1-x]
		next[x] += share * lambda[x] * max(1-within, 0)
	}
	return next, share * over
}

// convolved returns the sum of a[i] b[len(b)-1-i]. It computes four sums, which the processor runs
// in parallel.
func convolved(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	for len(a) >= 4 && len(b) >= 4 {
		c := b[len(b)-4:]
		s0 += a[0] * c[3]
		s1 += a[1] * c[2]
		s2 += a[2] * c[1]
		s3 += a[3] * c[0]
		a, b = a[4:], b[:len(b)-4]
	}
	for i, x := range a {
		s0 += x * b[len(b)-1-i]
	}
	return s0 + s1 + s2 + s3
}

// Rows combines the distributions of a tower's rows (SketchINT §V-A): row i provides the sizes
// that row i-1 cannot count. Counters of row i overflow at 2^bits[i]-1.
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
			last = err // a higher row may still succeed
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
