// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/sumax"
)

// All columns of an interval give each flow at each switch of its path.
func TestInterval(t *testing.T) {
	h := start(t, "")
	s := newSim(t)
	k := simKey(t, 2, "spine1")
	s.send(k, 2, 100, "leaf1", "spine1", "leaf2")
	local := simKey(t, 1, "leaf1")
	s.send(local, 1, 30, "leaf1")
	out := play(t, h, 5, s)
	expect(t, rows(t, out, summaryList), "", map[string]any{"newest-epoch": 6, "first-epoch": 5, "last-epoch": 5,
		"final-epoch": 6, "final": true, "status": "COMPLETE", "coverage": 1.0, "hop-coverage": 1.0, "hosts": 4,
		"hosts-delivered": 4,
		"switches":        4, "switches-received": 4, "flows": 2, "faults": 0, "active-alerts": 0, "warnings": 0})
	expect(t, rows(t, out, flowList), k.String(), map[string]any{
		"source-node": "h1", "destination-node": "h3", "packets": 100, "received-packets": 100, "lost-packets": int64(0),
		"path": "leaf1 spine1 leaf2", "measured-hops": 3, "quality": "EXACT",
		"lost-packets-quality": "ESTIMATE", "faults": 0})
	list := rows(t, out, hopList)
	expect(t, list, k.String()+" spine1", map[string]any{"position": 2, "expected": true, "quality": "ESTIMATE",
		"packets-quality": "UPPER_BOUND", "packets": 100,
		"lost-packets": int64(0), "slow": 0.0, "gap": 1_000_000, "last-arrival": 99_000_000})
	if len(list) != 4 {
		t.Errorf("%d hops", len(list))
	}
	expect(t, rows(t, out, delayList), k.String()+" leaf2 0", map[string]any{"upper": 50_000, "packets": 100})
	expect(t, rows(t, out, summariesList), "leaf1 5-tuple", map[string]any{
		"packets": 130, "distinct-flows": 2, "coverage": 1.0})
	expect(t, rows(t, out, rangeList), "leaf1 64", map[string]any{"upper": 127, "flows": 1})
	expect(t, rows(t, out, coverageList), "leaf1 0", map[string]any{"first-epoch": 5,
		"received-columns": simColumns, "final": false})
	tables, err := h.Query(sdk.RowKey{List: hopList, Keys: map[string]string{"flow": k.String(), "node": "leaf2"}})
	if err != nil || len(tables) != 1 {
		t.Fatalf("%v: %v", tables, err)
	}
	expect(t, rowsOf(tables[0]), k.String()+" leaf2", map[string]any{"packets": 100})
}

// Each fault is found at the switch that has it, names the flow, and begins and ends an alert.
func TestFaults(t *testing.T) {
	path := []string{"leaf1", "spine1", "leaf2"}
	tests := map[string]struct {
		at   []string
		send func(s *sim)
	}{
		"LATENCY_INFLATED": {[]string{"spine1"}, func(s *sim) {
			k := simKey(t, 2, "spine1")
			s.add(0, k).Sent, s.add(2, k).Received = 100, 100
			s.pass(k, 100, 10, 1000, "leaf1", "leaf2")
			s.pass(k, 60, 500, 1000, "spine1")
			s.pass(k, 40, 10, 1000, "spine1")
		}},
		"PACKETS_LOST": {[]string{"spine1"}, func(s *sim) {
			k := simKey(t, 2, "spine1")
			s.add(0, k).Sent, s.add(2, k).Received = 100, 80
			s.pass(k, 100, 10, 1000, "leaf1")
			s.pass(k, 80, 10, 1000, "spine1", "leaf2")
		}},
		"BLACKHOLE": {[]string{"leaf2"}, func(s *sim) { s.send(simKey(t, 2, "spine1"), -1, 100, path[:2]...) }},
		"LOOP": {[]string{"leaf1", "spine1"}, func(s *sim) {
			k := simKey(t, 2, "spine1")
			s.add(0, k).Sent = 100
			s.pass(k, 3000, 10, 30, "leaf1", "spine1")
		}},
		"ABNORMAL_JITTER": {[]string{"spine1"}, func(s *sim) {
			k := simKey(t, 2, "spine1")
			s.pass(k, 51, 10, 1000, "leaf1")
			for _, name := range path[1:] {
				s.pass(k, 50, 10, 1000, name)
				s.sketches[name].Record(k.AppendBinary(nil), sumax.Packet{Delay: 10, At: 350_000})
			}
			*s.add(0, k) = wire.Flow{Key: k, Sent: 51, SentGap: 1000}
			*s.add(2, k) = wire.Flow{Key: k, Received: 51, ReceivedGap: 300_000}
		}},
		"PATH_CHANGED": {[]string{"spine2"}, func(s *sim) {
			s.send(simKey(t, 2, "spine1"), 2, 100, "leaf1", "spine2", "leaf2")
		}},
	}
	for kind, test := range tests {
		t.Run(kind, func(t *testing.T) {
			h, k := start(t, ""), simKey(t, 2, "spine1")
			s := newSim(t)
			test.send(s)
			out := play(t, h, 5, s)
			faults, alerts := rows(t, out, faultList), rows(t, out, alertList)
			if len(faults) != len(test.at) {
				t.Errorf("faults %v", slices.Sorted(maps.Keys(faults)))
			}
			for _, name := range test.at {
				expect(t, faults, k.String()+" "+name+" "+kind, map[string]any{"since-epoch": 5, "located": true})
				expect(t, alerts, name+" "+kind, map[string]any{"active": true,
					"text": "1 flows, with 100 % of its sketchlets: " + k.String()})
			}
			s = newSim(t)
			s.send(k, 2, 100, path...)
			out = h.Analyze(simEpoch(t, h, 7, s, nil, everything)) // of interval 6: no flows were reported
			if list := rows(t, out, faultList); len(list) > 0 {
				t.Errorf("faults %v after the end", list)
			}
			expect(t, rows(t, out, alertList), test.at[0]+" "+kind, map[string]any{"active": false})
		})
	}
}

