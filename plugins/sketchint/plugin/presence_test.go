// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"testing"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// TestSilentAgent: INT ends in front of a host whose agent is silent for two epochs, until the
// agent reports again, also if a plan fails on the switch or the plugin is configured again.
func TestSilentAgent(t *testing.T) {
	h := start(t, "")
	number := uint64(10)
	plans := uint64(0)
	analyze := func(change func(*sdk.Epoch)) (writes []string) {
		e := simEpoch(t, h, 0, nil)
		e.Number = number // within an interval
		if number++; number%5 == 4 {
			number++
		}
		if change != nil {
			change(e)
		}
		for _, plan := range h.Analyze(e).Plans {
			plans = plan.ID
			for _, w := range plan.Writes {
				writes = append(writes, w.Device+" "+text(w))
			}
		}
		return writes
	}
	silent := func(e *sdk.Epoch) {
		setData(e, "h2", nil)
		e.Missing = []sdk.Missing{{Name: "h2", Reason: "no session", Host: true}}
	}
	expect := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	const ends, goes = "leaf1 insert sink port=0004 remove", "leaf1 delete sink port=0004 remove"
	expect("one epoch", analyze(silent))
	expect("a report", analyze(nil))
	expect("one epoch, again", analyze(silent))
	late := func(e *sdk.Epoch) {
		silent(e)
		e.Late = []sdk.LateReport{{Epoch: e.Number - 1, HostReport: sdk.HostReport{Host: "h2", Role: wire.Role}}}
	}
	expect("a late report", analyze(late))
	expect("the first epoch", analyze(silent))
	expect("the second epoch", analyze(silent), ends)
	expect("a failure at another time", analyze(func(e *sdk.Epoch) {
		silent(e)
		e.Plans = []sdk.PlanOutcome{{Plan: plans - 1, Device: "leaf1", Status: sdk.PlanFailed}}
	}))
	expect("a failure", analyze(func(e *sdk.Epoch) {
		silent(e)
		e.Plans = []sdk.PlanOutcome{{Plan: plans, Device: "leaf1", Status: sdk.PlanFailed}}
	}), ends)
	expect("the same host", analyze(silent))
	if s, err := h.Configure("", simNetwork(), 0); err != nil {
		t.Fatal(err)
	} else if ports, _ := sinks(s, "leaf1"); ports != " 5 4" {
		t.Errorf("INT ends at ports%s after a configuration", ports)
	}
	expect("the host joins", analyze(func(e *sdk.Epoch) {
		setData(e, "h2", nil)
		e.Missing = []sdk.Missing{{Name: "h2", Reason: "joined", Host: true, Joined: true}}
	}), goes)
	expect("a failure of the deletion", analyze(func(e *sdk.Epoch) {
		e.Plans = []sdk.PlanOutcome{{Plan: plans, Device: "leaf1", Status: sdk.PlanFailed},
			{Plan: plans, Device: "leaf2", Status: sdk.PlanApplied}}
	}), goes)
	expect("the end", analyze(nil))
}
