// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/internal/testkit"
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

// newest is the epoch that the plugin was given last.
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
		if want == nil || i >= len(want) || !strings.Contains(got[i].Reason, want[i].Reason) || want[i].Reason == "" && got[i].Reason != "" {
			r.t.Errorf("outcomes %+v, want %+v", got, want)
			return
		}
		got[i].Reason = want[i].Reason
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("epoch %d: outcomes (-want +got):\n%s", r.newest().Number, diff)
	}
}

// A plan for the epoch after the next, as ChameleMon makes one each epoch: written when Step returns, in force two
// epochs later, and only there.
func TestPlanAheadIsWrittenBeforeItsEpoch(t *testing.T) {
	r := newRig(t, devicesYAML(2)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2"})
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 3, Ahead: true, Writes: []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s2", "b"), planWrite("s1", "c")}})
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
	if bank := e.BankOf(first, 2); bank != 1 || e.BankOf(first+1, 2) != 0 || e.BankOf(e.Number, 2) != int((e.Number-first+1)%2) {
		t.Errorf("the first epoch's bank is %d", bank)
	}
}

// A plan for a bank that an earlier epoch still has waits until that is read.
func TestPlanAheadWaitsForItsBank(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 4, Ahead: true, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step() // closes first+1: the bank is that of the open epoch
	if got := r.applied("s1"); got != nil {
		t.Errorf("%v was written to the bank in use", got)
	}
	r.step() // closes first+2
	expectRows(t, r.applied("s1"), "a")
}

func TestPlanThatComesLateIsNotWritten(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 2, Ahead: true, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step() // closes first+1, opens first+2
	r.step()
	if got := r.applied("s1"); got != nil {
		t.Errorf("%v was written", got)
	}
	r.expectStates(sdk.DeviceState{Device: "s1"})
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 2, Device: "s1", Status: sdk.PlanLate, Reason: "is open already"})
	// Too little time before the flip is late as well.
	r.plan(sdk.Plan{ID: 8, FromEpoch: first + 5, Ahead: true, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.end = r.end.Add(time.Second)
	r.clock.AdvanceTo(r.end)
	r.plugins["fake"].do(func(p *fakePlugin) { p.hold = make(chan struct{}) })
	stepped := make(chan struct{})
	go func() {
		defer close(stepped)
		if _, err := r.c.Step(t.Context(), r.end, r.wait); err != nil {
			t.Error(err)
		}
	}()
	testkit.Until(t, "the plugin has the epoch", func() bool {
		r.c.plans.mu.Lock()
		defer r.c.plans.mu.Unlock()
		return r.c.plans.sealed == first+3
	})
	r.clock.Advance(time.Second - 10*time.Millisecond)
	r.plugins["fake"].do(func(p *fakePlugin) { close(p.hold); p.hold = nil })
	<-stepped
	r.step()
	if got := r.applied("s1"); got != nil {
		t.Errorf("%v was written", got)
	}
	r.expectOutcomes(sdk.PlanOutcome{Plan: 8, FromEpoch: first + 5, Device: "s1", Status: sdk.PlanLate, Reason: "begins in"})
	if n := strings.Count(r.log.String(), "plan came too late"); n != 2 {
		t.Errorf("%d lines about late plans:\n%s", n, r.log)
	}
	expectRows(t, r.rows("", listPlugins, "state/plans-applied", "state/plans-late", "state/plans-failed"),
		"[name=fake] plans-applied=0 plans-late=2 plans-failed=0")
}

func TestPlanThatOneDeviceRefusesIsTakenBackOnAll(t *testing.T) {
	r := newRig(t, devicesYAML(3)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	r.devices["s2"].do(func(d *fakeDevice) { d.refuse = errors.New("the table is full") })
	all := []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s2", "b"), planWrite("s3", "c")}
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 3, Ahead: true, Writes: all})
	r.step()
	for _, name := range []string{"s1", "s2", "s3"} {
		if got := r.applied(name); len(got) > 0 {
			t.Errorf("%v is left on %s", got, name)
		}
	}
	r.step()
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanFailed, Reason: "because s2 did not"},
		sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s2", Status: sdk.PlanFailed, Reason: "the table is full"},
		sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s3", Status: sdk.PlanFailed, Reason: "because s2 did not"})
	r.step()
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2"}, sdk.DeviceState{Device: "s3"})

	// What is not known is said.
	r.devices["s2"].do(func(d *fakeDevice) { d.refuse = device.ErrHalfDone })
	number := r.newest().Number
	r.plan(sdk.Plan{ID: 8, FromEpoch: number + 3, Ahead: true, Writes: all})
	r.step()
	r.step()
	r.step() // number+3
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2", Mixed: true}, sdk.DeviceState{Device: "s3"})
}