// Hosts without an agent, or with a dead one, receive columns in vain: fewer columns arrive, the
// faults are still found, and no false ones.
func TestDeadHosts(t *testing.T) {
	h := start(t, "")
	s, k := newSim(t), simKey(t, 2, "spine1")
	s.send(k, -1, 100, "leaf1", "spine1")
	h.Analyze(simEpoch(t, h, 5, nil, s, nil))
	e := simEpoch(t, h, 6, s, nil, map[int]share{0: {4, []int{0, 1}}})
	for _, host := range []string{"h2", "h3", "h4"} {
		setData(e, host, nil)
		e.Missing = append(e.Missing, sdk.Missing{Name: host, Host: true, Reason: "is away", Joined: host == "h4"})
	}
	out := h.Analyze(e)
	// Half of the columns have a bucket of the flow at each switch of its path.
	expect(t, rows(t, out, summaryList), "", map[string]any{"status": "COMPLETE", "coverage": 0.5, "hop-coverage": 1.0})
	expect(t, rows(t, out, hostList), "h2", map[string]any{"status": "LOST", "problem": "is away", "sketchlets": nil})
	expect(t, rows(t, out, alertList), "h2 HOST_MISSING", map[string]any{"active": true, "text": "is away"})
	if a := rows(t, out, alertList); a["h4 HOST_MISSING"] != nil {
		t.Errorf("alerts %v, want none of a host that joined", a)
	}
	valid := map[string]bool{}
	for key, hop := range rows(t, out, hopList) {
		valid[strings.TrimPrefix(key, k.String()+" ")] = hop["packets"] != nil
		if (hop["packets"] == nil) != (hop["packets-quality"] == nil) || (hop["packets"] == nil) != (hop["quality"] == nil) {
			t.Errorf("%s has packets without a column: %v", key, hop)
		}
	}
	for key, fault := range rows(t, out, faultList) {
		switch {
		case !strings.HasSuffix(key, "BLACKHOLE"):
			t.Errorf("fault %s: %v", key, fault)
		case fault["located"] == true && !strings.Contains(key, "leaf2"):
			t.Errorf("fault %s is located, of hops %v", key, valid)
		}
	}
	// The next interval has no reports of flows at all: nothing is known of its flows.
	e = simEpoch(t, h, 7, nil, nil, nil)
	e.Hosts = nil
	expect(t, rows(t, h.Analyze(e), summaryList), "", map[string]any{"status": "LOST", "coverage": 0.0, "flows": 0,
		"reason": "SWITCH_MISSING"})
}

