// SPDX-License-Identifier: Apache-2.0

package analysis_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// TestMissingRow: a flow that arrived is missing from its source's report. The source is named,
// none of its flows is exact, and any element may have lost more.
func TestMissingRow(t *testing.T) {
	sim := threeFlows(3)
	sim.Net.Flows = 4
	sim.Epoch.Reports[5] = oneFlow(5, 0, 3)
	r := analyze(t, sim)
	if r.Hosts[0] != "1 flows of it arrived that are not in its report" || r.Complete(0) || !r.Unknown {
		t.Errorf("reason %q, complete %v, unknown %v", r.Hosts[0], r.Complete(0), r.Unknown)
	}
	for _, f := range simulation.Complete(r) {
		if r.Exact(&f) {
			t.Errorf("flow %v is exact", f.Key)
		}
	}
	if up := r.Links[sim.Net.Uplinks[0]]; up.High != analysis.Unlimited {
		t.Errorf("the link from the host lost %+v", up)
	}
}

// TestOddRows: rows that no agent sends. A row of bytes without a packet counts no packets, a row
// whose values do not decode is refused with its report, and a flow without packets is no loss.
func TestOddRows(t *testing.T) {
	incoming := func(sim *simulation.Simulation, last func(b *wire.Builder, f *simulation.Flow)) {
		var b wire.Builder
		b.Begin(&wire.Summary{Host: 4, Epoch: 5}, 2, 0)
		b.BeginIngress(1)
		b.BeginHost(0, 3)
		for n, f := range sim.Flows[:3] {
			if n == 2 {
				last(&b, f)
			} else {
				b.Ingress(f.Index, wire.Check(&f.Key), &f.Received)
			}
		}
		sim.Epoch.Reports[4] = b.Data
	}
	sim := threeFlows(3)
	incoming(sim, func(b *wire.Builder, f *simulation.Flow) {
		b.Ingress(f.Index, wire.Check(&f.Key), &wire.Values{0, 50})
	})
	down := sim.Net.Downlinks[4]
	r := analyze(t, sim)
	if reason := r.Elements[sim.Switches+int(down)]; r.Links[down] != (analysis.Bounds{Low: 3, High: 3}) || reason != "" {
		t.Errorf("the link to the host lost %+v, %q", r.Links[down], reason)
	}
	incoming(sim, func(b *wire.Builder, _ *simulation.Flow) {
		b.Data = append(b.Data, 1, 0, 0, 0, 0, 11) // the next index, a check, eleven bytes of values
		b.Data = append(b.Data, slices.Repeat([]byte{0xff}, 11)...)
	})
	check := wire.Check(&sim.Flows[2].Key)
	binary.LittleEndian.PutUint32(sim.Epoch.Reports[4][len(sim.Epoch.Reports[4])-16:], check)
	if r := analyze(t, sim); r.Delivered(0) && r.Delivered(4) {
		t.Error("values that do not decode are accepted")
	}

	var b wire.Builder
	b.Begin(&wire.Summary{Host: 0, Epoch: 5}, 2, 1)
	b.Egress(&wire.EgressRow{Key: sim.Flows[0].Key, Untagged: wire.Untagged{Packets: 3, Bytes: 300}}, &wire.Values{})
	b.BeginIngress(0)
	sim = threeFlows(3)
	sim.Epoch.Reports[0], sim.Epoch.Reports[4] = b.Data, oneFlow(4, 1, 0)
	if r := analyze(t, sim); len(r.Lossy) > 0 || r.Flows != 1 || len(r.Odd) > 0 {
		t.Errorf("%d flows, %d lossy, %d odd", r.Flows, len(r.Lossy), len(r.Odd))
	}
	b.Data[len(b.Data)-2] |= 1 // the mask of values that are not there
	sim.Epoch.Reports[0] = b.Data
	if r := analyze(t, sim); r.Delivered(0) {
		t.Error("a row that does not decode is accepted")
	}

	sim = simulation.New(simulation.Testbed(), simulation.Settings{Flows: 256, Slots: 4, Counters: true})
	f := sim.Add(0, 4, flow.Key{Proto: 6})
	f.Index, f.Sent = 256, wire.Values{1, 100}
	f.Lost[1] = f.Sent
	sim.Count()
	if r := analyze(t, sim); len(r.Lossy) != 1 {
		t.Errorf("%d lossy flows", len(r.Lossy))
	}
}