// A device that is away is no reason to do without a plan; it gets the plan when it is back.
func TestPlanForADeviceThatIsAway(t *testing.T) {
	r := newRig(t, devicesYAML(2)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	r.devices["s2"].do(func(d *fakeDevice) { d.down = errors.New("its session is down") })
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 3, Ahead: true, Writes: []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s2", "b")}})
	r.step() // first+1
	expectRows(t, r.applied("s1"), "a")
	r.step() // first+2
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanApplied},
		sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s2", Status: sdk.PlanFailed, Reason: "is away"})
	r.devices["s2"].do(func(d *fakeDevice) { d.down = nil })
	r.c.plans.apply(t.Context(), r.devices["s2"], r.c.opened(), false) // as when its session tells
	expectRows(t, r.applied("s2"), "b")
	r.step() // first+3: s2 was changed in the midst of it
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7}, sdk.DeviceState{Device: "s2", Mixed: true})
	r.step()
	r.step() // first+5
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7}, sdk.DeviceState{Device: "s2", Plan: 7})
}

// What a plugin does not hear because it fails is told again.
func TestOutcomesAreToldUntilHeard(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 2, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step()
	r.plugins["fake"].do(func(p *fakePlugin) { p.err = errors.New("no") })
	want := sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanApplied}
	r.step() // first+2 closes, first+3 opens: the plan came too late for the flip before
	r.expectOutcomes(want)
	r.plugins["fake"].do(func(p *fakePlugin) { p.err = nil })
	r.step()
	r.expectOutcomes(want)
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7})
	r.step()
	r.expectOutcomes()
}

// What waits is bounded, whatever a plugin plans: for devices that are not there, that do not come back, and for
// epochs that are far away. The newest plans for a device are those that it gets.
func TestWaitingPlansAreBounded(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	large := func(id uint64, device string, ahead bool) sdk.Plan {
		w := planWrite(device, "t")
		w.Entry.Params = []sdk.ActionParam{{Name: "p", Value: make([]byte, maxWaiting/4)}}
		return sdk.Plan{ID: id, FromEpoch: first + 1_000_000, Ahead: ahead, Writes: []sdk.DeviceWrite{w}}
	}
	p := r.c.plans
	for id := range uint64(10) {
		p.add(t.Context(), "fake", large(id+1, "nobody", false))
		p.add(t.Context(), "fake", large(id+11, "s1", false))
		p.add(t.Context(), "fake", large(id+21, "s1", true))
	}
	p.mu.Lock()
	var kept []uint64
	for _, w := range p.waiting["s1"] {
		kept = append(kept, w.id)
	}
	waiting, early := len(p.waiting), len(p.early)
	p.mu.Unlock()
	if !slices.Equal(kept, []uint64{18, 19, 20}) || waiting != 1 || early != 3 {
		t.Errorf("plans %v wait for s1, for %d devices in all, %d for their banks", kept, waiting, early)
	}
	reasons := map[string]int{}
	for _, o := range p.outcomes("fake") {
		if o.Status != sdk.PlanFailed {
			t.Errorf("outcome %+v", o)
		}
		reasons[o.Reason]++
	}
	want := map[string]int{
		noDevice: 10, "given up, because more than 16 MiB of plans wait for the device": 7, "given up, because more than 16 MiB of plans wait for their epochs": 7,
	}
	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Error(diff)
	}
	if got := p.counted("fake").failed; got != 24 {
		t.Errorf("%d plans are counted as failed", got)
	}
}

// A plan for devices of another network is refused as a whole, with one line in the log however many they are.
func TestPlanForAnotherNetwork(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
		first := r.step().Number
		plan := sdk.Plan{ID: 7, FromEpoch: first + 3, Ahead: ahead, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}}
		for i := range 50_000 {
			plan.Writes = append(plan.Writes, planWrite(fmt.Sprint("other", i), "a"))
		}
		r.c.plans.add(t.Context(), "fake", plan)
		if got := r.c.plans.outcomes("fake"); len(got) != 1 || got[0].Status != sdk.PlanFailed || !strings.Contains(got[0].Reason, noDevice) {
			t.Errorf("ahead %v: %d outcomes, the first %+v", ahead, len(got), got[:min(1, len(got))])
		}
		if n := strings.Count(r.log.String(), "plan was not carried out"); n != 1 {
			t.Errorf("ahead %v: %d lines in the log", ahead, n)
		}
		r.step()
		r.step()
		if got := r.applied("s1"); got != nil {
			t.Errorf("ahead %v: %v was written", ahead, got)
		}
	}
}
