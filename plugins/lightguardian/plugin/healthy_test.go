// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/plugins/lightguardian/analysis"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
)

// silent requires that no fault of the network is an alert.
func silent(t *testing.T, out *sdk.Results) {
	t.Helper()
	for key, row := range rows(t, out, alertList) {
		if row["active"] == true && !strings.HasSuffix(key, "HOST_MISSING") {
			t.Errorf("alert %s: %v", key, row["text"])
		}
	}
}

// TestCollisions: a switch of the path and one beside it have several times the packets of a flow
// that lost none, because others share its buckets. Nothing is wrong.
func TestCollisions(t *testing.T) {
	h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
	s.send(k, 2, 47, "leaf1", "spine1", "leaf2")
	s.pass(k, 204, 10, 1000, "leaf1", "spine2")
	out := play(t, h, 5, s)
	silent(t, out)
	if faults := rows(t, out, faultList); len(faults) > 0 {
		t.Errorf("faults %v", slices.Sorted(maps.Keys(faults)))
	}
}

// TestLossAndCollision: a flow that loses packets at one switch is not in a loop at another one
// where many others may share its buckets. It is in one where hardly any have that many packets.
func TestLossAndCollision(t *testing.T) {
	for others, loop := range map[int]bool{0: false, simColumns: true} {
		h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
		*s.add(0, k) = wire.Flow{Key: k, Sent: 100}
		*s.add(2, k) = wire.Flow{Key: k, Received: 80}
		s.pass(k, 100, 10, 1000, "leaf1")
		s.pass(k, 400, 10, 1000, "spine1")
		s.pass(k, 80, 10, 1000, "leaf2")
		if !loop {
			for port := range uint16(3 * simColumns) {
				o := k
				o.SrcPort = port + 5000
				s.pass(o, 400, 10, 1000, "spine1")
			}
		}
		_, found := rows(t, play(t, h, 5, s), faultList)[k.String()+" spine1 LOOP"]
		if found != loop {
			t.Errorf("%d other flows: loop %v", others, found)
		}
	}
}

// TestLoopOfTwo: where other flows may add the packets of a loop at one switch, a flow is in a loop
// if its neighbor has them, too.
func TestLoopOfTwo(t *testing.T) {
	for _, loop := range []bool{false, true} {
		h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
		*s.add(0, k) = wire.Flow{Key: k, Sent: 100}
		*s.add(2, k) = wire.Flow{Key: k, Received: 80}
		s.pass(k, 100, 10, 1000, "leaf1")
		s.pass(k, 400, 10, 1000, "spine1")
		if loop {
			s.pass(k, 380, 10, 1000, "leaf2")
		} else {
			s.pass(k, 80, 10, 1000, "leaf2")
		}
		for port := range uint16(36) {
			o := k
			o.SrcPort = port + 5000
			s.pass(o, 400, 10, 1000, "spine1", "leaf2")
		}
		faults := rows(t, play(t, h, 5, s), faultList)
		for _, name := range []string{"spine1", "leaf2"} {
			if _, found := faults[k.String()+" "+name+" LOOP"]; found != loop {
				t.Errorf("loop %v: found at %s: %v", loop, name, found)
			}
		}
	}
}

// TestDoubts: a flow whose buckets other flows share has the same doubt in each interval, so it
// counts once. Another flow's doubt in the interval before counts.
func TestDoubts(t *testing.T) {
	keys := simKeys(t, 2, "spine1", 2)
	e := newEvidence()
	if d := e.doubt(nil); d != 1 {
		t.Errorf("doubt %v without flows", d)
	}
	e.count(keys[0], 0.01)
	e.count(keys[0], 0.02)
	if d := e.doubt(nil); d != 0.01 {
		t.Errorf("doubt %v of one flow", d)
	}
	for at, want := range []float64{1, 0.05} {
		before := newEvidence()
		before.count(keys[at], 0.05)
		if d := before.doubt(e.doubts); d != want {
			t.Errorf("flow %d: doubt %v of the interval before, want %v", at, d, want)
		}
	}
	e.choices = 1000
	if d := e.doubt(nil); d != 1 {
		t.Errorf("doubt %v of many events", d)
	}
}

