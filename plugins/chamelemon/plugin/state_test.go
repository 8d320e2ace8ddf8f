// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// everything is an epoch's tables and plans as text, without what time the work took.
func everything(tb testing.TB, r *sdk.Results) []string {
	tb.Helper()
	var out []string
	for _, t := range r.Tables {
		for _, m := range lab.Rows(r, t.Table.List) {
			delete(m, "response-time")
			delete(m, "analysis-time")
			var line []string
			for _, k := range slices.Sorted(maps.Keys(m)) {
				line = append(line, k+"="+m[k])
			}
			out = append(out, t.Table.List+" "+strings.Join(line, " "))
		}
	}
	for _, p := range r.Plans {
		out = append(out, fmt.Sprint("plan ", p.FromEpoch, p.PreEpoch, p.Writes))
	}
	for _, e := range r.Events {
		out = append(out, "event "+e.Message)
	}
	slices.Sort(out)
	return out
}

// TestRestart: a plugin that is killed between any two epochs gives the same results as one that
// keeps running, in a network that becomes ill and healthy again while flows change.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, account := range []bool{false, true} {
		t.Run(fmt.Sprintf("account %v", account), func(t *testing.T) {
			const config = `{"heavy-changes": {"packets": 20}}`
			a, b := newSmall(t, 41, config), newSmall(t, 41, config)
			a.account, b.account = account, account
			changes, states := 0, make(map[string]bool)
			for i := range 13 {
				victims := 0.05
				if i >= 3 && i < 9 {
					victims = 0.75
				}
				flows := a.flows(3000, victims, 0.05)
				b.flows(3000, victims, 0.05) // draws the same flows as a
				want, got := a.play(flows), b.play(flows)
				x, y := everything(t, want), everything(t, got)
				if !slices.Equal(x, y) {
					for k := range min(len(x), len(y)) {
						if x[k] != y[k] {
							t.Fatalf("epoch %d, of %d and %d lines the first that differs:\n%s\n%s", b.number, len(x),
								len(y), x[k], y[k])
						}
					}
					t.Fatalf("epoch %d: %d and %d lines", b.number, len(x), len(y))
				}
				changes += len(lab.Rows(got, changeList))
				at := row(t, got, attentionList)
				states[at["network-state"]] = true
				if i >= 2 && at["configuration-known"] != "true" {
					t.Errorf("epoch %d: not settled", b.number)
				}
				if got.State == nil || len(got.State.Data) > sdk.MaxState {
					t.Fatalf("epoch %d: no state", b.number)
				}
				if i%3 != 1 {
					b.restart(got.State)
				}
			}
			if changes < 50 || len(states) != 2 {
				t.Errorf("%d changes, states %v: too dull a test", changes, states)
			}
		})
	}
}

// TestRestartWithout: a process without a saved state starts from the initial attention, and
// reports nothing as exact before the attention in force is certain.
func TestRestartWithout(t *testing.T) {
	t.Parallel()
	for _, account := range []bool{false, true} {
		f := newSmall(t, 42, `{}`)
		f.account = account
		steady(f, 7500)
		f.restart(nil)
		for i := range 5 {
			flows := f.flows(7500, 0.1, 0)
			r := f.play(flows)
			truth := make(map[string]int64)
			for k := range flows {
				truth[flows[k].Key.String()] = flows[k].Lost
			}
			for _, v := range lab.Rows(r, victimList) {
				if isExact(t, v, "quality") && v["lost-packets"] != fmt.Sprint(truth[v["flow"]]) {
					t.Fatalf("epoch %d, account %v: %v lost %d", f.number, account, v, truth[v["flow"]])
				}
			}
			if at := row(t, r, attentionList); at["configuration-known"] != "true" && i >= 2 ||
				at["configuration-known"] == "true" && i < 2 &&
					!account {
				t.Errorf("account %v, %d epochs after the start: %v", account, i, at)
			}
		}
	}
}

