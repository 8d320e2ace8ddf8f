// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"math/rand/v2"
	"testing"
)

// checkWeights checks that the weights of the sample meet the number of flows, and of packets if it
// is exact, with the least change: a weight above 1 changes by its variance times a line through
// the flows' sizes. It returns the number of weights that became 1.
func checkWeights(t *testing.T, e *Estimate) (ones int) {
	t.Helper()
	near := func(got, want float64) bool { return math.Abs(got-want) <= 1e-6*(1+math.Abs(want)) }
	var flows, packets, drawn float64
	change := func(w *Weighted) float64 { return (w.Weight - w.drawn) / (w.drawn * (w.drawn - 1)) }
	var small, large *Weighted // of the weights that changed
	for i := range e.sample {
		w := &e.sample[i]
		flows, packets, drawn = flows+w.Weight, packets+w.Weight*w.Packets, drawn+w.drawn
		switch {
		case w.Weight < 1 || w.drawn == 1 && w.Weight != 1:
			t.Errorf("weight %v, drawn %v", w.Weight, w.drawn)
		case w.drawn == 1:
		case w.Weight == 1:
			ones++
		default:
			if small == nil || w.Packets < small.Packets {
				small = w
			}
			if large == nil || w.Packets > large.Packets {
				large = w
			}
		}
	}
	if n := float64(len(e.sample)); drawn > n {
		even := max(1+(e.count-drawn)/(drawn-n), 0)
		for _, w := range e.sample {
			if !near(w.even, 1+(w.drawn-1)*even) {
				t.Errorf("drawn weight %v, even %v, factor %v", w.drawn, w.even, even)
			}
		}
	}
	if !near(e.sampled, drawn) {
		t.Errorf("%v flows drawn, want %v", e.sampled, drawn)
	}
	if small == nil {
		return ones
	}
	slope := 0.0
	if small.Packets < large.Packets {
		slope = (change(large) - change(small)) / (large.Packets - small.Packets)
	}
	for i := range e.sample {
		w := &e.sample[i]
		if w.drawn > 1 && w.Weight > 1 && !near(change(w), change(small)+slope*(w.Packets-small.Packets)) {
			t.Errorf("%+v changed by %v; smallest flow by %v, slope %v", w, change(w), change(small), slope)
		}
	}
	if !near(flows, e.count) {
		t.Errorf("weights of %v flows, want %v", flows, e.count)
	}
	if e.exact && small.Packets < large.Packets && !near(packets, e.packets) {
		t.Errorf("weights of %v packets, want %v", packets, e.packets)
	}
	if !e.exact && !near(slope, 0) {
		t.Errorf("slope %v without a number of packets", slope)
	}
	return ones
}

// TestCalibrate checks the calibrated weights of random samples.
func TestCalibrate(t *testing.T) {
	ones := 0
	for run := range uint64(400) {
		r := rand.New(rand.NewPCG(run, 5))
		e := &Estimate{exact: run%2 == 0}
		for range 3 + r.IntN(60) {
			w := max(1, 12*r.Float64()-2)
			x := float64(1 + r.IntN(40))
			e.sample = append(e.sample, Weighted{Flow: Flow{Packets: x}, Weight: w, even: w, drawn: w})
			e.count, e.packets = e.count+w, e.packets+w*x
		}
		spread := []float64{0.02, 0.3}[run/2%2]
		e.count *= 1 + spread*(2*r.Float64()-1)
		e.packets *= 1 + spread*(2*r.Float64()-1)
		ones += checkCalibrated(t, e)
	}
	if t.Logf("%d weights became 1", ones); ones < 100 {
		t.Errorf("%d weights became 1", ones)
	}
	known := &Estimate{exact: true, count: 7, packets: 9, sample: []Weighted{{Flow: Flow{Packets: 3}, Weight: 1, even: 1,
		drawn: 1}}}
	checkCalibrated(t, known)
}

func checkCalibrated(t *testing.T, e *Estimate) int {
	t.Helper()
	e.calibrate()
	return checkWeights(t, e)
}