// TestHalfCounted: what only one of both hosts has counted begins no alert: the first switch of the
// path may have other flows' packets.
func TestHalfCounted(t *testing.T) {
	h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
	s.send(k, 2, 100, "leaf1", "spine1", "leaf2")
	s.pass(k, 300, 500, 1000, "leaf1")
	for number := range uint64(4) {
		e := simEpoch(t, h, 5+number, s, s, everything)
		setData(e, "h1", nil)
		e.Missing = append(e.Missing, sdk.Missing{Name: "h1", Host: true, Reason: "is away"})
		out := h.Analyze(e)
		silent(t, out)
		for key, row := range rows(t, out, faultList) {
			if row["located"] == true {
				t.Errorf("epoch %d: fault %s is located", e.Number, key)
			}
		}
	}
}

// TestRouteChange: routes change within an interval. A flow has passed one spine and then the
// other, so none of them has all of its packets.
func TestRouteChange(t *testing.T) {
	for _, at := range []string{"in the interval", "behind it"} {
		h, k := start(t, ""), simKey(t, 2, "spine1")
		h.Analyze(simEpoch(t, h, 4, nil, newSim(t), nil))
		s := newSim(t)
		s.send(k, 2, 100, "leaf1", "leaf2")
		s.pass(k, 60, 10, 1000, "spine1")
		s.pass(k, 40, 10, 1000, "spine2")
		s.flows[2][k].Devices = []uint16{3, 4}
		next := simNetwork()
		next.Devices[0].Forwarding.Groups[0].Ports = []uint32{2} // leaf1 uses spine2 alone
		change := func() {
			if _, err := h.Configure(simConfig(""), next, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if at == "in the interval" {
			change()
		}
		h.Analyze(simEpoch(t, h, 5, nil, s, nil))
		if at != "in the interval" {
			change()
		}
		out := h.Analyze(simEpoch(t, h, 6, s, nil, everything))
		silent(t, out)
		if faults := rows(t, out, faultList); len(faults) > 0 {
			t.Errorf("%s: faults %v", at, slices.Sorted(maps.Keys(faults)))
		}
	}
}

// TestLatePackets: packets that wait in a queue while the interval ends arrive in the next one.
// They are not lost. If the queue goes on, the next interval does not have more than it sent: the
// packets may be lost. They are if another flow lacks more packets than it receives then.
func TestLatePackets(t *testing.T) {
	h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
	*s.add(0, k) = wire.Flow{Key: k, Sent: 558}
	*s.add(2, k) = wire.Flow{Key: k, Received: 507}
	s.pass(k, 558, 10, 1000, "leaf1")
	s.pass(k, 507, 900, 1000, "spine1", "leaf2")
	next := newSim(t)
	*next.add(0, k) = wire.Flow{Key: k, Sent: 366}
	*next.add(2, k) = wire.Flow{Key: k, Received: 366 + 51}
	h.Analyze(simEpoch(t, h, 5, nil, s, nil))
	out := h.Analyze(simEpoch(t, h, 6, s, next, everything))
	for key := range rows(t, out, faultList) {
		if !strings.HasSuffix(key, "LATENCY_INFLATED") {
			t.Errorf("fault %s", key)
		}
	}
	for _, few := range []bool{false, true} {
		h = start(t, "")
		if few { // the second flow passes the same switches, and none of its packets leaves spine1
			o := simKeys(t, 2, "spine1", 2)[1]
			*s.add(0, o) = wire.Flow{Key: o, Sent: 6}
			s.pass(o, 6, 10, 1000, "leaf1")
		}
		for number := uint64(5); number < 9; number++ {
			carried := s
			if number == 5 {
				carried = nil
			}
			out = h.Analyze(simEpoch(t, h, number, carried, s, everything))
			alerts := rows(t, out, alertList)
			row := alerts["spine1 PACKETS_LOST"]
			if active := row != nil && row["active"] == true; active != (few && number > 5) {
				t.Errorf("flow of few packets %v, epoch %d: alerts %v", few, number, slices.Sorted(maps.Keys(alerts)))
			}
		}
	}
}

// TestQueueEnds: packets wait in a queue while an interval ends. If they have not arrived when
// the queue has ended, they are lost. As long as it brings packets of the interval before, they
// may come. If the flow receives nothing in the next interval, they are lost at once.
func TestQueueEnds(t *testing.T) {
	for _, tc := range []struct {
		name  string
		got   []uint64 // of 366 packets sent in each of the following intervals
		begin int      // epoch in which the alert begins; 0: there is no alert
	}{
		{"the queue has ended", []uint64{366, 366}, 7},
		{"packets of the next interval wait, too", []uint64{370, 400}, 0},
		{"the flow ends with the queue", []uint64{0, 0}, 6},
	} {
		h, k := start(t, ""), simKey(t, 2, "spine1")
		var intervals []*sim
		for n := range 3 {
			s := newSim(t)
			if n == 0 {
				*s.add(0, k) = wire.Flow{Key: k, Sent: 558}
				*s.add(2, k) = wire.Flow{Key: k, Received: 507}
				s.pass(k, 558, 10, 1000, "leaf1")
				s.pass(k, 507, 900, 1000, "spine1", "leaf2")
			} else if got := tc.got[n-1]; got > 0 {
				*s.add(0, k) = wire.Flow{Key: k, Sent: 366}
				*s.add(2, k) = wire.Flow{Key: k, Received: got}
				s.pass(k, 366, 10, 1000, "leaf1", "spine1", "leaf2")
			}
			intervals = append(intervals, s)
		}
		h.Analyze(simEpoch(t, h, 5, nil, intervals[0], nil))
		out := h.Analyze(simEpoch(t, h, 6, intervals[0], intervals[1], everything))
		if row := rows(t, out, alertList)["spine1 PACKETS_LOST"]; (row != nil && row["active"] == true) != (tc.begin == 6) {
			t.Errorf("%s: alert %v in the first results", tc.name, row)
		}
		alerts := rows(t, h.Analyze(simEpoch(t, h, 7, intervals[1], intervals[2], everything)), alertList)
		if row := alerts["spine1 PACKETS_LOST"]; (row != nil && row["active"] == true) != (tc.begin == 7) {
			t.Errorf("%s: alerts %v", tc.name, alerts)
		}
	}
}

// TestFullQueue: the queue of a port of leaf2 is full for several intervals. It loses packets at
// leaf2, and others wait in it when an interval ends: these are not lost behind leaf2, not even if
// as many packets of the next interval are lost at leaf2 as come from the queue.
func TestFullQueue(t *testing.T) {
	h, keys := start(t, ""), simKeys(t, 2, "spine1", 12)
	var intervals []*sim
	for _, p := range []struct{ sent, left, got int }{
		{404, 370, 330}, {280, 220, 220}, {404, 370, 310}, {280, 220, 280}, {280, 280, 280},
	} {
		s := newSim(t)
		for _, k := range keys {
			*s.add(0, k) = wire.Flow{Key: k, Sent: uint64(p.sent)}
			*s.add(2, k) = wire.Flow{Key: k, Received: uint64(p.got)}
			s.pass(k, p.sent, 10, 1000, "leaf1", "spine1")
			s.pass(k, p.left, 900, 1000, "leaf2")
		}
		intervals = append(intervals, s)
	}
	o := simKeys(t, 2, "spine1", 13)[12] // a flow that ends in the queue
	*intervals[0].add(0, o) = wire.Flow{Key: o, Sent: 50}
	*intervals[0].add(2, o) = wire.Flow{Key: o, Received: 22}
	intervals[0].pass(o, 50, 10, 1000, "leaf1", "spine1")
	intervals[0].pass(o, 30, 900, 1000, "leaf2")
	*intervals[1].add(2, o) = wire.Flow{Key: o, Received: 8}
	for n, s := range intervals {
		var before *sim
		if n > 0 {
			before = intervals[n-1]
		}
		alerts := rows(t, h.Analyze(simEpoch(t, h, 5+uint64(n), before, s, everything)), alertList)
		if row := alerts["h3 PACKETS_LOST"]; row != nil && row["active"] == true {
			t.Errorf("epoch %d: alert %v", 5+n, row)
		}
		if row := alerts["leaf2 PACKETS_LOST"]; n > 0 && n < 4 && (row == nil || row["active"] != true) {
			t.Errorf("epoch %d: alerts %v", 5+n, slices.Sorted(maps.Keys(alerts)))
		}
	}
}

// TestOldLosses: a flow loses packets where there is no queue, and its rate falls. Later, packets
// of another flow wait in a queue at a switch that both pass: the former losses do not show that
// they are lost.
func TestOldLosses(t *testing.T) {
	h, keys := start(t, ""), simKeys(t, 2, "spine1", 2)
	k, o := keys[0], keys[1]
	var intervals []*sim
	for _, sent := range []uint64{90, 60, 60, 60, 30, 10, 3} {
		s, got := newSim(t), sent
		if len(intervals) == 0 {
			got = 30
		}
		*s.add(0, o) = wire.Flow{Key: o, Sent: sent}
		*s.add(2, o) = wire.Flow{Key: o, Received: got}
		s.pass(o, int(sent), 10, 1000, "leaf1", "spine1")
		s.pass(o, int(got), 10, 1000, "leaf2")
		waits := len(intervals) > 1
		*s.add(0, k) = wire.Flow{Key: k, Sent: 558}
		*s.add(2, k) = wire.Flow{Key: k, Received: 558}
		if waits {
			s.flows[2][k].Received = 507
		}
		s.pass(k, 558, 10, 1000, "leaf1")
		if waits {
			s.pass(k, 507, 900, 1000, "spine1", "leaf2")
		} else {
			s.pass(k, 558, 10, 1000, "spine1", "leaf2")
		}
		intervals = append(intervals, s)
	}
	for n, s := range intervals {
		var before *sim
		if n > 0 {
			before = intervals[n-1]
		}
		alerts := rows(t, h.Analyze(simEpoch(t, h, 5+uint64(n), before, s, everything)), alertList)
		if row := alerts["spine1 PACKETS_LOST"]; row != nil && row["active"] == true {
			t.Errorf("epoch %d: alert %v", 5+n, row)
		}
	}
}

// TestMixedGaps: a switch whose bucket has other flows, too, shows a shorter gap than the flow has.
// It is no baseline for the switch behind it, and hosts saw the same gap at both ends.
func TestMixedGaps(t *testing.T) {
	for _, hosts := range []uint64{667_000, 57_000} {
		h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
		*s.add(0, k) = wire.Flow{Key: k, Sent: 51, SentGap: hosts}
		*s.add(2, k) = wire.Flow{Key: k, Received: 51, ReceivedGap: 667_000}
		s.pass(k, 70, 10, 57_000, "leaf1")
		for _, name := range []string{"spine1", "leaf2"} {
			s.pass(k, 50, 10, 1000, name)
			s.sketches[name].Record(k.AppendBinary(nil), sumax.Packet{Delay: 10, At: 716_001})
		}
		out := play(t, h, 5, s)
		faults := rows(t, out, faultList)
		if hosts == 667_000 && len(faults) > 0 {
			t.Errorf("faults %v", slices.Sorted(maps.Keys(faults)))
		}
		if hosts == 57_000 { // the fault may be at leaf1, which shows nothing
			expect(t, faults, k.String()+" spine1 ABNORMAL_JITTER", nil)
		}
		silent(t, out)
	}
}

// TestSharedGaps: other flows share buckets of all flows that wait at one switch, so that hardly
// any bucket of the first row has one flow alone. In the other rows they leave the gap whole in
// most buckets, and it is found at that switch.
func TestSharedGaps(t *testing.T) {
	h, s, r := start(t, ""), newSim(t), rand.New(rand.NewPCG(1, 2))
	const packets, each, gap = 40, 5000, 300_000
	for _, k := range simKeys(t, 2, "spine1", 6) {
		*s.add(0, k) = wire.Flow{Key: k, Sent: packets, SentGap: each}
		*s.add(2, k) = wire.Flow{Key: k, Received: packets, ReceivedGap: gap + each}
		for name, late := range map[string]uint32{"leaf1": 0, "spine1": gap, "leaf2": gap} {
			for n := range uint32(packets) {
				s.sketches[name].Record(k.AppendBinary(nil), sumax.Packet{Delay: 10, At: 1 + n*each + n/20*late})
			}
		}
	}
	other := simKey(t, 2, "spine1")
	for port := range uint16(500) {
		other.SrcPort = 2000 + port
		for _, name := range []string{"leaf1", "spine1", "leaf2"} {
			s.sketches[name].Record(other.AppendBinary(nil), sumax.Packet{Delay: 10, At: 1 + r.Uint32N(900_000)})
		}
	}
	alerts := rows(t, play(t, h, 5, s), alertList)
	maps.DeleteFunc(alerts, func(key string, _ map[string]any) bool { return strings.HasSuffix(key, " INEXACT") })
	if alert := alerts["spine1 ABNORMAL_JITTER"]; len(alerts) != 1 || alert["active"] != true {
		t.Errorf("alerts %v", alerts)
	}
}

// TestPartlyRerouted: within an interval a flow leaves its path for another spine, which has most
// of its packets. The spine of the path sends sketchlets in the other packets, and is not abnormal.
func TestPartlyRerouted(t *testing.T) {
	h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
	s.send(k, 2, 100, "leaf1", "leaf2")
	s.pass(k, 40, 10, 1000, "spine1")
	s.pass(k, 60, 10, 1000, "spine2")
	s.flows[2][k].Devices = []uint16{3, 4}
	out := play(t, h, 5, s)
	faults := rows(t, out, faultList)
	expect(t, faults, k.String()+" spine2 PATH_CHANGED", nil)
	if len(faults) != 1 {
		t.Errorf("faults %v", slices.Sorted(maps.Keys(faults)))
	}
}

// TestLostOnDetour: a flow leaves its path for another spine and is lost behind it. The spine of
// the path, which has none of its packets, has no blackhole.
func TestLostOnDetour(t *testing.T) {
	h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
	s.send(k, -1, 100, "leaf1", "spine2")
	faults := rows(t, play(t, h, 5, s), faultList)
	expect(t, faults, k.String()+" spine2 PATH_CHANGED", nil)
	expect(t, faults, k.String()+" leaf2 BLACKHOLE", nil)
	if len(faults) != 2 {
		t.Errorf("faults %v", slices.Sorted(maps.Keys(faults)))
	}
}

// TestStray: a sketchlet from a switch that is not on the path of a flow shows an abnormal path,
// although all other packets of the flow took the path and are too few to show other faults.
func TestStray(t *testing.T) {
	for _, devices := range [][]uint16{nil, {4}} {
		h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
		s.send(k, 2, 9, "leaf1", "spine1", "leaf2")
		s.pass(k, 1, 10, 1000, "leaf1", "spine2", "leaf2")
		s.flows[0][k].Sent, s.flows[2][k].Received, s.flows[2][k].Devices = 10, 10, devices
		faults := rows(t, play(t, h, 5, s), faultList)
		if devices != nil {
			expect(t, faults, k.String()+" spine2 PATH_CHANGED", map[string]any{"located": true})
		}
		if len(faults) != len(devices) {
			t.Errorf("sketchlets of %v: faults %v", devices, slices.Sorted(maps.Keys(faults)))
		}
	}
}

// TestLargeFlows: flows of 65,536 packets and more count in the entropy of a switch and in its
// distribution, alone and beside smaller ones.
func TestLargeFlows(t *testing.T) {
	h, s := start(t, ""), newSim(t)
	for i, k := range simKeys(t, 2, "spine2", 3) {
		n := []uint32{100_000, 50_000, 50_000}[i]
		s.add(0, k).Sent, s.add(2, k).Received = uint64(n), uint64(n)
		s.sketches["spine2"].Add(k.AppendBinary(nil), n)
	}
	for _, k := range simKeys(t, 2, "spine1", 2) {
		s.add(0, k).Sent, s.add(2, k).Received = 70_000, 70_000
		s.sketches["spine1"].Add(k.AppendBinary(nil), 70_000)
	}
	out := play(t, h, 5, s)
	expect(t, rows(t, out, summariesList), "spine1 5-tuple", map[string]any{
		"packets": 140_000, "distinct-flows": 2, "entropy": 1.0})
	if h := rows(t, out, summariesList)["spine2 5-tuple"]["entropy"].(float64); math.Abs(h-1.5) > 0.01 {
		t.Errorf("entropy %v of a half and two quarters of the packets, want 1.5", h)
	}
	expect(t, rows(t, out, rangeList), "spine1 65536", map[string]any{"upper": 131_071, "flows": 2})
}

// TestOffPath: the last switch of a path loses all packets of flows, and a switch beside it, from
// which no link leads to the receiver, has as many packets of other flows. The packets are not lost
// on the receiver's link.
func TestOffPath(t *testing.T) {
	n := simNetwork()
	n.Devices = append(n.Devices, n.Devices[3])
	n.Devices[4].Name = "z"
	n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: "spine1", Port: 5}, B: sdk.Endpoint{Node: "z", Port: 1}})
	p, s := New(), newSim(t)
	h := sdktest.Start(t, p, sdktest.Options{Config: simConfig(""), Network: n, EpochLength: time.Second})
	beside := simSketch(t, "z")
	for _, k := range simKeys(t, 2, "spine1", 8) {
		*s.add(0, k) = wire.Flow{Key: k, Sent: 100}
		s.pass(k, 100, 10, 1000, "leaf1", "spine1")
		beside.Add(k.AppendBinary(nil), 100)
	}
	h.Analyze(simEpoch(t, h, 5, nil, s, nil))
	p.at(p.numberOf(5)).switches["z"] = &column{sketch: beside}
	out := h.Analyze(simEpoch(t, h, 6, s, s, everything))
	for key, row := range rows(t, out, alertList) {
		if strings.HasPrefix(key, "h3 ") && row["active"] == true {
			t.Errorf("alert %s: %v", key, row["text"])
		}
	}
}

