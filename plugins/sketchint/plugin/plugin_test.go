// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/settings"
)

// TestDefaults: thresholds and interval are the paper's (section VII) by default; tables have room
// for four times as many flows.
func TestDefaults(t *testing.T) {
	c := settings.Default[Configuration]()
	if c.Heavy != 500 || c.Change != 250 || c.Inflation != 5 || c.Interval != 5*time.Second || c.HeavyFlows != 4096 {
		t.Errorf("%+v", c)
	}
}

// TestTimeUnit: latencies that switches write in microseconds are published in nanoseconds, also in
// the text of an alert.
func TestTimeUnit(t *testing.T) {
	h := start(t, `{"heavy": 100, "inflated-packets": 5, "time-unit": "1us"}`)
	f := simFlow{to: 2, port: 1, path: []uint32{leaf1, spine1, leaf2}, packets: 1000, latencies: []uint32{1, 2, 3},
		slow: 10}
	key := f.key().String()
	out := h.Analyze(simEpoch(t, h, 1, []simFlow{f}))
	expect(t, rows(t, out, hopList), key+" spine1", map[string]any{"latency-avg": 2000})
	expect(t, rows(t, out, hopList), key+" leaf2", map[string]any{"latency-avg": 3270})
	expect(t, rows(t, out, flowList), key, map[string]any{"latency-avg": 1000 + 2000 + 3270})
	expect(t, rows(t, out, inflationList), key+" leaf2", map[string]any{"latency-max": 30_000, "latency-avg": 3270})
	expect(t, rows(t, out, switchList), "leaf2", map[string]any{"latency-avg": 3270, "latency-max": 30_000})
	alerts := rows(t, out, alertList)
	if text, _ := alerts["leaf2 LATENCY_INFLATED"]["text"].(string); !strings.Contains(text, "up to 30µs") {
		t.Errorf("alert %q of %v", text, alerts)
	}
}

// Flows, latencies and paths of every switch are what happened, over IPv4 and IPv6.
func TestInterval(t *testing.T) {
	h := start(t, `{"heavy": 100, "change": 50, "inflated-packets": 5}`)
	across := []uint32{leaf1, spine1, leaf2}
	flows := []simFlow{
		{to: 2, port: 1, path: across, packets: 1000, latencies: []uint32{1000, 2000, 3000}, slow: 10},
		{to: 3, port: 2, path: across, packets: 100, latencies: []uint32{1500, 2500, 3500}},
		{to: 0, port: 3, path: []uint32{leaf1}, packets: 60, latencies: []uint32{700}},
		{to: 1, port: 4, packets: 5},
	}
	key := func(i int) string { return flows[i].key().String() }
	out := h.Analyze(simEpoch(t, h, 1, flows))
	expect(t, rows(t, out, summaryList), "", map[string]any{"last-epoch": 9, "first-epoch": 5, "status": "COMPLETE",
		"reason": nil, "problem": nil, "hosts": 4, "hosts-delivered": 4, "switches": 4, "packets": 1165,
		"with-int": 1160, "flows": 4,
		"hops": 3360, "heavy-flows": 2, "active-alerts": 1})
	list := rows(t, out, flowList)
	expect(t, list, key(0), map[string]any{"reporting-node": "h3", "packets": 1000, "path": "leaf1 spine1 leaf2",
		"previous-path": nil, "path-changes": 0, "latency-avg": 1000 + 2000 + 3270})
	expect(t, list, key(2), map[string]any{"reporting-node": "h1", "packets": 60, "path": "leaf1", "latency-avg": 700})
	if len(list) != 3 {
		t.Errorf("%d flows", len(list))
	}
	list = rows(t, out, hopList)
	expect(t, list, key(0)+" leaf2", map[string]any{"reporting-node": "h3", "packets": 1000, "latency-avg": 3270})
	expect(t, list, key(1)+" spine1", map[string]any{"reporting-node": "h4", "packets": 100, "latency-avg": 2500})
	if len(list) != 7 {
		t.Errorf("%d latencies", len(list))
	}
	expect(t, rows(t, out, inflationList), key(0)+" leaf2", map[string]any{"packets": 10, "latency-max": 30_000,
		"latency-avg": 3270, "since-epoch": 5, "reporting-node": "h3"})
	list = rows(t, out, hitterList)
	for _, element := range []string{"network", "leaf1", "spine1", "leaf2"} {
		expect(t, list, element+" 5-tuple "+key(0), map[string]any{"packets": 1000, "rank": 1})
		expect(t, list, element+" 5-tuple "+key(1), map[string]any{"packets": 100, "rank": 2})
	}
	expect(t, list, "h3 5-tuple "+key(0), map[string]any{"rank": 1})
	expect(t, list, "h4 5-tuple "+key(1), map[string]any{"rank": 1})
	if len(list) != 10 {
		t.Errorf("%d heavy hitters", len(list))
	}
	if list = rows(t, out, changeList); len(list) != 0 {
		t.Errorf("changes in the first interval: %v", list)
	}
	list = rows(t, out, switchList)
	expect(t, list, "leaf2", map[string]any{"node-id": leaf2, "packets": 1100, "latency-avg": (3_270_000 + 350_000) / 1100,
		"latency-max": 30_000, "dropped-packets": 0, "inflated-flows": 1, "inflated-packets": 10, "heavy-flows": 2})
	expect(t, list, "spine2", map[string]any{"packets": 0, "latency-avg": nil, "latency-max": nil})
	expect(t, rows(t, out, summariesList), "network 5-tuple", map[string]any{"packets": 1165, "distinct-flows": 4})
	for _, where := range []string{"h3 512", "network 512", "h4 64", "network 64", "h1 32", "h2 4"} {
		expect(t, rows(t, out, rangeList), where, map[string]any{"flows": 1})
	}
	expect(t, rows(t, out, alertList), "leaf2 LATENCY_INFLATED", map[string]any{"active": true,
		"text": "10 packets had more than 5 times the mean latency of their flow, up to 30µs; " +
			"1 flows are affected, for 5s (5 epochs): " + key(0)})
	expect(t, rows(t, out, costList), "", map[string]any{"passport-packets": 1160,
		"passport-bytes": 1160*(headers+16) + 8*3360})
}