// TestOpenFlow: of a flow to a missing host only the last link is unknown, where ports are counted.
func TestOpenFlow(t *testing.T) {
	sim := threeFlows(1)
	sim.Flows = sim.Flows[:1]
	sim.Count()
	sim.Epoch.Reports[4] = nil
	r := analyze(t, sim)
	if len(r.Open) != 1 || r.Variables != 1 || r.Determined != 0 {
		t.Fatalf("%d open flows, %d of %d unknowns determined", len(r.Open), r.Determined, r.Variables)
	}
	for n, l := range r.Open[0].Losses {
		if want := int64(n / 6); l.Packets != (analysis.Bounds{Low: 0, High: want}) {
			t.Errorf("loss %d is %+v", n, l.Packets)
		}
	}
}

// TestSlotOfOddFlow: a flow whose counts contradict each other lost packets before a slot. Another
// flow with this slot, which lost a packet behind it, is not blamed for them.
func TestSlotOfOddFlow(t *testing.T) {
	sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: 2, Slots: 4,
		Mapping: func(int, *simulation.Flow) [4]uint16 { return [4]uint16{0, 1} }})
	packet := wire.Values{1, 100}
	for n, lost := range []int{6, 1} {
		f := sim.Add(0, 4, flow.Key{Proto: 6, SrcPort: uint16(n)})
		for i := range 5 {
			if f.Sent.Add(&packet); i < 2-n {
				f.Lost[lost].Add(&packet)
			} else {
				f.Received.Add(&packet)
			}
		}
	}
	sim.Count()
	sim.Epoch.Reports[5] = oneFlow(5, 0, 1) // so the second flow contradicts itself
	r := analyze(t, sim)
	if len(r.Odd) != 1 || len(r.Lossy) != 1 || len(r.Contradictions) > 0 {
		t.Errorf("%d odd, %d lossy flows, %v", len(r.Odd), len(r.Lossy), r.Contradictions)
	}
	contains(t, sim, r)
}

// slotted is flows by one path through three slots, each of which lost one packet: at the first
// switch if before, otherwise at the last one.
func slotted(flows int, bytes func(n int) int64, before func(n int) bool) *simulation.Simulation {
	sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: flows, Slots: 4,
		Mapping: func(int, *simulation.Flow) [4]uint16 { return [4]uint16{0, 1} }})
	for n := range flows {
		f := sim.Add(0, 4, flow.Key{Proto: 6, SrcPort: uint16(n)})
		packet := wire.Values{1, bytes(n)}
		f.Sent.Add(&packet)
		f.Received.Add(&packet)
		f.Sent.Add(&packet)
		if before(n) {
			f.Lost[1].Add(&packet)
		} else {
			f.Lost[5].Add(&packet)
		}
	}
	sim.Count()
	return sim
}

// TestManyFlowsOfASlot: with more solutions, or more flows, of a slot than are searched, nothing is
// concluded from those that were.
func TestManyFlowsOfASlot(t *testing.T) {
	for _, flows := range []int{20, 23, 40} {
		sim := slotted(flows, func(int) int64 { return 100 }, func(n int) bool { return n*7%flows < flows/2 })
		r := analyze(t, sim)
		if compare(t, sim, r); len(simulation.Reasons(r)) > 0 || r.Determined > flows { // at the first link
			t.Errorf("%d flows: %d determined, %v", flows, r.Determined, simulation.Reasons(r))
		}
	}
}

// TestContradictorySlot: the bytes of a slot fit no solution, its packets do. The reason is stated,
// and nothing is concluded from another slot either.
func TestContradictorySlot(t *testing.T) {
	sim := slotted(2, func(n int) int64 { return 100 + int64(n) }, func(n int) bool { return n == 0 })
	r := analyze(t, sim)
	if r.Determined == 0 || len(r.Contradictions) > 0 {
		t.Fatalf("%d losses determined, %v", r.Determined, r.Contradictions)
	}
	sim.Epoch.Recorded[1][int(sim.Flows[0].Slots[0])*sim.Net.Values+int(wire.Bytes)] -= 49
	r = analyze(t, sim)
	if !warned(r, "statistics of 1 slots contradict each other") || r.Determined > 2 { // at the first link
		t.Errorf("%d determined, reasons %v", r.Determined, simulation.Reasons(r))
	}
	contains(t, sim, r)
}

