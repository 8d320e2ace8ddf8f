// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/sketch/estimate"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/settings"
)

func said(r *sdk.Results, text string) bool {
	return slices.ContainsFunc(r.Events, func(e sdk.Event) bool { return strings.Contains(e.Message, text) })
}

// steady plays epochs until the attention has settled.
func steady(f *fabric, flows int) {
	for range 6 {
		f.play(f.flows(flows, 0.1, 0))
	}
}

// TestMissingEdge: without an edge switch no losses are computed, and the rest is partial.
func TestMissingEdge(t *testing.T) {
	f := newFabric(t, 21, `{}`)
	steady(f, 5000)
	e := f.record(f.flows(5000, 0.1, 0))
	e.Devices = slices.DeleteFunc(e.Devices, func(d sdk.DeviceData) bool { return d.Name == "edge2" })
	e.Missing, e.Status = []sdk.Missing{{Name: "edge2", Reason: "no answer"}}, sdk.StatusPartial
	r := f.analyze(e)
	if n := len(lab.Rows(r, victimList)); n != 0 {
		t.Errorf("%d victims reported", n)
	}
	if n := len(lab.Rows(r, changeList)); n != 0 &&
		slices.ContainsFunc(lab.Rows(r, changeList), func(m map[string]string) bool { return m["node"] == Network }) {
		t.Error("network-wide changes without a part of the network")
	}
	for device, status := range map[string]string{Network: "PARTIAL", "edge1": "COMPLETE", "edge2": "LOST"} {
		if got := row(t, r, summaryList, "node", device); got["status"] != status || status != "COMPLETE" &&
			!strings.Contains(got["problem"], "edge2") && !strings.Contains(got["problem"], "no answer") {
			t.Errorf("%s: %v", device, got)
		}
	}
	network := row(t, r, summaryList, "node", Network)
	if network["packets-quality"] != "LOWER_BOUND" || network["victims"] != "" {
		t.Errorf("network: %v", network)
	}
	if a := row(t, r, attentionList); a["status"] != "LOST" || a["edge-switches-delivered"] != "3" ||
		!strings.Contains(a["problem"], "edge2") || reason(t, r) != "SWITCH_MISSING" {
		t.Errorf("attention: %v", a)
	}
	if !said(r, "edge2") {
		t.Errorf("no event names the switch: %v", r.Events)
	}
	flows := f.flows(5000, 0.1, 0)
	r = f.play(flows)
	exactLosses(t, f, lab.Rows(r, victimList), flows)
	if !said(r, ": resolved") {
		t.Errorf("no event that the alert is resolved: %v", r.Events)
	}
}

// reason returns the reason of an epoch's losses, which the summary shares.
func reason(t *testing.T, r *sdk.Results) string {
	t.Helper()
	a, s := row(t, r, attentionList)["reason"], row(t, r, totalList)["reason"]
	if a != s {
		t.Errorf("reasons %q and %q", a, s)
	}
	return a
}

// TestOutOfStep: an edge's downstream part is of another epoch. Nothing is called exact.
func TestOutOfStep(t *testing.T) {
	f := newFabric(t, 22, `{}`)
	steady(f, 3000)
	other := f.record(f.flows(3000, 0.1, 0))
	f.h.Analyze(other)
	f.record(nil) // the same time bit
	e := f.record(f.flows(3000, 0.1, 0))
	f.number--
	e.Number--
	for _, name := range downNames {
		e.Put("edge3", *other.Device("edge3").Object(name))
	}
	r := f.h.Analyze(e)
	if a := row(t, r, attentionList); a["status"] != "PARTIAL" || a["problem"] == "" || reason(t, r) != "OUT_OF_STEP" {
		t.Errorf("attention: %v", a)
	}
	for _, v := range lab.Rows(r, victimList) {
		if isExact(t, v, "quality") {
			t.Fatalf("called exact: %v", v)
		}
	}
	if s := row(t, r, summaryList, "node", Network); s["status"] != "PARTIAL" || s["victims-quality"] != "ESTIMATE" {
		t.Errorf("summary: %v", s)
	}
}