// TestLateReports: late reports add columns to an interval until the interval is final, and raise
// its coverage.
func TestLateReports(t *testing.T) {
	h := start(t, "")
	s := newSim(t)
	s.send(simKey(t, 2, "spine1"), 2, 100, "leaf1", "spine1", "leaf2")
	h.Analyze(simEpoch(t, h, 5, nil, s, nil))
	e := simEpoch(t, h, 6, s, nil, everything)
	late := sdk.LateReport{Epoch: 6, HostReport: e.Hosts[1]}
	setData(e, late.Host, nil)
	out := h.Analyze(e)
	expect(t, rows(t, out, coverageList), "spine2 0", map[string]any{"first-epoch": 5,
		"coverage": 0.75, "late-columns": 0, "final": false})
	e = simEpoch(t, h, 7, newSim(t), nil, nil)
	e.Late = []sdk.LateReport{late}
	out = h.Analyze(e)
	expect(t, rows(t, out, coverageList), "spine2 1", map[string]any{"first-epoch": 5,
		"coverage": 1.0, "late-columns": 64, "final": false,
		"final-epoch": 10})
	e = simEpoch(t, h, 8, newSim(t), nil, nil)
	e.Late = []sdk.LateReport{late}
	expect(t, rows(t, h.Analyze(e), summaryList), "", map[string]any{"warnings": 1}) // twice
	for n := uint64(9); n <= 10; n++ {
		out = h.Analyze(simEpoch(t, h, n, newSim(t), nil, nil))
	}
	expect(t, rows(t, out, coverageList), "spine2 4", map[string]any{"first-epoch": 5, "final": true, "coverage": 1.0})
	if _, ok := rows(t, h.Analyze(simEpoch(t, h, 11, nil, nil, nil)), coverageList)["spine2 5"]; ok {
		t.Error("a final interval stays")
	}
}

// Results of an interval of four epochs are published early, refined with each epoch that carries
// it and with late reports, and final in the last one.
func TestRefined(t *testing.T) {
	h, k := start(t, `, "interval-epochs": 4`), simKey(t, 2, "spine1")
	if n := h.Settings().BankEpochs; n != 4 {
		t.Fatalf("%d epochs share a bank", n)
	}
	s, flows := newSim(t), newSim(t)
	s.send(k, 2, 400, "leaf1", "spine1", "leaf2")
	flows.send(k, 2, 100)                           // in each epoch
	for number := uint64(5); number < 9; number++ { // interval 3: the shift is 7
		h.Analyze(simEpoch(t, h, number, nil, flows, nil))
	}
	var late sdk.HostReport
	for i, want := range []float64{0.25, 0.25, 0.75, 1} {
		e := carrying(t, h, uint64(9+i), s, share{4, []int{i}})
		switch i {
		case 1:
			late = e.Hosts[len(e.Hosts)-1]
			setData(e, late.Host, nil)
		case 2:
			e.Late = []sdk.LateReport{{Epoch: e.Number - 1, HostReport: late}}
		}
		out := h.Analyze(e)
		stamp := map[string]any{"coverage": want}
		expect(t, rows(t, out, summaryList), "", map[string]any{"newest-epoch": 9 + i, "first-epoch": 5,
			"final": i == 3, "coverage": want})
		for _, r := range out.Tables { // rows of the interval have its end as timestamp
			ofInterval := !slices.Contains([]string{hostList, coverageList, alertList}, r.Table.List)
			if ended := e.End.Add(-time.Duration(i+1) * e.End.Sub(e.Start)); ofInterval != r.End.Equal(ended) {
				t.Errorf("epoch %d: rows of %s end at %v; the interval ends at %v", e.Number, r.Table.List, r.End, ended)
			}
		}
		expect(t, rows(t, out, summaryList), "", map[string]any{"last-epoch": 8, "final-epoch": 12, "flows": 1})
		expect(t, rows(t, out, flowList), k.String(), map[string]any{"packets": 400, "lost-packets": int64(0)})
		expect(t, rows(t, out, hopList), k.String()+" spine1", stamp)
		expect(t, rows(t, out, coverageList), "spine1 0", map[string]any{"first-epoch": 5,
			"final-epoch": 16, "coverage": want})
		if i == 3 {
			expect(t, rows(t, out, hopList), k.String()+" spine1", map[string]any{"packets": 400,
				"packets-quality": "UPPER_BOUND"})
		}
	}
}

// Early results begin an alert once all buckets of a flow have arrived, and only final ones end it.
func TestEarlyAlerts(t *testing.T) {
	h, k := start(t, `, "interval-epochs": 4`), simKey(t, 2, "spine1")
	s, flows := newSim(t), newSim(t)
	s.pass(k, 400, 10, 1000, "leaf1")
	s.pass(k, 200, 10, 1000, "spine1", "leaf2")
	flows.add(0, k).Sent, flows.add(2, k).Received = 100, 50
	for number := uint64(5); number < 9; number++ {
		h.Analyze(simEpoch(t, h, number, nil, flows, nil))
	}
	none := newSim(t)
	for i, step := range []struct {
		of     *sim
		these  []int // columns modulo 2
		fault  bool
		active bool
	}{
		{s, []int{0}, true, false}, {s, []int{1}, true, true}, {s, nil, true, true}, {s, nil, true, true},
		{none, []int{0}, false, true}, {none, []int{1}, false, true}, {none, nil, false, true}, {none, nil, false, false},
	} {
		out := h.Analyze(carrying(t, h, uint64(9+i), step.of, share{2, step.these}))
		fault, found := rows(t, out, faultList)[k.String()+" spine1 PACKETS_LOST"]
		if found != step.fault || found && (fault["located"] != true) {
			t.Errorf("epoch %d: fault %v", 9+i, fault)
		}
		alert := rows(t, out, alertList)["spine1 PACKETS_LOST"]
		if active := alert["active"] == true; active != step.active || active && alert["since-epoch"] != uint64(10) {
			t.Errorf("epoch %d: alert %v", 9+i, alert)
		}
	}
}

