// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

// attack returns packets from sources sources to one destination, each source with some flows of
// one packet.
func attack(t *testing.T, sources, flows int, victim string) []timedKey {
	t.Helper()
	dst := netip.MustParseAddr(victim)
	r := rand.New(rand.NewPCG(11, 12))
	var out []timedKey
	for range sources {
		src := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, r.Uint32())))
		for range flows {
			k, err := flow.New(src, dst, 6, uint16(r.Uint32()), 80)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, timedKey{Key: k})
		}
	}
	return out
}

// TestFanInsOfOtherSizes: the flows of an attack have twice the packets of the other flows, which
// are many. The estimates are right on average.
func TestFanInsOfOtherSizes(t *testing.T) {
	const sources, runs = 1400, 8
	sum := 0.0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := measure(t, fiveTuple1M, nil)
		k := flow.Key{Mask: flow.FiveTuple, Proto: 6}
		for range 50_000 {
			binary.BigEndian.PutUint32(k.Src[:], r.Uint32())
			binary.BigEndian.PutUint32(k.Dst[:], uint32(r.IntN(2000)))
			s.Update(&k)
		}
		for range sources {
			binary.BigEndian.PutUint32(k.Src[:], r.Uint32())
			binary.BigEndian.PutUint32(k.Dst[:], 1<<24)
			s.Update(&k)
			s.Update(&k)
		}
		for _, f := range s.Reading().Estimate().FanIns(sources / 4) {
			if f.Destination.Dst == k.Dst {
				sum += f.Sources
			}
		}
	}
	if mean := sum / runs; math.Abs(mean/sources-1) > 0.15 {
		t.Errorf("%.0f sources on average, want %d", mean, sources)
	}
}

func TestFanIns(t *testing.T) {
	background := zipfPackets(6, 300_000, 60_000, 1.1)
	for _, tc := range []struct {
		name           string
		sources, flows int
		limit          float64
	}{
		{"a flood of single packets", 3000, 1, 0.25},
		{"a large flood", 30_000, 1, 0.15},
		{"four flows a source", 3000, 4, 0.5},
		{"thirty flows a source", 1500, 30, 0.5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			packets := append(attack(t, tc.sources, tc.flows, "192.0.2.1"), background...)
			e := measure(t, fiveTuple1M, packets).Reading().Estimate()
			found := e.FanIns(1000)
			if len(found) != 1 || found[0].Destination.String() != "192.0.2.1" {
				t.Fatalf("found %+v, want 192.0.2.1 alone", found)
			}
			t.Logf("%+v", found[0])
			if math.Abs(found[0].Sources/float64(tc.sources)-1) > tc.limit {
				t.Errorf("%.0f sources, want %d", found[0].Sources, tc.sources)
			}
		})
	}
	t.Run("one source with many flows", func(t *testing.T) {
		packets := append(attack(t, 1, 5000, "192.0.2.1"), background...)
		if found := measure(t, fiveTuple1M, packets).Reading().Estimate().FanIns(500); len(found) != 0 {
			t.Errorf("found %+v, want none", found)
		}
	})
	t.Run("real packets are exact when all are known", func(t *testing.T) {
		p := epochs(realPackets(t))[9]
		sources := make(map[flow.Key]map[flow.Key]bool)
		for i := range p {
			d := p[i].Key.Project(flow.Dst)
			if sources[d] == nil {
				sources[d] = make(map[flow.Key]bool)
			}
			sources[d][p[i].Key.Project(flow.Src)] = true
		}
		found := measure(t, fiveTuple1M, p).Reading().Estimate().FanIns(5)
		if len(found) == 0 {
			t.Error("no destination has 5 sources")
		}
		for _, f := range found {
			if want := float64(len(sources[f.Destination])); math.Abs(f.Sources-want) > 0.5 {
				t.Errorf("%v: %.1f sources, want %v", f.Destination, f.Sources, want)
			}
		}
	})
}

// TestFlowsEach: the number of sources follows from a sample of their flows, whether sources have
// equally many flows or each flow has a random source. Bounds are twice the error of the worst of
// 40 seeds' means.
func TestFlowsEach(t *testing.T) {
	poisson := func(mean float64) func(*rand.Rand) int {
		return func(r *rand.Rand) (n int) {
			for x := r.Float64(); x > math.Exp(-mean); x *= r.Float64() {
				n++
			}
			return n
		}
	}
	equal := func(n int) func(*rand.Rand) int { return func(*rand.Rand) int { return n } }
	for _, tc := range []struct {
		name  string
		flows func(*rand.Rand) int // number of flows of a source
		limit float64
	}{
		{"one", equal(1), 0.02}, {"two", equal(2), 0.03}, {"four", equal(4), 0.03}, {"thirty", equal(30), 0.01},
		{"0.5 at random", poisson(0.5), 0.06}, {"2 at random", poisson(2), 0.07}, {"5 at random", poisson(5), 0.05},
	} {
		for _, p := range []float64{0.3, 0.5, 0.8} {
			mean := 0.0
			for seed := range uint64(40) {
				r := rand.New(rand.NewPCG(seed, 5))
				var sources, flows, seen, pairs float64
				for range 1500 {
					all, n := tc.flows(r), 0.0
					for range all {
						if r.Float64() < p {
							n++
						}
					}
					sources += float64(min(all, 1))
					seen += min(n, 1)
					flows += n
					pairs += n * (n - 1) / 2
				}
				mean += (flows/p/flowsEach(flows, seen, pairs, flows/p)/sources - 1) / 40
			}
			if math.Abs(mean) > tc.limit {
				t.Errorf("%s, sample of %v: number of sources off by %+.3f", tc.name, p, mean)
			}
		}
	}
}
