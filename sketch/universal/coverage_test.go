// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/sketch/flow"
)

var coverage = flag.Duration("coverage", 0, "draw traffic of TestCoverage by the clock, for this long")

// mixture draws sizes of n flows for TestCoverage. A third of the flows have sizes by Zipf's law,
// the others one packet. With more, every third flow has up to 39 packets more.
func mixture(random *rand.Rand, n int, skew float64, more bool) []int {
	sizes := make([]int, n)
	for i := range sizes {
		if sizes[i] = 1; i < n/3 {
			sizes[i] = max(1, int(min(5*math.Pow(float64(n)/float64(3*(i+1)), skew), 200_000)))
		}
		if more && i%3 == 0 {
			sizes[i] += random.IntN(40)
		}
	}
	return sizes
}

// within scales sizes down to a number of packets in total.
func within(sizes []int, packets float64) []int {
	total := 0.0
	for _, x := range sizes {
		total += float64(x)
	}
	for i, x := range sizes {
		sizes[i] = max(1, int(float64(x)*min(packets/total, 1)))
	}
	return sizes
}

// interleave measures flows of random sources whose packets come in turns.
func interleave(t *testing.T, random *rand.Rand, sizes []int, layouts ...Layout) []*Estimate {
	t.Helper()
	d := drawn{make([]uint32, len(sizes)), sizes}
	sketches := make([]*Sketch, len(layouts))
	for i, l := range layouts {
		sketches[i] = measure(t, l, nil)
	}
	for i := range sizes {
		d.sources[i] = random.Uint32()
	}
	k := flow.Key{Mask: flow.Src}
	live, sent := random.Perm(len(sizes)), make([]int, len(sizes))
	for len(live) > 0 {
		next := live[:0]
		for _, i := range live {
			binary.BigEndian.PutUint32(k.Src[:], d.sources[i])
			for range min(sizes[i]-sent[i], 1+sizes[i]/50) {
				for _, s := range sketches {
					s.Update(&k)
				}
				sent[i]++
			}
			if sent[i] < sizes[i] {
				next = append(next, i)
			}
		}
		live = next
	}
	out := make([]*Estimate, len(layouts))
	for i, s := range sketches {
		out[i] = s.Reading().Estimate()
	}
	return out
}

// TestCoverage: sums of functions, numbers of flows and entropies of drawn traffic are within two
// of their standard errors, as often as the YANG module says, and nearly never beyond three.
func TestCoverage(t *testing.T) {
	functions := map[string]G{
		"√x": math.Sqrt, "x·log2 x": XLogX, "x^1.5": func(x float64) float64 { return math.Pow(x, 1.5) },
		"log2(1+x)": func(x float64) float64 { return math.Log2(1 + max(x, 0)) },
	}
	for name, of := range map[string]struct{ from, to, power float64 }{
		"1 to 10": {1, 10, 0}, "from 5": {5, math.Inf(1), 0}, "x from 100": {100, math.Inf(1), 1},
	} {
		functions[name] = func(x float64) float64 {
			if x < of.from || x > of.to {
				return 0
			}
			return math.Pow(x, of.power)
		}
	}
	kinds := []string{"mixture", "DCTCP", "uniform", "CACHE", "HADOOP", "Zipf", "large mixture"}
	seed, rounds, most, until := uint64(5), 3*len(kinds), 4.5, time.Time{}
	if *coverage > 0 {
		seed, rounds, most, until = uint64(time.Now().UnixNano()), math.MaxInt, 6, time.Now().Add(*coverage)
	}
	random := rand.New(rand.NewPCG(seed, 99))
	runs, two, three, absent, worst := 0, 0, 0, 0, 0.0
	for round := 0; round < rounds && (*coverage == 0 || time.Now().Before(until)); round++ {
		kind, n := kinds[round%len(kinds)], int(math.Pow(10, 3+(most-3)*random.Float64()))
		skew, sizes := 0.6+0.8*random.Float64(), make([]int, n)
		points, err := traffic.Workload(kind)
		switch kind {
		case "uniform", "Zipf":
			for i := range sizes {
				if sizes[i] = 1 + random.IntN(10); kind == "Zipf" {
					sizes[i] = max(1, int(min(3*math.Pow(float64(n)/float64(10*(i+1)), skew), 200_000)))
				}
			}
		case "mixture", "large mixture":
			sizes = mixture(random, n, skew, kind != "mixture")
		default:
			if err != nil {
				t.Fatal(err)
			}
			for i := range sizes {
				sizes[i] = int(traffic.Size(points, random.Float64()))
			}
		}
		sizes = within(sizes, 4_000_000)
		packets, xlogx := 0.0, 0.0
		for _, x := range sizes {
			packets, xlogx = packets+float64(x), xlogx+XLogX(float64(x))
		}
		for i, e := range interleave(t, random, sizes, src1M, src300K) {
			check := func(what string, got, deviation, want float64, known bool) {
				if !known || got == 0 && want == 0 {
					absent++
					return
				}
				off := math.Abs(got-want) / deviation
				if runs++; off < 2 {
					two++
				}
				if off < 3 {
					three++
				} else {
					t.Logf("%s, %d flows, sketch %d, %s: %.4g ± %.4g, want %.4g", kind, n, i, what, got, deviation, want)
				}
				worst = max(worst, off)
			}
			check("flows", e.Distinct(), e.Deviation(), float64(n), e.CountsFlows())
			check("entropy", e.Entropy(), e.EntropyDeviation(), math.Log2(packets)-xlogx/packets, e.Represents())
			for name, g := range functions {
				want := 0.0
				for _, x := range sizes {
					want += g(float64(x))
				}
				sum, deviation := e.Sum(g), e.SumDeviation(g)
				check(name, sum, deviation, want, e.Represents() && deviation <= MostDeviation*sum)
			}
		}
	}
	t.Logf("seed %d: of %d values %.1f %% are within two deviations, %.1f %% within three, the worst %.1f; %d are absent",
		seed, runs, 100*float64(two)/float64(runs), 100*float64(three)/float64(runs), worst, absent)
	if two*100 < runs*94 || three*1000 < runs*990 {
		t.Errorf("%d and %d of %d values are within two and three deviations", two, three, runs)
	}
}

