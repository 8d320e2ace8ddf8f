// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// TestAccuracy compares one interval of a host of the paper's testbed (9,000 flows of skewed sizes,
// paths of 5 switches, one latency in 200 inflated) with exact numbers: the mean latencies of all
// flows at all switches, the flows and switches with latencies beyond five times the mean of the
// other packets, and the heavy flows. The
// seed is fixed, so the test fails only after a change.
func TestAccuracy(t *testing.T) {
	const flows, packets, hops = 9000, 150_000, 5
	for _, tc := range []struct {
		flows, latencies int // bytes of the towers
		are              float64
	}{{1 << 20, 3 << 20, 0.0035}, {50_000, 600_000, 0.14}} {
		s := defaults()
		s.Flows, s.Latencies, s.Conservative = tc.flows, tc.latencies, true
		s.Heavy, s.HeavyFlows, s.InflatedFlows = 200, 1024, 1<<16
		r, clock := start(t, s)
		rnd := rand.New(rand.NewPCG(5, 6))
		type exact struct {
			packets, sum, worst float64
		}
		inflatedAt := func(x *exact) bool { return x.worst*(x.packets-1) > s.Inflation*(x.sum-x.worst) }
		places := map[place]*exact{}
		sizes := map[flow.Key]int{}
		g := r.own.take()
		a := &g.block[0]
		for range packets {
			number := int(math.Exp(rnd.Float64()*math.Log(flows+1))) - 1 // Zipf with exponent 1
			k := key(t, number)
			sizes[k]++
			for i := range hops {
				node := uint32(number%16*8 + i)
				latency := uint32(float64(500+node*20) * (0.5 + rnd.Float64()))
				if rnd.IntN(200) == 0 {
					latency *= 20
				}
				a.path[i] = inband.Step{Node: node, Latency: latency}
				x := places[place{k, node}]
				if x == nil {
					x = new(exact)
					places[place{k, node}] = x
				}
				x.packets, x.sum, x.worst = x.packets+1, x.sum+float64(latency), max(x.worst, float64(latency))
			}
			a.key = k
			g.identify(a, hops, true)
			g.add(a)
		}
		r.own.give(g)
		clock.Advance(11)
		got := seal(t, r, 10)
		are := 0.0
		for at, x := range places {
			n, sum, ok := got.Latencies.Query(wire.AppendKey(nil, &at.key, at.node))
			if !ok {
				t.Fatalf("%v: no latency", at)
			}
			are += math.Abs(float64(sum)/float64(n)*x.packets/x.sum-1) / float64(len(places))
		}
		inflated, right := 0, 0
		for _, x := range places {
			if inflatedAt(x) {
				inflated++
			}
		}
		for _, f := range got.Inflated {
			if inflatedAt(places[place{f.Key, f.Node}]) {
				right++
			}
		}
		f1Inflated := 2 * float64(right) / float64(inflated+len(got.Inflated))
		heavy, found := 0, 0
		for _, n := range sizes {
			if n >= int(s.Heavy) {
				heavy++
			}
		}
		for _, f := range got.Heavy {
			if sizes[f.Key] >= int(s.Heavy) && len(f.Path) == hops {
				found++
			}
		}
		f1Heavy := 2 * float64(found) / float64(heavy+len(got.Heavy))
		if are > tc.are || f1Inflated < 0.999 || f1Heavy < 1 || inflated < 1000 || heavy < 80 {
			t.Errorf("%d and %d bytes: ARE of latencies %.5f; F1 of %d inflated %.5f, of %d heavy %.5f", tc.flows,
				tc.latencies, are, inflated, f1Inflated, heavy, f1Heavy)
		}
	}
}