// TestClasses: a size is at least the smallest one of its class and below that of the next class.
// Classes are single sizes up to 16, and then eighths of a power of two.
func TestClasses(t *testing.T) {
	for x := 0.0; x < 1e6; x += max(1, math.Floor(x/100)) {
		class := classOf(x)
		if low := sizeOf(class); low > x*(1+1e-12) || x <= 16 && low != x || sizeOf(class+1) <= x {
			t.Errorf("%v: class %d from %v to %v", x, class, low, sizeOf(class+1))
		}
	}
	for class := uint8(16); class < 240; class++ {
		if ratio := sizeOf(class+8) / sizeOf(class); math.Abs(ratio-2) > 1e-9 {
			t.Errorf("class %d: %v times the size eight classes before", class+8, ratio)
		}
	}
	if class := classOf(math.Inf(1)); class != math.MaxUint8 {
		t.Errorf("the largest class is %d", class)
	}
}

// TestSample: a flow is in the sample if its level is one of those that keep flows of its size, and
// its weight follows from the probability of such a level.
func TestSample(t *testing.T) {
	for name, l := range map[string]Layout{"univmon": src1M, "univmon-300k": src300K} {
		for _, n := range []int{300, 20_000} {
			for _, shape := range []float64{0, 1.1} {
				for _, exact := range []bool{true, false} {
					d := draw(rand.New(rand.NewPCG(uint64(n), 9)), n, shape)
					reading := d.sketch(t, l).Reading()
					if !exact {
						reading.packets = nil
					}
					e := reading.Estimate()
					sample := e.Sample()
					for _, f := range e.flows {
						x := math.Abs(float64(f.size))
						p, own := probability(e, sizeOf(classOf(x)), int(f.level))
						if !own || p == 0 {
							continue
						}
						if len(sample) == 0 {
							t.Fatalf("%s, %d flows of shape %v: a flow of %v packets is not in the sample", name, n, shape, x)
						}
						w := sample[0]
						sample = sample[1:]
						if w.Key != f.key || w.Packets != x || math.Abs(w.drawn*p-1) > 1e-9 || w.noise != e.levels[f.level].noise {
							t.Fatalf("%s, %d flows of shape %v: %+v; want %v packets, probability %v", name, n, shape, w, x, p)
						}
					}
					if len(sample) > 0 {
						t.Errorf("%s, %d flows of shape %v: %d flows too many in the sample", name, n, shape, len(sample))
					}
					packets := 0.0
					for _, x := range d.sizes {
						packets += float64(x)
					}
					if got, ok := e.Packets(); ok != exact || exact && got != packets || !exact && got != e.Sum(Packets) {
						t.Errorf("%s: %v packets (exact %v), want %v (%v)", name, got, ok, packets, exact)
					}
					checkWeights(t, e)
				}
			}
		}
	}
}

// probability returns the probability that a level that contributes to the estimate keeps a flow of
// a size. own reports whether the given level contributes.
func probability(e *Estimate, size float64, level int) (p float64, own bool) {
	for l, lv := range e.levels {
		last := l == len(e.levels)-1
		kept, reach := 0.0, math.Exp2(-float64(l+1))
		if size >= 1 {
			kept = e.reading.table.keeps(l, size)
		}
		if last {
			reach *= 2
		}
		if size >= 4*lv.noise && (last || kept >= 0.5) {
			p, own = p+reach*kept, own || l == level
		}
	}
	return p, own
}

// TestCalibrateToOne: if there are fewer flows than the sample has, each flow represents itself.
func TestCalibrateToOne(t *testing.T) {
	for _, drawn := range [][]float64{{1, 1}, {2, 3}, {1, 2, 3}} {
		e := &Estimate{count: 1, packets: 1}
		for _, w := range drawn {
			e.sample = append(e.sample, Weighted{Flow: Flow{Packets: 4}, Weight: w, even: w, drawn: w})
		}
		e.calibrate()
		for i, w := range e.sample {
			if w.Weight != 1 || math.IsNaN(w.even) || w.even < 1 {
				t.Errorf("drawn %v: weight %d is %v, %v", drawn, i, w.Weight, w.even)
			}
		}
	}
}