// Changes compare consecutive intervals, at the host and at each switch of the path.
func TestChanges(t *testing.T) {
	h := start(t, `{"heavy": 100, "change": 50}`)
	flows := []simFlow{
		{to: 2, port: 1, path: []uint32{leaf1, leaf2}, packets: 200, latencies: []uint32{1, 1}}, // grows
		{to: 2, port: 2, path: []uint32{leaf1, leaf2}, packets: 90, latencies: []uint32{1, 1}},  // ends
		{to: 2, port: 3, path: []uint32{leaf1, leaf2}, packets: 90, latencies: []uint32{1, 1}},  // by 50
	}
	h.Analyze(simEpoch(t, h, 1, flows))
	next := []simFlow{flows[0], flows[2],
		{to: 3, port: 4, path: []uint32{spine1, leaf2}, packets: 51, latencies: []uint32{1, 1}}} // begins
	next[0].packets, next[1].packets = 260, 140
	out := h.Analyze(simEpoch(t, h, 2, next))
	list := rows(t, out, changeList)
	for _, element := range []string{"network", "h3", "leaf1", "leaf2"} {
		expect(t, list, element+" 5-tuple "+flows[0].key().String(), map[string]any{"previous": 200, "current": 260})
		expect(t, list, element+" 5-tuple "+flows[1].key().String(), map[string]any{"previous": 90, "current": 0})
	}
	for _, element := range []string{"network", "h4", "spine1", "leaf2"} {
		expect(t, list, element+" 5-tuple "+next[2].key().String(), map[string]any{"previous": 0, "current": 51})
	}
	if len(list) != 12 {
		t.Errorf("changes %v", list)
	}
	if list := rows(t, h.Analyze(simEpoch(t, h, 4, flows)), changeList); len(list) != 0 {
		t.Errorf("changes over an interval that is missing: %v", list)
	}
}

// A flow that moves to another path changes at the switches that it leaves and joins, by the
// packets that it has there. In an interval in which it moves they are those of the tower of
// latencies.
func TestChangesOfMovedFlows(t *testing.T) {
	h := start(t, `{"heavy": 100, "change": 50}`)
	one := []uint32{1, 1, 1}
	f := simFlow{to: 2, port: 1, path: []uint32{leaf1, spine1, leaf2}, packets: 200, latencies: one}
	h.Analyze(simEpoch(t, h, 1, []simFlow{f}))
	f.path = []uint32{leaf1, spine2, leaf2}
	out := h.Analyze(simEpoch(t, h, 2, []simFlow{f}))
	list := rows(t, out, changeList)
	expect(t, list, "spine1 5-tuple "+f.key().String(), map[string]any{"previous": 200, "current": 0})
	expect(t, list, "spine2 5-tuple "+f.key().String(), map[string]any{"previous": 0, "current": 200})
	if len(list) != 2 {
		t.Errorf("changes %v", list)
	}
	// The flow moves back after 120 packets. The simulation plays it as two flows with one key.
	rest := f
	f.packets, rest.packets, rest.path = 120, 80, []uint32{leaf1, spine1, leaf2}
	e := simEpoch(t, h, 3, []simFlow{f, rest})
	r := simReport(t, settingsOf(t, h, "h3"), 15, 19, []simFlow{f, rest})
	r.Heavy = []wire.Heavy{{Key: f.key(), Path: rest.path, Changes: 1}}
	setReport(t, e, "h3", r)
	out = h.Analyze(e)
	list = rows(t, out, hitterList)
	expect(t, list, "leaf2 5-tuple "+f.key().String(), map[string]any{"packets": 200})
	expect(t, list, "spine2 5-tuple "+f.key().String(), map[string]any{"packets": 120})
	if _, ok := list["spine1 "+f.key().String()]; ok {
		t.Errorf("heavy hitters %v", list)
	}
	expect(t, rows(t, out, switchList), "spine2", map[string]any{"heavy-flows": 1})
	list = rows(t, out, changeList)
	expect(t, list, "spine1 5-tuple "+f.key().String(), map[string]any{"previous": 0, "current": 80})
	expect(t, list, "spine2 5-tuple "+f.key().String(), map[string]any{"previous": 200, "current": 120})
	if len(list) != 2 {
		t.Errorf("changes %v", list)
	}
}

