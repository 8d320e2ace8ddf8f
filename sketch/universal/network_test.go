// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/netsketch/netsketch/internal/test/trace"
	"github.com/netsketch/netsketch/sketch/flow"
)

// TestManySwitchesAsOne: estimates of a network whose flows are spread over 25 switches are within
// 1 % of those of one switch that counts all packets (UnivMon §5: the network is one big switch).
// Small keys of equal rank are kept in another order, so which of them represent the others
// differs: numbers of sources and sizes of single flows are within 10 %.
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
				compare("sources of the victim", fan(network), fan(single), 0.1)
			}
			big := 0
			for _, f := range single.Above(float64(len(tc.packets)) / 500) {
				big++
				compare("size of "+f.Key.String(), network.Size(f.Key), f.Packets, 0.1)
			}
			if got := len(network.Above(float64(len(tc.packets)) / 500)); got != big {
				t.Errorf("%d large flows from %d switches, %d from one", got, switches, big)
			}
		})
	}
}

// TestManyFlows: with up to 4 million flows, numbers of flows and entropies are near the truth, or
// the estimate says that it does not know them.
func TestManyFlows(t *testing.T) {
	large := []Layout{src1M, {Key: flow.Src, Levels: 10, Rows: 3, Columns: 2048, Ways: 4, Slots: 64}, src300K}
	for _, n := range []int{1000, 30_000, 400_000, 4_000_000} {
		if n > 1_000_000 && testing.Short() {
			t.Skip("counts millions of packets")
		}
		for _, l := range large {
			s := measure(t, l, nil)
			k := flow.Key{Mask: flow.Src}
			total, xlogx := 0.0, 0.0
			for i := range n { // one packet each, but every 50th flow 10 packets
				binary.BigEndian.PutUint32(k.Src[:], uint32(i)*2654435761)
				x := 1 + 9*(1-min(i%50, 1))
				for range x {
					s.Update(&k)
				}
				total += float64(x)
				xlogx += XLogX(float64(x))
			}
			e := s.Reading().Estimate()
			if e.CountsFlows() && relative(e.Distinct(), float64(n)) > 0.15 {
				t.Errorf("%v: %d flows: counted %.0f", l, n, e.Distinct())
			}
			if want := math.Log2(total) - xlogx/total; e.Represents() && relative(e.Entropy(), want) > 0.03 {
				t.Errorf("%v: %d flows: entropy %.3f, want %.3f", l, n, e.Entropy(), want)
			}
			if l == src1M && !e.Represents() {
				t.Errorf("%v: %d flows are too many", l, n)
			}
			if l.Levels == 10 && n == 4_000_000 && e.CountsFlows() {
				t.Errorf("%v: counts %d flows as %.0f", l, n, e.Distinct())
			}
		}
	}
}