// TestBrokenCells: what an edge delivers is none of its program's. It has no results, or none
// that compare it with others, nothing is called exact, and it is said what is wrong.
func TestBrokenCells(t *testing.T) {
	first := func(e *sdk.Epoch) []uint32 { // cells of a bucket that is in use
		cells := e.Device("edge1").Object(upNames[0]).Uint32s()
		for i := 0; ; i += 5 {
			if cells[i] > 0 {
				return cells[i:]
			}
		}
	}
	widen := func(e *sdk.Epoch, object string, v uint32) {
		c := slices.Clone(e.Device("edge1").Object(object).Uint32s())
		c[0] = v
		e.Put("edge1", sdk.CellsOf(object, c))
	}
	for name, tc := range map[string]struct {
		change func(*sdk.Epoch)
		want   string
		lost   bool // the edge has no results at all
	}{
		"wrapped":      {func(e *sdk.Epoch) { first(e)[0] = 1 << 31 }, "has wrapped", true},
		"wrapped once": {func(e *sdk.Epoch) { first(e)[0]-- }, "a counter wrapped, cells were lost", false},
		"prime":        {func(e *sdk.Epoch) { first(e)[1] = math.MaxUint32 }, "not below the prime", true},
		"short": {func(e *sdk.Epoch) {
			c := e.Device("edge1").Object(downNames[1])
			c.Packed = c.Packed[:40]
		}, "10 cells delivered, expected", true},
		"long": {func(e *sdk.Epoch) {
			c := e.Device("edge1").Object(downNames[0])
			c.Packed = append(slices.Clone(c.Packed), 0, 0, 0, 0)
		}, "cells delivered, expected 46080", true},
		"narrow": {func(e *sdk.Epoch) { e.Device("edge1").Object(upNames[0]).Width = 16 }, "cells of 16 bits",
			true},
		"too wide":    {func(e *sdk.Epoch) { e.Device("edge1").Object(towerB).Width = 64 }, "cells of 64 bits", true},
		"counter":     {func(e *sdk.Epoch) { widen(e, towerA, 256) }, "a counter of 8 bits is 256", true},
		"counter, 16": {func(e *sdk.Epoch) { widen(e, towerB, 1<<16) }, "a counter of 16 bits is 65536", true},
		"absent": {func(e *sdk.Epoch) { d := e.Device("edge1"); d.Objects = d.Objects[1:] }, "was not delivered",
			true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, 23, `{}`)
			f.play(f.flows(500, 0.1, 0))
			e := f.record(f.flows(500, 0.1, 0))
			tc.change(e)
			r := f.analyze(e)
			s := row(t, r, summaryList, "node", "edge1")
			if tc.lost != (s["status"] == "LOST") || !strings.Contains(s["problem"], tc.want) {
				t.Errorf("summary %v", s)
			}
			if n := len(lab.Rows(r, victimList)); tc.lost && n > 0 {
				t.Errorf("%d victims", n)
			}
			for _, v := range lab.Rows(r, victimList) {
				if isExact(t, v, "quality") {
					t.Fatalf("called exact: %v", v)
				}
			}
			all := row(t, r, summaryList, "node", Network)
			if all["status"] != "PARTIAL" || all["victims-quality"] == "EXACT" {
				t.Errorf("network %v", all)
			}
			if x := row(t, r, alertList, "location", "edge1", "kind", "BAD_CELLS"); x["active"] != "true" ||
				!strings.Contains(x["text"], tc.want) || !said(r, tc.want) {
				t.Errorf("alert %v, events %v", x, r.Events)
			}
			flows := f.flows(500, 0.1, 0)
			r = f.play(flows)
			exactLosses(t, f, lab.Rows(r, victimList), flows)
			if x := row(t, r, alertList, "location", "edge1", "kind", "BAD_CELLS"); x["active"] != "false" ||
				x["count"] != "1" {
				t.Errorf("afterwards: %v", x)
			}
		})
	}
}