// TestLatePlans: the collector reports plans as not written. Results use the attention in force,
// and the plan is sent again.
func TestLatePlans(t *testing.T) {
	t.Parallel()
	f := newSmall(t, 43, `{}`)
	f.account = true
	steady(f, 1250)
	late := 0
	f.fails = func(p sdk.Plan) sdk.PlanStatus {
		if late++; late%3 != 0 {
			return sdk.PlanLate
		}
		return sdk.PlanApplied
	}
	said, active := false, false
	for i := range 14 {
		if i == 8 {
			f.fails = nil
		}
		flows := f.flows(10_000, 0.1, 0)
		r := f.play(flows)
		at := row(t, r, attentionList)
		if at["configuration-known"] != "true" {
			t.Errorf("epoch %d: %v", f.number, at)
		}
		if at["status"] == "COMPLETE" {
			exactLosses(t, f, lab.Rows(r, victimList), flows)
		}
		for _, e := range r.Events {
			said = said || strings.Contains(e.Message, "was not written (late)")
		}
		for _, x := range lab.Rows(r, alertList) {
			active = active || x["kind"] == "PLAN_FAILED" && x["active"] == "true"
		}
		if i == 13 && at["status"] != "COMPLETE" {
			t.Errorf("at the end: %v", at)
		}
	}
	if late < 3 || !said || !active {
		t.Errorf("%d plans, in the log %v, as an alert %v", late, said, active)
	}
}

// TestMixed: if entries changed during an epoch, entries of another process are in force, or the
// switches have different divisions, no result is exact, and the problem states the reason.
func TestMixed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*sdk.Epoch, *fabric)
		want   string
	}{
		"mixed":   {func(e *sdk.Epoch, _ *fabric) { e.States[1].Mixed = true }, "changed during the epoch"},
		"none":    {func(e *sdk.Epoch, _ *fabric) { e.States[1].Plan = 0 }, "no ChameleMon plan"},
		"unknown": {func(e *sdk.Epoch, _ *fabric) { e.States[1].Plan = 12345 }, "earlier process"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSmall(t, 44, `{}`)
			f.account = true
			steady(f, 1250)
			e := f.record(f.flows(1250, 0.1, 0))
			tc.change(e, f)
			r := f.analyze(e)
			for _, v := range lab.Rows(r, victimList) {
				if isExact(t, v, "quality") {
					t.Fatalf("called exact: %v", v)
				}
			}
			at, s := row(t, r, attentionList), row(t, r, summaryList, "node", Network)
			if at["configuration-known"] != "false" || !strings.Contains(at["problem"], tc.want) ||
				s["victims-quality"] != "ESTIMATE" {
				t.Errorf("attention %v, summary %v", at, s)
			}
			if x := row(t, r, alertList, "kind", "PLAN_FAILED", "location", "edge2"); x["active"] != "true" ||
				!said(r, tc.want) {
				t.Errorf("alert %v, events %v", x, r.Events)
			}
			flows := f.flows(1250, 0.1, 0)
			exactLosses(t, f, lab.Rows(f.play(flows), victimList), flows)
		})
	}
}

// TestDoubts: all arrived, but the collector has an accuracy warning: flips of a switch were apart
// by more than the guard, or the clocks of two collectors are.
func TestDoubts(t *testing.T) {
	for subject, w := range map[string]sdk.AccuracyWarning{
		"edge3": {Device: "edge3", Reason: "its bank was flipped 12 ms after the first one"},
		Network: {Reason: "the clock of collector c2 is 2s ahead of that of c1, more than the guard of 1ms"},
	} {
		t.Run(subject, func(t *testing.T) { testDoubt(t, subject, w) })
	}
}

func testDoubt(t *testing.T, subject string, w sdk.AccuracyWarning) {
	f := newSmall(t, 45, `{}`)
	steady(f, 1250)
	e := f.record(f.flows(1250, 0.1, 0))
	e.AccuracyWarnings = []sdk.AccuracyWarning{w}
	r := f.analyze(e)
	n := 0
	for _, v := range lab.Rows(r, victimList) {
		if n++; isExact(t, v, "quality") {
			t.Fatalf("called exact: %v", v)
		}
	}
	s, at := row(t, r, summaryList, "node", Network), row(t, r, attentionList)
	if n == 0 || s["status"] != "PARTIAL" || s["victims-quality"] != "ESTIMATE" ||
		!strings.Contains(s["problem"], w.Reason) || !strings.Contains(at["problem"], w.Reason) {
		t.Errorf("%d victims, summary %v, attention %v", n, s, at)
	}
	if x := row(t, r, alertList, "kind", "OUT_OF_STEP", "location", subject); x["active"] != "true" ||
		x["count"] != "1" || !said(r, w.Reason) {
		t.Errorf("alert %v", x)
	}
	r = f.play(f.flows(1250, 0.1, 0))
	if x := row(t, r, alertList, "kind", "OUT_OF_STEP", "location", subject); x["active"] != "false" ||
		x["count"] != "1" || x["since-epoch"] != strconv.FormatUint(f.number, 10) {
		t.Errorf("alert %v", x)
	}
	if s := row(t, r, summaryList, "node", Network); s["status"] != "COMPLETE" || s["victims-quality"] != "EXACT" {
		t.Errorf("after: %v", s)
	}
}