// TestCountedReasons: every packet that a host could not attribute to a flow may be one of a flow
// to it, and the host is named with the first reason.
func TestCountedReasons(t *testing.T) {
	for _, tt := range []struct {
		counters   [wire.Counters]uint64
		refused    uint64
		host, flow string
	}{
		{[wire.Counters]uint64{wire.UnknownEpoch: 1, wire.BadIndex: 2, wire.Forged: 4, wire.IngressFull: 8}, 16, "packets",
			"host 4 received 31 packets that it could not attribute to a flow"},
		{[wire.Counters]uint64{}, 16, "16 packets that it refused in an earlier epoch may be of this one",
			"host 4 received 16 packets that it could not attribute to a flow"},
		{[wire.Counters]uint64{wire.UnknownHost: 2, wire.BadIndex: 2}, 0, "2 packets",
			"host 4 received 2 packets that it could not attribute to a flow"},
		{[wire.Counters]uint64{wire.BadIndex: 2, wire.Forged: 2}, 0, "2 packets",
			"host 4 received 4 packets that it could not attribute to a flow"},
		{[wire.Counters]uint64{wire.Untracked: 5}, 0, "5 packets", ""},
		{[wire.Counters]uint64{wire.Late: 3}, 0, "", ""},
	} {
		var b wire.Builder
		b.Begin(&wire.Summary{Host: 4, Epoch: 5, Counters: tt.counters}, 2, 0)
		b.BeginIngress(0)
		sim := threeFlows(40)
		sim.Epoch.Reports[4], sim.Epoch.Refused = b.Data, []uint64{4: tt.refused}
		r := analyze(t, sim)
		if got := r.Hosts[4]; !strings.Contains(got, tt.host) || (got == "") != (tt.host == "") {
			t.Errorf("host: %q, want %q", got, tt.host)
		}
		if r.Unknown != (tt.counters[wire.BadIndex]+tt.counters[wire.Forged] > 0) ||
			r.Complete(4) != (tt.counters[wire.Untracked] == 0) {
			t.Errorf("%v: unknown %v, complete %v", tt.counters, r.Unknown, r.Complete(4))
		}
		if open := len(r.Open); (open == 3) != (tt.flow != "") || open+len(r.Lossy) != 3 {
			t.Errorf("%d open flows, %d lossy", open, len(r.Lossy))
		}
		for i := range r.Open {
			if got := r.Reason(&r.Open[i].Flow); got != tt.flow {
				t.Errorf("flow: %q, want %q", got, tt.flow)
			}
		}
	}
}

// TestNewFlowsOfAFullTable: a flow table that was full left out packets of new flows only. All
// packets of an older flow are in its count, unless a part of the report is missing or contradicts
// another one.
func TestNewFlowsOfAFullTable(t *testing.T) {
	for _, tt := range []struct {
		untracked uint64
		rows      int  // flows in the source's report; 3 are in the destination's
		odd       bool // another host counted packets of the second flow, too
	}{{0, 3, false}, {5, 3, false}, {5, 2, false}, {0, 2, false}, {5, 3, true}, {0, 3, true}, {0, 2, true}} {
		sim := threeFlows(40)
		var b wire.Builder
		b.Begin(&wire.Summary{Host: 0, Epoch: sim.Epoch.Number,
			Counters: [wire.Counters]uint64{wire.Untracked: tt.untracked}}, 2, tt.rows)
		for age, f := range sim.Flows[:tt.rows] {
			b.Egress(&wire.EgressRow{Index: f.Index, Key: f.Key, Slots: f.Slots, Age: uint64(age)}, &f.Sent)
		}
		b.BeginIngress(0)
		sim.Epoch.Reports[0] = b.Data
		if tt.odd {
			sim.Epoch.Reports[5] = oneFlow(5, 0, 1)
		}
		r := analyze(t, sim)
		flows := slices.Concat(simulation.Complete(r), r.Odd)
		if len(flows) != tt.rows || len(r.Odd) > 0 != tt.odd {
			t.Fatalf("%+v: %d flows, %d odd", tt, len(flows), len(r.Odd))
		}
		for i := range flows {
			f := &flows[i]
			whole := tt.rows == 3 && !(tt.odd && f.Age == 1)
			every := f.Age > 0 || tt.untracked == 0
			least, most := r.AtLeast(f)
			if all := r.AllSent(f); all != (whole && every) || least != whole || most != every {
				t.Errorf("%+v, age %d: all %v, at least %v, at most %v", tt, f.Age, all, least, most)
			}
		}
	}
}

// outcome is what an analysis says of an epoch, without the reasons of host 5.
func outcome(r *analysis.Result) string {
	var b strings.Builder
	fmt.Fprintln(&b, r.Flows, r.Variables, r.Determined, r.Missing, r.Unknown, r.Switches, r.Links, r.Elements,
		r.Contradictions, r.Hosts[:5])
	for _, flows := range [][]analysis.LossyFlow{r.Lossy, r.Open} {
		for i := range flows {
			fmt.Fprintln(&b, flows[i].Key, flows[i].Sent, flows[i].Lost, flows[i].Losses, r.Reason(&flows[i].Flow))
		}
	}
	for _, flows := range [][]analysis.Flow{r.Odd, simulation.Complete(r)} {
		slices.SortFunc(flows, func(f, g analysis.Flow) int { return int(f.Index) - int(g.Index) })
		for i := range flows {
			fmt.Fprintln(&b, flows[i].Key, flows[i].Sent, r.Reason(&flows[i]))
		}
	}
	return b.String()
}