// TestSteadyQueue: a queue that neither grows nor ends keeps packets of all flows from one interval
// to the next one, and a tenth of the packets of small flows that waited are lost behind it. No
// flow loses a fault's packets at the switch with the queue.
func TestSteadyQueue(t *testing.T) {
	h, keys := start(t, ""), simKeys(t, 2, "spine1", 400)
	var intervals []*sim
	for range 5 {
		intervals = append(intervals, newSim(t))
	}
	for n, s := range intervals {
		for j, k := range keys[:10] { // what waits changes by a packet or two
			sent, waits := uint64(100+j), uint64(20+(n+j)%3)
			*s.add(0, k) = wire.Flow{Key: k, Sent: sent}
			*s.add(2, k) = wire.Flow{Key: k, Received: sent}
			if n == 0 {
				s.flows[2][k].Received -= waits
			}
			s.pass(k, int(sent), 10, 1000, "leaf1")
			s.pass(k, int(sent-waits), 900, 1000, "spine1", "leaf2")
		}
		if n+1 == len(intervals) {
			break
		}
		for j, k := range keys[10+n*60:][:60] { // flows of one packet
			*s.add(0, k) = wire.Flow{Key: k, Sent: 1}
			s.pass(k, 1, 10, 1000, "leaf1")
			if j%10 > 0 {
				*intervals[n+1].add(2, k) = wire.Flow{Key: k, Received: 1}
			}
		}
	}
	for n, s := range intervals {
		var before *sim
		if n > 0 {
			before = intervals[n-1]
		}
		alerts := rows(t, h.Analyze(simEpoch(t, h, 5+uint64(n), before, s, everything)), alertList)
		if row := alerts["spine1 PACKETS_LOST"]; row != nil && row["active"] == true {
			t.Errorf("epoch %d: alert %v", 5+n, row["text"])
		}
	}
}

