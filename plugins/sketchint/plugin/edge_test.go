// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/tower"
)

const simCells = 1024 // cells in each row

// edgeNetwork is the network with towers at the leaves. h2 has no agent.
func edgeNetwork() sdk.Network {
	n := simNetwork()
	for i := range 2 {
		n.Devices[i].Program = "sketchint-edge"
		n.Devices[i].Objects = []sdk.Object{
			{Name: "sketchint_flows", Cells: flowRows * simCells, Width: 32, Banks: 2,
				Annotations: sdk.Annotations{annotation: {"part": "flows", "rows": "2,4,8,16,32", "cells": "1024"}}},
			{Name: "sketchint_latencies", Cells: latencyRows * simCells, Width: 32, Banks: 2,
				Annotations: sdk.Annotations{annotation: {"part": "latencies", "rows": "8+24,16+28,24+40", "cells": "1024"}}},
		}
	}
	n.Hosts[1].Agent = false
	return n
}

// setTowers sets the registers of an edge switch to the towers of flows.
func setTowers(t *testing.T, e *sdk.Epoch, name string, flows []simFlow) {
	t.Helper()
	f, err := tower.New[family.P4](tower.Config{Memory: 4 * flowRows * simCells})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tower.NewLatency[family.P4](tower.Config{Memory: 4 * latencyRows * simCells})
	if err != nil {
		t.Fatal(err)
	}
	for i := range flows {
		k := flows[i].key()
		f.Add(k.AppendBinary(nil), flows[i].packets)
		for j, node := range flows[i].path {
			l.Add(wire.AppendKey(nil, &k, node), flows[i].packets, uint64(flows[i].packets)*uint64(flows[i].latencies[j]))
		}
	}
	for object, words := range map[string][]uint64{"sketchint_flows": f.Words(), "sketchint_latencies": l.Words()} {
		var cells []uint32
		for _, w := range words {
			cells = append(cells, uint32(w), uint32(w>>32))
		}
		e.Put(name, sdk.CellsOf(object, cells))
	}
}

