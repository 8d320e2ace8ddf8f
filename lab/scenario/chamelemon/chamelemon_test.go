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

// leaves writes leaves of /chamelemon: by "list/entry?key=value&…" the state's leaves, a text or a number.
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
			l := score.Leaf{Path: append(path[:len(path):len(path)], &gnmi.PathElem{Name: "state"}, &gnmi.PathElem{Name: name})}
			switch x := v.(type) {
			case string:
				l.Text = x
			case int:
				l.Number = float64(x)
			case bool:
				if x {
					l.Number = 1
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
	e := &score.Epoch{Number: 7, Status: "complete", Truth: score.Truth{
		Devices: map[string]*score.Device{"e1": one, "e2": two}, Complete: true, Network: truth.Counts{a: 5, b: 3, c: 4}, Lost: truth.Counts{a: 2, b: 1},
	}}
	summary := func(packets int) map[string]any {
		return map[string]any{"epoch": 7, "status": "complete", "packets": packets, "packets-exact": true, "distinct-flows": 2, "heavy-hitters": 0}
	}
	network := summary(12)
	network["victims-exact"], network["victims"] = true, 2
	part := map[string]any{"epoch": 7, "buckets": 300, "next-buckets": 300, "flows": 2, "decoded": true}
	return e, map[string]map[string]any{
		"attention":                    {"epoch": 7, "network-state": "healthy", "next-state": "healthy", "decoded": true, "settled": true, "low-threshold": 1, "highest-threshold": 1, "victims": 2},
		"victims/victim?flow=" + flowA: {"epoch": 7, "lost-packets": 2, "exact": true, "kind": "heavy", "packets": 5, "entry": "e1", "exit": "e2"},
		"victims/victim?flow=" + flowB: {"epoch": 7, "lost-packets": 1, "exact": true, "kind": "heavy", "packets": 3, "entry": "e1", "exit": "e2"},
		"victims/victim?flow=" + flowC: {"epoch": 6, "lost-packets": 9, "exact": true}, // of the epoch before
		"summaries/summary?device=e1":  summary(8), "summaries/summary?device=e2": summary(4), "summaries/summary?device=network": network,
		"thresholds/threshold?device=e1":                      {"epoch": 7, "high-threshold": 1, "next-high-threshold": 1, "low-threshold": 1, "next-low-threshold": 1},
		"thresholds/threshold?device=e2":                      {"epoch": 7, "high-threshold": 1, "next-high-threshold": 1, "low-threshold": 1, "next-low-threshold": 1},
		"encoders/encoder?device=network&family=ipv4&part=hl": part, "encoders/encoder?device=e1&family=ipv4&part=hh": part,
		"encoders/encoder?device=e2&family=ipv4&part=hh": part,
	}
}

func scored(t *testing.T, e *score.Epoch, rows map[string]map[string]any) *Score {
	t.Helper()
	home := func(a netip.Addr) string {
		if netip.MustParsePrefix("10.0.2.0/24").Contains(a) {
			return "e2"
		}
		return "e1"
	}
	s, err := newScorer(score.Setting{Edges: []string{"e1", "e2"}, Changes: []int{0}, Home: home, Watch: 2})
	if err != nil {
		t.Fatal(err)
	}
	e.Leaves = leaves(rows)
	r, err := s.Score(e)
	if err != nil {
		t.Fatal(err)
	}
	if w, ok := s.(score.Watcher); !ok {
		t.Error("no rows can be asked for")
	} else if rows := w.Watch(); len(rows) != 4 && e.Number == 7 || w.Watch() != nil {
		t.Errorf("watched are %v; expected a flow of each edge, there and of the network, once", rows)
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
	out, ok := r.(*Score)
	if !ok {
		t.Fatalf("a result of type %T", r)
	}
	return out
}

func TestAllIsRight(t *testing.T) {
	e, rows := epoch(t)
	s := scored(t, e, rows)
	if len(s.False) > 0 || s.Exact != 2 || s.Ends != 2 || s.Found.F1() != 1 || !s.Sure || !s.Balanced || s.LostPackets.Measured != 3 {
		t.Errorf("%+v; found %+v, false claims %v", s, s.Found, s.False)
	}
	if n, of := s.Missing(); n != 0 || of != 3 {
		t.Errorf("%d of %d results are missing", n, of)
	}
}

// Whatever is called exact and is not is found.
func TestFalseClaims(t *testing.T) {
	for name, tt := range map[string]struct {
		row    string
		change map[string]any
		want   string
	}{
		"lost packets":     {"victims/victim?flow=" + flowA, map[string]any{"lost-packets": 1}, "in truth 2"},
		"no victim":        {"victims/victim?flow=" + flowC, map[string]any{"epoch": 7}, "in truth 0"},
		"a victim missing": {"victims/victim?flow=" + flowB, map[string]any{"epoch": 6}, "1 of 2 are"},
		"entry":            {"victims/victim?flow=" + flowA, map[string]any{"entry": "e2"}, "elsewhere"},
		"exit":             {"victims/victim?flow=" + flowA, map[string]any{"exit": "e1"}, "left at e1"},
		"flows":            {"summaries/summary?device=e2", map[string]any{"flows-exact": true}, "flows are called exact"},
		"watched":          {"flows/flow?device=e1&flow=" + flowA, map[string]any{"epoch": 7, "packets": 4, "exact": true}, "4 packets, 5 entered"},
		"packets":          {"summaries/summary?device=e2", map[string]any{"packets": 5}, "4 entered"},
		"hitter":           {"heavy-hitters/heavy-hitter?device=e1&flow=" + flowA, map[string]any{"epoch": 7, "packets": 4, "exact": true}, "5 entered"},
	} {
		e, rows := epoch(t)
		row := maps.Clone(rows[tt.row])
		if row == nil {
			row = map[string]any{}
		}
		maps.Copy(row, tt.change)
		rows[tt.row] = row
		if s := scored(t, e, rows); !strings.Contains(strings.Join(s.False, "\n"), tt.want) {
			t.Errorf("%s: false claims are %q, none says %q", name, s.False, tt.want)
		}
	}
}

// The sizes of the flows that are watched, where they entered and of the network.
func TestWatchedFlows(t *testing.T) {
	e, rows := epoch(t)
	for where, packets := range map[string]int{"e1&flow=" + flowA: 6, "e1&flow=" + flowB: 3, "network&flow=" + flowA: 5, "e2&flow=" + flowA: 1} {
		rows["flows/flow?device="+where] = map[string]any{"epoch": 7, "packets": packets, "exact": false}
	}
	s := scored(t, e, rows)
	if one, all := s.Views["e1"].SizeARE, s.Views["network"].SizeARE; one == nil || *one != 0.1 || all == nil || *all != 0 || s.Views["e2"].SizeARE != nil {
		t.Errorf("%v and %v", one, all)
	}
}

func TestNoResults(t *testing.T) {
	e, rows := epoch(t)
	e.Number = 8
	s := scored(t, e, rows)
	if n, of := s.Missing(); n != of || s.State != "none" || s.Balanced {
		t.Errorf("results of another epoch: %d of %d missing, %+v", n, of, s)
	}
}

func TestBalance(t *testing.T) {
	s := &scorer{changes: []int{2, 5, 8, 20}}
	for i, c := range "bb.bb...bb." { // b: in balance
		s.epochs = append(s.epochs, &Score{Index: i, Balanced: c == 'b'})
	}
	got := s.Balance()
	want := map[int]int{2: 1, 5: 3, 8: 3}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if most, n := s.balance(); most != 3 || n != 3 {
		t.Errorf("at most %d of %d changes", most, n)
	}
}

func TestDistributionError(t *testing.T) {
	now := truth.Counts{}
	for i, n := range []uint64{1, 1, 2, 40, 5000} {
		now[flow.Key{SrcPort: uint16(i)}] = n
	}
	ranges := map[uint64]*sizes{1: {To: 1, Flows: 2}, 2: {To: 2, Flows: 2}, 33: {To: 64, Flows: 1}}
	// One flow too many of size 2, and one beyond what is told: 2 wrong of 5 and 5 in the mean.
	if got := wmre(ranges, now); got != 0.4 {
		t.Errorf("%v", got)
	}
}