// TestLateGaps: packets of a flow stall behind spine1, and some of them arrive in the next
// interval. At leaf2 packets of other flows divide the gap in all of its buckets, and a bucket has
// as many packets as the flow sent. So leaf2 does not show that the packets stalled behind it.
func TestLateGaps(t *testing.T) {
	p, k, s, next := New(), simKey(t, 2, "spine1"), newSim(t), newSim(t)
	h := sdktest.Start(t, p, sdktest.Options{Config: simConfig(""), Network: simNetwork(), EpochLength: time.Second})
	const packets, late, each, gap = 50, 10, 5000, 400_000
	*s.add(0, k) = wire.Flow{Key: k, Sent: packets, SentGap: each}
	*s.add(2, k) = wire.Flow{Key: k, Received: packets - late, ReceivedGap: gap + each}
	*next.add(2, k) = wire.Flow{Key: k, Received: late}
	s.pass(k, packets, 10, each, "leaf1")
	record := func(name string, from, to uint32) {
		for n := from; n < to; n++ {
			s.sketches[name].Record(k.AppendBinary(nil), sumax.Packet{Delay: 10, At: 1 + n*each + n/20*gap})
		}
	}
	record("spine1", 0, packets-late)
	record("leaf2", 0, 20)
	column := func(k flow.Key, row int) int {
		x := simSketch(t, "leaf2")
		x.Add(k.AppendBinary(nil), 1)
		return slices.Index(x.Row(row), 1)
	}
	shared := [3]bool{}
	for port := range uint16(1000) {
		o := k
		o.SrcPort = 2000 + port
		row := slices.IndexFunc([]int{0, 1, 2}, func(row int) bool { return column(o, row) == column(k, row) })
		if row >= 0 && shared[row] {
			continue
		}
		for n := range uint32(late) {
			s.sketches["leaf2"].Record(o.AppendBinary(nil), sumax.Packet{Delay: 10, At: 100_000 + n*40_000})
		}
		if row >= 0 {
			shared[row] = true
		}
	}
	record("leaf2", 20, packets-late)
	h.Analyze(simEpoch(t, h, 5, nil, s, nil))
	h.Analyze(simEpoch(t, h, 6, s, next, everything))
	if leaf2 := p.at(p.numberOf(5)).follow(k).hops[2]; !leaf2.Mixed || leaf2.Seen > 0.9 {
		t.Errorf("leaf2 would have shown the gap with probability %v, mixed %v", leaf2.Seen, leaf2.Mixed)
	}
}

