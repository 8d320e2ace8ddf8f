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