// Edge switches measure what hosts measure, over all epochs of the interval. Hosts count the same
// packets again, without INT, and know the flows.
func TestEdgeSwitches(t *testing.T) {
	h := sdktest.Start(t, New(), sdktest.Options{Network: edgeNetwork(),
		Config: `{"sinks": "switches", "heavy": 100, "change": 50}`})
	if n := len(h.Settings().Bindings); n != 4 {
		t.Fatalf("%d objects are read", n)
	}
	f := simFlow{to: 2, port: 1, path: []uint32{leaf1, spine1, leaf2}, packets: 30, latencies: []uint32{10, 20, 30}}
	light := simFlow{to: 3, port: 2, path: []uint32{leaf2}, packets: 2, latencies: []uint32{7}}
	local := simFlow{to: 1, port: 3, path: []uint32{leaf1}, packets: 1, latencies: []uint32{9}}
	run := func(interval uint64, f simFlow, without int) *sdk.Results {
		t.Helper()
		for i := range uint64(5) {
			e := &sdk.Epoch{Number: 5*interval + i, Status: sdk.StatusComplete,
				Start: time.Unix(int64(5*interval+i)-1, 0), End: time.Unix(int64(5*interval+i), 0)}
			setTowers(t, e, "leaf1", []simFlow{local})
			if int(i) != without {
				setTowers(t, e, "leaf2", []simFlow{f, light})
			}
			if i < 4 {
				if out := h.Analyze(e); len(out.Tables) > 0 {
					t.Errorf("tables in epoch %d", e.Number)
				}
				continue
			}
			for _, name := range []string{"h1", "h3", "h4"} {
				own := []simFlow{}
				if name == "h3" { // without INT
					own = append(own, simFlow{to: f.to, port: f.port, packets: 5 * f.packets})
				}
				setReport(t, e, name, simReport(t, settingsOf(t, h, name), 5*interval, e.Number, own))
			}
			e.Watched = []sdk.RowKey{{List: flowList, Keys: map[string]string{"flow": light.key().String()}},
				{List: flowList, Keys: map[string]string{"flow": local.key().String()}}}
			return h.Analyze(e)
		}
		return nil
	}
	out := run(1, f, -1)
	packets, hops := 5*(30+2+1), 5*(3*30+2+1)
	expect(t, rows(t, out, summaryList), "", map[string]any{"status": "COMPLETE", "packets": packets, "hops": hops,
		"flows": 3, "hosts": 3, "hosts-delivered": 3, "heavy-flows": 1})
	list := rows(t, out, flowList)
	expect(t, list, f.key().String(), map[string]any{
		"reporting-node": "leaf2", "packets": 150, "path": nil, "latency-avg": nil})
	expect(t, list, light.key().String(), map[string]any{"reporting-node": "leaf2", "packets": 10})
	expect(t, list, local.key().String(), map[string]any{"reporting-node": "leaf1", "packets": 5})
	list = rows(t, out, hopList)
	expect(t, list, f.key().String()+" spine1", map[string]any{"packets": 150, "latency-avg": 20})
	expect(t, list, light.key().String()+" leaf2", map[string]any{"packets": 10, "latency-avg": 7})
	if len(list) != 5 {
		t.Errorf("latencies %v", list)
	}
	list = rows(t, out, hitterList)
	for _, element := range []string{"network", "leaf1", "spine1", "leaf2"} {
		expect(t, list, element+" 5-tuple "+f.key().String(), map[string]any{"packets": 150})
	}
	// the agent of h3 reports these packets, too
	expect(t, list, "h3 5-tuple "+f.key().String(), map[string]any{"packets": 150})
	if len(list) != 5 {
		t.Errorf("heavy hitters %v", slices.Sorted(maps.Keys(list)))
	}
	expect(t, rows(t, out, summariesList), "leaf2 5-tuple", map[string]any{"packets": 160, "distinct-flows": 2})
	expect(t, rows(t, out, summariesList), "network 5-tuple", map[string]any{"packets": packets, "distinct-flows": 3})
	expect(t, rows(t, out, switchList), "leaf2", map[string]any{"tower-status": "COMPLETE", "heavy-flows": 1})
	expect(t, rows(t, out, switchList), "spine1", map[string]any{"tower-status": nil})
	expect(t, rows(t, out, costList), "", map[string]any{"passport-packets": packets,
		"passport-bytes": packets*(headers+intHeader) + 8*hops})
	if list := rows(t, out, hostList); len(list) != 3 {
		t.Errorf("hosts %v", list)
	}

	moved := f
	moved.path = []uint32{leaf1, spine2, leaf2}
	list = rows(t, run(2, moved, -1), changeList)
	expect(t, list, "spine1 5-tuple "+f.key().String(), map[string]any{"previous": 150, "current": 0})
	expect(t, list, "spine2 5-tuple "+f.key().String(), map[string]any{"previous": 0, "current": 150})
	if len(list) != 2 {
		t.Errorf("changes %v", list)
	}

	out = run(3, f, 1) // without the towers of the second epoch
	expect(t, rows(t, out, summaryList), "", map[string]any{"status": "PARTIAL", "packets": packets - 32,
		"reason": "SWITCH_MISSING", "problem": "switch leaf2: epoch 16: nothing was delivered"})
	expect(t, rows(t, out, switchList), "leaf2", map[string]any{"tower-status": "PARTIAL",
		"tower-problem": "epoch 16: nothing was delivered"})
	expect(t, rows(t, out, alertList), "leaf2 SWITCH_MISSING", map[string]any{"active": true})
	if list := rows(t, out, changeList); len(list) != 0 {
		t.Errorf("changes %v", list)
	}
}

// Where INT ends at hosts, edge switches count the packets to hosts without an agent.
func TestEdgeSwitchesAndHosts(t *testing.T) {
	h := sdktest.Start(t, New(), sdktest.Options{Network: edgeNetwork(), Config: `{"interval": "1s"}`})
	e := &sdk.Epoch{Number: 7, Status: sdk.StatusComplete, Start: time.Unix(7, 0), End: time.Unix(8, 0)}
	at := simFlow{to: 0, port: 1, path: []uint32{leaf1}, packets: 3, latencies: []uint32{10}}
	without := simFlow{to: 1, port: 2, path: []uint32{leaf1}, packets: 4, latencies: []uint32{20}}
	setTowers(t, e, "leaf1", []simFlow{without})
	setTowers(t, e, "leaf2", nil)
	for i, name := range []string{"h1", "h3", "h4"} {
		setReport(t, e, name, simReport(t, settingsOf(t, h, name), 7, 7, []simFlow{at}[min(i, 1):]))
	}
	for _, f := range []simFlow{at, without} {
		e.Watched = append(e.Watched, sdk.RowKey{List: flowList, Keys: map[string]string{"flow": f.key().String()}})
	}
	out := h.Analyze(e)
	expect(t, rows(t, out, summaryList), "", map[string]any{"packets": 7, "status": "COMPLETE"})
	expect(t, rows(t, out, flowList), at.key().String(), map[string]any{"reporting-node": "h1", "packets": 3})
	expect(t, rows(t, out, flowList), without.key().String(), map[string]any{"reporting-node": "leaf1", "packets": 4})
}