// Intervals that a host did not measure whole have no changes.
func TestChangesOfPartialIntervals(t *testing.T) {
	flows := []simFlow{{to: 2, port: 1, path: []uint32{leaf1}, packets: 200, latencies: []uint32{1}}}
	for name, partial := range map[string]uint64{"before": 1, "after": 2} {
		h := start(t, `{"heavy": 100, "change": 50}`)
		for interval := range uint64(3) {
			e := simEpoch(t, h, interval, nil)
			if interval > 0 {
				sent := slices.Clone(flows)
				sent[0].packets *= uint32(interval)
				first := 5 * interval
				if interval == partial {
					first++
				}
				setReport(t, e, "h3", simReport(t, settingsOf(t, h, "h3"), first, e.Number, sent))
			}
			if list := rows(t, h.Analyze(e), changeList); len(list) > 0 && interval == 2 {
				t.Errorf("partial %s: changes %v", name, list)
			}
		}
	}
	// Other lengths of intervals are not compared either.
	h := start(t, `{"heavy": 100, "change": 50}`)
	h.Analyze(simEpoch(t, h, 1, flows))
	if _, err := h.Configure(`{"heavy": 100, "change": 50, "interval": "4500ms"}`, simNetwork(),
		3*time.Second); err != nil {
		t.Fatal(err)
	}
	e := simEpoch(t, h, 0, nil)
	e.Number = 5 // of intervals of two epochs
	setReport(t, e, "h3", simReport(t, settingsOf(t, h, "h3"), 4, 5, nil))
	out := h.Analyze(e)
	expect(t, rows(t, out, hostList), "h3", map[string]any{"status": "COMPLETE"})
	if list := rows(t, out, changeList); len(list) > 0 {
		t.Errorf("changes between intervals of different lengths: %v", list)
	}
}

// If several hosts report a flow, the host with the most packets provides it: both a host that
// receives telemetry reports and the destination may report.
func TestSeveralHostsReportAFlow(t *testing.T) {
	h := start(t, `{"heavy": 100, "change": 50, "inflated-packets": 12}`)
	loop := simFlow{to: 2, port: 1, path: []uint32{leaf1, spine1, leaf1}, packets: 150, latencies: []uint32{10, 10, 10},
		slow: 6}
	e := simEpoch(t, h, 1, []simFlow{loop})
	r := simReport(t, settingsOf(t, h, "h4"), 5, 9, []simFlow{loop})
	more := simFlow{to: 2, port: 1, packets: 10}
	k := more.key()
	r.Flows.Add(k.AppendBinary(nil), more.packets)
	setReport(t, e, "h4", r)
	light := simFlow{to: 8, port: 3, packets: 7} // to an address of no host
	setReport(t, e, "h1", simReport(t, settingsOf(t, h, "h1"), 5, 9, []simFlow{light}))
	e.Watched = []sdk.RowKey{{List: flowList, Keys: map[string]string{"flow": light.key().String()}}}
	out := h.Analyze(e)
	list := rows(t, out, flowList)
	expect(t, list, loop.key().String(), map[string]any{
		"reporting-node": "h4", "packets": 160, "path": "leaf1 spine1 leaf1",
		"latency-avg": 2*(10+6*90/(2*150)) + 10})
	expect(t, rows(t, out, hitterList), "leaf1 5-tuple "+loop.key().String(), map[string]any{"rank": 1})
	expect(t, list, light.key().String(), map[string]any{"reporting-node": "h1", "packets": 7})
	if list := rows(t, out, hopList); len(list) != 2 { // each switch of the loop has one row
		t.Errorf("latencies %v", list)
	}
	expect(t, rows(t, out, inflationList), loop.key().String()+" leaf1", map[string]any{"packets": 12})
	expect(t, rows(t, out, alertList), "leaf1 LATENCY_INFLATED", map[string]any{"active": true})
}