// TestOverflow: counters of the classifier that are full. Sizes are then lower bounds, and not
// called exact.
func TestOverflow(t *testing.T) {
	f := newFabric(t, 29, `{"start": {"high": 20, "low": 1}}`)
	flows := f.flows(300, 0, 0)
	flows[7].Packets = 70_000
	e := f.record(flows)
	x := &flows[7]
	e.Watched = append(e.Watched, sdk.RowKey{List: flowList,
		Keys: map[string]string{"node": Network, "flow": x.Key.String()}})
	r := f.analyze(e)
	for _, device := range []string{Network, edgeName(x.Entry)} {
		if s := row(t, r, summaryList, "node", device); s["packets-quality"] != "LOWER_BOUND" {
			t.Errorf("%v", s)
		}
	}
	// Th - 1 packets before it was a candidate, and all from then on in the HH part.
	for _, list := range []string{hitterList, flowList} {
		if h := row(t, r, list, "node", Network, "flow", x.Key.String()); h["packets"] != "70000" ||
			isExact(t, h, "quality") {
			t.Errorf("%s: %v", list, h)
		}
	}
}

// TestOverfull: the HH parts do not decode at first; results that do not need them are published.
func TestOverfull(t *testing.T) {
	f := newFabric(t, 24, `{}`)
	r := f.play(f.flows(80_000, 0.05, 0))
	if a := row(t, r, attentionList); a["status"] != "LOST" || !strings.Contains(a["problem"], "HH part") ||
		reason(t, r) != "NOT_DECODED" {
		t.Errorf("attention %v", a)
	}
	s := row(t, r, summaryList, "node", "edge1")
	if s["status"] != "PARTIAL" || s["distinct-flows"] == "" || s["entropy"] == "" || s["packets-quality"] != "EXACT" ||
		s["heavy-hitters"] != "" {
		t.Errorf("edge1: %v", s)
	}
	for _, h := range lab.Rows(r, hitterList) {
		if isExact(t, h, "quality") {
			t.Fatalf("called exact: %v", h)
		}
	}
	if th := row(t, r, thresholdList, "node", "edge1"); float(th["next-high-threshold"]) <= 1 {
		t.Errorf("Th does not go up: %v", th)
	}
}

