// SPDX-License-Identifier: Apache-2.0

package analysis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/sketch/flow"
)

// threeFlows has flows from host 0 to host 4, each with packets of its own size. All arrive.
func threeFlows(packets int) *simulation.Simulation {
	sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: 3, Slots: 4, Counters: true})
	for n := range 3 {
		f := sim.Add(0, 4, flow.Key{Proto: 6, SrcPort: uint16(n)})
		for range packets {
			packet := wire.Values{1, 100 + int64(n)}
			f.Sent.Add(&packet)
			f.Received.Add(&packet)
		}
	}
	sim.Count()
	return sim
}

// oneFlow is the report of a host with one incoming flow, which has another key than those of
// threeFlows.
func oneFlow(host, source int, index uint32) []byte {
	var b wire.Builder
	b.Begin(&wire.Summary{Host: host, Epoch: 5}, 2, 0)
	b.BeginIngress(1)
	b.BeginHost(source, 1)
	b.Ingress(index, 1, &wire.Values{1, 100})
	return b.Data
}

// TestRefusedReports: a report with a number that the network does not have is refused, and the
// reason names the number. The largest number that it has is accepted.
func TestRefusedReports(t *testing.T) {
	slot := func(host int, n uint16) []byte {
		var b wire.Builder
		b.Begin(&wire.Summary{Host: host, Epoch: 5}, 2, 1)
		b.Egress(&wire.EgressRow{Key: threeFlows(1).Flows[0].Key, Slots: [4]uint16{0, n}}, &wire.Values{1, 100})
		b.BeginIngress(0)
		return b.Data
	}
	var restarted wire.Builder
	restarted.Begin(&wire.Summary{Host: 4, Epoch: 5, Counters: [wire.Counters]uint64{wire.Restarted: 1}}, 2, 0)
	restarted.BeginIngress(0)
	for _, tt := range []struct {
		host   int
		report []byte
		want   string
	}{
		{4, oneFlow(4, 8, 0), "packets from host number 8; the network has 8 hosts"},
		{4, oneFlow(4, 7, 0), ""},
		{4, oneFlow(4, 0, 3), "host index 3 in a table of 3 flows"},
		{4, oneFlow(4, 0, 2), ""},
		{0, slot(0, 4), "a flow has slot 4, but switches have 4 slots"},
		{0, slot(0, 3), ""},
		{4, restarted.Data, "its flow table was restarted in the epoch, 1 times"},
	} {
		sim := threeFlows(1)
		sim.Epoch.Reports[tt.host] = tt.report
		r := analyze(t, sim)
		if got := r.Hosts[tt.host]; !strings.Contains(got, tt.want) || r.Delivered(tt.host) != (tt.want == "") {
			t.Errorf("delivered %v, reason %q, want %q", r.Delivered(tt.host), got, tt.want)
		}
	}
}

// TestBrokenRows: reports whose rows end early, or have values of no use, are refused or have the
// values; no such report stops the analysis.
func TestBrokenRows(t *testing.T) {
	sim := threeFlows(1)
	whole := sim.Epoch.Reports
	for _, host := range []int{0, 4} {
		for at := range whole[host] {
			for _, change := range []byte{1, 0x80, 0xff} {
				sim.Epoch.Reports = slices.Clone(whole)
				sim.Epoch.Reports[host] = slices.Clone(whole[host])
				sim.Epoch.Reports[host][at] ^= change
				if r := analyze(t, sim); r.Flows > 3 {
					t.Errorf("host %d, byte %d: %d flows", host, at, r.Flows)
				}
			}
		}
	}
}

// TestOddFlows: a flow whose counts contradict each other is named with the reason, and the others
// are exact.
func TestOddFlows(t *testing.T) {
	for _, tt := range []struct {
		name    string
		recount bool
		change  func(sim *simulation.Simulation)
		odd     []int // flows
		reason  string
	}{
		{"one more packet", true, func(sim *simulation.Simulation) {
			sim.Flows[1].Received.Add(&wire.Values{1, 1})
		}, []int{1}, "more packets of it arrived than were sent"},
		{"one more byte", true, func(sim *simulation.Simulation) {
			sim.Flows[1].Received[wire.Bytes]++
		}, []int{1}, "more bytes, or packets of a kind, arrived of it than were sent: a device changed its packets"},
		{"two destinations", false, func(sim *simulation.Simulation) {
			sim.Epoch.Reports[5] = oneFlow(5, 0, 1)
		}, []int{1}, "hosts counted packets of several flows as those of this one"},
		{"another flow with its index", false, func(sim *simulation.Simulation) {
			var b wire.Builder
			b.Begin(&wire.Summary{Host: 4, Epoch: 5}, 2, 0)
			b.BeginIngress(1)
			b.BeginHost(0, 3)
			for n, f := range sim.Flows {
				b.Ingress(f.Index, wire.Check(&sim.Flows[n-n%2].Key), &f.Received)
			}
			sim.Epoch.Reports[4] = b.Data
		}, []int{1}, "hosts counted packets of several flows as those of this one"},
	} {
		sim := threeFlows(3)
		if tt.change(sim); tt.recount {
			sim.Count()
		}
		r := analyze(t, sim)
		var odd []int
		for i := range r.Odd {
			odd = append(odd, slices.IndexFunc(sim.Flows, func(f *simulation.Flow) bool { return f.Key == r.Odd[i].Key }))
			if reason := r.Reason(&r.Odd[i]); reason != tt.reason || r.Odd[i].Known() {
				t.Errorf("%s: %q, known %v; want %q", tt.name, reason, r.Odd[i].Known(), tt.reason)
			}
		}
		slices.Sort(odd)
		if !slices.Equal(odd, tt.odd) || len(r.Lossy)+len(r.Open) > 0 || r.Flows != 3 {
			t.Errorf("%s: flows %v of %d are odd, %d lossy, %d open; want %v", tt.name, odd, r.Flows, len(r.Lossy),
				len(r.Open), tt.odd)
		}
		for _, f := range simulation.Complete(r) {
			if n := int(f.Key.SrcPort); f.Sent != (wire.Values{3, 300 + 3*int64(n)}) || slices.Contains(tt.odd, n) {
				t.Errorf("%s: flow %d is %v", tt.name, n, f.Sent)
			}
		}
		if n := len(simulation.Complete(r)); n != 3-len(tt.odd) {
			t.Errorf("%s: %d complete flows", tt.name, n)
		}
		if host := fmt.Sprint(r.Hosts[0], r.Hosts[4]); host != "" {
			t.Errorf("%s: %s", tt.name, host)
		}
	}
}

// TestNoHostLink: a host without links, and without a report, may send by links that are not known.
func TestNoHostLink(t *testing.T) {
	sim := threeFlows(3)
	sim.Net.Uplinks, sim.Net.Downlinks = slices.Clone(sim.Net.Uplinks), slices.Clone(sim.Net.Downlinks)
	sim.Net.Uplinks[7], sim.Net.Downlinks[7] = -1, -1
	sim.Epoch.Reports[7] = nil
	r := analyze(t, sim)
	if !r.Unknown || r.Missing != 1 || len(simulation.Complete(r)) != 3 {
		t.Errorf("unknown %v, %d missing, %d complete", r.Unknown, r.Missing, len(simulation.Complete(r)))
	}
	contains(t, sim, r)
	for s, b := range r.Switches {
		if b != (analysis.Bounds{}) {
			t.Errorf("switch %d lost %+v", s, b)
		}
	}
}