// A report that arrives late does not change what was published, but the next interval is compared
// with it.
func TestLateReport(t *testing.T) {
	h := start(t, `{"heavy": 100, "change": 50}`)
	flows := []simFlow{{to: 2, port: 1, path: []uint32{leaf1, leaf2}, packets: 200, latencies: []uint32{1, 1}}}
	e := simEpoch(t, h, 1, flows)
	late := sdk.LateReport{Epoch: e.Number, HostReport: e.Hosts[2]}
	setData(e, "h3", nil)
	e.Missing, e.Status = []sdk.Missing{{Name: "h3", Reason: "no answer", Host: true},
		{Name: "h4", Reason: "joined", Host: true, Joined: true}}, sdk.StatusPartial
	setData(e, "h4", nil)
	out := h.Analyze(e)
	expect(t, rows(t, out, summaryList), "", map[string]any{"status": "PARTIAL", "reason": "HOST_MISSING",
		"problem":         "host h3: no answer",
		"hosts-delivered": 2, "packets": 0})
	expect(t, rows(t, out, hostList), "h3", map[string]any{"status": "LOST", "problem": "no answer", "packets": nil})
	expect(t, rows(t, out, alertList), "h3 HOST_MISSING", map[string]any{"active": true, "text": "no answer"})
	expect(t, rows(t, out, hostList), "h4", map[string]any{"status": "LOST", "problem": "joined"})
	if a := rows(t, out, alertList); len(a) != 1 {
		t.Errorf("alerts %v, want none of a host that joined", a)
	}
	middle := simEpoch(t, h, 2, nil)
	middle.Number, middle.Late = 10, []sdk.LateReport{{Epoch: 4, HostReport: sdk.HostReport{Host: "h3", Role: wire.Role,
		Data: []byte("of an earlier epoch")}}, late}
	if out := h.Analyze(middle); len(out.Tables) != 0 {
		t.Errorf("tables %v within an interval", out.Tables)
	}
	flows[0].packets, flows[0].path = 300, []uint32{leaf1, spine1, leaf2}
	flows[0].latencies = []uint32{1, 1, 1}
	out = h.Analyze(simEpoch(t, h, 2, flows))
	expect(t, rows(t, out, pathList), flows[0].key().String(), map[string]any{"previous-path": "leaf1 leaf2"})
	expect(t, rows(t, out, changeList), "h3 5-tuple "+flows[0].key().String(), map[string]any{"previous": 200,
		"current": 300})
	expect(t, rows(t, out, summaryList), "", map[string]any{"status": "COMPLETE"})
	expect(t, rows(t, out, alertList), "h3 HOST_MISSING", map[string]any{"active": false})
}

// Reports that cannot be used are named, and the other hosts' results are published.
func TestBadReports(t *testing.T) {
	for _, tt := range []struct {
		name string
		data func(t *testing.T, s *wire.Settings) []byte
		want string
	}{
		{"garbage", func(*testing.T, *wire.Settings) []byte { return []byte{200, 1} }, "no version of it"},
		{"truncated", func(t *testing.T, s *wire.Settings) []byte {
			return appendReport(t, simReport(t, s, 5, 9, nil))[:40]
		}, "ends too early"},
		{"of another interval", func(t *testing.T, s *wire.Settings) []byte {
			return appendReport(t, simReport(t, s, 0, 4, nil))
		}, "its report of epoch 4 arrived too late"},
		{"of an interval that has not ended", func(*testing.T, *wire.Settings) []byte {
			return appendReport(t, &wire.Report{First: 9})
		}, "its settings are outdated"},
		{"of a part of the interval", func(t *testing.T, s *wire.Settings) []byte {
			return appendReport(t, simReport(t, s, 7, 9, nil))
		}, "it measured from epoch 7 on; the interval began with epoch 5"},
		{"of towers of another size", func(t *testing.T, s *wire.Settings) []byte {
			other := *s
			other.Flows = 80
			return appendReport(t, simReport(t, &other, 5, 9, nil))
		}, "its towers have another size: its settings are outdated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := start(t, `{"heavy": 100, "change": 50}`)
			flows := []simFlow{{to: 2, port: 1, path: []uint32{leaf1}, packets: 200, latencies: []uint32{1}}}
			e := simEpoch(t, h, 1, flows)
			setData(e, "h1", tt.data(t, settingsOf(t, h, "h1")))
			out := h.Analyze(e)
			expect(t, rows(t, out, summaryList), "", map[string]any{"status": "PARTIAL", "packets": 200})
			problem, _ := rows(t, out, hostList)["h1"]["problem"].(string)
			if !strings.Contains(problem, tt.want) {
				t.Errorf("problem %q, want %q", problem, tt.want)
			}
			expect(t, rows(t, out, hostList), "h3", map[string]any{"status": "COMPLETE", "problem": nil})
			expect(t, rows(t, out, flowList), flows[0].key().String(), map[string]any{"packets": 200})
		})
	}
}

