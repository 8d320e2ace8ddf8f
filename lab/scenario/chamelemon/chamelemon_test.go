// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// The flows of the tests, as a path has them.
const (
	flowA = "10.0.0.1,10.0.2.1,udp,1000,53"
	flowB = "10.0.0.2,10.0.2.1,udp,1000,53"
	flowC = "10.0.2.9,10.0.0.1,udp,1000,53"
)

func key(t *testing.T, text string) flow.Key {
	t.Helper()
	k, err := flow.Parse(flow.FiveTuple, text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// leaves returns leaves of /chamelemon. rows has, by "list/entry?key=value&…", the leaves of the
// container state: texts or numbers.
func leaves(rows map[string]map[string]any) (out []score.Leaf) {
	for where, state := range rows {
		where, keys, _ := strings.Cut(where, "?")
		path := []*gnmi.PathElem{{Name: "chamelemon"}}
		for name := range strings.SplitSeq(where, "/") {
			path = append(path, &gnmi.PathElem{Name: name})
		}
		if keys != "" {
			m := map[string]string{}
			for kv := range strings.SplitSeq(keys, "&") {
				k, v, _ := strings.Cut(kv, "=")
				m[k] = v
			}
			path[len(path)-1].Key = m
		}
		for name, v := range state {
			l := score.Leaf{Path: append(path[:len(path):len(path)], &gnmi.PathElem{Name: "state"},
				&gnmi.PathElem{Name: name})}
			switch x := v.(type) {
			case string:
				l.Value = score.Text(x)
			case int:
				l.Value = score.Number(x)
			case bool:
				if x {
					l.Value = score.Number(1)
				}
			}
			out = append(out, l)
		}
	}
	return out
}

// epoch is a network of two edges in which A lost 2 of 5 packets and B 1 of 3, and C none of 4.
func epoch(t *testing.T) (*score.Epoch, map[string]map[string]any) {
	a, b, c := key(t, flowA), key(t, flowB), key(t, flowC)
	one := &score.Device{Entered: truth.Counts{a: 5, b: 3}, Lost: truth.Counts{a: 2, b: 1}}
	two := &score.Device{Entered: truth.Counts{c: 4}, Lost: truth.Counts{}}
	e := &score.Epoch{Number: 7, Status: "COMPLETE", Truth: &score.Truth{
		Devices: map[string]*score.Device{"e1": one, "e2": two}, Complete: true,
		Network: truth.Counts{a: 5, b: 3, c: 4}, Lost: truth.Counts{a: 2, b: 1},
	}}
	summary := func(packets int) map[string]any {
		return map[string]any{"status": "COMPLETE", "packets": packets, "packets-quality": "EXACT",
			"quality":        "ESTIMATE",
			"distinct-flows": 2, "heavy-hitters": 0}
	}
	network := summary(12)
	network["victims-quality"], network["victims"] = "EXACT", 2
	network["lost-packets-quality"], network["lost-packets"] = "EXACT", 3
	part := map[string]any{"buckets": 300, "next-buckets": 300, "flows": 2, "quality": "EXACT"}
	return e, map[string]map[string]any{
		"attention": {"network-state": "HEALTHY", "next-state": "HEALTHY",
			"status": "COMPLETE", "configuration-known": true, "low-threshold": 1, "highest-threshold": 1, "victims": 2},
		"victims/victim?flow=" + flowA: {"lost-packets": 2, "quality": "EXACT", "kind": "HEAVY", "packets": 5,
			"packets-quality": "UPPER_BOUND",
			"entry-node":      "e1", "exit-node": "e2"},
		"victims/victim?flow=" + flowB: {"lost-packets": 1, "quality": "EXACT", "kind": "HEAVY", "packets": 3,
			"packets-quality": "EXACT",
			"entry-node":      "e1", "exit-node": "e2"},
		"summary":                             {"last-epoch": 7},
		"node-summaries/node-summary?node=e1": summary(8), "node-summaries/node-summary?node=e2": summary(4),
		"node-summaries/node-summary?node=network": network,
		"thresholds/threshold?node=e1": {"high-threshold": 1,
			"next-high-threshold": 1, "low-threshold": 1, "next-low-threshold": 1},
		"thresholds/threshold?node=e2": {"high-threshold": 1,
			"next-high-threshold": 1, "low-threshold": 1, "next-low-threshold": 1},
		"encoders/encoder?node=network&family=IPV4&part=HL": part,
		"encoders/encoder?node=e1&family=IPV4&part=HH":      part,
		"encoders/encoder?node=e2&family=IPV4&part=HH":      part,
	}
}

func scored(t *testing.T, e *score.Epoch, rows map[string]map[string]any) (*score.Result, *Attention) {
	t.Helper()
	home := func(a netip.Addr) string {
		if netip.MustParsePrefix("10.0.2.0/24").Contains(a) {
			return "e2"
		}
		return "e1"
	}
	edges := []string{"e1", "e2"}
	s, err := score.New(Algorithm(), score.Setting{Edges: edges, Changes: []int{0}, Home: home, Watch: 2})
	if err != nil {
		t.Fatal(err)
	}
	e.Leaves = leaves(rows)
	r, err := s.Score(e)
	if err != nil {
		t.Fatal(err)
	}
	if rows := s.Watch(); len(rows) != 4 || s.Watch() != nil {
		t.Errorf("watched are %v; expected a flow of each edge, there and in the network, once", rows)
	}
	var c score.Canvas
	s.Draw(&c)
	shown := "network"
	if e.Number != 7 {
		shown = "no results"
	}
	if !strings.Contains(c.String(), shown) {
		t.Errorf("the view does not show %q: %s", shown, c.String())
	}
	return r, AttentionOf(r, edges)
}

// count returns the true positives of a measure about lost packets.
func count(r *score.Result, measure string) int { return r.Score(measure, network).Counts.TruePositive }

func TestAllIsRight(t *testing.T) {
	e, rows := epoch(t)
	r, a := scored(t, e, rows)
	if len(r.FalseClaims) > 0 || count(r, VictimsExact) != 2 || count(r, VictimEnds) != 2 ||
		r.Score(VictimF1, network).Value != 1 || !a.Sure || !a.Balanced ||
		*r.Score(LostPacketsError, network).Figure != score.Of(3, 3) || r.Score(HeavyVictimF1, network).Value != 1 {
		t.Errorf("%+v; %+v; false claims %v", r.Scores, a, r.FalseClaims)
	}
	if len(r.Missing) != 0 || r.Views != 3 {
		t.Errorf("%v of %d results are missing", r.Missing, r.Views)
	}
	for i := range r.Scores {
		if s := &r.Scores[i]; strings.HasPrefix(s.Measure, "victim") && s.Dimension != "healthy" {
			t.Errorf("%s has dimension %q", s.Measure, s.Dimension)
		}
	}
}

// Epochs that were not measured alike everywhere, or not decoded, do not count as healthy.
func TestDimensions(t *testing.T) {
	for leaf, want := range map[string]string{"configuration-known": "unsettled", "status": "undecoded"} {
		e, rows := epoch(t)
		rows["attention"] = maps.Clone(rows["attention"])
		rows["attention"][leaf] = map[string]any{"configuration-known": false, "status": "PARTIAL"}[leaf]
		if r, a := scored(t, e, rows); r.Score(VictimF1, network).Dimension != want || a.Balanced {
			t.Errorf("not %s: %+v", leaf, r.Score(VictimF1, network))
		}
	}
}

// Heavy victims are flows that lost at least Tl packets; others may be published as heavy with
// fewer, if they have at least Tl packets.
func TestHeavyVictims(t *testing.T) {
	for name, tt := range map[string]struct {
		lost int // the row of flow B, which lost one packet of three
		kind string
		tl   int
		want score.Confusion
	}{
		"fewer than Tl": {1, "HEAVY", 2, score.Confusion{TruePositive: 1}},
		"too many":      {2, "HEAVY", 2, score.Confusion{TruePositive: 1, FalsePositive: 1}},
		"called light":  {2, "LIGHT", 2, score.Confusion{TruePositive: 1}},
		"too small":     {1, "HEAVY", 4, score.Confusion{FalsePositive: 1}},
	} {
		e, rows := epoch(t)
		rows["attention"] = maps.Clone(rows["attention"])
		rows["attention"]["low-threshold"] = tt.tl
		rows["victims/victim?flow="+flowB] = map[string]any{"lost-packets": tt.lost, "kind": tt.kind,
			"quality": "ESTIMATE", "packets-quality": "ESTIMATE"}
		if r, _ := scored(t, e, rows); *r.Score(HeavyVictimF1, network).Counts != tt.want {
			t.Errorf("%s: %+v, want %+v", name, r.Score(HeavyVictimF1, network).Counts, tt.want)
		}
	}
}

// Every value that is published as exact and is not is found.
func TestFalseClaims(t *testing.T) {
	for name, tt := range map[string]struct {
		row    string
		change map[string]any
		want   string
	}{
		"lost packets": {"victims/victim?flow=" + flowA, map[string]any{"lost-packets": 1}, "true value is 2"},
		"no victim": {"victims/victim?flow=" + flowC, map[string]any{"lost-packets": 9, "quality": "LOWER_BOUND"},
			"true value is 0"},
		"a victim missing": {"victims/victim?flow=" + flowB, nil, "1 of 2 are right"},
		"entry": {"victims/victim?flow=" + flowA, map[string]any{"entry-node": "e2"},
			"with e2; the true value is e1"},
		"exit": {"victims/victim?flow=" + flowA, map[string]any{"exit-node": "e1"},
			"with e1; the true value is e2"},
		"flows": {"node-summaries/node-summary?node=e2", map[string]any{"quality": "EXACT"}, "quality is EXACT"},
		"watched": {"flows/flow?node=e1&flow=" + flowA,
			map[string]any{"packets": 4, "quality": "EXACT"}, "with 4; the true value is 5"},
		"packets": {"node-summaries/node-summary?node=e2", map[string]any{"packets": 5},
			"with 5; the true value is 4"},
		"hitter": {"heavy-hitters/heavy-hitter?node=e1&flow=" + flowA,
			map[string]any{"packets": 4, "quality": "EXACT"}, "with 4; the true value is 5"},
	} {
		e, rows := epoch(t)
		row := maps.Clone(rows[tt.row])
		if row == nil {
			row = map[string]any{}
		}
		maps.Copy(row, tt.change)
		rows[tt.row] = row
		if tt.change == nil {
			delete(rows, tt.row)
		}
		if r, _ := scored(t, e, rows); !strings.Contains(strings.Join(r.FalseClaims, "\n"), tt.want) {
			t.Errorf("%s: false claims are %q, without %q", name, r.FalseClaims, tt.want)
		}
	}
}

// TestWatchedFlows: the sizes of watched flows are scored at the switch where they entered, and for
// the network.
func TestWatchedFlows(t *testing.T) {
	e, rows := epoch(t)
	for where, packets := range map[string]int{"e1&flow=" + flowA: 6, "e1&flow=" + flowB: 3, "network&flow=" + flowA: 5,
		"e2&flow=" + flowA: 1} {
		rows["flows/flow?node="+where] = map[string]any{"packets": packets, "quality": "ESTIMATE"}
	}
	r, _ := scored(t, e, rows)
	one, all := r.Score(FlowSizeARE, score.View{Device: "e1"}), r.Score(FlowSizeARE, network)
	if one == nil || one.Value != 0.1 || all == nil || all.Value != 0 ||
		r.Score(FlowSizeARE, score.View{Device: "e2"}) != nil {
		t.Errorf("%v and %v", one, all)
	}
}

func TestNoResults(t *testing.T) {
	e, rows := epoch(t)
	e.Number = 8
	r, a := scored(t, e, rows)
	if len(r.Missing) != r.Views || a.State != "NONE" || a.Balanced || r.Score(VictimF1, network) != nil ||
		r.Score(Decoded, network).Value != 0 {
		t.Errorf("results of another epoch: %v of %d missing, %+v", r.Missing, r.Views, a)
	}
}

func TestBalance(t *testing.T) {
	h := &score.History{Setting: &score.Setting{Changes: []int{2, 5, 8, 20}}}
	for i, c := range "bb.bb...bb." { // b: in balance
		status := score.Text(map[bool]string{true: "COMPLETE", false: "PARTIAL"}[c == 'b'])
		h.Results = append(h.Results, &score.Result{Index: i,
			Published: score.Tables{"attention": {network: {"": {Leaves: score.Leaves{
				"status": status, "configuration-known": score.Number(1),
			}}}}}})
	}
	got := Balance(h)
	want := map[int]int{2: 1, 5: 3, 8: 3}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if total, ok := balance(h); !ok || total.Value != 3 || total.Views != 3 {
		t.Errorf("%+v", total)
	}
}

func TestDistribution(t *testing.T) {
	now := truth.Counts{}
	for i, n := range []uint64{1, 1, 2, 40, 5000} {
		now[flow.Key{SrcPort: uint16(i)}] = n
	}
	published := score.Tables{}
	for from, r := range map[string][2]float64{"1": {1, 2}, "2": {2, 2}, "33": {64, 1}} {
		published.Rows("range", network).Add(from, score.Leaves{"upper": score.Number(r[0]), "flows": score.Number(r[1])})
	}
	v := view{score.Tables{}, published, network, now}
	v.distribution()
	// A flow of size 2 and a flow beyond the ranges are published in error: 2 of 5 flows are wrong.
	got, ok := score.WMRE(&score.Measure{Leaves: []string{"flows"}}, published["range"][network],
		v.tables["range"][network])
	if !ok || got.Value != 0.4 {
		t.Errorf("%v", got)
	}
}
