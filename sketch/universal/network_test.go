// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

// victim returns the most sources that a destination has.
func victim(e *Estimate) (most float64) {
	for _, f := range e.FanIns(1000) {
		most = math.Max(most, f.Sources)
	}
	return most
}

// split counts packets at 25 switches, each flow at one of them, and returns their readings.
func split(t *testing.T, l Layout, packets []timedKey) (readings []*Reading) {
	t.Helper()
	var parts [25]*Sketch
	for i := range parts {
		parts[i] = measure(t, l, nil)
	}
	for i := range packets {
		k := &packets[i].Key
		parts[hashOf(k, flow.FiveTuple)*2654435761>>8%25].Update(k)
	}
	for _, s := range parts {
		readings = append(readings, s.Reading())
	}
	return readings
}

// TestManySwitchesAsOne: estimates of 25 switches that count each flow once are within 1 % of those
// of one switch that counts all packets (paper, section 5: the network is one big switch). The
// sources of a victim are estimated from a sample. At one switch, counters are more noisy when late
// packets choose the sample than when early ones do. The two samples therefore differ by a few
// flows; an estimate from one of them differs from the truth by more.
func TestManySwitchesAsOne(t *testing.T) {
	flood := attack(t, 20_000, 1, "192.0.2.1")
	for _, tc := range []struct {
		name    string
		layout  Layout
		packets func(seed uint64) []timedKey
	}{
		{"flood before other flows", fiveTuple1M, func(seed uint64) []timedKey {
			return slices.Concat(flood, zipfPackets(seed, 300_000, 60_000, 1.1))
		}},
		{"flood after other flows", fiveTuple1M, func(seed uint64) []timedKey {
			return slices.Concat(zipfPackets(seed, 300_000, 60_000, 1.1), flood)
		}},
		{"small flood", fiveTuple1M, func(seed uint64) []timedKey {
			return slices.Concat(zipfPackets(seed, 8000, 5000, 1.1), flood[:3000])
		}},
		{"sources", src1M, func(seed uint64) []timedKey { return zipfPackets(seed, 400_000, 50_000, 1.0) }},
		{"destinations", dst1M, func(seed uint64) []timedKey { return zipfPackets(seed, 100_000, 10_000, 0.8) }},
		{"few counters", fiveTuple300K, func(seed uint64) []timedKey { return zipfPackets(seed, 100_000, 2000, 1.2) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(3) {
				packets := tc.packets(6 + seed)
				readings := split(t, tc.layout, packets)
				sum, err := Sum(readings, nil)
				if err != nil {
					t.Fatal(err)
				}
				// A switch that all packets cross a second time is subtracted.
				all := measure(t, tc.layout, packets).Reading()
				again, err := Sum(append(readings, all), []*Reading{all})
				if err != nil {
					t.Fatal(err)
				}
				single, network := all.Estimate(), sum.Estimate()
				for name, n := range map[string]*Estimate{"network": network, "less a switch": again.Estimate()} {
					compare := func(what string, got, want, limit float64) {
						if relative(got, want) > limit {
							t.Errorf("seed %d, %s: %s: %.5g from 25 switches, %.5g from one", seed, name, what, got, want)
						}
					}
					compare("distinct flows", n.Distinct(), single.Distinct(), 0.01)
					compare("entropy", n.Entropy(), single.Entropy(), 0.01)
					compare("F2", n.Moment2(), single.Moment2(), 0.01)
					compare("sum of square roots", n.Sum(math.Sqrt), single.Sum(math.Sqrt), 0.01)
					compare("sources of the victim", victim(n), victim(single), 0.05)
					least := float64(len(packets)) / 500
					compare("large flows", float64(len(n.Above(least))), float64(len(single.Above(least))), 0.02)
				}
			}
		})
	}
}

// TestSampleIsFair: whether a small flow is in the sample does not depend on when its packets come.
// If it did, a flood of single packets would be counted too high or too low. The bound is four
// standard errors.
func TestSampleIsFair(t *testing.T) {
	flood := attack(t, 4000, 1, "192.0.2.1")
	for name, early := range map[string]bool{"early": true, "late": false} {
		var errors []float64
		for seed := range uint64(24) {
			packets := slices.Concat(zipfPackets(50+seed, 20_000, 20_000, 1), flood)
			if early {
				packets = slices.Concat(flood, zipfPackets(50+seed, 20_000, 20_000, 1))
			}
			errors = append(errors, victim(measure(t, fiveTuple1M, packets).Reading().Estimate())/4000-1)
		}
		mean, deviation := moments(errors)
		t.Logf("%s: sources of the victim %+.3f, deviation %.3f", name, mean, deviation)
		if limit := 4 * deviation / math.Sqrt(float64(len(errors))); math.Abs(mean) > limit {
			t.Errorf("%s: sources of the victim are off by %+.3f on average (limit %.3f)", name, mean, limit)
		}
	}
}