// Input that no agent sends, or that is too old, is counted and named.
func TestBadInput(t *testing.T) {
	h := start(t, "")
	id := settingsOf(t, h).Devices[0].ID
	k := simKey(t, 2, "spine1")
	report := func(sketchlets ...[]byte) []byte {
		return (&wire.Report{Epoch: 6, Sketchlets: slices.Concat(sketchlets...)}).Append(nil)
	}
	cells := make([]uint32, 21)
	interval := uint8((&sdk.Epoch{BankShift: 7}).BankOf(5, banks))
	good := wire.Append(nil, id, 0, interval, cells)
	cells[0] = 5
	other := wire.Append(nil, id, 0, interval, cells)
	tests := map[string]struct {
		data    []byte
		host    map[string]any
		columns int
	}{
		"malformed": {[]byte{99}, map[string]any{"status": "LOST", "old-sketchlets": nil}, 0},
		"of another epoch": {(&wire.Report{Epoch: 5}).Append(nil),
			map[string]any{"status": "LOST", "problem": "the report is of epoch 5; expected 6"}, 0},
		"unknown device": {report(wire.Append(nil, 999, 0, interval, cells)), map[string]any{"old-sketchlets": 1}, 0},
		"unknown column": {report(wire.Append(nil, id, simColumns, interval, cells)), map[string]any{"old-sketchlets": 1}, 0},
		"words":          {report(wire.Append(nil, id, 0, interval, cells[1:])), map[string]any{"old-sketchlets": 1}, 0},
		"older interval": {report(wire.Append(nil, id, 0, interval-3, cells)), map[string]any{"old-sketchlets": 1}, 0},
		"good":           {report(good), map[string]any{"old-sketchlets": 0, "status": "COMPLETE"}, 1},
		"twice":          {report(good, good), map[string]any{"old-sketchlets": 0}, 1},
		"disagreeing":    {report(other, good), map[string]any{"old-sketchlets": 0}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := start(t, "")
			s := newSim(t)
			s.send(k, 2, 100, "leaf1", "spine1", "leaf2")
			h.Analyze(simEpoch(t, h, 5, nil, s, nil))
			e := simEpoch(t, h, 6, nil, nil, nil)
			setData(e, "h1", test.data)
			out := h.Analyze(e)
			expect(t, rows(t, out, hostList), "h1", test.host)
			expect(t, rows(t, out, coverageList), "leaf1 0", map[string]any{"received-columns": test.columns,
				"disagreeing-columns": map[bool]int{true: 1}[name == "disagreeing"]})
			if name == "disagreeing" {
				expect(t, rows(t, out, summariesList), "leaf1 5-tuple", map[string]any{"packets": 5 * simColumns})
			}
		})
	}
}

// TestVotes: four flows are lost at spine1, where packets of another flow are in the buckets of one
// of them: it belongs to the others, although it is missed at leaf2 only.
func TestVotes(t *testing.T) {
	h, s := start(t, ""), newSim(t)
	keys := simKeys(t, 2, "spine1", 4)
	for _, k := range keys {
		s.send(k, -1, 100, "leaf1")
	}
	s.pass(keys[3], 60, 10, 1000, "spine1")
	out := play(t, h, 5, s)
	faults := rows(t, out, faultList)
	for _, k := range keys {
		expect(t, faults, k.String()+" spine1 BLACKHOLE", map[string]any{"located": true, "previous-node": "leaf1"})
	}
	if len(faults) != len(keys) {
		t.Errorf("faults %v", slices.Sorted(maps.Keys(faults)))
	}
}