// Edge switches read node ids and latencies alone.
func TestMetadataOfEdgeSwitches(t *testing.T) {
	h := sdktest.Start(t, New(), sdktest.Options{Network: edgeNetwork(), Config: `{"metadata": ["latency", "queue"]}`})
	if missing := h.Settings().Missing; len(missing) != 1 || !strings.Contains(missing[0].Consequence, "latencies alone") {
		t.Errorf("missing %v", missing)
	}
	_, err := h.Configure(`{"sinks": "switches", "metadata": ["latency", "queue"]}`, edgeNetwork(), time.Second)
	if err == nil || !strings.Contains(err.Error(), `metadata: is ["latency" "queue"]; the towers of edge switches`) {
		t.Errorf("%v", err)
	}
	_, err = h.Configure(`{"time-unit": "1us"}`, edgeNetwork(), time.Second)
	if err == nil || !strings.Contains(err.Error(), "time-unit: is 1µs; the towers of edge switches") {
		t.Errorf("towers in another unit: error %v", err)
	}
}

// Registers of another shape are named, and cells that do not fit are not used.
func TestBadTowers(t *testing.T) {
	n := edgeNetwork()
	n.Devices[0].Objects[0].Cells--
	n.Devices[1].Objects[1].Annotations[annotation]["cells"] = "x"
	missing := sdktest.Start(t, New(), sdktest.Options{Network: n}).Settings().Missing
	for i, want := range []string{`sketchint_flows has 5119 cells of 32 bits; expected 5 rows of "1024" cells`,
		`sketchint_latencies has 3072 cells of 32 bits; expected 3 rows of "x" cells`} {
		if len(missing) != 2 || !strings.Contains(missing[i].Consequence, want) {
			t.Errorf("missing %v, want %s", missing, want)
		}
	}
	for name, change := range map[string]func(e *sdk.Epoch){
		"sketchint_flows was not delivered": func(e *sdk.Epoch) { e.Devices[0].Objects = e.Devices[0].Objects[1:] },
		"4 bytes in cells of 32 bits": func(e *sdk.Epoch) {
			e.Put("leaf1", sdk.CellsOf("sketchint_latencies", []uint32{1}))
		},
		"bytes in cells of 64 bits": func(e *sdk.Epoch) {
			e.Put("leaf1", sdk.CellsOf("sketchint_flows", make([]uint64, flowRows*simCells/2)))
		},
		"no answer": func(e *sdk.Epoch) { e.Missing = []sdk.Missing{{Name: "leaf1", Reason: "no answer"}} },
	} {
		h := sdktest.Start(t, New(), sdktest.Options{Network: edgeNetwork(), Config: `{"interval": "1s"}`})
		e := &sdk.Epoch{Number: 7, Status: sdk.StatusPartial, Start: time.Unix(7, 0), End: time.Unix(8, 0)}
		setTowers(t, e, "leaf1", nil)
		setTowers(t, e, "leaf2", nil)
		change(e)
		problem, _ := rows(t, h.Analyze(e), switchList)["leaf1"]["tower-problem"].(string)
		if !strings.Contains(problem, name) {
			t.Errorf("problem %q, want %q", problem, name)
		}
	}
}

// routedNetwork is the edge network with routes by the given spines. h1 has the flows' sources.
func routedNetwork(spines ...uint32) sdk.Network {
	n := edgeNetwork()
	n.Hosts[0].Addresses = append(n.Hosts[0].Addresses, simAddress(100, false).String(), simAddress(100, true).String())
	for i := range n.Devices {
		f := &sdk.Forwarding{Seed: 0x9e3779b1 + uint32(i)*2, Groups: []sdk.PortGroup{{Ports: spines}}}
		for p := range uint32(4) {
			f.Groups = append(f.Groups, sdk.PortGroup{Ports: []uint32{p + 1}})
		}
		for h := range 4 {
			group := 0
			switch leaf := h / 2; {
			case i >= 2:
				group = 1 + leaf // ports from a spine to a leaf
			case i == leaf:
				group = 3 + h%2
			}
			for _, a := range n.Hosts[h].Addresses {
				bits := "/32"
				if strings.Contains(a, ":") {
					bits = "/128"
				}
				f.Routes = append(f.Routes, sdk.Route{Prefix: a + bits, Group: group})
			}
		}
		n.Devices[i].Forwarding = f
	}
	return n
}

