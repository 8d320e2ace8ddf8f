// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSumDeviation: sums of functions are off by at most four of their standard deviations, and
// mostly by less than two, whatever the function and the traffic.
func TestSumDeviation(t *testing.T) {
	functions := map[string]G{
		"√x": math.Sqrt, "x·log2 x": XLogX, "x^1.5": func(x float64) float64 { return math.Pow(x, 1.5) },
		"from 1 to 10": func(x float64) float64 {
			if x < 1 || x > 10 {
				return 0
			}
			return 1
		},
		"log2(1+x)": func(x float64) float64 { return math.Log2(1 + max(x, 0)) },
		"x from 100": func(x float64) float64 {
			if x < 100 {
				return 0
			}
			return x
		},
	}
	within, runs := 0, 0
	for name, l := range map[string]Layout{"univmon": src1M, "univmon-300k": src300K} {
		for _, n := range []int{1000, 10_000, 100_000} {
			for _, shape := range []float64{0, 1.4, 1, 0.8} {
				for seed := range uint64(2) {
					if n > 10_000 && testing.Short() {
						continue
					}
					d := draw(rand.New(rand.NewPCG(uint64(n)+1031*seed, uint64(10*shape))), n, shape)
					e := d.estimate(t, l)
					for text, g := range functions {
						want := 0.0
						for _, x := range d.sizes {
							want += g(float64(x))
						}
						got, deviation := e.Sum(g), e.SumDeviation(g)
						if want == 0 && got == 0 {
							continue
						}
						off := math.Abs(got-want) / deviation
						if off > 4 || text == "√x" && deviation > 0.1*want {
							t.Errorf("%s, %d flows of shape %v: sum of %s is %.0f ± %.0f, want %.0f", name, n, shape, text, got,
								deviation, want)
						}
						if runs++; off < 2 {
							within++
						}
					}
				}
			}
		}
	}
	t.Logf("%d of %d sums are within two deviations", within, runs)
	if within < runs*9/10 {
		t.Errorf("%d of %d sums are within two deviations", within, runs)
	}
}

// TestSumOfFewFlows: a sum over few flows, of which the sample may have none, has a deviation above
// its error. The sum over large flows, which are all known, is exact.
func TestSumOfFewFlows(t *testing.T) {
	only := func(size float64) G {
		return func(x float64) float64 {
			if x == size {
				return 1
			}
			return 0
		}
	}
	for seed := range uint64(5) {
		d := draw(rand.New(rand.NewPCG(seed, 7)), 100_000, 0)
		for i := range 30 {
			d.sizes[i] = 2
		}
		d.sizes[99] = 5000
		e := d.estimate(t, src1M)
		if sum, deviation := e.Sum(only(2)), e.SumDeviation(only(2)); deviation < max(0.2*sum, 20) {
			t.Errorf("30 flows of 2 packets: %.0f ± %.0f", sum, deviation)
		}
		large := func(x float64) float64 {
			if x < 1000 {
				return 0
			}
			return 1
		}
		if sum, deviation := e.Sum(large), e.SumDeviation(large); sum != 1 || deviation > 0.01 {
			t.Errorf("a flow of 5000 packets: %.3f ± %.3f", sum, deviation)
		}
	}
}

// TestSumDeviationByTerms: the deviation of a sum is that of its terms. The test computes the line
// through the sizes from means and covariances.
func TestSumDeviationByTerms(t *testing.T) {
	for run := range uint64(300) {
		r := rand.New(rand.NewPCG(run, 9))
		e := &Estimate{exact: run%2 == 0, deviation: 5 * r.Float64(), captured: make([]captured, 24)}
		size := func() float64 { return float64(1 + r.IntN(40)) }
		if run%5 == 0 {
			size = func() float64 { return 7 } // no line
		}
		for range 1 + r.IntN(8) {
			drawn := 1.0
			if run%7 > 0 {
				drawn += 4 * r.Float64()
			}
			weight, x := 1+5*r.Float64(), size()
			e.sample = append(e.sample, Weighted{Flow: Flow{Packets: x}, Weight: weight, drawn: drawn,
				even: weight + r.Float64() - 0.5, noise: x / significant * r.Float64()})
			e.count, e.packets = e.count+weight+r.Float64(), e.packets+weight*10
		}
		for i := range e.captured {
			e.captured[i].p = []float64{0, 1, r.Float64(), 0.95, 0.951}[r.IntN(5)]
		}
		for name, g := range map[string]G{"one": func(float64) float64 { return 1 }, "√x": math.Sqrt, "x·log2 x": XLogX} {
			if got, want := e.SumDeviation(g), deviationByTerms(e, g); !(math.Abs(got/want-1) < 1e-9) {
				t.Fatalf("run %d: sum of %s is off by %v, want %v", run, name, got, want)
			}
			sum := 0.0
			for _, w := range e.sample {
				sum += w.Weight * g(w.Packets)
			}
			equal(t, "sum of "+name, e.Sum(g), sum)
		}
	}
}

func deviationByTerms(e *Estimate, g G) float64 {
	var v, x, y float64 // variances, and means of sizes and values by the variances
	for _, w := range e.sample {
		v += w.drawn * (w.drawn - 1)
	}
	constant, slope := 0.0, 0.0
	if v > 0 {
		for _, w := range e.sample {
			share := w.drawn * (w.drawn - 1) / v
			x, y = x+share*w.Packets, y+share*g(w.Packets)
		}
		var xx, xy float64
		for _, w := range e.sample {
			share := w.drawn * (w.drawn - 1) / v
			xx, xy = xx+share*(w.Packets-x)*(w.Packets-x), xy+share*(w.Packets-x)*(g(w.Packets)-y)
		}
		if e.exact && xx > 1e-6 {
			slope = xy / xx
		}
		constant = y - slope*x
	}
	terms := []float64{constant * e.deviation} // deviations that are independent of each other
	flows, packets, bias, model := 0.0, 0.0, 0.0, 0.0
	for _, w := range e.sample {
		flows, packets = flows+w.Weight, packets+w.Packets*w.Weight
		n, by := math.Max(w.Weight, w.even), math.Max(math.Round(w.noise), 1)
		line := func(x float64) float64 { return g(x) - constant - slope*x }
		probability := (w.noise / by) * (w.noise / by)
		terms = append(terms, math.Sqrt(n*(n-1))*line(w.Packets),
			n*math.Sqrt(probability)*(line(w.Packets+by)-line(w.Packets-by))/2)
		bias += n * probability * ((g(w.Packets+by)+g(w.Packets-by))/2 - g(w.Packets))
		model += 0.01 * (n - 1) * g(w.Packets)
	}
	unseen := 0.0
	for class := 1; class < len(e.captured); class++ {
		// With a probability of 0.05 the sample has none of log(0.05)/log(1-p) flows.
		if p := e.captured[class].p; p > 0 && p <= 0.95 {
			x := sizeOf(uint8(class))
			unseen = math.Max(unseen, math.Abs(g(x)-constant-slope*x)*math.Log(0.05)/math.Log(1-p)/2)
		}
	}
	missed := constant*(flows-e.count) + slope*(packets-e.packets)
	sum := 0.0
	for _, x := range append(terms, bias, model, unseen, missed) {
		sum += x * x
	}
	return math.Sqrt(sum)
}
