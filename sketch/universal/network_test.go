// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"testing"

	"github.com/netsketch/netsketch/internal/test/trace"
	"github.com/netsketch/netsketch/sketch/flow"
)

// TestManySwitchesAsOne: estimates of a network whose flows are spread over 25 switches are within
// 1 % of those of one switch that counts all packets (UnivMon §5: the network is one big switch).
// Small keys of equal rank are kept in another order, so which of them represent the others
// differs: numbers of sources and sizes of single flows are within 5 %.
func TestManySwitchesAsOne(t *testing.T) {
	const switches = 25
	for _, tc := range []struct {
		name    string
		layout  Layout
		packets []trace.Packet
	}{
		{"a flood of single packets", fiveTuple1M,
			append(attack(t, 20_000, 1, "192.0.2.1"), trace.Zipf(6, 300_000, 60_000, 1.1)...)},
		{"sources", src1M, trace.Zipf(7, 400_000, 50_000, 1.0)},
		{"few flows", fiveTuple300K, trace.Zipf(8, 100_000, 2_000, 1.2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var parts [switches]*Sketch
			for i := range parts {
				parts[i] = measure(t, tc.layout, nil)
			}
			for i := range tc.packets {
				k := &tc.packets[i].Key
				parts[hashOf(k, flow.FiveTuple)%switches].Update(k)
			}
			var readings []*Reading
			for _, s := range parts {
				readings = append(readings, s.Reading())
			}
			sum, err := Sum(readings, nil)
			if err != nil {
				t.Fatal(err)
			}
			network, single := sum.Estimate(), measure(t, tc.layout, tc.packets).Reading().Estimate()
			compare := func(what string, network, single, limit float64) {
				if relative(network, single) > limit {
					t.Errorf("%s: %.4g from %d switches, %.4g from one", what, network, switches, single)
				}
			}
			compare("distinct", network.Distinct(), single.Distinct(), 0.01)
			compare("entropy", network.Entropy(), single.Entropy(), 0.01)
			compare("F2", network.Moment2(), single.Moment2(), 0.01)
			if tc.layout.Key == flow.FiveTuple {
				fan := func(e *Estimate) (most float64) {
					for _, f := range e.FanIns(1000) {
						most = math.Max(most, f.Sources)
					}
					return most
				}
				compare("sources of the victim", fan(network), fan(single), 0.05)
			}
			big := 0
			for _, f := range single.Above(float64(len(tc.packets)) / 500) {
				big++
				compare("size of "+f.Key.String(), network.Size(f.Key), f.Packets, 0.05)
			}
			if got := len(network.Above(float64(len(tc.packets)) / 500)); got != big {
				t.Errorf("%d large flows from %d switches, %d from one", got, switches, big)
			}
		})
	}
}
