// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"testing"
	"time"

	"github.com/netsketch/netsketch/sketch/flow"
)

// truth is the exact flow table of some packets.
type truth struct {
	flows   map[flow.Key]float64
	packets float64
}

func exact(packets []timedKey, f flow.Fields) truth {
	t := truth{flows: make(map[flow.Key]float64), packets: float64(len(packets))}
	for i := range packets {
		t.flows[packets[i].Key.Project(f)]++
	}
	return t
}

func (t truth) sum(g G) (s float64) {
	for _, x := range t.flows {
		s += g(x)
	}
	return s
}

func (t truth) entropy() float64 { return math.Log2(t.packets) - t.sum(XLogX)/t.packets }

// f1 returns the F1 score of the found flows, compared with the flows of at least threshold
// packets.
func (t truth) f1(found []Flow, threshold float64) float64 {
	hits, want := 0, 0
	for _, x := range t.flows {
		if x >= threshold {
			want++
		}
	}
	for _, f := range found {
		if t.flows[f.Key] >= threshold {
			hits++
		}
	}
	if want+len(found) == 0 {
		return 1
	}
	return 2 * float64(hits) / float64(want+len(found))
}

func relative(got, want float64) float64 {
	if want == 0 {
		return math.Abs(got)
	}
	return math.Abs(got-want) / want
}

func measure(tb testing.TB, l Layout, packets []timedKey) *Sketch {
	tb.Helper()
	s, err := New(l)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range packets {
		s.Update(&packets[i].Key)
	}
	return s
}

// epochs splits packets into epochs of one second.
func epochs(packets []timedKey) [][]timedKey {
	var out [][]timedKey
	for _, p := range packets {
		e := int(p.At / time.Second)
		for len(out) <= e {
			out = append(out, nil)
		}
		out[e] = append(out[e], p)
	}
	return out
}

// score is the accuracy of an epoch's estimates.
type score struct{ f1, entropy, distinct, moment2 float64 }

func evaluate(tb testing.TB, l Layout, packets []timedKey, share float64) (truth, score) {
	tb.Helper()
	tr := exact(packets, l.Key)
	return tr, tr.score(tb, l, packets, share)
}

// score measures packets, whose ground truth is t, and compares the estimates.
func (t truth) score(tb testing.TB, l Layout, packets []timedKey, share float64) score {
	tb.Helper()
	e := measure(tb, l, packets).Reading().Estimate()
	n, ok := e.Packets()
	if !ok || n != t.packets {
		tb.Errorf("%v: %v packets (%v), want %v", l.Key, n, ok, t.packets)
	}
	return score{
		f1:       t.f1(e.Above(share*t.packets), share*t.packets),
		entropy:  relative(e.Entropy(), t.entropy()),
		distinct: relative(e.Distinct(), float64(len(t.flows))),
		moment2:  relative(e.Moment2(), t.sum(square)),
	}
}

// TestRealTrace runs the sketches of both programs on real packets, in epochs of 1 s, with heavy
// hitters above 0.5 % of the packets.
func TestRealTrace(t *testing.T) {
	real := epochs(realPackets(t))
	for _, tc := range []struct {
		name              string
		l                 Layout
		entropy, distinct float64
	}{
		{"1 MB", src1M, 0.005, 0.02}, {"1 MB", dst1M, 0.005, 0.02}, {"1 MB", fiveTuple1M, 0.005, 0.02},
		{"300 KB", src300K, 0.005, 0.03}, {"300 KB", fiveTuple300K, 0.01, 0.03},
	} {
		t.Run(tc.name+" "+tc.l.Key.String(), func(t *testing.T) {
			for i, p := range real {
				tr, s := evaluate(t, tc.l, p, 0.005)
				t.Logf("epoch %d: %d flows, F1 %.4f, errors of entropy %.5f, distinct flows %.5f, F2 %.5f", i,
					len(tr.flows), s.f1, s.entropy, s.distinct, s.moment2)
				if s.f1 < 0.98 {
					t.Errorf("epoch %d: heavy hitters F1 %.4f", i, s.f1)
				}
				if s.entropy > tc.entropy || s.distinct > tc.distinct || s.moment2 > 0.02 {
					t.Errorf("epoch %d: errors %+v", i, s)
				}
			}
		})
	}
}

