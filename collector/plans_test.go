// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// planWrite is a write into a table of a device.
func planWrite(device, table string) sdk.DeviceWrite {
	return sdk.DeviceWrite{Device: device, Op: sdk.Insert, Entry: sdk.TableEntry{Table: table}}
}

func (r *rig) applied(name string) (out []string) {
	r.devices[name].do(func(d *fakeDevice) { out = slices.Clone(d.applied) })
	return out
}

func (r *rig) plan(plans ...sdk.Plan) {
	r.plugins["fake"].do(func(p *fakePlugin) { p.plans = plans })
}

// newest returns the newest epoch that the plugin has received.
func (r *rig) newest() *sdk.Epoch {
	var e *sdk.Epoch
	r.plugins["fake"].do(func(p *fakePlugin) { e = p.epochs[len(p.epochs)-1] })
	return e
}

func (r *rig) expectStates(want ...sdk.DeviceState) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.newest().States); diff != "" {
		r.t.Errorf("epoch %d: states (-want +got):\n%s", r.newest().Number, diff)
	}
}

func (r *rig) expectOutcomes(want ...sdk.PlanOutcome) {
	r.t.Helper()
	got := r.newest().Plans
	for i := range got {
		if want == nil || i >= len(want) || !strings.Contains(got[i].Reason, want[i].Reason) || want[i].Reason == "" &&
			got[i].Reason != "" {
			r.t.Errorf("outcomes %+v, want %+v", got, want)
			return
		}
		got[i].Reason = want[i].Reason
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("epoch %d: outcomes (-want +got):\n%s", r.newest().Number, diff)
	}
}

// As ChameleMon does, a plugin makes a plan in each epoch for the epoch after the next: the plan
// is written when Step returns, and is in force in its own epoch only.
func TestPreEpochPlanIsWrittenBeforeItsEpoch(t *testing.T) {
	r := newRig(t, devicesYAML(2)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2"})
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 3, PreEpoch: true,
		Writes: []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s2", "b"), planWrite("s1", "c")}})
	rep := r.step() // closes first+1
	expectRows(t, r.applied("s1"), "a", "c")
	expectRows(t, r.applied("s2"), "b")
	if rep.Stages.Plan <= 0 {
		t.Errorf("the plan took %v", rep.Stages.Plan)
	}
	r.step() // first+2, in the other bank
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2"})
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanApplied},
		sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s2", Status: sdk.PlanApplied})
	r.step() // first+3
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7}, sdk.DeviceState{Device: "s2", Plan: 7})
	r.expectOutcomes()
	r.step()
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2"})
	r.step()
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7}, sdk.DeviceState{Device: "s2", Plan: 7})
	e := r.newest()
	if bank := e.BankOf(first, 2); bank != 1 || e.BankOf(first+1, 2) != 0 ||
		e.BankOf(e.Number, 2) != int((e.Number-first+1)%2) {
		t.Errorf("the first epoch's bank is %d", bank)
	}
}

// The collector's state counts a plan that comes too late.
func TestLatePlanIsCounted(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 2, PreEpoch: true, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step() // closes first+1, opens first+2
	r.step()
	expectRows(t, r.applied("s1"))
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 2, Device: "s1", Status: sdk.PlanLate,
		Reason: "is already open"})
	expectRows(t, r.rows("", listPlugins, "state/plans-applied", "state/plans-late", "state/plans-failed"),
		"[name=fake] plans-applied=0 plans-late=1 plans-failed=0")
}

// WaitReady returns when the entries that plugins planned before the first epoch are applied, so
// that they are in force in the first epoch.
func TestReadyIsConfigured(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	r.c.intent.Add(t.Context(), "fake", sdk.Plan{ID: 7,
		Writes: []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s1", "b")}})
	if missing := r.c.WaitReady(t.Context()); missing != nil {
		t.Errorf("%v are not ready", missing)
	}
	expectRows(t, r.applied("s1"), "a", "b")
}