// Routes limit the switches at which an edge switch finds a flow. A flow that is not where its hash
// sends it is found at the other switches of equally short paths.
func TestRoutesOfEdgeSwitches(t *testing.T) {
	const config = `{"sinks": "switches", "interval": "1s", "heavy": 100, "change": 50}`
	flows := [2]simFlow{} // by the spine that the hash selects
	for port := 1; port < 100; port++ {
		f := simFlow{to: 2, port: port, packets: 200, latencies: []uint32{10, 20, 30}}
		k := f.key()
		path := newRouting(new(routedNetwork(1, 2)), map[string]uint32{"leaf1": leaf1, "leaf2": leaf2, "spine1": spine1,
			"spine2": spine2}).follow(&k, true)
		if len(path) != 3 || path[0] != leaf1 || path[2] != leaf2 {
			t.Fatalf("port %d: path %v", port, path)
		}
		f.path = path
		flows[path[1]-spine1] = f
	}
	at := func(f simFlow, spine uint32) simFlow { // a flow that takes the path by a spine
		f.path = []uint32{leaf1, spine, leaf2}
		return f
	}
	analyze := func(h *sdktest.Harness, epoch uint64, of ...simFlow) (hitters, changes []string) {
		t.Helper()
		e := &sdk.Epoch{Number: epoch, Status: sdk.StatusComplete,
			Start: time.Unix(int64(epoch)-1, 0), End: time.Unix(int64(epoch), 0)}
		setTowers(t, e, "leaf1", nil)
		setTowers(t, e, "leaf2", of)
		var own []simFlow
		for _, f := range of {
			if f.packets > 0 && f.changes == 0 {
				own = append(own, simFlow{to: f.to, port: f.port, packets: f.packets})
			}
		}
		for i, name := range []string{"h1", "h3", "h4"} {
			setReport(t, e, name, simReport(t, settingsOf(t, h, name), epoch, epoch, own[:len(own)*(i%2)]))
		}
		out := h.Analyze(e)
		names := func(list string) (names []string) {
			for at := range rows(t, out, list) {
				if name, flow, _ := strings.Cut(at, " "); strings.Contains(name, "e") && name != networkElement {
					names = append(names, name+" "+strings.Split(flow, ",")[3])
				}
			}
			slices.Sort(names)
			return names
		}
		return names(hitterList), names(changeList)
	}
	want := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	f := flows[0]
	port := strconv.Itoa(f.port)
	collision := at(f, spine2)
	collision.path, collision.latencies, collision.changes = collision.path[1:2], collision.latencies[1:2], 1
	h := sdktest.Start(t, New(), sdktest.Options{Network: routedNetwork(1, 2), Config: config})
	hitters, _ := analyze(h, 1, f)
	want("on the expected path", hitters, "leaf1 "+port, "leaf2 "+port, "spine1 "+port)
	hitters, changes := analyze(h, 2, at(f, spine2))
	want("on another path", hitters, "leaf1 "+port, "leaf2 "+port, "spine2 "+port)
	want("that moved", changes, "spine1 "+port, "spine2 "+port)
	// The packets of the other flow stand for a collision.
	hitters, _ = analyze(h, 3, f, collision)
	want("with a collision", hitters, "leaf1 "+port, "leaf2 "+port, "spine1 "+port)
	// Routes by one spine are in force; the packets of the interval took the old ones, or both.
	if _, err := h.Configure(config, routedNetwork(2), time.Second); err != nil {
		t.Fatal(err)
	}
	hitters, _ = analyze(h, 4, f)
	want("on the path before", hitters, "leaf1 "+port, "leaf2 "+port, "spine1 "+port)
	hitters, _ = analyze(h, 5, at(f, spine2))
	want("on the new path", hitters, "leaf1 "+port, "leaf2 "+port, "spine2 "+port)
	hitters, _ = analyze(h, 6, at(f, spine1))
	want("without a route", hitters, "leaf1 "+port, "leaf2 "+port)
}