// TestConfigure: what is refused, and what another configuration leaves as it is.
func TestConfigure(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ config, field string }{
		{`{"division": {"reserve": 4000}}`, "division.reserve"},
		{`{"division": {"ill-hl": 3000, "ill-ll": 512}}`, "division.ill-hl"},
		{`{"division": {"ill-ll": 4000}}`, "division.ill-ll"},
		{`{"division": {"ill-ll": -1}}`, "division.ill-ll"},
		{`{"heavy-hitters": {"share": 2, "limit": 1}}`, "heavy-hitters.share"},
		{`{"iterations": 0}`, "iterations"},
		{`{"start": {"low": 5}}`, "start.low"},
		{`{"start": {"low": 5, "high": 4}}`, "start.low"},
		{`{"start": {"high": 70000}}`, "start.high"},
		{`{"start": {"low": 0}}`, "start.low"},
		{`{"start": {"sample": 0}}`, "start.sample"},
		{`{"host-ports": {"edge1": [512]}}`, "host-ports.edge1[0]"},
		{`{"unknown": 1}`, ""},
	} {
		_, err := New().Configure(context.Background(), sdk.Config{JSON: []byte(tc.config)}, network())
		var fields settings.KeyErrors
		if !errors.As(err, &fields) || fields[0].Key != tc.field {
			t.Errorf("%s: %v, expected an error of %s", tc.config, err, tc.field)
		}
		for _, named := range []string{"4000", "3072", "edge1"} {
			if strings.Contains(tc.config, "4000") && !strings.Contains(err.Error(), named) {
				t.Errorf("%s is not named: %v", named, err)
			}
		}
	}
	f := newFabric(t, 25, `{}`)
	steady(f, 10_000)
	s, err := f.h.Configure(`{"iterations": 3, "victims": {"limit": 20000}}`, network(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range s.Plan.Writes {
		if !strings.Contains(w.Entry.Table, "_port") {
			t.Fatalf("a new configuration writes to %s in the midst of an epoch", w.Entry.Table)
		}
	}
	flows := f.flows(10_000, 0.1, 0)
	exactLosses(t, f, lab.Rows(f.play(flows), victimList), flows)
}

// TestUnmeasuredEdge: packets leave at a switch that does not measure, and are not taken
// for lost ones.
func TestUnmeasuredEdge(t *testing.T) {
	n := network()
	n.Devices[3].Objects = nil
	p := New()
	s, err := p.Configure(context.Background(), sdk.Config{}, n)
	if err != nil || len(s.Missing) != 1 || s.Missing[0].Device != "edge4" {
		t.Fatalf("missing %v, %v", s.Missing, err)
	}
	f := newFabric(t, 26, `{}`)
	e := f.record(f.flows(1000, 0.1, 0))
	r, err := p.Analyze(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	if len(lab.Rows(r, victimList)) != 0 {
		t.Error("victims are reported")
	}
	if a := row(t, r, attentionList); !strings.Contains(a["problem"], "edge4") {
		t.Errorf("attention %v", a)
	}
	if r, err = New().Analyze(context.Background(), e); err != nil || row(t, r, attentionList)["status"] != "LOST" {
		t.Errorf("without any edge switch: %v", err)
	}
}

// TestMarks: packets get a mark only where each of them comes to an edge switch that removes it,
// and no switch takes the mark for SketchINT's.
func TestMarks(t *testing.T) {
	for name, change := range map[string]func(n *sdk.Network){
		"marked":                    func(*sdk.Network) {},
		"an edge without registers": func(n *sdk.Network) { n.Devices[3].Objects = nil },
		"SketchINT in between": func(n *sdk.Network) {
			n.Devices = append(n.Devices, sdk.Device{Name: "core1", Program: "sketchint-edge"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := network()
			change(&n)
			s, err := New().Configure(context.Background(), sdk.Config{}, n)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, w := range s.Plan.Writes {
				if strings.HasSuffix(w.Entry.Table, "_port") {
					got[w.Entry.Action] = true
				}
			}
			want := map[string]bool{"ingress.chamelemon.measure": true, "egress.chamelemon.keep": true}
			if name == "marked" {
				want = map[string]bool{"ingress.chamelemon.from_host": true, "egress.chamelemon.to_host": true}
			}
			if !maps.Equal(got, want) {
				t.Errorf("actions at ports: %v, want %v", got, want)
			}
		})
	}
}

// TestOneFamily: a pipeline without encoders of IPv6. IPv4 results are complete; IPv6 flows have
// the classifier's sizes, without false exactness, and no losses.
func TestOneFamily(t *testing.T) {
	f := newFabric(t, 31, `{}`)
	n := network()
	for i := range n.Devices {
		n.Devices[i].Objects = slices.DeleteFunc(n.Devices[i].Objects,
			func(o sdk.Object) bool { return o.Annotations[annotation]["family"] == "6" })
	}
	f.h = sdktest.Start(t, New(), sdktest.Options{Network: n})
	f.apply(*f.h.Settings().Plan)
	for range 5 {
		flows := f.flows(6000, 0.1, 0.2)
		e := f.record(flows)
		for i := range e.Devices {
			e.Devices[i].Objects = slices.DeleteFunc(e.Devices[i].Objects,
				func(c sdk.Cells) bool { return c.Object == upNames[1] || c.Object == downNames[1] })
		}
		var six, four []lab.Flow
		for i := range flows {
			if flows[i].Key.SrcAddr().Is6() {
				six = append(six, flows[i])
			} else {
				four = append(four, flows[i])
			}
		}
		e.Watched = []sdk.RowKey{{List: flowList, Keys: map[string]string{"node": Network,
			"flow": six[0].Key.String()}}}
		r := f.analyze(e)
		exactLosses(t, f, lab.Rows(r, victimList), four)
		if g := row(t, r, flowList); float(g["packets"]) < float64(six[0].Packets) || isExact(t, g, "quality") {
			t.Errorf("%v has %d packets", g, six[0].Packets)
		}
		if s := row(t, r, summaryList, "node", Network); s["quality"] != "ESTIMATE" ||
			math.Abs(float(s["distinct-flows"])/6000-1) > 0.02 {
			t.Errorf("%v", s)
		}
		if r.State == nil || New().RestoreState(*r.State) != nil {
			t.Error("the state is not taken up")
		}
	}
}

// TestWatched: a watched flow has a row with its exact size. A watched key that is not a flow, or
// is at no switch, is reported.
func TestWatched(t *testing.T) {
	f := newFabric(t, 27, `{}`)
	f.play(f.flows(2000, 0, 0))
	flows := f.flows(2000, 0, 0)
	e := f.record(flows)
	watch := func(device, key string) {
		e.Watched = append(e.Watched, sdk.RowKey{List: flowList,
			Keys: map[string]string{"node": device, "flow": key}})
	}
	x := &flows[5]
	watch(edgeName(x.Entry), x.Key.String())
	watch(Network, x.Key.String())
	watch(Network, "nonsense")
	watch("nowhere", x.Key.String())
	r := f.analyze(e)
	got := lab.Rows(r, flowList)
	if len(got) != 2 || !said(r, "nonsense") || !said(r, "nowhere") {
		t.Errorf("%v, %v", got, r.Events)
	}
	for _, g := range got {
		if float(g["packets"]) != float64(x.Packets) || g["quality"] != "EXACT" {
			t.Errorf("%v has %d packets", g, x.Packets)
		}
	}
}

// TestShift: the order of the thresholds and the bounds of the parts hold whatever is
// measured.
func TestShift(t *testing.T) {
	room := [families]Room{{4096, 3072, 512, 2560, 512}, {1024, 768, 128, 640, 128}}
	config := settings.Default[Configuration]()
	now := begin(&config, &room, []string{"a", "b"})
	sizes := []float64{1, 2, 3, 10, 100, 1000}
	weights := []float64{20000, 5000, 2000, 500, 50, 5}
	counts := []count{{decoded: true}, {flows: 100, decoded: true}, {flows: 8000, decoded: true},
		{flows: 30000, high: 45000}, {flows: 1e6, high: 12e5}, {flows: 5},
		{flows: 900, few: 2}}
	rnd := rand.New(rand.NewPCG(28, 7))
	pick := func() count { return counts[rnd.IntN(len(counts))] }
	for steps := range 3000 {
		m := &measured{edges: map[string]*edgeState{}, deltas: rnd.IntN(4) > 0}
		for _, name := range []string{"a", "b"} {
			if rnd.IntN(8) > 0 {
				var t estimate.Tail
				if rnd.IntN(5) > 0 {
					t = estimate.NewTail(sizes, weights)
				}
				m.edges[name] = &edgeState{hitters: [families]count{pick(), pick()}, sizes: func() *estimate.Tail { return &t },
					candidates: t.AtLeast}
			}
		}
		m.hl, m.ll = [families]count{pick(), pick()}, [families]count{pick(), pick()}
		if now.State == Healthy {
			m.ll = [families]count{{decoded: true}, {decoded: true}}
		}
		for range rnd.IntN(50) {
			m.victims = append(m.victims, victimSize{family: rnd.IntN(families), size: sizes[rnd.IntN(len(sizes))],
				weight: float64(1 + rnd.IntN(20)), heavy: rnd.IntN(2) == 0, sampled: rnd.IntN(2) == 0})
		}
		m.expected = [families]float64{float64(rnd.IntN(2) * rnd.IntN(20_000)), float64(rnd.IntN(2) * rnd.IntN(5000))}
		if steps%3 == 0 {
			now, _ = literal(now, m, &room)
		} else {
			now, _, _ = shift(now, now.State, m, &room)
		}
		for name, th := range now.Th {
			if now.Tl < 1 || now.Tl > th || th > maxThreshold {
				t.Fatalf("thresholds of %s: Tl %d, Th %d", name, now.Tl, th)
			}
		}
		if now.State == Healthy && (now.Tl != 1 || now.Sample != 0) || now.State == Ill &&
			(now.Tl < 2 || now.Sample < 1 || now.Sample > Sampled) {
			t.Fatalf("%+v", now)
		}
		for f, p := range now.Parts {
			if p.HL < 1 || p.LL < 0 || p.HL+p.LL > room[f].Down || now.State == Healthy &&
				(p.LL != 0 || p.HL < room[f].Reserve) || now.State == Ill &&
				p != (Parts{room[f].IllLL, room[f].IllHL}) {
				t.Fatalf("family %d: %+v in state %s", f, p, now.State)
			}
		}
	}
}

// TestStart: without control the attention of the configuration stays: thresholds, and the fixed
// division of an ill network when Tl is above 1. Plans only change the seed of the sample.
func TestStart(t *testing.T) {
	f := newFabric(t, 30, `{"control": false, "start": {"high": 40, "low": 8, "sample": 0.25}}`)
	for range 3 {
		r := f.play(f.flows(20_000, 0.3, 0))
		at := row(t, r, attentionList)
		if at["network-state"] != "ILL" || at["low-threshold"] != "8" || at["highest-threshold"] != "40" ||
			at["sample-rate"] != "0.25" || len(r.Plans) != 1 {
			t.Fatalf("%v, %d plans", at, len(r.Plans))
		}
		for _, w := range r.Plans[0].Writes {
			if w.Entry.Table != "ingress.chamelemon.thresholds" {
				t.Errorf("a plan writes %+v", w.Entry)
			}
		}
		hl := row(t, r, encoderList, "part", "HL", "family", "IPV4")
		ll := row(t, r, encoderList, "part", "LL", "family", "IPV4")
		if n := float(hl["buckets"]); n > 7680 || n < 7670 || ll["buckets"] != "1536" {
			t.Errorf("%v, %v", hl, ll)
		}
	}
}

// FuzzModel: for any network model and any cells, the plugin returns results or an error.
func FuzzModel(f *testing.F) {
	f.Add([]byte{1, 2, 3}, "classifier", "0", "8", "6", 24, 8)
	f.Add([]byte{255, 255, 255, 255, 1, 0, 0, 128}, "encoder", "upstream", "4", "5", 30, 32)
	f.Add([]byte{}, "encoder", "downstream", "6", "11", 120, 32)
	f.Add([]byte{0xfb, 0xff, 0xff, 0xff}, "encoder", "", "", "-1", -5, 0)
	f.Fuzz(func(t *testing.T, data []byte, part, side, family, words string, size, width int) {
		n := smallNetwork()
		// Any of the bad objects takes the place of one of edge1's objects.
		which := len(data) % len(n.Devices[0].Objects)
		o := &n.Devices[0].Objects[which]
		o.Cells, o.Width = size, width
		o.Annotations = sdk.Annotations{annotation: {
			"part": part, "row": side, "bits": family, "counters": words, "side": side, "family": family,
			"buckets": strconv.Itoa(size), "words": words,
			"arrays": "3", "fragment": "32", "fingerprint": "20", "hash": "48", "prime": "4294967291",
		}}
		for _, n := range []sdk.Network{n, smallNetwork()} {
			p := New()
			if _, err := p.Configure(context.Background(), sdk.Config{JSON: []byte(`{"iterations": 1}`)},
				n); err != nil {
				continue
			}
			for number := uint64(1); number < 4; number++ {
				e := &sdk.Epoch{Number: number}
				for i, d := range n.Devices {
					for j, o := range d.Objects {
						cells := make([]uint32, max(min(o.Cells, 4096), 0))
						for k := range cells {
							if len(data) > 0 && uint64(i+j) >= number {
								cells[k] = uint32(data[(k+j)%len(data)])
							}
						}
						if i == 0 && j == which && len(data) > 8 {
							e.Put(d.Name, sdk.Cells{Object: o.Name, Width: width, Packed: data})
							continue
						}
						e.Put(d.Name, sdk.CellsOf(o.Name, cells))
					}
				}
				if _, err := p.Analyze(context.Background(), e); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := p.SaveState(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// smallNetwork has two edges with few cells.
func smallNetwork() sdk.Network {
	n := network()
	n.Devices = n.Devices[:2]
	for i := range n.Devices {
		for j := range n.Devices[i].Objects {
			o := &n.Devices[i].Objects[j]
			o.Annotations = sdk.Annotations{annotation: maps.Clone(o.Annotations[annotation])}
			if o.Annotations[annotation]["part"] == "classifier" {
				o.Cells = 64
				o.Annotations[annotation]["counters"] = "64"
				continue
			}
			buckets := map[string]int{"upstream": 16, "downstream": 12}[o.Annotations[annotation]["side"]]
			words, _ := strconv.Atoi(o.Annotations[annotation]["words"])
			o.Annotations[annotation]["buckets"] = strconv.Itoa(buckets)
			o.Cells = arrays * buckets * words
		}
	}
	return n
}