// TestRestart: a switch that restarted while it measured sends nothing of the interval, or columns
// of another one. They are counted, the switch is named, and no fault is blamed on it.
func TestRestart(t *testing.T) {
	h := start(t, "")
	s, k := newSim(t), simKey(t, 2, "spine1")
	s.send(k, 2, 100, "leaf1", "spine1", "leaf2")
	h.Analyze(simEpoch(t, h, 5, nil, s, nil))
	e := simEpoch(t, h, 6, nil, s, nil)
	settings := settingsOf(t, h)
	var columns []byte
	for c := range slices.Chunk(s.columns(t, settings, e.BankOf(5, banks), share{1, []int{0}}), 10+4*21) {
		if wire.Sketchlet(c).Device() != settings.Devices[2].ID {
			columns = append(columns, c...)
		}
	}
	columns = wire.Append(columns, settings.Devices[2].ID, 3, 0, make([]uint32, 21))
	setReport(e, "h2", &wire.Report{Epoch: 6, Sketchlets: columns})
	out := h.Analyze(e)
	expect(t, rows(t, out, hostList), "h2", map[string]any{"old-sketchlets": 1})
	expect(t, rows(t, out, summaryList), "", map[string]any{"status": "PARTIAL", "coverage": 0.75, "faults": 0})
	expect(t, rows(t, out, hopList), k.String()+" spine1", map[string]any{"packets-quality": nil, "packets": nil})
	expect(t, rows(t, out, alertList), "spine1 SWITCH_MISSING", map[string]any{"active": true})
	out = h.Analyze(simEpoch(t, h, 7, s, nil, everything))
	expect(t, rows(t, out, alertList), "spine1 SWITCH_MISSING", map[string]any{"active": false})
}

// TestUnreached: if the collector does not reach a switch when an interval begins or ends, the
// switch's sketchlets of that interval are counted and not used. If a switch is missing in one
// epoch only and keeps its sketch, all its sketchlets are used.
func TestUnreached(t *testing.T) {
	h := start(t, "")
	s, k := newSim(t), simKey(t, 2, "spine1")
	s.send(k, 2, 100, "leaf1", "spine1", "leaf2")
	h.Analyze(simEpoch(t, h, 5, nil, s, nil))
	missing := map[uint64]string{7: "refuses", 8: "refuses", 9: "joins", 12: "joins"}
	for number := uint64(6); number < 15; number++ {
		e := simEpoch(t, h, number, s, s, everything)
		if reason := missing[number]; reason != "" {
			e.Missing = []sdk.Missing{{Name: "spine1", Reason: reason, Joined: reason == "joins"}}
		}
		out, interval := h.Analyze(e), fmt.Sprint(number-1)
		used, dropped := simColumns, 0
		if number >= 8 && number <= 10 {
			used, dropped = 0, simColumns
		}
		expect(t, rows(t, out, coverageList), "spine1 0", map[string]any{"first-epoch": int(number) - 1,
			"received-columns": used, "unmeasured-sketchlets": dropped})
		expect(t, rows(t, out, coverageList), "spine2 0", map[string]any{"received-columns": simColumns,
			"unmeasured-sketchlets": 0})
		if hop := rows(t, out, hopList)[k.String()+" spine1"]; (hop["packets-quality"] == "UPPER_BOUND") != (used > 0) {
			t.Errorf("epoch %d: %v with %d columns", number, hop, used)
		}
		expect(t, rows(t, out, summaryList), "", map[string]any{"faults": 0})
		alert, alerted := rows(t, out, alertList)["spine1 SWITCH_MISSING"]
		if alerted = alerted && alert["active"] == true; alerted != (used == 0) || alerted &&
			!strings.Contains(fmt.Sprint(alert["text"]), "did not reach it when epoch "+interval) {
			t.Errorf("epoch %d: alert %v", number, alert)
		}
	}
}

// TestParts: the columns of a report in parts count like those of a whole report, also if the host
// died before the last part. A missing part is named.
func TestParts(t *testing.T) {
	h := start(t, "")
	s, k := newSim(t), simKey(t, 2, "spine1")
	s.send(k, 2, 100, "leaf1", "spine1", "leaf2")
	h.Analyze(simEpoch(t, h, 5, nil, s, nil))
	e := simEpoch(t, h, 6, nil, nil, nil)
	quarter := func(n int) []byte {
		return s.columns(t, settingsOf(t, h), e.BankOf(5, banks), share{4, []int{n}})
	}
	add := func(host string, r *wire.Report) {
		r.Epoch = 6
		e.Hosts = append(e.Hosts, sdk.HostReport{Host: host, Role: wire.Role, Data: r.Append(nil)})
	}
	setData(e, "h1", nil)
	add("h1", &wire.Report{Part: 1, Sketchlets: quarter(0)})
	add("h1", &wire.Report{Part: 2, Sketchlets: quarter(1)})
	add("h1", &wire.Report{Parts: 2})
	setData(e, "h2", nil)
	add("h2", &wire.Report{Part: 1, Sketchlets: wire.Append(quarter(2), 999, 1, 1, []uint32{1})})
	add("h2", &wire.Report{Parts: 3})
	setData(e, "h3", nil)
	add("h3", &wire.Report{Part: 1, Sketchlets: quarter(3)})
	e.Missing = []sdk.Missing{{Name: "h3", Host: true, Reason: "is away"}}
	out := h.Analyze(e)
	expect(t, rows(t, out, summaryList), "", map[string]any{"coverage": 1.0, "hosts-delivered": 4})
	expect(t, rows(t, out, hostList), "h1", map[string]any{"status": "COMPLETE"})
	expect(t, rows(t, out, hostList), "h2", map[string]any{"status": "PARTIAL", "old-sketchlets": 1,
		"problem": "2 of 3 parts of the report have not arrived"})
	expect(t, rows(t, out, hostList), "h3", map[string]any{"status": "LOST", "problem": "is away"})
}