// TestStateRefused: a state of another version, or an invalid one, is refused, and the plugin
// starts without a state.
func TestStateRefused(t *testing.T) {
	f := newSmall(t, 46, `{}`)
	state := f.play(f.flows(500, 0.1, 0)).State
	if state == nil {
		t.Fatal("no state")
	}
	good := state.Data
	edit := func(old, new string) []byte {
		if !strings.Contains(string(good), old) {
			t.Fatalf("the state has no %s", old)
		}
		return []byte(strings.Replace(string(good), old, new, 1))
	}
	for name, s := range map[string]sdk.State{
		"version":         {Version: stateVersion + 1, Data: good},
		"empty":           {Version: stateVersion},
		"cut off":         {Version: stateVersion, Data: good[:len(good)-1]},
		"more":            {Version: stateVersion, Data: append(slices.Clone(good), 0)},
		"thresholds":      {Version: stateVersion, Data: edit(`"Tl":1`, `"Tl":9`)},
		"no threshold":    {Version: stateVersion, Data: edit(`"Th":{"edge1"`, `"Th":{"edgeX"`)},
		"parts":           {Version: stateVersion, Data: edit(`"HL":`, `"HL":-`)},
		"parts too large": {Version: stateVersion, Data: edit(`"HL":`, `"HL":9`)},
		"share":           {Version: stateVersion, Data: edit(`"Share":[0`, `"Share":[-1`)},
		"bank":            {Version: stateVersion, Data: edit(`"Bank":-1`, `"Bank":-2`)},
	} {
		if err := New().RestoreState(s); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	p := New()
	if err := p.RestoreState(*state); err != nil {
		t.Fatal(err)
	}
	// A state of another network: only its counts are used.
	n := network()
	n.Devices = n.Devices[1:]
	s, err := p.Configure(context.Background(), sdk.Config{}, n)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(s.Plan.Writes, func(w sdk.DeviceWrite) bool {
		return strings.HasSuffix(w.Entry.Table,
			"thresholds")
	}) {
		t.Error("thresholds are not written")
	}
}

// FuzzState: no state does harm; what is taken up can be saved again.
func FuzzState(f *testing.F) {
	small := []byte(`{"Edges":[{"Name":"a"}],"Layout":{"Bits":[8,16],"Counters":[4,2],"Up":[24,0],"Down":[12,0]},` +
		`"Room":[{"Up":24,"Down":12},{}],"Ledger":{"Last":5,"Plans":[{"ID":5,` +
		`"Bank":-1,"Attention":{"Tl":1,"Parts":[{"HL":2},{}],"Th":{"a":1}}}]},` +
		`"Kept":[{"Name":"a","Th":1,"Flows":[1,0]}]}`)
	body := append([]byte{0, 0, byte(len(small) >> 8), byte(len(small))}, small...)
	body = append(body, 1, 2, 3, 4, 0, 5, 0, 6, 9)
	body = append(body, make([]byte, 13)...)
	if err := New().RestoreState(sdk.State{Version: stateVersion, Data: body}); err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add(body[:len(body)/2])
	n := network()
	f.Fuzz(func(t *testing.T, data []byte) {
		p := New()
		if p.RestoreState(sdk.State{Version: stateVersion, Data: data}) != nil {
			return
		}
		if _, err := p.Configure(context.Background(), sdk.Config{}, n); err != nil {
			t.Fatal(err)
		}
		s, err := p.SaveState()
		if err != nil {
			t.Fatal(err)
		}
		if err := New().RestoreState(s); err != nil {
			t.Fatal(err)
		}
		e := &sdk.Epoch{Number: 7}
		if _, err := p.Analyze(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTransitions: each change of state gives one event, and the alert is active while the network
// is ill.
func TestTransitions(t *testing.T) {
	p := New()
	var events []string
	for i, state := range []State{Healthy, Healthy, Ill, Ill, Ill, Healthy, Healthy, Ill} {
		a := &analysis{epoch: &sdk.Epoch{Number: uint64(i)}, state: state}
		out := &sdk.Results{}
		p.recordTransition(a, out, nil)
		for _, e := range out.Events {
			events = append(events, fmt.Sprint(i, " ", e.Attributes["state"]))
		}
		if ill := len(a.problems) > 0; ill != (state == Ill) {
			t.Errorf("epoch %d: ill %v", i, ill)
		}
	}
	if want := []string{"2 ILL", "5 HEALTHY", "7 ILL"}; !slices.Equal(events, want) || p.transitions.Count != 3 ||
		p.transitions.From != 9 {
		t.Errorf("%v, %+v", events, p.transitions)
	}
}