// TestZipf uses a trace like T1 of the authors' figures: Zipf 1.1, 2 million packets of about
// 124,000 flows, heavy hitters above 0.05 %. With 0.5, 1 and 2 MB, the authors' program reaches F1
// scores of 0.70, 0.98 and 0.999, errors of the entropy of 0.0137, 0.0096 and 0.0008, and errors
// of the number of flows of 0.017, 0.041 and 0.021.
func TestZipf(t *testing.T) {
	packets, truths := zipfPackets(1, 2_000_000, 205_000, 1.1), map[flow.Fields]truth{}
	for _, tc := range []struct {
		l                     Layout
		f1, entropy, distinct float64
	}{
		{fiveTuple1M, 0.98, 0.0096, 0.017},                                 // 0.5 MB
		{Layout{flow.FiveTuple, 12, 3, 4992, 4, 112}, 0.99, 0.005, 0.017},  // 1 MB
		{Layout{flow.FiveTuple, 12, 3, 10240, 4, 224}, 0.99, 0.003, 0.015}, // 2 MB
		{src1M, 0.97, 0.0096, 0.03},
		{dst1M, 0.93, 0.012, 0.045},
	} {
		t.Run(tc.l.String(), func(t *testing.T) {
			tr, ok := truths[tc.l.Key]
			if !ok {
				tr = exact(packets, tc.l.Key)
				truths[tc.l.Key] = tr
			}
			s := tr.score(t, tc.l, packets, 0.0005)
			t.Logf("%d bytes, %d flows, F1 %.4f, errors of entropy %.5f, distinct flows %.5f, F2 %.5f", tc.l.Bytes(),
				len(tr.flows), s.f1, s.entropy, s.distinct, s.moment2)
			if s.f1 < tc.f1 || s.entropy > tc.entropy || s.distinct > tc.distinct || s.moment2 > 0.01 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestUnbiased: over many seeds, the errors average out, so no estimator is biased. The bound is
// four standard errors of the mean, computed from the observed spread.
func TestUnbiased(t *testing.T) {
	l := Layout{flow.FiveTuple, 8, 3, 256, 2, 32}
	var distinct, entropy []float64
	for seed := range uint64(40) {
		packets := zipfPackets(seed, 20_000, 8000, 1)
		tr := exact(packets, l.Key)
		e := measure(t, l, packets).Reading().Estimate()
		distinct = append(distinct, e.Distinct()/float64(len(tr.flows))-1)
		entropy = append(entropy, e.Entropy()/tr.entropy()-1)
	}
	for name, v := range map[string][]float64{"distinct flows": distinct, "entropy": entropy} {
		mean, deviation := moments(v)
		t.Logf("%s: mean error %+.4f, deviation %.4f", name, mean, deviation)
		if limit := 4 * deviation / math.Sqrt(float64(len(v))); math.Abs(mean) > limit+0.003 {
			t.Errorf("%s are off by %+.4f on average (limit %.4f)", name, mean, limit)
		}
	}
}

func moments(v []float64) (mean, deviation float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		deviation += (x - mean) * (x - mean) / float64(len(v)-1)
	}
	return mean, math.Sqrt(deviation)
}

// TestUserFunction: a function of a few lines that a user registers is summed like the built-in
// ones.
func TestUserFunction(t *testing.T) {
	packets := zipfPackets(2, 200_000, 40_000, 1.1)
	tr := exact(packets, flow.FiveTuple)
	e := measure(t, fiveTuple1M, packets).Reading().Estimate()
	for name, tc := range map[string]struct {
		g     G
		limit float64
	}{
		"mice, flows of at most 10 packets": {func(x float64) float64 {
			if x <= 10 {
				return 1
			}
			return 0
		}, 0.05},
		"square root": {math.Sqrt, 0.05},
		"x^1.5":       {func(x float64) float64 { return math.Pow(x, 1.5) }, 0.05},
		"flows":       {one, 0.05}, "packets": {Packets, 0.001}, "squares": {square, 0.01},
	} {
		got, want := e.Sum(tc.g), tr.sum(tc.g)
		t.Logf("%s: %.1f, truth %.1f", name, got, want)
		if relative(got, want) > tc.limit {
			t.Errorf("%s: %.1f, want %.1f", name, got, want)
		}
	}
}

// TestChange subtracts one second of real packets from the next one, and finds flows above 1 % of
// the sum of all changes, as in the paper's section 4.3.
func TestChange(t *testing.T) {
	real := epochs(realPackets(t))
	for _, l := range []Layout{src1M, fiveTuple1M} {
		mean := 0.0
		for i := range len(real) - 1 {
			before, after := exact(real[i], l.Key), exact(real[i+1], l.Key)
			total := 0.0
			change := truth{flows: make(map[flow.Key]float64)}
			for _, flows := range []map[flow.Key]float64{before.flows, after.flows} {
				for k := range flows {
					change.flows[k] = math.Abs(after.flows[k] - before.flows[k])
				}
			}
			for _, d := range change.flows {
				total += d
			}
			c, err := Compare(measure(t, l, real[i]).Reading().Estimate(),
				measure(t, l, real[i+1]).Reading().Estimate())
			if err != nil {
				t.Fatal(err)
			}
			got := c.Total()
			var found []Flow
			for _, f := range c.Above(0.01 * got) {
				found = append(found, f.Flow)
				if math.Abs(f.Before-before.flows[f.Key]) > 5 || math.Abs(f.After-after.flows[f.Key]) > 5 {
					t.Errorf("%v: %+v, truth %v and %v", f.Key, f, before.flows[f.Key], after.flows[f.Key])
				}
			}
			f1 := change.f1(found, 0.01*total)
			t.Logf("%v, second %d to %d: total change %.0f, truth %.0f; F1 %.4f", l.Key, i, i+1, got, total, f1)
			mean += f1 / float64(len(real)-1)
			if relative(got, total) > 0.03 || f1 < 0.9 {
				t.Errorf("%v, second %d to %d: total change %.0f, truth %.0f; F1 %.4f", l.Key, i, i+1, got, total, f1)
			}
		}
		if mean < 0.98 {
			t.Errorf("%v: F1 %.4f on average", l.Key, mean)
		}
	}
}

// TestOnceAcrossSwitches: packets that cross several switches count once if the switches in the
// middle are subtracted.
func TestOnceAcrossSwitches(t *testing.T) {
	packets := zipfPackets(9, 50_000, 5000, 1.1)
	leafA, leafB, spine := measure(t, small, nil), measure(t, small, nil), measure(t, small, nil)
	for i := range packets {
		k := &packets[i].Key
		leafA.Update(k)
		if k.DstPort%2 == 0 {
			spine.Update(k)
			leafB.Update(k)
		}
	}
	r, err := Sum([]*Reading{leafA.Reading(), leafB.Reading()}, []*Reading{spine.Reading()})
	if err != nil {
		t.Fatal(err)
	}
	want := measure(t, small, packets).Reading()
	for i := range want.cells {
		if r.cells[i] != want.cells[i] {
			t.Fatalf("cell %d is %d, want %d", i, r.cells[i], want.cells[i])
		}
	}
	if n, _ := r.Packets(); n != 50_000 {
		t.Errorf("%d packets", n)
	}
}

// TestAnyFlow: the size of a flow that is in no heavy-key slot can be queried.
func TestAnyFlow(t *testing.T) {
	packets := zipfPackets(4, 100_000, 20_000, 1.1)
	tr := exact(packets, flow.FiveTuple)
	e := measure(t, fiveTuple1M, packets).Reading().Estimate()
	sum := 0.0
	for k, x := range tr.flows {
		sum += math.Abs(e.Size(k) - x)
	}
	if mean := sum / float64(len(tr.flows)); mean > 2 {
		t.Errorf("flows are off by %.2f packets on average", mean)
	}
	if n := e.Size(packets[0].Key.Project(flow.Src)); n != 0 {
		t.Errorf("a source address has %v packets among 5-tuples", n)
	}
}

// The sketches of p4/programs/univmon.p4 and univmon-300k.p4.
var (
	src1M       = Layout{Key: flow.Src, Levels: 16, Rows: 3, Columns: 2048, Ways: 4, Slots: 64}
	dst1M       = Layout{Key: flow.Dst, Levels: 16, Rows: 3, Columns: 896, Ways: 4, Slots: 64}
	fiveTuple1M = Layout{Key: flow.FiveTuple, Levels: 16, Rows: 3, Columns: 2048, Ways: 4, Slots: 128}

	src300K       = Layout{Key: flow.Src, Levels: 16, Rows: 3, Columns: 512, Ways: 4, Slots: 32}
	fiveTuple300K = Layout{Key: flow.FiveTuple, Levels: 16, Rows: 3, Columns: 512, Ways: 4, Slots: 64}
)

func one(float64) float64 { return 1 }

func square(x float64) float64 { return x * x }