// TestHeld: the link to spine1 holds a flow's packets back for 400 ms. At the switch before the
// link no packet is slow; at spine1 the packets that the sender sent meanwhile are, and packets of
// other flows divide the gap in all of the flow's buckets. If many packets are slow at leaf1, too,
// there is a queue, and the place is not known. While packets are on their way, slow packets show
// nothing.
func TestHeld(t *testing.T) {
	const sent, gap = 100, 400 * time.Millisecond
	for _, tc := range []struct {
		name         string
		before, here uint32 // slow packets at leaf1 and spine1
		late         uint64
		seen         float64 // probability that spine1 would have shown the gap
		mixed        bool    // whether the gap at spine1 is not known
		least, most  float64 // bounds of the probability that leaf1 would have shown the gap
		queued       bool
	}{
		{"held at spine1", 0, 42, 0, 0, false, 0.99, 1, false},
		{"some slow at leaf1", 12, 42, 0, 0, false, 0.95, 0.99, false},
		{"a queue at leaf1", 40, 42, 0, 0, true, 0, 0, false},
		{"all are slow", 0, 100, 0, 0, true, 0.99, 1, false},
		{"packets wait", 0, 42, 10, 0, true, 0, 0, false},
		{"none is slow", 0, 0, 0, 0, true, 0, 0, false},
		{"spine1 would show the gap", 0, 42, 0, 0.95, true, 0.99, 1, false},
	} {
		i := &interval{setup: &setup{length: time.Second, epochs: 1}}
		i.config.Rules = Rules{DropPackets: 5}
		i.config.rules, i.config.TimeUnit = analysis.Rules{SlowRange: 1}, time.Microsecond
		f := &flowState{sent: sent, got: sent - tc.late, late: tc.late, known: [2]bool{true, true}}
		for _, slow := range []uint32{tc.before, tc.here, 0} {
			f.hops = append(f.hops, hop{Hop: analysis.Hop{Valid: true, Packets: sent, Mixed: true,
				Delays: []uint32{sent - slow, slow}}})
		}
		f.hops[1].Seen = tc.seen
		f.held(i, &ends{sentGap: 30 * time.Millisecond, receivedGap: gap})
		if leaf, spine := f.hops[0], f.hops[1]; spine.Mixed != tc.mixed || leaf.Seen < tc.least || leaf.Seen > tc.most ||
			!spine.Mixed && spine.Interval != i.config.units(gap) {
			t.Errorf("%s: leaf1 %v, spine1 mixed %v, gap %v", tc.name, leaf.Seen, spine.Mixed, spine.Interval)
		}
		if f.queued != tc.queued {
			t.Errorf("%s: queued %v", tc.name, f.queued)
		}
	}
}