func appendReport(t *testing.T, r *wire.Report) []byte {
	t.Helper()
	data, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Without any report the interval is lost; the lists have rows for hosts and switches.
func TestLostInterval(t *testing.T) {
	h := start(t, "")
	e := simEpoch(t, h, 0, nil)
	e.Plans = []sdk.PlanOutcome{{Device: "leaf1", Status: sdk.PlanApplied},
		{Device: "leaf2", Status: sdk.PlanFailed, Reason: "no such table"}}
	out := h.Analyze(e)
	expect(t, rows(t, out, alertList), "leaf2 PLAN_FAILED", map[string]any{"active": true,
		"text": "the plan of this configuration is failed: no such table"})
	if list := rows(t, out, alertList); len(list) != 1 {
		t.Errorf("alerts %v", list)
	}
	if bytes := rows(t, out, costList)[""]["bytes"]; bytes == uint64(0) {
		t.Error("reports without bytes")
	}
	e = simEpoch(t, h, 1, nil)
	e.Hosts, e.Status = nil, sdk.StatusLost
	out = h.Analyze(e)
	expect(t, rows(t, out, alertList), "leaf2 PLAN_FAILED", map[string]any{"active": false})
	expect(t, rows(t, out, summaryList), "", map[string]any{"status": "LOST", "reason": "HOST_MISSING",
		"problem": "host h1: no report arrived",
		"hosts":   4, "hosts-delivered": 0, "flows": nil})
	expect(t, rows(t, out, costList), "", map[string]any{"bytes": 0, "packets": 0})
	if hosts, switches := rows(t, out, hostList), rows(t, out, switchList); len(hosts) != 4 || len(switches) != 4 {
		t.Errorf("hosts %v, switches %v", hosts, switches)
	}
	expect(t, rows(t, out, costList), "", map[string]any{"bytes-ratio": nil})
}

// A switch that the collector does not manage has its node id as name, or a configured one.
func TestForeignNodes(t *testing.T) {
	h := start(t, `{"heavy": 10, "change": 10, "nodes": [{"name": "border", "id": 77}, {"name": "spine2", "id": 9}]}`)
	f := simFlow{to: 0, port: 1, path: []uint32{4711, 77, 9}, packets: 20, latencies: []uint32{1, 2, 3}}
	out := h.Analyze(simEpoch(t, h, 1, []simFlow{f}))
	expect(t, rows(t, out, flowList), f.key().String(), map[string]any{"path": "4711 border spine2", "latency-avg": 6})
	list := rows(t, out, switchList)
	expect(t, list, "4711", map[string]any{"node-id": 4711, "packets": 20})
	expect(t, list, "border", map[string]any{"node-id": 77, "latency-avg": 2})
	expect(t, list, "spine2", map[string]any{"node-id": 9, "latency-avg": 3})
	expect(t, list, "spine1", map[string]any{"node-id": 3, "packets": 0})
}

// Packets with INT may name any number of switches: those with the most packets have rows, and the
// others are counted.
func TestForgedNodes(t *testing.T) {
	h := start(t, `{"heavy": 10, "change": 10, "limits": {"foreign": 2, "senders": 1, "inflations": 1}}`)
	forged := simFlow{to: 0, port: 1, packets: 20, slow: 2}
	for node := range uint32(60) {
		forged.path, forged.latencies = append(forged.path, 1000+node), append(forged.latencies, 1)
	}
	more := simFlow{to: 1, port: 2, path: []uint32{1030, 1040, leaf1}, packets: 30, latencies: []uint32{1, 1, 1}, slow: 1}
	e := simEpoch(t, h, 1, []simFlow{forged, more})
	r := simReport(t, settingsOf(t, h, "h3"), 5, 9, nil)
	r.Queues = []wire.Queue{{Node: 1040, ID: 1, Packets: 1}, {Node: 1041, ID: 1, Packets: 1}}
	for i := range byte(3) {
		address := netip.AddrFrom4([4]byte{10, 0, 0, i})
		r.Faults = append(r.Faults, wire.Fault{Address: address, Problem: inband.Truncated, Packets: 1})
		r.Sources = append(r.Sources, wire.Source{Address: address})
	}
	setReport(t, e, "h3", r)
	out := h.Analyze(e)
	list := rows(t, out, switchList)
	expect(t, list, "1040", map[string]any{"packets": 50})
	if list["1030"] == nil || len(list) != 6 {
		t.Errorf("switches %v", slices.Sorted(maps.Keys(list)))
	}
	list = rows(t, out, hitterList)
	expect(t, list, "1040 5-tuple "+forged.key().String(), map[string]any{"packets": 20, "rank": 2})
	if len(list) != 2*2+2*2+1 { // network and hosts, two foreign switches, leaf1
		t.Errorf("heavy hitters %v", slices.Sorted(maps.Keys(list)))
	}
	if queues, faults := rows(t, out, queueList), rows(t, out, faultList); len(queues) != 1 || len(faults) != 1 {
		t.Errorf("queues %v, faults %v", queues, faults)
	}
	expect(t, rows(t, out, summaryList), "", map[string]any{"omitted-rows": 58 + 1 + 1 + 2 + 2})
}

// A path that changes is found with the last switch in common, within an interval and between two.
func TestPathChanges(t *testing.T) {
	h := start(t, `{"heavy": 10, "change": 10}`)
	flows := []simFlow{
		{to: 2, port: 1, path: []uint32{leaf1, spine1, leaf2}, packets: 20, latencies: []uint32{1, 1, 1}},
		{to: 3, port: 2, path: []uint32{leaf1, spine1, leaf2}, packets: 20, latencies: []uint32{1, 1, 1}},
	}
	h.Analyze(simEpoch(t, h, 1, flows))
	flows[0].path = []uint32{leaf1, spine2, leaf2}
	flows[1].changes = 2
	out := h.Analyze(simEpoch(t, h, 2, flows))
	list := rows(t, out, pathList)
	expect(t, list, flows[0].key().String(), map[string]any{"node": "leaf1", "previous-path": "leaf1 spine1 leaf2",
		"path": "leaf1 spine2 leaf2", "path-changes": 0})
	expect(t, list, flows[1].key().String(), map[string]any{"previous-path": nil, "path-changes": 2})
	expect(t, rows(t, out, flowList), flows[0].key().String(), map[string]any{"previous-path": "leaf1 spine1 leaf2"})
	text, _ := rows(t, out, alertList)["leaf1 PATH_CHANGED"]["text"].(string)
	if !strings.Contains(text, "2 flows") || !strings.Contains(text, "from leaf1 spine1 leaf2 to leaf1 spine2 leaf2") {
		t.Errorf("alert %q", text)
	}
	flows[1].changes = 0
	out = h.Analyze(simEpoch(t, h, 3, flows))
	expect(t, rows(t, out, alertList), "leaf1 PATH_CHANGED", map[string]any{"active": false})
}

// Inflated latencies of consecutive intervals have the epoch in which they began.
func TestInflationOverTime(t *testing.T) {
	h := start(t, `{"inflated-packets": 5}`)
	f := simFlow{to: 2, port: 1, path: []uint32{leaf1, leaf2}, packets: 100, latencies: []uint32{100, 100}, slow: 9}
	key := f.key().String() + " leaf2"
	h.Analyze(simEpoch(t, h, 1, []simFlow{f}))
	out := h.Analyze(simEpoch(t, h, 2, []simFlow{f}))
	expect(t, rows(t, out, inflationList), key, map[string]any{"since-epoch": 5, "packets": 9, "latency-max": 1000,
		"latency-avg": 100 + 9*9})
	expect(t, rows(t, out, alertList), "leaf2 LATENCY_INFLATED", map[string]any{"active": true, "since-epoch": 9,
		"text": "9 packets had more than 5 times the mean latency of their flow, up to 1µs; " +
			"1 flows are affected, for 10s (10 epochs): " + f.key().String()})
	f.slow = 4
	out = h.Analyze(simEpoch(t, h, 3, []simFlow{f}))
	expect(t, rows(t, out, inflationList), key, map[string]any{"since-epoch": 5, "packets": 4})
	expect(t, rows(t, out, alertList), "leaf2 LATENCY_INFLATED", map[string]any{"active": false})
	f.slow = 0
	h.Analyze(simEpoch(t, h, 4, []simFlow{f}))
	f.slow = 5
	out = h.Analyze(simEpoch(t, h, 5, []simFlow{f}))
	expect(t, rows(t, out, inflationList), key, map[string]any{"since-epoch": 25})
}

// A queue that stays full raises the mean: the inflation lasts until the mean is normal again.
func TestLastingInflation(t *testing.T) {
	h := start(t, `{"inflated-packets": 5}`)
	f := simFlow{to: 2, port: 1, path: []uint32{leaf1, leaf2}, packets: 100, latencies: []uint32{100, 100}}
	other := simFlow{to: 3, port: 2, path: []uint32{leaf1, leaf2}, packets: 100, latencies: []uint32{100, 100}, slow: 5}
	key := f.key().String() + " leaf2"
	h.Analyze(simEpoch(t, h, 1, []simFlow{f}))
	f.slow = 9
	out := h.Analyze(simEpoch(t, h, 2, []simFlow{f}))
	expect(t, rows(t, out, inflationList), key, map[string]any{"since-epoch": 10, "packets": 9, "latency-normal": 100})
	f.slow, f.latencies[1] = 0, 501
	out = h.Analyze(simEpoch(t, h, 3, []simFlow{f, other}))
	expect(t, rows(t, out, inflationList), key, map[string]any{"since-epoch": 10, "packets": 0, "latency-max": nil,
		"latency-avg": 501, "latency-normal": 100})
	expect(t, rows(t, out, alertList), "leaf2 LATENCY_INFLATED", map[string]any{"active": true,
		"text": "5 packets had more than 5 times the mean latency of their flow, up to 1µs; 1 flows have a mean " +
			"latency of more than 5 times the normal one; 2 flows are affected, for 10s (10 epochs): " +
			other.key().String() + "; " + f.key().String()})
	out = h.Analyze(simEpoch(t, h, 4, []simFlow{f}))
	expect(t, rows(t, out, alertList), "leaf2 LATENCY_INFLATED", map[string]any{"active": true,
		"text": "1 flows have a mean latency of more than 5 times the normal one; 1 flows are affected, " +
			"for 15s (15 epochs): " + f.key().String()})
	f.latencies[1] = 500
	out = h.Analyze(simEpoch(t, h, 5, []simFlow{f}))
	expect(t, rows(t, out, alertList), "leaf2 LATENCY_INFLATED", map[string]any{"active": false})
	if list := rows(t, out, inflationList); len(list) != 0 {
		t.Errorf("inflations %v", list)
	}
}

// Any flow can be watched and queried: a light one has the switches whose towers have it.
func TestWatchedFlows(t *testing.T) {
	h := start(t, "")
	light := simFlow{to: 3, port: 1, path: []uint32{leaf1, leaf2}, packets: 3, latencies: []uint32{10, 20}}
	other := simFlow{to: 2, port: 7, path: []uint32{spine1}, packets: 4, latencies: []uint32{30}}
	absent := simFlow{to: 0, port: 9}
	e := simEpoch(t, h, 1, []simFlow{light, other})
	for _, f := range []*simFlow{&light, &absent} {
		e.Watched = append(e.Watched, sdk.RowKey{List: flowList, Keys: map[string]string{"flow": f.key().String()}})
	}
	e.Watched = append(e.Watched, sdk.RowKey{List: hopList, Keys: map[string]string{"flow": other.key().String(),
		"node": "spine1"}}, sdk.RowKey{List: flowList, Keys: map[string]string{"flow": "no flow"}})
	out := h.Analyze(e)
	list := rows(t, out, flowList)
	expect(t, list, light.key().String(), map[string]any{
		"reporting-node": "h4", "packets": 3, "path": nil, "latency-avg": nil})
	expect(t, list, absent.key().String(), map[string]any{"reporting-node": "h1", "packets": 0})
	if len(list) != 2 {
		t.Errorf("flows %v", list)
	}
	list = rows(t, out, hopList)
	expect(t, list, light.key().String()+" leaf1", map[string]any{"packets": 3, "latency-avg": 10})
	expect(t, list, light.key().String()+" leaf2", map[string]any{"packets": 3, "latency-avg": 20})
	expect(t, list, other.key().String()+" spine1", map[string]any{"packets": 4, "latency-avg": 30})
	if len(list) != 3 {
		t.Errorf("latencies %v", list)
	}
	tables, err := h.Query(sdk.RowKey{List: hopList, Keys: map[string]string{"flow": light.key().String(),
		"node": "leaf2"}})
	if err != nil || len(tables) != 1 {
		t.Fatalf("query: %v, %v", tables, err)
	}
	expect(t, rowsOf(tables[0]), light.key().String()+" leaf2", map[string]any{"packets": 3})
	if _, err := h.Query(sdk.RowKey{List: hostList, Keys: map[string]string{"node": "h1"}}); err == nil ||
		!strings.Contains(err.Error(), flowList) {
		t.Errorf("query of a host: %v", err)
	}
}

// Tables that were full, and INT that could not be read, are alerts.
func TestInexact(t *testing.T) {
	h := start(t, "")
	e := simEpoch(t, h, 1, nil)
	r := simReport(t, settingsOf(t, h, "h2"), 5, 9, nil)
	r.Counters[wire.HeavyFull] = 7
	r.Problems[inband.Truncated], r.Problems[inband.Fragment] = 3, 2
	r.Faults = []wire.Fault{{Address: netip.MustParseAddr("10.8.8.8"), Problem: inband.Truncated, Packets: 3}}
	r.Queues = []wire.Queue{{Node: leaf1, ID: 3, Packets: 4, Timed: 2, Sum: 50, Occupancy: 6, Worst: 5}}
	r.Nodes = []wire.Node{{ID: leaf1, Drops: 6}}
	silent := simFlow{to: 1, port: 1} // the hops of the flow have no latency
	r.Heavy = []wire.Heavy{{Key: silent.key(), Path: []uint32{leaf1, leaf2}}}
	r.Sources = []wire.Source{{Address: netip.MustParseAddr("10.9.9.9"), Node: leaf1, Hardware: 2, Received: 50, Lost: 4}}
	setReport(t, e, "h2", r)
	other := simReport(t, settingsOf(t, h, "h1"), 5, 9, nil)
	other.Queues = []wire.Queue{{Node: leaf1, ID: 3, Packets: 4, Timed: 1, Sum: 40, Occupancy: 5, Worst: 4},
		{Node: leaf1, ID: 4, Packets: 1}}
	setReport(t, e, "h1", other)
	e.Hosts = append(e.Hosts, e.Hosts[0], sdk.HostReport{Host: "h1", Role: "other"},
		sdk.HostReport{Host: "nobody", Role: wire.Role})
	twice := "host " + e.Hosts[0].Host + ": two agents have its name"
	out := h.Analyze(e)
	expect(t, rows(t, out, summaryList), "", map[string]any{"status": "PARTIAL", "reason": "INEXACT", "problem": twice,
		"warnings": 2})
	expect(t, rows(t, out, hostList), "h2", map[string]any{"status": "PARTIAL", "heavy-full": 7,
		"int-truncated": 3, "problem": "7 heavy-full"})
	expect(t, rows(t, out, flowList), silent.key().String(), map[string]any{"path": "leaf1 leaf2", "latency-avg": nil})
	list := rows(t, out, alertList)
	expect(t, list, "network INEXACT", map[string]any{"text": twice + "; host h2: 7 heavy-full"})
	expect(t, list, "h2 UNREAD", map[string]any{
		"text": "INT of 5 packets could not be read; most of them: truncated"})
	expect(t, list, "leaf1 PACKETS_LOST", map[string]any{"text": "it reported 6 dropped packets"})
	expect(t, rows(t, out, queueList), "leaf1 3", map[string]any{"packets": 8, "latency-avg": 30, "occupancy-avg": 1.375,
		"occupancy-max": 5})
	expect(t, rows(t, out, queueList), "leaf1 4", map[string]any{"packets": 1, "latency-avg": nil, "occupancy-avg": 0.0})
	expect(t, rows(t, out, faultList), "h2 10.8.8.8 TRUNCATED", map[string]any{"packets": 3})
	expect(t, rows(t, out, sourceList), "h2 10.9.9.9 1 2", map[string]any{
		"source-node": "leaf1", "received": 50, "lost": 4})
}

// Node ids, entries and alerts outlive the process.
func TestState(t *testing.T) {
	h := start(t, `{"nodes": [{"name": "leaf2", "id": 2}]}`)
	e := simEpoch(t, h, 1, nil)
	e.Hosts = nil
	state := h.Analyze(e).State
	n := simNetwork()
	n.Devices = append([]sdk.Device{{Name: "a", Program: "sketchint-edge"}}, n.Devices[1:]...) // without leaf1
	n.Devices[2].Ports = slices.Delete(n.Devices[2].Ports, 2, 3)                               // removes a port of spine1
	p := New()
	h = sdktest.Start(t, p, sdktest.Options{Network: n, State: state})
	want := map[string]uint32{"leaf1": 1, "leaf2": 2, "spine1": 3, "spine2": 4, "a": 5}
	if !maps.Equal(p.nodes, want) {
		t.Errorf("node ids %v, want %v", p.nodes, want)
	}
	if id := h.Settings().Plan.ID; id != 2 {
		t.Errorf("plan %d after plan 1", id)
	}
	var deletes []string
	for _, w := range h.Settings().Plan.Writes {
		if w.Op == sdk.Delete {
			deletes = append(deletes, w.Device+" "+text(w))
		}
	}
	if want := []string{"spine1 delete sink port=0003 remove"}; !slices.Equal(deletes, want) {
		t.Errorf("deletes %v, want %v", deletes, want)
	}
	out := h.Analyze(simEpoch(t, h, 2, nil))
	expect(t, rows(t, out, alertList), "h1 HOST_MISSING", map[string]any{"active": false, "count": 1})
	for _, bad := range []string{`{`, `{"Nodes": {"a": 1, "b": 1}}`, `{"Nodes": {"a": 0}}`,
		`{"Alerts": [{"Location": "b"}, {"Location": "a"}]}`} {
		if err := New().RestoreState(sdk.State{Version: stateVersion, Data: []byte(bad)}); err == nil {
			t.Errorf("state %s was accepted", bad)
		}
	}
	if err := New().RestoreState(sdk.State{Version: 99}); err == nil {
		t.Error("state of another version was accepted")
	}
}
