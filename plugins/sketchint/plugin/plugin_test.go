// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"
)

// Flows, latencies and paths of every switch are what happened, over IPv4 and IPv6.
func TestInterval(t *testing.T) {
	h := start(t, `{"heavy": 100, "change": 50, "inflatedPackets": 5}`)
	across := []uint32{leaf1, spine1, leaf2}
	flows := []simFlow{
		{to: 2, port: 1, path: across, packets: 1000, latencies: []uint32{1000, 2000, 3000}, slow: 10},
		{to: 3, port: 2, path: across, packets: 120, latencies: []uint32{1500, 2500, 3500}},
		{to: 0, port: 3, path: []uint32{leaf1}, packets: 60, latencies: []uint32{700}},
		{to: 1, port: 4, packets: 5},
	}
	key := func(i int) string { return flows[i].key().String() }
	out := h.Analyze(simEpoch(t, h, 1, flows))
	expect(t, rows(t, out, summaryList), "", map[string]any{"epoch": 9, "first-epoch": 5, "status": "complete",
		"problem": nil, "hosts": 4, "hosts-delivered": 4, "switches": 4, "packets": 1185, "with-int": 1180, "flows": 4,
		"hops": 3420, "heavy-flows": 2, "active-alerts": 1})
	list := rows(t, out, flowList)
	expect(t, list, key(0), map[string]any{"host": "h3", "packets": 1000, "path": "leaf1 spine1 leaf2",
		"previous-path": nil, "path-changes": 0, "latency": 1000 + 2000 + 3270})
	expect(t, list, key(2), map[string]any{"host": "h1", "packets": 60, "path": "leaf1", "latency": 700})
	if len(list) != 3 {
		t.Errorf("%d flows", len(list))
	}
	list = rows(t, out, latencyList)
	expect(t, list, key(0)+" leaf2", map[string]any{"host": "h3", "packets": 1000, "latency": 3270})
	expect(t, list, key(1)+" spine1", map[string]any{"host": "h4", "packets": 120, "latency": 2500})
	if len(list) != 7 {
		t.Errorf("%d latencies", len(list))
	}
	expect(t, rows(t, out, inflationList), key(0)+" leaf2", map[string]any{"packets": 10, "worst": 30_000,
		"latency": 3270, "since-epoch": 5, "host": "h3"})
	list = rows(t, out, hitterList)
	for _, element := range []string{"network", "leaf1", "spine1", "leaf2"} {
		expect(t, list, element+" "+key(0), map[string]any{"packets": 1000, "rank": 1})
		expect(t, list, element+" "+key(1), map[string]any{"packets": 120, "rank": 2})
	}
	expect(t, list, "h3 "+key(0), map[string]any{"rank": 1})
	expect(t, list, "h4 "+key(1), map[string]any{"rank": 1})
	if len(list) != 10 {
		t.Errorf("%d heavy hitters", len(list))
	}
	if list = rows(t, out, changeList); len(list) != 0 {
		t.Errorf("changes in the first interval: %v", list)
	}
	list = rows(t, out, switchList)
	expect(t, list, "leaf2", map[string]any{"node-id": leaf2, "packets": 1120, "latency": (3_270_000 + 420_000) / 1120,
		"worst": 30_000, "drops": 0, "inflated-flows": 1, "inflated-packets": 10, "heavy-flows": 2})
	expect(t, list, "spine2", map[string]any{"packets": 0, "latency": nil, "worst": nil})
	expect(t, rows(t, out, measurementList), "network", map[string]any{"packets": 1185, "flows": 4})
	expect(t, rows(t, out, rangeList), "h3 512", map[string]any{"last": 1023, "flows": 1})
	expect(t, rows(t, out, alertList), "leaf2 latency-inflated", map[string]any{"active": true,
		"text": "10 packets of 1 flows had more than 5 times the mean latency of their flow, up to 30µs, " +
			"for 5s (5 epochs): " + key(0)})
	expect(t, rows(t, out, costList), "", map[string]any{"passport-packets": 1180,
		"passport-bytes": 1180*(headers+16) + 8*3420})
}