// TestLargeFlowsOfMixtures: an adjustment of the weights for the many small flows, of which the
// sample has few, leaves the sums over large flows as they are.
func TestLargeFlowsOfMixtures(t *testing.T) {
	large := func(x float64) float64 {
		if x < 100 {
			return 0
		}
		return x
	}
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 5))
		sizes := within(mixture(random, 850_000, 0.92, true), 4_000_000)
		want := 0.0
		for _, x := range sizes {
			want += large(float64(x))
		}
		e := interleave(t, random, sizes, src1M)[0]
		got, deviation := e.Sum(large), e.SumDeviation(large)
		t.Logf("%.0f ± %.0f, want %.0f", got, deviation, want)
		if math.Abs(got-want) > 3*deviation || math.Abs(got/want-1) > 0.1 {
			t.Errorf("sum %.0f ± %.0f, want %.0f", got, deviation, want)
		}
	}
}

// TestFanInDeviation: numbers of sources are within two of their standard errors, whether sources
// have one flow or several.
func TestFanInDeviation(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, each := range []int{1, 2, 4} {
		runs, two := 0, 0
		for run := range 12 {
			l := []Layout{fiveTuple1M, fiveTuple300K}[run%2]
			s := measure(t, l, nil)
			k := flow.Key{Mask: flow.FiveTuple, Proto: 6}
			send := func(destination uint32, flows, packets int) {
				binary.BigEndian.PutUint32(k.Src[:], random.Uint32())
				binary.BigEndian.PutUint32(k.Dst[:], destination)
				for range flows {
					k.SrcPort = uint16(random.Uint32())
					for range packets {
						s.Update(&k)
					}
				}
			}
			others, sources := 5000+random.IntN(30_000), 2000+random.IntN(10_000)
			for range others {
				send(uint32(random.IntN(2000)), 1, int(math.Pow(1-random.Float64(), -0.7)))
			}
			for range sources {
				send(1<<24, each, 1)
			}
			for _, f := range s.Reading().Estimate().FanIns(float64(sources) / 4) {
				if f.Destination.Dst != k.Dst {
					continue
				}
				off := math.Abs(f.Sources-float64(sources)) / f.Deviation
				if runs++; off < 2 {
					two++
				}
				if off > 4 {
					t.Errorf("%d flows a source: %.0f ± %.0f, want %d", each, f.Sources, f.Deviation, sources)
				}
			}
		}
		t.Logf("%d flows a source: %d of %d are within two deviations", each, two, runs)
		if runs < 8 || two < runs*9/10 {
			t.Errorf("%d flows a source: %d of %d are within two deviations", each, two, runs)
		}
	}
}