// TestEachEpochAnew: what an analyzer says of an epoch does not depend on the epochs before it.
func TestEachEpochAnew(t *testing.T) {
	empty := func(host int) []byte {
		var b wire.Builder
		b.Begin(&wire.Summary{Host: host, Epoch: 5}, 2, 0)
		b.BeginIngress(0)
		return b.Data
	}
	epochs := map[string]*simulation.Simulation{}
	for _, name := range []string{"whole", "nothing sent", "nothing received"} {
		epochs[name] = threeFlows(7)
	}
	epochs["nothing sent"].Epoch.Reports[0] = empty(0)
	epochs["nothing received"].Epoch.Reports[4] = empty(4)
	for first, before := range epochs {
		for second, sim := range epochs {
			before.Epoch.Number, sim.Epoch.Number = 5, 5
			a, err := analysis.New(sim.Net)
			if err != nil {
				t.Fatal(err)
			}
			a.Analyze(&before.Epoch)
			fresh, route := analyze(t, sim), &analysis.Path{}
			if fresh.Path(0, 0, route) != route {
				t.Error("a flow has a path other than its route")
			}
			want := outcome(fresh)
			if got := outcome(a.Analyze(&sim.Epoch)); got != want {
				t.Errorf("%s after %s:\n%s\nwant\n%s", second, first, got, want)
			}
		}
	}
}

// TestRefusedReportsLeaveNothing: an epoch in which a report is refused has the same result as an
// epoch without the report, although the report's first rows are good.
func TestRefusedReportsLeaveNothing(t *testing.T) {
	first := threeFlows(7).Flows[0]
	counters := [wire.Counters]uint64{wire.UnknownHost: 1}
	var received, sent wire.Builder
	received.Begin(&wire.Summary{Host: 5, Epoch: 5}, 2, 0)
	received.BeginIngress(2)
	received.BeginHost(0, 1)
	received.Ingress(1, 1, &wire.Values{1, 100})
	received.BeginHost(8, 1)
	received.Ingress(1, 1, &wire.Values{1, 100})
	sent.Begin(&wire.Summary{Host: 5, Epoch: 5, Counters: counters}, 2, 2)
	sent.Egress(&wire.EgressRow{Index: 0, Key: first.Key, Slots: first.Slots}, &wire.Values{3, 300})
	sent.Egress(&wire.EgressRow{Index: 1, Key: first.Key, Slots: [4]uint16{0, 4}}, &wire.Values{3, 300})
	sent.BeginIngress(1)
	sent.BeginHost(0, 1)
	sent.Ingress(1, 1, &wire.Values{1, 100})
	for name, report := range map[string][]byte{"received": received.Data, "sent": sent.Data} {
		sim := threeFlows(7)
		sim.Epoch.Number = 5
		sim.Epoch.Reports[5] = nil
		want := outcome(analyze(t, sim))
		sim.Epoch.Reports[5] = report
		r := analyze(t, sim)
		if got := outcome(r); r.Delivered(5) || got != want {
			t.Errorf("%s: delivered %v:\n%s\nwant\n%s", name, r.Delivered(5), got, want)
		}
	}
}

// TestHostNames: a reason names a host by its name, or by its number if it has none.
func TestHostNames(t *testing.T) {
	for host, want := range map[int]string{4: "host leaf", 5: "host 5"} {
		sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: 1, Slots: 4, Counters: true})
		sim.Net.HostNames = []string{4: "leaf"}
		sim.Add(0, host, flow.Key{Proto: 6}).Sent = wire.Values{1, 100}
		sim.Count()
		sim.Epoch.Reports[host] = nil
		r := analyze(t, sim)
		if want += ", its destination, is missing"; len(r.Open) != 1 || r.Reason(&r.Open[0].Flow) != want {
			t.Errorf("%d open flows; want one with the reason %q", len(r.Open), want)
		}
	}
}

// TestWorkerNumbers: Each calls its function at the same time with different numbers only.
func TestWorkerNumbers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: 2, Slots: 4, Counters: true})
	for from := range 2 {
		f := sim.Add(from, 4, flow.Key{Proto: 6})
		f.Sent, f.Received = wire.Values{1, 100}, wire.Values{1, 100}
	}
	sim.Count()
	r := analyze(t, sim)
	var numbers [2]int // by source
	var both sync.WaitGroup
	both.Add(2)
	r.Each(func(worker int, f *analysis.Flow) {
		numbers[f.Source] = worker
		both.Done()
		both.Wait()
	})
	if slices.Sort(numbers[:]); numbers != [2]int{0, 1} || r.Workers() != 2 {
		t.Errorf("workers %v of %d", numbers, r.Workers())
	}
}