// FuzzReport: no report breaks an analysis.
func FuzzReport(f *testing.F) {
	p := New()
	if _, err := p.Configure(f.Context(), sdk.Config{JSON: []byte(simConfig("")), EpochLength: time.Second},
		simNetwork()); err != nil {
		f.Fatal(err)
	}
	f.Add((&wire.Report{Epoch: 1, Sketchlets: wire.Append(nil, 1, 3, 7, make([]uint32, 21))}).Append(nil))
	f.Add([]byte{1, 2, 3})
	number := uint64(1)
	f.Fuzz(func(t *testing.T, data []byte) {
		number++
		e := &sdk.Epoch{Number: number, End: time.Unix(int64(number), 0)}
		if r, err := wire.ParseReport(data); err == nil {
			r.Epoch = number
			data = r.Append(nil)
		}
		setData(e, "h1", data)
		setData(e, "h2", data)
		if _, err := p.Analyze(t.Context(), e); err != nil {
			t.Error(err)
		}
	})
}

// The plan has the tables of docs/lightguardian-p4.md, and ports without an agent get strip. A
// second plan deletes the entries that are not needed any more.
func TestPlan(t *testing.T) {
	n := simNetwork()
	n.Hosts[1].Agent = false
	h := sdktest.Start(t, New(), sdktest.Options{Config: simConfig(`, "mtu": 9000, "probability": 1, "devices":
		[{"name": "spine1", "id": 700}]`), Network: n})
	count := func(s sdk.Settings) map[string]int {
		got := map[string]int{}
		for _, w := range s.Plan.Writes {
			table := w.Entry.Table[strings.LastIndex(w.Entry.Table, ".")+1:]
			if w.Op == sdk.Delete {
				table = "delete " + table
			}
			got[table]++
		}
		return got
	}
	want := map[string]int{"carry": 4, "clock": 4, "delays": 4, "mtu": 20, "strip": 9}
	if got := count(h.Settings()); !maps.Equal(got, want) {
		t.Errorf("entries %v, want %v", got, want)
	}
	for _, w := range h.Settings().Plan.Writes {
		if w.Device == "spine1" && w.Entry.Table == "ingress.lightguardian.carry" {
			if p := w.Entry.Params; !slices.Equal(p[0].Value, []byte{2, 188}) || !slices.Equal(p[1].Value, []byte{1, 0, 0}) {
				t.Errorf("parameters %v of spine1", p)
			}
		}
	}
	second, err := h.Configure(simConfig(""), simNetwork(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want = map[string]int{"carry": 4, "clock": 4, "delays": 4, "delete mtu": 20, "delete strip": 1, "strip": 8}
	if got := count(second); !maps.Equal(got, want) {
		t.Errorf("entries %v, want %v", got, want)
	}
}

// TestSeeds: each switch gets an odd seed of its own, and hosts read its sketch with the same one.
func TestSeeds(t *testing.T) {
	s := sdktest.Start(t, New(), sdktest.Options{Config: simConfig(""), Network: simNetwork()}).Settings()
	seeds, used := map[string]uint32{}, map[uint32]bool{}
	for _, w := range s.Plan.Writes {
		if i := len(w.Entry.Params) - 1; w.Entry.Table == "ingress.lightguardian.carry" {
			seed := binary.BigEndian.Uint32(w.Entry.Params[i].Value)
			seeds[w.Device] = seed
			used[seed] = true
			if seed%2 == 0 {
				t.Errorf("the seed of %s is %d; want an odd one", w.Device, seed)
			}
		}
	}
	if len(used) != len(simNetwork().Devices) {
		t.Errorf("seeds %v of %d switches", seeds, len(simNetwork().Devices))
	}
	role, err := wire.ParseSettings(s.Plan.Hosts[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range role.Devices {
		if d.Seed != seeds[d.Name] || d.Seed == 0 {
			t.Errorf("hosts read the sketch of %s with seed %d, want %d", d.Name, d.Seed, seeds[d.Name])
		}
	}
	if len(role.Devices) != len(seeds) {
		t.Errorf("hosts know switches %v, want %d", role.Devices, len(seeds))
	}
}

// Sketchlets end in front of switches of other programs, which would count their bytes, and in
// front of hosts without an agent, also if they are behind switches that only forward.
func TestForeignSwitches(t *testing.T) {
	for name, tc := range map[string]struct {
		spine, leaf string // programs of spine1 and leaf2
		agents      bool   // at the hosts of leaf2
		stripped    []byte // ports of leaf1
		said        string
	}{
		"another algorithm":           {"omnimon", "lightguardian", true, []byte{1, 5}, "spine1"},
		"plain":                       {"forwarding", "lightguardian", true, []byte{5}, ""},
		"plain, hosts with agents":    {"forwarding", "forwarding", true, []byte{5}, ""},
		"plain, hosts without agents": {"forwarding", "forwarding", false, []byte{1, 5}, "h3, h4"},
	} {
		t.Run(name, func(t *testing.T) {
			n := simNetwork()
			n.Device("spine1").Program, n.Device("leaf2").Program = tc.spine, tc.leaf
			n.Hosts[2].Agent, n.Hosts[3].Agent = tc.agents, tc.agents
			s := sdktest.Start(t, New(), sdktest.Options{Config: simConfig(""), Network: n}).Settings()
			var stripped []byte
			for _, w := range s.Plan.Writes {
				if w.Device == "leaf1" && w.Entry.Table == "egress.lightguardian.strip" {
					stripped = append(stripped, w.Entry.Matches[0].Value[1])
				}
			}
			if !slices.Equal(stripped, tc.stripped) {
				t.Errorf("sketchlets end at ports %v, want %v", stripped, tc.stripped)
			}
			i := slices.IndexFunc(s.Missing, func(m sdk.MissingObject) bool { return m.Device == "leaf1" })
			if said := i >= 0; said != (tc.said != "") || said && !strings.Contains(s.Missing[i].Consequence, tc.said) {
				t.Errorf("settings say %v, want %q", s.Missing, tc.said)
			}
		})
	}
}

// Errors of the configuration name the field and what is expected.
func TestConfiguration(t *testing.T) {
	for _, c := range [][2]string{
		{`{"sketch": {"columns": 1000}}`, "sketch.columns: 1000 is not a power of two"},
		{`{"sketch": {"rows": 0}}`, "rows"},
		{`{"sketch": {"delays": ["100us", "50us"]}, "rules": {"slow": "50us"}}`, "sketch: "},
		{`{"rules": {"slow": "70us"}}`,
			"rules.slow: 70µs is not a range of delays; expected one of sketch.delays, [50µs 100µs 200µs]"},
		{`{"rules": {"loop": 0.5}}`, "rules.loop: 0.5 is out of range; expected above 1"},
		{`{"rules": {"jitter-time": "soon"}}`, "rules.jitter-time: expected a duration"},
		{`{"probability": 2}`, "probability"},
		{`{"interval-epochs": 65}`, "interval-epochs: 65 is out of range; expected 1 to 64"},
		{`{"devices": [{"name": "a", "id": 1}, {"name": "b", "id": 1}]}`, "devices[1].id: 1 is given twice"},
		{`{"devices": [{"name": "a", "id": 1}, {"name": "a", "id": 2}]}`, "devices[1].name: a is given twice"},
	} {
		config, want := c[0], c[1]
		_, err := New().Configure(t.Context(), sdk.Config{JSON: []byte(config)}, simNetwork())
		var fields settings.KeyErrors
		if !errors.As(err, &fields) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// TestPrograms: a sketch of another shape than that of the switches' programs is refused, with the
// key, both values, the switch and what is expected. A switch whose program does not state the
// shape gets a warning. Switches without a program are not compared.
func TestPrograms(t *testing.T) {
	refused := func(config string, n sdk.Network) error {
		_, err := New().Configure(t.Context(), sdk.Config{JSON: []byte(config)}, n)
		return err
	}
	const text = "does not fit program lightguardian of switch leaf2, compiled with NS_LIGHTGUARDIAN_%s; expected %s"
	for key, c := range map[string]struct{ value, larger, smaller, compiled, expected string }{
		"sketch.rows":    {`{"sketch": {"columns": 256, "rows": %s}}`, "4", "2", "ROWS=3", "3"},
		"sketch.columns": {`{"sketch": {"columns": %s}}`, "512", "128", "COLUMNS=256", "256"},
		"sketch.delays": {`{"sketch": {"columns": 256, "delays": %s}, "rules": {"slow": "100us"}}`,
			`["1us", "50us", "100us", "200us"]`, `["50us", "100us"]`, "DELAYS=4", "3 delays"},
		"sketch.sizes": {`{"sketch": {"columns": 256, "sizes": %s}}`, "false", "false", "SIZES=1", "true"},
		"sketch.gaps":  {`{"sketch": {"columns": 256, "gaps": %s}}`, "false", "false", "GAPS=1", "true"},
	} {
		n := simNetwork()
		for i := range n.Devices {
			if n.Devices[i].Name != "leaf2" {
				n.Devices[i].Program, n.Devices[i].Unread = "", nil
			}
		}
		for _, value := range []string{c.larger, c.smaller} {
			err := refused(fmt.Sprintf(c.value, value), n)
			var keys settings.KeyErrors
			said := fmt.Sprint(err)
			if !errors.As(err, &keys) || len(keys) != 1 || keys[0].Key != key ||
				!strings.Contains(said, fmt.Sprintf(text, c.compiled, c.expected)) {
				t.Errorf("%s: %s: %v", key, value, err)
			}
		}
	}
	few := simNetwork()
	few.Devices[1].Unread = compiledFor(map[string]string{"columns": "256", "chances": "2"})
	if err := refused(simConfig(""), few); !strings.Contains(fmt.Sprint(err), "chances: 4 does not fit") ||
		!strings.Contains(err.Error(), "expected at most 2") {
		t.Errorf("four chances of a program with two: %v", err)
	}
	for _, config := range []string{simConfig(`, "chances": 2`), simConfig(`, "chances": 0`)} {
		if err := refused(config, few); err != nil {
			t.Error(err)
		}
	}
	few.Devices[1].Unread = nil
	s := sdktest.Start(t, New(), sdktest.Options{Config: simConfig(""), Network: few}).Settings()
	if m := s.Missing; len(m) != 1 || m[0].Device != few.Devices[1].Name || m[0].Object != "register @"+annotation {
		t.Errorf("a program without the annotation: %v", s.Missing)
	}
}

// TestProgramChanges: with a new program of another shape, there are no results in place of wrong
// ones, until configuration and programs fit. A refused configuration does not disturb those of the
// earlier one.
func TestProgramChanges(t *testing.T) {
	p, n := New(), simNetwork()
	configure := func(config string) error {
		_, err := p.Configure(t.Context(), sdk.Config{JSON: []byte(config), EpochLength: time.Second}, n)
		return err
	}
	results := func() error {
		_, err := p.Analyze(t.Context(), &sdk.Epoch{Number: 7, Start: time.Unix(7, 0), End: time.Unix(8, 0)})
		return err
	}
	if err := configure(simConfig("")); err != nil {
		t.Fatal(err)
	}
	if configure(`{"sketch": {"columns": 512}}`) == nil || results() != nil {
		t.Errorf("after a refused configuration: %v", results())
	}
	n.Devices[0].Unread = compiledFor(map[string]string{"columns": "512"})
	if configure(simConfig("")) == nil || !strings.Contains(fmt.Sprint(results()), "COLUMNS=512") {
		t.Errorf("results of another program: %v", results())
	}
	n.Devices[0].Unread = compiledFor(map[string]string{"columns": "256"})
	if err := configure(simConfig("")); err != nil || results() != nil {
		t.Errorf("the program is back: %v, %v", err, results())
	}
}

// A new process keeps device ids, entries and alerts.
func TestState(t *testing.T) {
	h := start(t, "")
	s := newSim(t)
	s.send(simKey(t, 2, "spine1"), -1, 100, "leaf1", "spine1")
	out := play(t, h, 5, s)
	p := New()
	if err := p.RestoreState(*out.State); err != nil {
		t.Fatal(err)
	}
	if n := p.alerts.Active(); n != 1 || p.ids["spine2"] != settingsOf(t, h).Devices[3].ID || p.plans != 1 {
		t.Errorf("%d alerts, ids %v, plan %d", n, p.ids, p.plans)
	}
	for _, bad := range []string{`{"IDs": {"a": 1, "b": 1}}`, `{"IDs": {"a": 0}}`, `[`} {
		if err := New().RestoreState(sdk.State{Version: stateVersion, Data: []byte(bad)}); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	if err := New().RestoreState(sdk.State{Version: 99}); err == nil {
		t.Error("another version is accepted")
	}
}

// TestRoom: docs/lightguardian.md says how large sketchlets of the default sketch are, and which
// MSS leaves room for them.
func TestRoom(t *testing.T) {
	var c Configuration
	if err := (sdk.Config{JSON: []byte("{}")}).Decode(&c); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../docs/lightguardian.md")
	if err != nil {
		t.Fatal(err)
	}
	size := len(wire.Append(nil, 1, 1, 1, make([]uint32, c.Sketch.words())))
	for _, want := range []string{fmt.Sprintf("has %d bytes", size), fmt.Sprintf("at most %d with IPv4", c.MTU-size-40),
		fmt.Sprintf("%d with IPv6", c.MTU-size-60), fmt.Sprintf("at least %d and set", c.MTU+size)} {
		if !strings.Contains(strings.ReplaceAll(strings.Join(strings.Fields(string(text)), " "), ",", ""), want) {
			t.Errorf("docs/lightguardian.md does not say %q", want)
		}
	}
}
